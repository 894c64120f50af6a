/* Whether ccache or sccache, where one started us, knows what decides the code. By themselves they look at
 * the compiler's file and the command line, and give back objects of other models.
 *
 * What a project file says depends on the object's name, at which neither looks. ccache asks for a
 * fingerprint of each object, and its own command line tells us which; sccache has one text for all. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FINGERPRINT "--mlgo-fingerprint"
#define FIRST_WORD "mlgo-cc " /* of a fingerprint */
#define BUSTER "SCCACHE_C_CUSTOM_CACHE_BUSTER"
#define MOST_BETWEEN 8 /* scripts between a compiler cache and us */

struct cache {
  pid_t process; /* 0 where none started us */
  bool is_ccache;
  char path[4096];
};

static const char *base_of(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

/* 0 where it cannot be told. */
static pid_t parent_of(pid_t process) {
  char path[64], text[512];
  int parent = 0;
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)process);
  FILE *file = fopen(path, "re");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  text[length] = 0;
  if (file)
    fclose(file);
  const char *name_end = strrchr(text, ')'); /* NUMBER (NAME) STATE PARENT */
  return name_end && sscanf(name_end, ") %*c %d", &parent) == 1 ? parent : 0;
}

static struct cache find_cache(void) {
  struct cache cache = {0};
  char link[64];
  pid_t process = getppid();
  for (int level = 0; level < MOST_BETWEEN && process > 0; ++level, process = parent_of(process)) {
    snprintf(link, sizeof link, "/proc/%ld/exe", (long)process);
    ssize_t length = readlink(link, cache.path, sizeof cache.path - 1);
    cache.path[length > 0 ? length : 0] = 0;
    cache.is_ccache = !strcmp(base_of(cache.path), "ccache");
    if (cache.is_ccache || !strcmp(base_of(cache.path), "sccache")) {
      cache.process = process;
      return cache;
    }
  }
  return cache;
}

/* The words of a process, each with a NUL behind it; NULL where they cannot be read. */
static char *words_of(pid_t process, size_t *size) {
  char path[64], *words = NULL;
  size_t room = 0;
  snprintf(path, sizeof path, "/proc/%ld/cmdline", (long)process);
  FILE *file = fopen(path, "re"), *all = open_memstream(&words, &room);
  for (int next; file && all && (next = getc(file)) != EOF;)
    putc(next, all);
  if (file)
    fclose(file);
  if (all)
    fclose(all);
  *size = room;
  return words;
}

/* KEY=VALUE, whose value may be a path; the path of a compiler may have a = in it, too. */
static bool is_setting(const char *word) { return word[strcspn(word, "/=")] == '='; }

/* `ccache KEY=VALUE CLANG ...`, or ccache under a compiler's name: the words behind the compiler. */
static size_t skip_compiler(char *const *words, size_t count) {
  size_t index = 0;
  if (count && !strncmp(base_of(words[0]), "ccache", strlen("ccache")))
    for (++index; index < count && is_setting(words[index]); ++index)
      continue;
  return index + 1;
}

bool take_cached_arguments(int *argc, char ***argv, struct message *message) {
  bool is_wanted = false;
  for (int index = 1; index < *argc; ++index)
    is_wanted |= !strcmp((*argv)[index], FINGERPRINT);
  struct cache cache = is_wanted ? find_cache() : (struct cache){0};
  if (!cache.process || !cache.is_ccache)
    return true;
  size_t size, count = 0, used = (size_t)*argc;
  char *text = words_of(cache.process, &size);
  char **words = calloc(size + 1, sizeof *words), **all = calloc(size + used + 1, sizeof *all);
  if (!words || !all)
    abort();
  for (char *word = text; word && word < text + size; word += strlen(word) + 1)
    words[count++] = word;
  memcpy(all, *argv, used * sizeof *all);
  for (size_t index = skip_compiler(words, count); index < count; ++index)
    all[used++] = words[index];
  free(words);
  *argv = all;
  *argc = (int)used;
  if (!count)
    snprintf(message->text, MESSAGE_BYTES, "ccache: cannot read its command line, process %ld",
             (long)cache.process);
  return count;
}

/* What decides how ccache knows a compiler, from its variable or its configuration file. */
static const char *compiler_check(struct cache *cache, char *text, size_t size) {
  const char *value = getenv("CCACHE_COMPILERCHECK");
  char *command[] = {cache->path, (char *)"--get-config", (char *)"compiler_check", NULL};
  if (value)
    return value;
  if (ask(command, NULL, text, size))
    text[0] = 0;
  text[strcspn(text, "\n")] = 0;
  return text;
}

static bool check_ccache(struct cache *cache, struct message *message) {
  char text[256];
  const char *found = compiler_check(cache, text, sizeof text);
  if (strstr(found, FINGERPRINT) && strncmp(found, "string:", strlen("string:")))
    return true;
  snprintf(message->text, MESSAGE_BYTES, "ccache: expected CCACHE_COMPILERCHECK='%%compiler%% "
           FINGERPRINT "', found '%.200s', by which it gives back objects of another model", found);
  return false;
}

/* Whether a fingerprint is among those of a text. */
static bool has_fingerprint(const char *text, const char *fingerprint) {
  size_t length = strlen(fingerprint) - 1; /* the shell takes the last line's end away */
  for (const char *at = text; at; at = (at = strchr(at, '\n')) ? at + 1 : NULL) {
    if (strncmp(at, fingerprint, length))
      continue;
    const char *rest = at + length + strspn(at + length, "\n");
    if (!*rest || (rest > at + length && !strncmp(rest, FIRST_WORD, strlen(FIRST_WORD))))
      return true;
  }
  return false;
}

static bool check_sccache(const struct settings *settings, const struct clang *clang,
                          struct message *message) {
  const char *value = getenv(BUSTER);
  bool is_set = value && *value;
  char *fingerprint = is_set ? fingerprint_of(settings, clang, NULL, message) : NULL;
  bool is_good = fingerprint && has_fingerprint(value, fingerprint);
  if (!is_good && (fingerprint || !is_set))
    snprintf(message->text, MESSAGE_BYTES, "sccache: expected " BUSTER "=\"$(mlgo-cc " FINGERPRINT
             ")\", found %s, without which it gives back objects of another model",
             is_set ? "another text" : "none");
  free(fingerprint);
  return is_good;
}

bool check_compiler_cache(const struct settings *settings, const struct clang *clang,
                          bool has_project, struct message *message) {
  struct cache cache = find_cache();
  if (!cache.process)
    return true;
  if (cache.is_ccache)
    return check_ccache(&cache, message);
  bool is_good = check_sccache(settings, clang, message) && !has_project;
  if (!is_good && !message->text[0])
    snprintf(message->text, MESSAGE_BYTES, "sccache: expected no project file, which may tell the "
             "objects of one source apart, as sccache does not; ccache does");
  return is_good;
}
