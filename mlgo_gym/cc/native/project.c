/* A project file: the functions that objects of a build's targets share. It is made for version control,
 * and may come from anybody:
 *
 *   mlgo-gym project 1
 *   target NAME        for each target, sorted by NAME
 *   plain              where its objects are to be clang's own
 *   exported           where all that is visible outside must stay so
 *   object PATH        for each of its objects, below the build's folder, sorted
 *   HASH               for each function that they share, sorted
 *   end
 *
 * HASH is the first 48 bits of BLAKE2b of the function's name, in the digits of base64 for URLs. An
 * object is known by the end of its path, of several the longest; one that is not there is left as it
 * is (`mlgo_gym.cc._project_file`). */
#define _GNU_SOURCE
#include "project.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST_LINE "mlgo-gym project 1\n"
#define LAST_LINE "end\n"
#define TARGET "target "
#define OBJECT "object "
#define EXPORTED "exported\n"
#define PLAIN "plain\n"

static bool refuse(const char *path, const char *words, struct message *message) {
  snprintf(message->text, MESSAGE_BYTES, "project '%.600s': %s", path, words);
  return false;
}

/* The hash that a line holds; false where it holds none. */
static bool hash_in(const char *line, uint64_t *hash) {
  static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  *hash = 0;
  for (size_t index = 0; index < HASH_DIGITS; ++index) {
    const char *found = line[index] ? strchr(DIGITS, line[index]) : NULL;
    if (!found)
      return false;
    *hash = *hash << 6 | (uint64_t)(found - DIGITS);
  }
  return line[HASH_DIGITS] == '\n';
}

static bool begins(const char *line, const char *words) {
  return !strncmp(line, words, strlen(words));
}

static bool check_project(const char *path, const char *text, struct message *message) {
  char words[WORDS_BYTES];
  const char *line = text + strlen(FIRST_LINE);
  uint64_t hash;
  if (!begins(text, FIRST_LINE)) {
    snprintf(words, sizeof words, "expected 'mlgo-gym project 1' in the first line, found '%.*s'",
             (int)strcspn(text, "\n") > 60 ? 60 : (int)strcspn(text, "\n"), text);
    return refuse(path, words, message);
  }
  bool is_in_target = false;
  for (int number = 2; strcmp(line, LAST_LINE); ++number) {
    const char *end = strchr(line, '\n');
    if (!end)
      return refuse(path, "expected 'end' in the last line, found it cut", message);
    bool is_target = begins(line, TARGET);
    is_in_target |= is_target;
    if (!is_in_target || !(is_target || begins(line, OBJECT) || begins(line, EXPORTED) ||
                           begins(line, PLAIN) || hash_in(line, &hash))) {
      snprintf(words, sizeof words, "line %d: expected a target, an object or a hash", number);
      return refuse(path, words, message);
    }
    line = end + 1;
  }
  return true;
}

/* All of the file, where it is good; NULL with a message. */
static char *good_project(const char *path, struct message *message) {
  char words[WORDS_BYTES], *text = read_text(path, words);
  if (text ? check_project(path, text, message) : refuse(path, words, message))
    return text;
  free(text);
  return NULL;
}

/* The object's path without links, which need not be there yet; its folder is. */
static bool absolute(const char *object, char *path, size_t size) {
  const char *slash = strrchr(object, '/'), *name = slash ? slash + 1 : object;
  char folder[4096], whole[4096];
  snprintf(folder, sizeof folder, "%.*s.", slash ? (int)(name - object) : 0, object);
  return realpath(folder, whole) && snprintf(path, size, "%s/%s", whole, name) < (int)size;
}

/* How much of a path's end an object of the file is; 0 where it is another. */
static size_t length_at_end(const char *path, const char *line) {
  const char *named = line + strlen(OBJECT);
  size_t length = strcspn(named, "\n"), whole = strlen(path);
  bool is_end = length && length < whole && path[whole - length - 1] == '/' &&
                !strncmp(path + whole - length, named, length);
  return is_end ? length : 0;
}

static size_t longest_end(const char *text, const char *path) {
  size_t longest = 0;
  for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
    size_t length = begins(line, OBJECT) ? length_at_end(path, line) : 0;
    longest = length > longest ? length : longest;
  }
  return longest;
}

static int compare_hashes(const void *one, const void *other) {
  uint64_t first = *(const uint64_t *)one, second = *(const uint64_t *)other;
  return (first > second) - (first < second);
}

/* The hashes of all targets that have the object. */
static uint64_t *hashes_of(const char *text, const char *path, size_t length,
                           struct shared *shared) {
  uint64_t *hashes = malloc((strlen(text) / HASH_DIGITS + 1) * sizeof *hashes);
  bool has_object = false, is_exported = false, is_plain = false;
  size_t before = 0;
  if (!hashes)
    abort();
  for (const char *line = text + strlen(FIRST_LINE); *line; line = strchr(line, '\n') + 1) {
    if (begins(line, TARGET) || begins(line, LAST_LINE)) {
      shared->count = has_object ? shared->count : before;
      shared->is_exported |= has_object && is_exported;
      shared->is_plain |= has_object && is_plain;
      before = shared->count;
      has_object = is_exported = is_plain = false;
    } else if (begins(line, EXPORTED))
      is_exported = true;
    else if (begins(line, PLAIN))
      is_plain = true;
    else if (begins(line, OBJECT))
      has_object |= length_at_end(path, line) == length;
    else if (hash_in(line, &hashes[shared->count]))
      ++shared->count;
  }
  qsort(hashes, shared->count, sizeof *hashes, compare_hashes);
  return hashes;
}

bool find_shared(const char *project, const char *object, struct shared *shared,
                 struct message *message) {
  char path[8192], *text = good_project(project, message);
  size_t length;
  *shared = (struct shared){.file = -1};
  if (text && absolute(object, path, sizeof path) && (length = longest_end(text, path))) {
    uint64_t *hashes = hashes_of(text, path, length, shared);
    size_t size = shared->count * sizeof *hashes;
    int file = memory_file();
    shared->file = file >= 0 && write(file, hashes, size) == (ssize_t)size ? file : -1;
    free(hashes);
  }
  free(text);
  return text != NULL;
}

bool digest_of_project(const char *project, char *hex, struct message *message) {
  char *text = good_project(project, message);
  if (text)
    digest_of_text(text, hex);
  free(text);
  return text != NULL;
}

bool digest_of_object(const char *project, const char *object, char *hex, struct message *message) {
  struct shared shared;
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  if (!find_shared(project, object, &shared, message) || shared.file < 0)
    return false;
  begin_digest(&digest);
  add_to_digest(&digest, &shared.is_exported, sizeof shared.is_exported);
  add_to_digest(&digest, &shared.is_plain, sizeof shared.is_plain);
  add_file_to_digest(&digest, shared.file, shared.count * sizeof(uint64_t));
  close(shared.file);
  end_digest(&digest, result);
  write_hex(hex, result, sizeof result);
  return true;
}
