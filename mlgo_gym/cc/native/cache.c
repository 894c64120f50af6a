/* Which clang it is. As clang-KEY there is kept its major version, and "inside" where a library that is
 * preloaded sees what clang writes; KEY stands for the program's file as it is: device, inode, size, time
 * stamps. A script's file does not tell which clang it starts, and how: it is asked each time. */
#define _GNU_SOURCE
#include "project.h"
#include "traces.h"

#include <elf.h>
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

#define INSIDE " inside"
#define HAS_LLVM " with LLVM"
#define NESTING "MLGO_NESTING"
#define MOST_NESTED 4   /* clang's linker or a plugin may run a build of its own */
#define NOT_STARTED 123 /* the dynamic linker ends with 127 for good where a library does not fit */

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

/* A file as it is. Nobody can set the time of its last change, which the other time stamp is not. */
static bool add_facts(struct digest *digest, const char *path) {
  struct stat about;
  if (stat(path, &about))
    return false;
  uint64_t facts[] = {(uint64_t)about.st_dev,          (uint64_t)about.st_ino,
                      (uint64_t)about.st_size,         (uint64_t)about.st_mtim.tv_sec,
                      (uint64_t)about.st_mtim.tv_nsec, (uint64_t)about.st_ctim.tv_sec,
                      (uint64_t)about.st_ctim.tv_nsec};
  add_to_digest(digest, facts, sizeof facts);
  return true;
}

static bool file_key(char *key, const char *path) {
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  begin_digest(&digest);
  bool is_good = add_facts(&digest, path);
  end_digest(&digest, result);
  write_hex(key, result, KEY_BYTES);
  return is_good;
}

static bool is_script(const char *path) {
  char start[SELFMAG] = "";
  int file = open(path, O_RDONLY | O_CLOEXEC);
  bool is_elf = file >= 0 && read(file, start, sizeof start) == sizeof start &&
                !memcmp(start, ELFMAG, SELFMAG);
  if (file >= 0)
    close(file);
  return !is_elf;
}

/* What a script makes of a command line: the program that it starts in the end, and the options. */
static void script_key(char *key, const char *path) {
  static char text[1 << 16];
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  char *command[] = {(char *)path, (char *)"-###", (char *)"-ffile-compilation-dir=/", (char *)"-c",
                     (char *)"-x", (char *)"c", (char *)"/dev/null", (char *)"-o",
                     (char *)"/dev/null", NULL};
  ask(command, NULL, text, sizeof text);
  begin_digest(&digest);
  add_facts(&digest, path);
  add_to_digest(&digest, text, strlen(text));
  char *job = strstr(text, "\n \""), *program = job ? job + strlen("\n \"") : text;
  program[strcspn(program, "\"")] = 0;
  if (job)
    add_facts(&digest, program);
  end_digest(&digest, result);
  write_hex(key, result, KEY_BYTES);
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
    clang->needs_cxx_mode = settings->is_cxx && !settings->launched && !cxx_sibling(clang);
  } else if (!first_candidate(settings, clang)) {
    snprintf(message->text, MESSAGE_BYTES,
             "clang: expected clang or clang-19 or newer on PATH, found none; MLGO_CLANG names "
             "another");
    return false;
  }
  clang->name = clang->path;
  return true;
}

static bool lead_back(struct clang *clang, struct message *message) {
  const char *self = getenv("MLGO_SELF");
  clang->leads_back = true;
  snprintf(message->text, MESSAGE_BYTES,
           "clang: expected a compiler, found that %s starts %s again; MLGO_CLANG names another",
           clang->path, self ? self : program);
  return false;
}

/* The variable has a mark for each driver that this process is below of. */
bool check_nesting(struct clang *clang, struct message *message) {
  const char *above = getenv(NESTING);
  char *nesting = NULL;
  size_t count = 0;
  for (const char *mark = above; mark && (mark = strchr(mark, ':')); ++mark)
    ++count;
  if (count >= MOST_NESTED)
    return lead_back(clang, message);
  if (asprintf(&nesting, "%s:", above ? above : "") < 0)
    abort();
  setenv(NESTING, nesting, 1);
  free(nesting);
  return true;
}

int run(char *const *command, const struct preload *preload, int output, int errors) {
  pid_t parent = getpid(), child = output < 0 || errors < 0 ? -1 : fork();
  if (child == 0) {
    die_with(parent);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, 0);
    dup2(output, 1);
    dup2(errors, 2);
    if (preload)
      put_preload(preload);
    execv(command[0], command);
    dprintf(2, "cannot run %s: %s\n", command[0], strerror(errno));
    _exit(NOT_STARTED);
  }
  int status = -1;
  while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
    continue;
  return child > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int ask(char *const *command, const struct preload *preload, char *text, size_t size) {
  int output = memory_file();
  int status = run(command, preload, output, output);
  ssize_t length = output < 0 ? -1 : pread(output, text, size - 1, 0);
  text[length > 0 ? length : 0] = 0;
  if (output >= 0)
    close(output);
  return status;
}

/* The version that clang says, or NULL. */
static const char *say_version(const struct clang *clang, const struct preload *preload, char *text,
                               size_t size, int *status) {
  char *command[] = {(char *)clang->path, "--version", NULL};
  *status = ask(command, preload, text, size);
  const char *version = *status ? NULL : strstr(text, VERSION_WORDS);
  return version ? version + strlen(VERSION_WORDS) : NULL;
}

/* Asks for the version with the library preloaded, and if that is no good without; whether it is known
 * for good is another thing: this time the library may be missing, clang not started or killed, or out of
 * memory. */
static bool ask_version(struct clang *clang, char *text, size_t size, bool *is_known,
                        struct message *message) {
  struct preload preload;
  int status = -1;
  bool is_open = open_preload(&preload);
  const char *version = is_open ? say_version(clang, &preload, text, size, &status) : NULL;
  bool is_inside = version && was_spoken(&preload), has = is_inside && has_llvm(&preload);
  *is_known = status >= 0 && status != NOT_STARTED && was_mapped(&preload);
  close_preload(&preload);
  if (!version && status != LED_BACK)
    version = say_version(clang, NULL, text, size, &status);
  if (!version && status == LED_BACK)
    return lead_back(clang, message);
  if (!version) {
    text[strcspn(text, "\n")] = 0;
    snprintf(message->text, MESSAGE_BYTES,
             "clang: expected a version from '%s --version', "
             "found '%s'",
             clang->path, text);
    return false;
  }
  snprintf(text, size, "%d%s%s", atoi(version), is_inside ? INSIDE : "", has ? HAS_LLVM : "");
  return true;
}

bool check_clang(struct clang *clang, struct message *message) {
  char key[KEY_DIGITS + 1], name[64], text[512] = "";
  bool has_key = !is_script(clang->path) && file_key(key, clang->path), is_known;
  snprintf(name, sizeof name, "clang-%s", has_key ? key : "");
  if (!has_key || !read_kept(name, text, sizeof text)) {
    if (!ask_version(clang, text, sizeof text, &is_known, message))
      return false;
    if (has_key && is_known)
      keep(name, text);
  }
  clang->version = atoi(text);
  clang->can_preload = strstr(text, INSIDE) != NULL;
  clang->has_llvm = strstr(text, HAS_LLVM) != NULL;
  if (clang->version < MINIMUM_CLANG)
    snprintf(message->text, MESSAGE_BYTES, "clang: expected version %d or newer, found %d in '%s'",
             MINIMUM_CLANG, clang->version, clang->path);
  return clang->version >= MINIMUM_CLANG;
}

static bool print_policy(FILE *to, const struct settings *settings, const struct clang *clang,
                         enum problem problem, struct message *message) {
  int file;
  const struct mlgo_policy *policy = load_policy(settings, clang, problem, &file, message);
  if (policy)
    fprintf(to, "%s %s %zu\n", PROBLEMS[problem].name, policy->sha256, policy->decision);
  return policy != NULL;
}

/* Of which the smallest object is kept. */
static bool print_models(FILE *to, const struct settings *settings, const struct clang *clang,
                         struct message *message) {
  const char *models[MOST_MODELS];
  size_t count = models_to_compare(settings, models);
  bool is_good = true;
  fprintf(to, "keep-smaller\n");
  for (size_t index = 0; index < count && is_good; ++index) {
    struct settings one = *settings;
    take_model(&one, models[index]);
    is_good = !one.models[INLINING] || print_policy(to, &one, clang, INLINING, message);
  }
  return is_good;
}

static bool print_project(FILE *to, const char *project, const char *object,
                          struct message *message) {
  char digest[2 * DIGEST_BYTES + 1];
  if (!digest_of_project(project, digest, message))
    return false;
  fprintf(to, "project %s\n", digest);
  if (object && digest_of_object(project, object, digest, message))
    fprintf(to, "object %s\n", digest);
  return true;
}

static bool print_fingerprint(FILE *to, const struct settings *settings, const struct clang *clang,
                              const char *object, struct message *message) {
  char key[KEY_DIGITS + 1] = "";
  if (is_script(clang->path))
    script_key(key, clang->path);
  else
    file_key(key, clang->path);
  fprintf(to, "mlgo-cc %s\nclang %d %s\n", MLGO_VERSION, clang->version, key);
  if (settings->threshold)
    fprintf(to, "size-increase-threshold %s\n", settings->threshold);
  if (settings->traces) {
    char traces[2 * DIGEST_BYTES + 1];
    if (!digest_of_traces(settings, traces, message))
      return false;
    fprintf(to, "traces %s\n", traces);
  }
  if (settings->project && !print_project(to, settings->project, object, message))
    return false;
  for (enum problem problem = 0; problem < PROBLEM_COUNT; ++problem)
    if (settings->models[problem] && !print_policy(to, settings, clang, problem, message))
      return false;
  return !settings->keep_smaller || print_models(to, settings, clang, message);
}

char *fingerprint_of(const struct settings *settings, const struct clang *clang, const char *object,
                     struct message *message) {
  char *text = NULL;
  size_t size;
  FILE *to = open_memstream(&text, &size);
  if (!to)
    abort();
  bool is_good = print_fingerprint(to, settings, clang, object, message);
  fclose(to);
  if (is_good)
    return text;
  free(text);
  return NULL;
}
