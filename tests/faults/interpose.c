// Fails one system call of a process that has this preloaded: the n-th of a kind, then no more.
//
// `fault_arm` starts the counting, in this process and in what it forks. Programs that it starts
// are armed by the environment, FAULT="KIND:N". What is counted goes through the C library; what the
// library calls by itself (`opendir`, `fopen`) is counted where its own name is below.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NOTHING, FULL, BROKEN, NO_MEMORY, NO_DESCRIPTORS, KINDS };

static const int errors[KINDS] = {0, ENOSPC, EIO, ENOMEM, EMFILE};
static const char *const names[KINDS] = {"", "ENOSPC", "EIO", "ENOMEM", "EMFILE"};
static int kind;
static long left;
static int fired;
static int seen = -1; // where an armed program says that a call has failed

void fault_arm(const char *name, long number) {
  for (kind = KINDS - 1; kind > NOTHING && strcmp(name, names[kind]) != 0; kind--) {
  }
  left = number;
  fired = 0;
}

int fault_fired(void) { return fired; }

__attribute__((constructor)) static void from_environment(void) {
  const char *text = getenv("FAULT");
  char name[16];
  long number;
  if (text == NULL || sscanf(text, "%15[A-Z]:%ld", name, &number) != 2)
    return;
  const char *path = getenv("FAULT_SEEN");
  int opened = (int)syscall(SYS_open, path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  seen = (int)syscall(SYS_fcntl, opened, F_DUPFD_CLOEXEC, 900); // out of the way of others
  syscall(SYS_close, opened);
  fault_arm(name, number);
}

// Whether this call, of these kinds, is the one that fails.
static int fails(int of, int or_of) {
  if (kind == NOTHING || (kind != of && kind != or_of))
    return 0;
  // Where a new thread has no memory for its first call, Python's Thread.start waits for ever.
  if (kind == NO_MEMORY && syscall(SYS_gettid) != syscall(SYS_getpid))
    return 0;
  if (__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST) != 0)
    return 0;
  fired = 1;
  syscall(SYS_write, seen, ".", 1);
  errno = errors[kind];
  return 1;
}

static int is_file(int descriptor) {
  struct stat found;
  int before = errno;
  int is = fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode);
  errno = before;
  return is;
}

// A shell's redirection to /dev/null asks for a new file, too, which no full disk refuses.
static int is_device(int folder, const char *path) {
  struct stat found;
  int before = errno;
  int is = fstatat(folder, path, &found, 0) == 0 && S_ISCHR(found.st_mode);
  errno = before;
  return is;
}

// Where a script is started, the system has read its first page, for the line with the interpreter:
// if the disk does not give it, the start itself fails. What a shell then reads of it is in memory.
static int is_start_of_script(int descriptor) {
  char first[2];
  int before = errno;
  int is = lseek(descriptor, 0, SEEK_CUR) == 0 && pread(descriptor, first, 2, 0) == 2 &&
           first[0] == '#' && first[1] == '!';
  errno = before;
  return is;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define FORWARD(result, failed, name, parameters, arguments, condition)                           \
  result name parameters {                                                                        \
    static __typeof__(&name) real;                                                                \
    if (real == NULL)                                                                             \
      real = REAL(name);                                                                          \
    return (condition) ? (failed) : real arguments;                                               \
  }

#define OPEN(name, folder, parameters, arguments)                                                 \
  int name parameters {                                                                           \
    static __typeof__(&name) real;                                                                \
    va_list rest;                                                                                 \
    va_start(rest, flags);                                                                        \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                       \
    va_end(rest);                                                                                 \
    if (real == NULL)                                                                             \
      real = REAL(name);                                                                          \
    int is_new = (flags & O_CREAT && !is_device(folder, path)) ||                                 \
                 (flags & O_TMPFILE) == O_TMPFILE;                                                \
    return fails(NO_DESCRIPTORS, is_new ? FULL : NOTHING) ? -1 : real arguments;                  \
  }

OPEN(open, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))
OPEN(openat64, folder, (int folder, const char *path, int flags, ...), (folder, path, flags, mode))

FORWARD(DIR *, NULL, opendir, (const char *path), (path), fails(NO_DESCRIPTORS, NO_MEMORY))
FORWARD(DIR *, NULL, fdopendir, (int folder), (folder), fails(NO_MEMORY, NOTHING))
FORWARD(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode),
        fails(NO_DESCRIPTORS, NO_MEMORY))
FORWARD(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode),
        fails(NO_DESCRIPTORS, NO_MEMORY))
FORWARD(int, -1, pipe, (int ends[2]), (ends), fails(NO_DESCRIPTORS, NOTHING))
FORWARD(int, -1, pipe2, (int ends[2], int flags), (ends, flags), fails(NO_DESCRIPTORS, NOTHING))
FORWARD(int, -1, socket, (int family, int type, int protocol), (family, type, protocol),
        fails(NO_DESCRIPTORS, NOTHING))
FORWARD(int, -1, socketpair, (int family, int type, int protocol, int ends[2]),
        (family, type, protocol, ends), fails(NO_DESCRIPTORS, NOTHING))
FORWARD(int, -1, dup, (int descriptor), (descriptor), fails(NO_DESCRIPTORS, NOTHING))
FORWARD(int, -1, memfd_create, (const char *name, unsigned flags), (name, flags),
        fails(NO_DESCRIPTORS, NO_MEMORY))
FORWARD(ssize_t, -1, read, (int file, void *data, size_t size), (file, data, size),
        is_file(file) && !is_start_of_script(file) && fails(BROKEN, NOTHING))
FORWARD(ssize_t, -1, write, (int file, const void *data, size_t size), (file, data, size),
        is_file(file) && fails(BROKEN, FULL))
FORWARD(ssize_t, -1, pwrite64, (int file, const void *data, size_t size, off64_t at),
        (file, data, size, at), is_file(file) && fails(BROKEN, FULL))
FORWARD(ssize_t, -1, writev, (int file, const struct iovec *data, int count), (file, data, count),
        is_file(file) && fails(BROKEN, FULL))
FORWARD(int, -1, fsync, (int file), (file), fails(BROKEN, FULL))
FORWARD(int, -1, fdatasync, (int file), (file), fails(BROKEN, FULL))
FORWARD(int, -1, ftruncate64, (int file, off64_t size), (file, size), fails(BROKEN, FULL))
FORWARD(int, -1, mkdir, (const char *path, mode_t mode), (path, mode), fails(BROKEN, FULL))
FORWARD(int, -1, mkfifo, (const char *path, mode_t mode), (path, mode), fails(BROKEN, FULL))
FORWARD(int, -1, mkfifoat, (int folder, const char *path, mode_t mode), (folder, path, mode),
        fails(BROKEN, FULL))
FORWARD(int, -1, rename, (const char *from, const char *to), (from, to), fails(BROKEN, FULL))
FORWARD(int, -1, link, (const char *from, const char *to), (from, to), fails(BROKEN, FULL))
FORWARD(int, -1, linkat, (int at, const char *from, int in, const char *to, int flags),
        (at, from, in, to, flags), fails(BROKEN, FULL))
FORWARD(int, -1, symlink, (const char *from, const char *to), (from, to), fails(BROKEN, FULL))
FORWARD(void *, MAP_FAILED, mmap, (void *at, size_t size, int access, int flags, int file, off_t to),
        (at, size, access, flags, file, to), fails(NO_MEMORY, NOTHING))
FORWARD(void *, MAP_FAILED, mmap64,
        (void *at, size_t size, int access, int flags, int file, off64_t to),
        (at, size, access, flags, file, to), fails(NO_MEMORY, NOTHING))
FORWARD(pid_t, -1, fork, (void), (), fails(NO_MEMORY, NOTHING))
