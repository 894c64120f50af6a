// What the drivers have in common: numbers of a seed, and a hash of what comes.
#ifndef COMMON_H
#define COMMON_H

#include <ares.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint32_t state = SEED, hash = 2166136261u;

static uint32_t below(uint32_t limit) {
  state = state * 1664525 + 1013904223;
  return (state >> 16) % limit;
}

static void check(int status, const char *what) {
  if (status == ARES_SUCCESS)
    return;
  fprintf(stderr, "%s: %s\n", what, ares_strerror(status));
  exit(1);
}

static void add(const void *data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    hash = (hash ^ ((const uint8_t *)data)[i]) * 16777619u;
}

#endif
