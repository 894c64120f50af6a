// A clock that is set by hand, and memory whose addresses do not matter.
#ifndef SYSTEM_H
#define SYSTEM_H

#include <stddef.h>
#include <stdint.h>

// Lets some milliseconds pass.
void system_wait(int64_t time);
// As malloc, for c-ares alone.
void *system_allocate(size_t size);

#endif
