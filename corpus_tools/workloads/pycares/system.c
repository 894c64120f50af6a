// What c-ares asks of the system: a clock that is set by hand, numbers in place of random ones, and
// a few files, in memory.
#include "system.h"
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>

static const char *const files[][2] = {
    {"/etc/resolv.conf",
     "# servers\nnameserver 10.0.0.1\nnameserver 10.0.0.2\nnameserver fd00::53\n"
     "search first.test second.test\noptions ndots:2 timeout:1 attempts:3\n"
     "sortlist 192.168.0.0/255.255.0.0 10.0.0.0\n"},
    {"/etc/nsswitch.conf", "passwd: files\nhosts: files dns # names\n"},
    {"/etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost\n\n# machines\n"
                   "192.168.7.1 printer.test printer\n192.168.7.2\tstore.test  store nas\n"
                   "2001:db8::7 store.test\n192.168.7.3 broken_line_ %\nnot-an-address x\n"}};

static int64_t milliseconds = 1000000;

void system_wait(int64_t time) { milliseconds += time; }

// A hash table takes its seed from addresses and the time between the memory for itself and for its
// buckets, and hashes nothing before it has both: that is when the seed is replaced.
static struct table {
  void *functions[4];
  unsigned seed, size;
  size_t counts[2];
  void *buckets;
} *latest;
static bool seeded;

void *system_allocate(size_t size) {
  void *block = malloc(size);
  if (seeded && latest && size == latest->size * sizeof(void *))
    latest->seed = 42;
  latest = size == sizeof *latest ? block : NULL;
  seeded = false;
  return block;
}

time_t time(time_t *result) {
  seeded = latest != NULL;
  time_t now = milliseconds / 1000;
  return result ? (*result = now) : now;
}

int clock_gettime(clockid_t clock, struct timespec *result) {
  (void)clock;
  *result = (struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000};
  return 0;
}

ssize_t getrandom(void *buffer, size_t size, unsigned flags) {
  static uint32_t state = 3;
  (void)flags;
  for (size_t i = 0; i < size; ++i) {
    state = state * 1664525 + 1013904223;
    ((uint8_t *)buffer)[i] = state >> 16;
  }
  return (ssize_t)size;
}

FILE *fopen(const char *name, const char *mode) {
  for (size_t i = 0; i < sizeof files / sizeof *files; ++i)
    if (strcmp(name, files[i][0]) == 0)
      return fmemopen((void *)files[i][1], strlen(files[i][1]), mode);
  errno = ENOENT;
  return NULL;
}

int stat(const char *name, struct stat *result) {
  (void)name, (void)result;
  errno = ENOENT;
  return -1;
}
