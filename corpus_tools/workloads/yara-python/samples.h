// Data to scan, from a seeded generator.
#ifndef SAMPLES_H
#define SAMPLES_H

#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_BYTES = 1 << 16, SAMPLE_KINDS = 5 };

// Fills a buffer: by kind with prose, records, noise, a PE executable, or an ELF executable.
void make_sample(uint8_t *buffer, int kind, uint32_t seed);

#endif
