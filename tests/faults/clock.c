/* The time of day as MLGO_DAY has it: "2040", or "jumps", an hour ahead and back five times a
 * second. What measures durations, and the times of files, stay true. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

#define IN_2040 2209075200

typedef int get_time(clockid_t clock, struct timespec *found);

static get_time *true_time(void) {
  static get_time *found;
  if (!found)
    found = (get_time *)dlsym(RTLD_NEXT, "clock_gettime");
  return found;
}

int clock_gettime(clockid_t clock, struct timespec *found) {
  static time_t start;
  const char *day = getenv("MLGO_DAY");
  int failed = true_time()(clock, found);
  if (failed || !day || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE))
    return failed;
  if (!start)
    start = found->tv_sec;
  if (!strcmp(day, "2040"))
    found->tv_sec += IN_2040 - start;
  else
    found->tv_sec += found->tv_nsec / 200000000 % 2 ? 3600 : -3600;
  return 0;
}

int gettimeofday(struct timeval *found, void *zone) {
  struct timespec now;
  (void)zone;
  clock_gettime(CLOCK_REALTIME, &now);
  *found = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t *found) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (found)
    *found = now.tv_sec;
  return now.tv_sec;
}
