/* The smallest of several objects, whichever way they come about (trials.c). */
#ifndef MLGO_SMALLEST_H
#define MLGO_SMALLEST_H

#include <sys/stat.h>

#include "driver.h"

/* Compiles plainly, then by each of so many models; the result is an exit status. */
struct attempts {
  size_t count;
  const char *const *names;
  int (*compile)(void *data); /* the result is an exit status */
  /* A file in memory with a model's object, or -1; `is_overwritten` where clang's own is. */
  int (*object_of)(void *data, size_t index, bool *is_overwritten);
  void *data;
};
int compile_smallest(const struct settings *settings, const struct plan *plan,
                     const struct attempts *attempts);
/* Copies all of a file; false where that cannot be done. */
bool copy_to(int target, const char *path);
/* Looks at what stands under a name, if anything does. */
struct stat look_before(const char *path);
/* Whether something was put or written there since. */
bool is_written(const char *path, const struct stat *before);

#endif
