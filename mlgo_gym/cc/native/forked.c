/* The library's processes that clang's forks, one for each model whose object is compared. Clang
 * calls libLLVM's `registerModuleAnalyses` once for each object, when the sources are read and
 * before it builds LLVM's pipeline; the function is found here first. A forked process asks for
 * advice and goes on as clang, but for what it leaves: the object is in the driver's file in
 * memory, and all else that clang has open for writing, or opens, is /dev/null. It ends where clang
 * would give the object its name. Clang's own process goes on untouched.
 *
 * Where clang has LLVM in itself, nothing is found here, and nothing is forked. */
#define _GNU_SOURCE
#include "inside.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define REGISTER                                                                                   \
  "_ZN4llvm11PassBuilder22registerModuleAnalysesERNS_15AnalysisManagerINS_6ModuleEJEEE"
#define UNIQUE "-01234567"
#define PARTIAL ".tmp"

#define INSTEAD_OF(name) __asm__(name) __attribute__((visibility("default")))
void register_instead(void *builder, void *manager) INSTEAD_OF(REGISTER);
int rename_instead(const char *from, const char *to) INSTEAD_OF("rename");
int remove_instead(const char *path) INSTEAD_OF("remove");
int unlink_instead(const char *path) INSTEAD_OF("unlink");
int link_instead(const char *from, const char *to) INSTEAD_OF("link");
int symlink_instead(const char *to, const char *path) INSTEAD_OF("symlink");
_Noreturn void longjmp_instead(jmp_buf place, int value) INSTEAD_OF("longjmp");
_Noreturn void longjmp_chk_instead(jmp_buf place, int value) INSTEAD_OF("__longjmp_chk");

/* Finds what stands behind this library under a name. */
#define FIND(next, name) (*(void **)&(next) = dlsym(RTLD_NEXT, name))

bool is_forked;
static int object_file = -1;

static bool is_same_folder(const char *one, size_t one_length, const char *other,
                           size_t other_length) {
  char path[PATH_BYTES];
  struct stat first, second;
  snprintf(path, sizeof path, "%.*s.", (int)one_length, one);
  bool is_there = !stat(path, &first);
  snprintf(path, sizeof path, "%.*s.", (int)other_length, other);
  return is_there && !stat(path, &second) && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

static const char *name_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* Whether the path is FOLDER/STEM-01234567.EXTENSION.tmp of the object FOLDER/STEM.EXTENSION: a
 * device's code, or assembly, is in files of other names. */
static bool is_objects(const char *path) {
  const char *name = name_of(path), *object = name_of(page->object);
  size_t length = strlen(object), whole = length + strlen(UNIQUE PARTIAL);
  if (strlen(name) != whole || strcmp(name + whole - strlen(PARTIAL), PARTIAL))
    return false;
  const char *dot = strrchr(object, '.');
  size_t stem = dot ? (size_t)(dot - object) : length;
  return !strncmp(name, object, stem) && name[stem] == UNIQUE[0] &&
         !strncmp(name + stem + strlen(UNIQUE), object + stem, length - stem) &&
         is_same_folder(path, (size_t)(name - path), page->object, (size_t)(object - page->object));
}

void look_at_opening(const char **path, int *flags) {
  if (!is_forked || (*flags & O_ACCMODE) == O_RDONLY)
    return;
  *path = "/dev/null";
  *flags &= ~(O_CREAT | O_EXCL | O_TRUNC);
}

void look_at_file(int file, const char *path, int flags) {
  if (page && page->fork_count && file >= 0 && flags & O_EXCL && is_objects(path))
    object_file = file;
}

void look_at_closing(int file) {
  if (file == object_file)
    object_file = -1;
}

/* A thread of this process would be missing in another. */
static bool is_alone(void) {
  struct stat about;
  return !stat("/proc/self/task", &about) && about.st_nlink == 3;
}

static bool may_fork(void) {
  uint32_t expected = 0;
  return page && page->fork_count && object_file >= 0 && is_alone() &&
         atomic_compare_exchange_strong(&page->has_forked, &expected, 1);
}

static void end_badly(void) { _exit(1); }

/* Clang has ended, which is as it should be, or the driver, whose child this is from then on. */
static void lose_parent(int number) {
  (void)number;
  if (getppid() != page->driver)
    _exit(1);
}

/* Nothing that clang does about signals is done twice. */
static void reset_signals(void) {
  struct sigaction action;
  for (int number = 1; number < SIGRTMIN; ++number)
    if (!sigaction(number, NULL, &action) && action.sa_handler != SIG_IGN)
      signal(number, SIG_DFL);
  setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
  action = (struct sigaction){.sa_handler = lose_parent, .sa_flags = SA_RESTART};
  sigaction(SIGUSR2, &action, NULL);
}

static void give_options(void) {
  void (*parse)(int, const char *const *, const char *);
  const char *words[MOST_OPTIONS + 1] = {"clang"};
  int count = 1;
  for (const char *text = page->options; *text && count <= MOST_OPTIONS; text += strlen(text) + 1)
    words[count++] = text;
  *(void **)&parse = dlsym(RTLD_DEFAULT, "LLVMParseCommandLineOptions");
  if (!parse)
    _exit(1);
  parse(count, words, "");
}

/* All that clang has open for writing: what its streams still hold, or write on, is nowhere. */
static bool leave_files(int object, int nowhere) {
  DIR *open_files = opendir("/proc/self/fd");
  bool is_good = open_files != NULL;
  for (struct dirent *entry; is_good && (entry = readdir(open_files));) {
    int file = atoi(entry->d_name), flags = fcntl(file, F_GETFL);
    bool is_number = entry->d_name[0] != '.' && flags >= 0;
    bool is_ours = file == object || file == nowhere || file == dirfd(open_files);
    if (is_number && !is_ours && (flags & O_ACCMODE) != O_RDONLY)
      is_good = dup2(nowhere, file) == file;
  }
  if (open_files)
    closedir(open_files);
  return is_good;
}

/* In the forked process. */
static void take_part(int number, pid_t parent) {
  char path[64];
  struct page *own = map_page(page->driver, number);
  if (!own)
    _exit(1);
  memcpy(own->object, page->object, sizeof own->object);
  page = own;
  reset_signals();
  prctl(PR_SET_PDEATHSIG, SIGUSR2);
  if (getppid() != parent)
    lose_parent(0);
  snprintf(path, sizeof path, DRIVERS_FILE, (int)page->driver, page->object_file);
  int object = open(path, O_RDWR | O_CLOEXEC), nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (object < 0 || nowhere < 0 || !leave_files(object, nowhere) ||
      dup2(object, object_file) < 0)
    _exit(1);
  atexit(end_badly); /* is called before what clang has asked for */
  is_forked = true;
  give_options();
}

/* No more at once than there are processors for them. */
static void fork_all(void) {
  cpu_set_t set;
  siginfo_t about;
  pid_t parent = getpid();
  size_t most = sched_getaffinity(0, sizeof set, &set) ? 1 : (size_t)CPU_COUNT(&set);
  for (size_t index = 0; index < page->fork_count; ++index) {
    pid_t earlier = index < most ? 0 : atomic_load(&page->forks[index - most].pid);
    while (earlier > 0 && waitid(P_PID, (id_t)earlier, &about, WEXITED | WNOWAIT) && errno == EINTR)
      continue;
    pid_t child = page->forks[index].page < 0 ? -1 : fork();
    if (child == 0) {
      take_part(page->forks[index].page, parent);
      return;
    }
    atomic_store(&page->forks[index].pid, child);
  }
}

void register_instead(void *builder, void *manager) {
  void (*next)(void *, void *);
  FIND(next, REGISTER);
  if (may_fork())
    fork_all();
  next(builder, manager);
}

/* The end of a forked process is its object's; other files that clang would give a name or remove it
 * has not made. */
int rename_instead(const char *from, const char *to) {
  int (*next)(const char *, const char *);
  if (is_forked && is_objects(from)) {
    atomic_store(&page->is_whole, 1);
    _exit(0);
  }
  FIND(next, "rename");
  return is_forked ? 0 : next(from, to);
}

int remove_instead(const char *path) {
  int (*next)(const char *);
  if (is_forked && is_objects(path))
    _exit(1);
  FIND(next, "remove");
  return is_forked ? 0 : next(path);
}

int unlink_instead(const char *path) {
  int (*next)(const char *);
  if (is_forked && is_objects(path))
    _exit(1);
  FIND(next, "unlink");
  return is_forked ? 0 : next(path);
}

/* As clang locks an index of modules. */
int link_instead(const char *from, const char *to) {
  int (*next)(const char *, const char *);
  FIND(next, "link");
  return is_forked ? 0 : next(from, to);
}

int symlink_instead(const char *to, const char *path) {
  int (*next)(const char *, const char *);
  FIND(next, "symlink");
  return is_forked ? 0 : next(to, path);
}

/* Clang jumps out of a compilation that has crashed, to report it. */
void longjmp_instead(jmp_buf place, int value) {
  void (*next)(jmp_buf, int) __attribute__((noreturn));
  if (is_forked)
    _exit(1);
  FIND(next, "longjmp");
  next(place, value);
}

void longjmp_chk_instead(jmp_buf place, int value) {
  void (*next)(jmp_buf, int) __attribute__((noreturn));
  if (is_forked)
    _exit(1);
  FIND(next, "__longjmp_chk");
  next(place, value);
}
