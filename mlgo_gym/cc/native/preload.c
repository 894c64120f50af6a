/* The driver's end of the library in clang's process. */
#define _GNU_SOURCE
#include "inside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIBRARY "inside.so"
#define VARIABLE "LD_PRELOAD"

static void close_file(int *file) {
  if (*file >= 0)
    close(*file);
  *file = -1;
}

/* The same under another number, which is the least that is free from there on. */
static int moved(int file, int number) {
  int there = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, number);
  close_file(&file);
  return there;
}

bool open_preload(struct preload *preload) {
  size_t size;
  *preload = (struct preload){.library = -1};
  preload->page_file = moved(memory_file(), FIRST_DESCRIPTOR);
  if (preload->page_file < 0 || ftruncate(preload->page_file, sizeof *preload->page))
    return false;
  preload->page = mmap(NULL, sizeof *preload->page, PROT_READ | PROT_WRITE, MAP_SHARED,
                       preload->page_file, 0);
  if (preload->page == MAP_FAILED)
    return false;
  preload->page->version = INSIDE_VERSION;
  preload->page->driver = getpid();
  preload->page->is_trial = true;
  preload->page->shared.file = -1;
  preload->library = moved(open_kept(LIBRARY, &size), preload->page_file + 1);
  if (preload->library < 0)
    forget_program(); /* it is made anew at the next call, and this with it */
  return preload->library == preload->page_file + 1;
}

void close_preload(struct preload *preload) {
  if (preload->page && preload->page != MAP_FAILED)
    munmap(preload->page, sizeof *preload->page);
  close_file(&preload->page_file);
  close_file(&preload->library);
  preload->page = NULL;
}

bool was_spoken(const struct preload *preload) { return atomic_load(&preload->page->is_spoken); }

bool has_llvm(const struct preload *preload) { return atomic_load(&preload->page->has_llvm); }

bool was_mapped(const struct preload *preload) { return !atomic_load(&preload->page->is_unmapped); }

/* Behind what the user has there: a sanitizer must come first. */
void put_preload(const struct preload *preload) {
  const char *others = getenv(VARIABLE);
  char *all;
  bool has_others = others && *others;
  if (asprintf(&all, "%s%s" DRIVERS_FILE, has_others ? others : "", has_others ? ":" : "",
               (int)preload->page->driver, preload->library) < 0 ||
      setenv(VARIABLE, all, 1))
    _exit(1);
}

bool open_inside(struct job *job) {
  struct preload *preload = &job->preload;
  job->is_inside = open_preload(preload);
  for (size_t index = 0; index < job->channel_count && job->is_inside; ++index) {
    struct channel *channel = &job->channels[index];
    enum problem problem = channel->stream.problem;
    name_channel(channel, NULL, preload->page_file);
    snprintf(preload->page->channels[problem].told, TOLD_BYTES, "%.*s", TOLD_BYTES - 1,
             channel->told);
    preload->page->channels[problem].file = channel->policy_file;
    preload->page->channels[problem].answers_bytes = channel->answers_bytes;
  }
  if (job->is_inside) {
    preload->page->is_trial = false;
    preload->page->shared = *job->shared;
  } else
    close_preload(preload);
  return job->is_inside;
}

void close_inside(struct job *job) {
  close_preload(&job->preload);
  job->is_inside = false;
}
