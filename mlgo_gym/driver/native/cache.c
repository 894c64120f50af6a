/* What is remembered between compilations, in this installation's folder, which the program lies in:
 *
 *   bin/mlgo-cc               this program
 *   clang/KEY                 the major version of a clang
 *   policies/PROBLEM-KEY.so   a frozen policy; PROBLEM-KEY.error says why there is none
 *
 * A KEY stands for a file, or a folder with its files, as it is: device, inode, size, time stamp. */
#define _GNU_SOURCE
#include "driver.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MLGO_PYTHON
#error "MLGO_PYTHON names the interpreter that has mlgo_gym"
#endif
#ifndef MLGO_VERSION
#error "MLGO_VERSION is that of mlgo_gym"
#endif

static const char *const CANDIDATES[] = {"", "-25", "-24", "-23", "-22", "-21", "-20", "-19"};
#define CANDIDATE_COUNT (sizeof CANDIDATES / sizeof *CANDIDATES)

/* The interpreter that made this program; if that is gone, the one of the script that started it. */
const char *python_path(void) {
  static char beside[4096];
  const char *script = getenv("MLGO_SELF");
  if (!access(MLGO_PYTHON, X_OK) || !script || !realpath(script, beside))
    return MLGO_PYTHON;
  char *name = strrchr(beside, '/') + 1;
  snprintf(name, sizeof beside - (size_t)(name - beside), "python3");
  return access(beside, X_OK) ? MLGO_PYTHON : beside;
}

static bool cache_path(char *path, size_t size, const char *name) {
  char self[4096];
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (length < 0)
    return false;
  self[length] = 0;
  for (int level = 0; level < 2; ++level) {
    char *slash = strrchr(self, '/');
    if (!slash)
      return false;
    *slash = 0;
  }
  return (size_t)snprintf(path, size, "%s/%s", self, name) < size;
}

/* FNV-1a, which is enough to tell the files of one user apart. */
#define START 0xcbf29ce484222325u
static uint64_t mixed(uint64_t hash, const void *data, size_t size) {
  for (const uint8_t *byte = data; size--; ++byte)
    hash = (hash ^ *byte) * 0x100000001b3u;
  return hash;
}

static bool mix_file(uint64_t *hash, const char *path) {
  struct stat about;
  if (stat(path, &about))
    return false;
  uint64_t facts[] = {(uint64_t)about.st_dev, (uint64_t)about.st_ino, (uint64_t)about.st_size,
                      (uint64_t)about.st_mtim.tv_sec, (uint64_t)about.st_mtim.tv_nsec};
  *hash = mixed(*hash, facts, sizeof facts);
  return true;
}

/* A folder and the files directly in it, in whatever order they are listed. */
static bool mix_folder(uint64_t *hash, const char *folder) {
  DIR *directory = mix_file(hash, folder) ? opendir(folder) : NULL;
  if (!directory)
    return false;
  uint64_t sum = 0;
  char path[4096 + 256];
  for (struct dirent *entry; (entry = readdir(directory));) {
    uint64_t each = mixed(START, entry->d_name, strlen(entry->d_name));
    if (entry->d_name[0] != '.' &&
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name) < (int)sizeof path &&
        mix_file(&each, path))
      sum += each;
  }
  closedir(directory);
  *hash = mixed(*hash, &sum, sizeof sum);
  return true;
}

/* A program other than the script that started this one, which may be called clang, too. */
static bool is_program(const char *path) {
  struct stat about, script;
  const char *self = getenv("MLGO_SELF");
  if (stat(path, &about) || !S_ISREG(about.st_mode) || access(path, X_OK))
    return false;
  return !self || stat(self, &script) || script.st_ino != about.st_ino ||
         script.st_dev != about.st_dev;
}

static bool on_path(const char *name, char *found, size_t size) {
  if (strchr(name, '/'))
    return is_program(name) && (size_t)snprintf(found, size, "%s", name) < size;
  const char *folders = getenv("PATH");
  for (const char *start = folders; start;) {
    const char *end = strchr(start, ':');
    int length = end ? (int)(end - start) : (int)strlen(start);
    const char *folder = length ? start : ".";
    if ((size_t)snprintf(found, size, "%.*s/%s", length ? length : 1, folder, name) < size &&
        is_program(found))
      return true;
    start = end ? end + 1 : NULL;
  }
  return false;
}

/* clang++ beside the clang that was named, under the same version. */
static bool cxx_sibling(struct clang *clang) {
  char sibling[sizeof clang->path + 2];
  const char *slash = strrchr(clang->path, '/');
  const char *base = slash ? slash + 1 : clang->path;
  const char *word = strstr(base, "clang");
  if (!word || !strncmp(word, "clang++", 7))
    return word != NULL;
  int length = (int)(word - clang->path) + 5;
  if (snprintf(sibling, sizeof sibling, "%.*s++%s", length, clang->path, word + 5) >=
          (int)sizeof clang->path ||
      !is_program(sibling))
    return false;
  strcpy(clang->path, sibling);
  return true;
}

static bool first_candidate(const struct settings *settings, struct clang *clang) {
  char name[32];
  for (size_t index = 0; index < CANDIDATE_COUNT; ++index) {
    snprintf(name, sizeof name, "clang%s%s", settings->is_cxx ? "++" : "", CANDIDATES[index]);
    if (on_path(name, clang->path, sizeof clang->path))
      return true;
  }
  return false;
}

bool find_clang(const struct settings *settings, struct clang *clang, struct message *message) {
  *clang = (struct clang){0};
  if (settings->clang) {
    if (!on_path(settings->clang, clang->path, sizeof clang->path)) {
      snprintf(message->text, MESSAGE_BYTES, "clang: expected a program, found none at '%s'",
               settings->clang);
      return false;
    }
    clang->needs_cxx_mode = settings->is_cxx && !cxx_sibling(clang);
  } else if (!first_candidate(settings, clang)) {
    snprintf(message->text, MESSAGE_BYTES,
             "clang: expected clang or clang-19 or newer on PATH, found none; MLGO_CLANG names "
             "another");
    return false;
  }
  clang->name = clang->path;
  return true;
}

static bool read_text(const char *path, char *text, size_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? -1 : read(file, text, size - 1);
  if (file >= 0)
    close(file);
  text[length > 0 ? length : 0] = 0;
  return length >= 0;
}

static void write_text(const char *path, const char *text) {
  char partial[4200];
  snprintf(partial, sizeof partial, "%s.%ld", path, (long)getpid());
  int file = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return; /* it is asked again the next time */
  bool is_whole = write(file, text, strlen(text)) == (ssize_t)strlen(text);
  close(file);
  if (!is_whole || rename(partial, path))
    unlink(partial);
}

int ask(char *const *command, char *text, size_t size) {
  int output = memfd_create("mlgo-cc", MFD_CLOEXEC);
  pid_t parent = getpid(), child = output < 0 ? -1 : fork();
  if (child == 0) {
    die_with(parent);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, 0);
    dup2(output, 1);
    dup2(output, 2);
    execv(command[0], command);
    dprintf(2, "cannot run %s: %s\n", command[0], strerror(errno));
    _exit(127);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  ssize_t length = output < 0 ? -1 : pread(output, text, size - 1, 0);
  text[length > 0 ? length : 0] = 0;
  if (output >= 0)
    close(output);
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool check_clang(struct clang *clang, struct message *message) {
  uint64_t hash = START;
  char path[4096], name[64], text[512] = "";
  bool is_kept = mix_file(&hash, clang->path);
  snprintf(name, sizeof name, "clang/%016llx", (unsigned long long)hash);
  is_kept = is_kept && cache_path(path, sizeof path, name);
  if (!is_kept || !read_text(path, text, sizeof text)) {
    char *command[] = {clang->path, "--version", NULL};
    int status = ask(command, text, sizeof text);
    const char *version = strstr(text, "clang version ");
    if (status || !version) {
      text[strcspn(text, "\n")] = 0;
      snprintf(message->text, MESSAGE_BYTES,
               "clang: expected a version from '%s --version', "
               "found '%s'",
               clang->path, text);
      return false;
    }
    snprintf(text, 16, "%d", atoi(version + strlen("clang version ")));
    if (is_kept)
      write_text(path, text);
  }
  clang->version = atoi(text);
  if (clang->version < MINIMUM_CLANG)
    snprintf(message->text, MESSAGE_BYTES, "clang: expected version %d or newer, found %d in '%s'",
             MINIMUM_CLANG, clang->version, clang->path);
  return clang->version >= MINIMUM_CLANG;
}

/* Lets Python freeze a policy; it writes the library, or says why it cannot. */
static bool freeze(const char *problem, const char *model, const char *clang, const char *library,
                   struct message *message) {
  char text[MESSAGE_BYTES - 64];
  char *command[] = {(char *)python_path(),
                     "-P",
                     "-m",
                     "mlgo_gym.driver._prepare",
                     "policy",
                     (char *)problem,
                     (char *)model,
                     (char *)library,
                     (char *)clang,
                     NULL};
  if (!ask(command, text, sizeof text))
    return true;
  char *end = text + strlen(text);
  while (end > text && end[-1] == '\n')
    *--end = 0;
  char *line = strrchr(text, '\n');
  snprintf(message->text, MESSAGE_BYTES, "%s", line ? line + 1 : text);
  return false;
}

static const struct mlgo_policy *open_library(const char *path, struct message *message) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const struct mlgo_policy *policy = library ? dlsym(library, MLGO_POLICY_SYMBOL) : NULL;
  if (!policy)
    snprintf(message->text, MESSAGE_BYTES, "policy: cannot be loaded: %s", dlerror());
  else if (policy->version != MLGO_POLICY_VERSION)
    snprintf(message->text, MESSAGE_BYTES, "policy: expected version %d, found %u in '%s'",
             MLGO_POLICY_VERSION, policy->version, path);
  return policy && policy->version == MLGO_POLICY_VERSION ? policy : NULL;
}

const struct mlgo_policy *load_policy(const struct settings *settings, const struct clang *clang,
                                      enum problem problem, struct message *message) {
  const char *model = settings->models[problem];
  uint64_t hash = START;
  char path[4096], name[128];
  if (!mix_folder(&hash, model)) {
    snprintf(message->text, MESSAGE_BYTES, "model '%s': cannot be read: %s", model,
             strerror(errno));
    return NULL;
  }
  snprintf(name, sizeof name, "policies/%s-%016llx.so", PROBLEMS[problem].name,
           (unsigned long long)hash);
  if (!cache_path(path, sizeof path, name))
    return NULL;
  if (access(path, R_OK)) {
    char refusal[4200];
    snprintf(refusal, sizeof refusal, "%.*serror", (int)strlen(path) - 2, path);
    if (read_text(refusal, message->text, MESSAGE_BYTES))
      return NULL;
    if (!freeze(PROBLEMS[problem].name, model, clang->path, path, message))
      return NULL;
  }
  return open_library(path, message);
}

bool print_fingerprint(const struct settings *settings, const struct clang *clang,
                       struct message *message) {
  uint64_t hash = START;
  mix_file(&hash, clang->path);
  printf("mlgo-cc %s\nclang %d %016llx\n", MLGO_VERSION, clang->version,
         (unsigned long long)hash);
  if (settings->threshold)
    printf("size-increase-threshold %s\n", settings->threshold);
  for (enum problem problem = 0; problem < PROBLEM_COUNT; ++problem) {
    if (!settings->models[problem])
      continue;
    const struct mlgo_policy *policy = load_policy(settings, clang, problem, message);
    if (!policy)
      return false;
    printf("%s %s %zu\n", PROBLEMS[problem].name, policy->sha256, policy->decision);
  }
  return true;
}
