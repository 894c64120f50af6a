/* What the driver and the library in clang's process (inside.c, forked.c, local.c) have between them: a
 * page of memory that both have mapped. The library is preloaded under the name DRIVERS_FILE, by the driver's pid
 * and a descriptor; the page has the number in front. So it does not matter what clang's processes close.
 *
 * A process that is forked for a model has a page of its own, and leaves clang's. */
#ifndef MLGO_INSIDE_H
#define MLGO_INSIDE_H

#include "driver.h"

#include <stdatomic.h>

#define INSIDE_VERSION 6
#define DRIVERS_FILE "/proc/%d/fd/%d"
#define TOLD_BYTES 256
#define PATH_BYTES 4096
#define OPTION_BYTES 4096

/* A message is there in the last of these. */
enum { GOES_ON, IS_GIVING_UP, HAS_GIVEN_UP };

struct page {
  uint32_t version;
  pid_t driver; /* is woken where there is a message */
  struct {
    char told[TOLD_BYTES]; /* what LLVM calls the channel; or "" */
    int file;              /* the driver's, of the policy */
    size_t answers_bytes;  /* or of answers of this length, where it is not 0 */
  } channels[PROBLEM_COUNT];
  uint32_t is_trial;            /* clang is asked for its version */
  _Atomic uint32_t is_spoken;   /* and has said it through the library, */
  _Atomic uint32_t has_llvm;    /* which has found LLVM's functions there */
  _Atomic uint32_t is_unmapped; /* the library could open this and not map it */
  _Atomic uint32_t is_open;     /* LLVM has opened a channel */
  _Atomic uint32_t is_asked;    /* and written to it */
  _Atomic uint32_t is_right;    /* and has taken all answers that search had found */
  _Atomic uint32_t state;
  struct message message;

  /* Of what a project file says of the object. */
  struct shared shared; /* the file is the driver's */

  /* Of clang that is to fork. */
  char object[PATH_BYTES]; /* what it is told to make; also of what is forked */
  size_t fork_count;
  struct {
    int page; /* the driver's descriptor; or -1 where there is none to be forked */
    _Atomic pid_t pid;
  } forks[MOST_MODELS];
  _Atomic uint32_t is_loaded; /* the library, if anything */
  _Atomic uint32_t has_forked;

  /* Of what is forked. */
  char options[OPTION_BYTES]; /* of LLVM's, each with a NUL behind it */
  int object_file;            /* the driver's, for the object */
  _Atomic uint32_t is_whole;  /* so is the object */
};

/* inside.c, for forked.c */
extern struct page *page;
struct page *map_page(int driver, int number);

/* local.c, for inside.c */
bool can_make_local(void);

/* forked.c, for inside.c */
extern bool is_forked;
/* What clang is about to open; what a forked process would write is nowhere. */
void look_at_opening(const char **path, int *flags);
void look_at_file(int file, const char *path, int flags);
void look_at_closing(int file);

#endif
