/* The library in clang's process: it is preloaded, and what LLVM would write to a channel and read from
 * it is answered here. LLVM opens BASE.in and BASE.out one after the other for each advisor that it
 * builds; the two are a session, with a binding of its own, so that threads (the linker's) know nothing
 * of each other. Whatever is no channel's goes on to libc.
 *
 * LLVM is handed ends of /dev/null that are open the wrong way round: calls that pass the library by
 * fail, and no answer is taken for one that is none. */
#define _GNU_SOURCE
#include "inside.h"
#include "traces.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_DESCRIPTORS (1 << 16)
#define PATIENCE_S 10

/* In place of libc's, under a name of our own, since libc's headers may define them. */
#define INSTEAD_OF(name) __asm__(name) __attribute__((visibility("default")))
int open_instead(const char *path, int flags, ...) INSTEAD_OF("open");
int open64_instead(const char *path, int flags, ...) INSTEAD_OF("open64");
ssize_t read_instead(int file, void *data, size_t size) INSTEAD_OF("read");
ssize_t write_instead(int file, const void *data, size_t size) INSTEAD_OF("write");
int close_instead(int file) INSTEAD_OF("close");

static int (*next_open)(const char *, int, ...);
static int (*next_open64)(const char *, int, ...);
static ssize_t (*next_read)(int, void *, size_t);
static ssize_t (*next_write)(int, const void *, size_t);
static int (*next_close)(int);

static void find_next(void) {
  next_open = (__typeof__(next_open))dlsym(RTLD_NEXT, "open");
  next_open64 = (__typeof__(next_open64))dlsym(RTLD_NEXT, "open64");
  next_read = (__typeof__(next_read))dlsym(RTLD_NEXT, "read");
  next_write = (__typeof__(next_write))dlsym(RTLD_NEXT, "write");
  next_close = (__typeof__(next_close))dlsym(RTLD_NEXT, "close");
}

/* Another library may call before this one has begun. */
#define NEXT(name) (next_##name ? next_##name : (find_next(), next_##name))

struct session {
  struct stream stream;
  const uint8_t *advice; /* what of it is not read yet */
  size_t advice_bytes;
  int ends[2]; /* descriptors of .in and .out; or -1 */
};

struct page *page;
static pid_t parent;
static struct session *_Atomic sessions[MOST_DESCRIPTORS];
static _Thread_local struct session *half_open[PROBLEM_COUNT];

struct page *map_page(int driver, int number) {
  static const uint32_t yes = 1;
  char path[64];
  struct stat about;
  struct page *found = MAP_FAILED;
  snprintf(path, sizeof path, DRIVERS_FILE, driver, number);
  int file = next_open(path, O_RDWR | O_CLOEXEC);
  bool is_page = file >= 0 && !fstat(file, &about) && about.st_size == sizeof *page;
  if (is_page)
    found = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (is_page && found == MAP_FAILED)
    (void)!pwrite(file, &yes, sizeof yes, offsetof(struct page, is_unmapped));
  if (file >= 0)
    next_close(file);
  return found != MAP_FAILED && found->version == INSIDE_VERSION ? found : NULL;
}

__attribute__((constructor)) static void begin(void) {
  Dl_info about;
  int driver, number;
  find_next();
  parent = getppid();
  if (dladdr((void *)&page, &about) &&
      sscanf(about.dli_fname, DRIVERS_FILE, &driver, &number) == 2)
    page = map_page(driver, number - 1);
  if (page)
    atomic_store(&page->is_loaded, 1);
}

/* Says why there is no advice and waits to be ended: LLVM must not go on. */
static void give_up(const struct message *message) {
  uint32_t expected = GOES_ON;
  if (atomic_compare_exchange_strong(&page->state, &expected, IS_GIVING_UP)) {
    page->message = *message;
    atomic_store(&page->state, HAS_GIVEN_UP);
    kill(page->driver, SIGCHLD); /* it looks again */
  }
  if (is_forked)
    _exit(1);
  for (int waited_s = 0; waited_s < PATIENCE_S; ++waited_s)
    sleep(1);
  raise(SIGTERM); /* LLVM removes what is unfinished */
  _exit(1);
}

/* What search found, for this process to go through; NULL where a policy answers. */
static struct answers *answers_of(enum problem problem) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static void *answers;
  struct message message = {"cannot read what search found"};
  size_t size = page->channels[problem].answers_bytes;
  char path[64];
  snprintf(path, sizeof path, DRIVERS_FILE, (int)page->driver, page->channels[problem].file);
  pthread_mutex_lock(&mutex);
  if (size && !answers) {
    int file = next_open(path, O_RDONLY | O_CLOEXEC);
    answers = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (file >= 0)
      next_close(file);
  }
  pthread_mutex_unlock(&mutex);
  if (size && answers == MAP_FAILED)
    give_up(&message);
  return size ? answers : NULL;
}

static const struct mlgo_policy *policy_of(enum problem problem) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static const struct mlgo_policy *policies[PROBLEM_COUNT];
  struct message message = {""};
  char path[64];
  snprintf(path, sizeof path, DRIVERS_FILE, (int)page->driver, page->channels[problem].file);
  pthread_mutex_lock(&mutex);
  if (!policies[problem])
    policies[problem] = load_library(path, path, &message);
  const struct mlgo_policy *policy = policies[problem];
  pthread_mutex_unlock(&mutex);
  if (!policy)
    give_up(&message);
  return policy;
}

/* Which end of which channel a path names: PROBLEM * 2, and 1 more for what LLVM writes; or -1. */
static int end_of(const char *path) {
  if (!page || strncmp(path, OPEN_FILE, strlen(OPEN_FILE)))
    return -1;
  for (int problem = 0; problem < PROBLEM_COUNT; ++problem) {
    const char *told = page->channels[problem].told;
    size_t length = strlen(told);
    if (!length || strncmp(path, told, length))
      continue;
    if (!strcmp(path + length, ".in"))
      return 2 * problem;
    if (!strcmp(path + length, ".out"))
      return 2 * problem + 1;
  }
  return -1;
}

/* A job that clang forked ends with it, as clang does with the driver. */
static void die_with_parent(void) {
  if (is_forked)
    return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    raise(SIGTERM);
}

static int open_end(int end) {
  enum problem problem = (enum problem)(end / 2);
  bool is_written = end % 2;
  struct session *session = half_open[problem];
  int file = NEXT(open)("/dev/null", (is_written ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
  if (file < 0 || file >= MOST_DESCRIPTORS) {
    if (file >= 0)
      NEXT(close)(file);
    errno = EMFILE;
    return -1;
  }
  bool is_second = session && session->ends[is_written] < 0;
  if (!is_second) {
    die_with_parent();
    session = calloc(1, sizeof *session);
    if (!session)
      abort();
    session->stream.problem = problem;
    session->stream.answers = answers_of(problem);
    session->stream.policy = session->stream.answers ? &SEARCHED : policy_of(problem);
    session->ends[!is_written] = -1;
  }
  session->ends[is_written] = file;
  half_open[problem] = is_second ? NULL : session;
  atomic_store(&sessions[file], session);
  atomic_store(&page->is_open, 1);
  return file;
}

static struct session *session_of(int file) {
  return page && file >= 0 && file < MOST_DESCRIPTORS
             ? atomic_load_explicit(&sessions[file], memory_order_acquire)
             : NULL;
}

static mode_t mode_of(int flags, va_list more) {
  bool has_mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;
  return has_mode ? va_arg(more, mode_t) : 0;
}

static int open_any(int (*next)(const char *, int, ...), const char *path, int flags,
                    mode_t mode) {
  int end = end_of(path);
  if (end >= 0)
    return open_end(end);
  look_at_opening(&path, &flags);
  int file = next(path, flags, mode);
  look_at_file(file, path, flags);
  return file;
}

int open_instead(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_any(NEXT(open), path, flags, mode);
}

int open64_instead(const char *path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  mode_t mode = mode_of(flags, more);
  va_end(more);
  return open_any(NEXT(open64), path, flags, mode);
}

ssize_t read_instead(int file, void *data, size_t size) {
  struct session *session = session_of(file);
  if (!session)
    return NEXT(read)(file, data, size);
  if (!session->advice_bytes) {
    errno = EIO; /* nothing was asked; an end of the file would be read for ever */
    return -1;
  }
  size_t length = size < session->advice_bytes ? size : session->advice_bytes;
  memcpy(data, session->advice, length);
  session->advice += length;
  session->advice_bytes -= length;
  return (ssize_t)length;
}

/* Answers what LLVM asks; what it asks next is asked with the answer read. */
static void take(struct session *session, const void *data, size_t size) {
  struct message message = {""};
  struct word word;
  bool is_good = offer(&session->stream, data, size, &message);
  do {
    is_good = is_good && next_word(&session->stream, &word, &message);
    if (is_good && word.kind == OBSERVATION) {
      session->advice = word.advice;
      session->advice_bytes = word.size;
    } else if (is_good && word.kind == HEADER)
      session->advice_bytes = 0;
  } while (is_good && word.kind != NO_WORD);
  if (session->stream.answers)
    atomic_store(&page->is_right, session->stream.answers->is_right);
  if (!is_good)
    give_up(&message);
}

ssize_t write_instead(int file, const void *data, size_t size) {
  struct session *session = session_of(file);
  if (session) {
    atomic_store_explicit(&page->is_asked, 1, memory_order_relaxed);
    take(session, data, size);
    return (ssize_t)size;
  }
  if (page && page->is_trial && memmem(data, size, VERSION_WORDS, strlen(VERSION_WORDS))) {
    atomic_store(&page->has_llvm, can_make_local());
    atomic_store(&page->is_spoken, 1);
  }
  return NEXT(write)(file, data, size);
}

int close_instead(int file) {
  struct session *session = session_of(file);
  if (session) {
    atomic_store(&sessions[file], NULL);
    session->ends[session->ends[1] == file] = -1;
    if (half_open[session->stream.problem] == session)
      half_open[session->stream.problem] = NULL;
    if (session->ends[0] < 0 && session->ends[1] < 0) {
      end_stream(&session->stream);
      free(session);
    }
  }
  look_at_closing(file);
  return NEXT(close)(file);
}
