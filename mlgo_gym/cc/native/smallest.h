/* The smallest of several objects, whichever way they come about (trials.c). */
#ifndef MLGO_SMALLEST_H
#define MLGO_SMALLEST_H

#include <sys/stat.h>

#include "driver.h"

/* Compiles plainly, then by each of so many models; the result is an exit status. */
struct attempts {
  size_t count;
  const char *const *names;
  const struct stat *before;  /* of the object's name, before anything compiled */
  int (*compile)(void *data); /* the result is an exit status */
  /* Whether models can be compared with what clang has made; or why not. */
  bool (*can_go_on)(void *data, struct message *message);
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
/* Removes what was put or written there since, if it is a file: no device, pipe or link. */
void remove_written(const char *path, const struct stat *before);
/* Says why clang's own object stays, which the user may want an error; the result is a status. */
int stay_plain(const struct settings *settings, const struct plan *plan, const struct stat *before,
               const struct message *message);

#endif
