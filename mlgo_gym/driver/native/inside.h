/* What the driver and the library in clang's process (inside.c) have between them: a page of memory that
 * both have mapped. The library is preloaded under the name DRIVERS_FILE, by the driver's pid and a
 * descriptor; the page has the number in front. So it does not matter what clang's processes close. */
#ifndef MLGO_INSIDE_H
#define MLGO_INSIDE_H

#include "driver.h"

#include <stdatomic.h>

#define INSIDE_VERSION 1
#define DRIVERS_FILE "/proc/%d/fd/%d"
#define TOLD_BYTES 256

/* A message is there in the last of these. */
enum { GOES_ON, IS_GIVING_UP, HAS_GIVEN_UP };

struct page {
  uint32_t version;
  pid_t driver; /* is woken where there is a message */
  struct {
    char told[TOLD_BYTES]; /* what LLVM calls the channel; or "" */
    int file;       /* the driver's, of the policy */
  } channels[PROBLEM_COUNT];
  uint32_t is_trial;          /* clang is asked for its version */
  _Atomic uint32_t is_spoken; /* and has said it through the library */
  _Atomic uint32_t is_open;   /* LLVM has opened a channel */
  _Atomic uint32_t is_asked;  /* and written to it */
  _Atomic uint32_t state;
  struct message message;
};

#endif
