/* A model's policy. What a model's files hold is its KEY; of each there is kept one of
 *
 *   PROBLEM-KEY.so       the frozen policy
 *   PROBLEM-KEY.error    why there is none; here KEY is of the model's name, too, which that tells */
#define _GNU_SOURCE
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES (1 << 28) /* of a model's file; a longer one is refused, whatever it holds */

static const char *const MODEL_FILES[] = {"model.tflite", "output_spec.json", "card.json",
                                          "ir2vec.json"};

/* Of a model that TensorFlow has saved, and that has no graph for TFLite. */
static const char *const SAVED_FILES[] = {"saved_model.pb", "variables/variables.index",
                                          "variables/variables.data-00000-of-00001"};

static void add_file(struct digest *all, int folder, const char *name) {
  struct stat about;
  struct digest digest;
  uint8_t content[DIGEST_BYTES] = {0};
  if (fstatat(folder, name, &about, 0))
    return;
  int flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  bool is_taken = S_ISREG(about.st_mode) && about.st_size <= MOST_BYTES;
  int file = is_taken ? openat(folder, name, flags) : -1;
  if (file >= 0) {
    begin_digest(&digest);
    add_file_to_digest(&digest, file, MOST_BYTES);
    end_digest(&digest, content);
    close(file);
  }
  add_to_digest(all, name, strlen(name) + 1);
  add_to_digest(all, content, sizeof content);
}

static int is_description(const struct dirent *entry) {
  size_t length = strlen(entry->d_name);
  return length > 5 && !strcmp(entry->d_name + length - 5, ".json");
}

static int by_bytes(const struct dirent **one, const struct dirent **other) {
  return strcmp((*one)->d_name, (*other)->d_name);
}

/* The files of a model that was frozen: every NAME.json that has a NAME.o beside it. */
static void add_frozen(struct digest *all, const char *model, int folder) {
  struct dirent **entries;
  int count = scandir(model, &entries, is_description, by_bytes);
  for (int index = 0; index < count; ++index) {
    struct stat about;
    char object[256];
    size_t length = strlen(entries[index]->d_name) - strlen("json");
    snprintf(object, sizeof object, "%.*so", (int)length, entries[index]->d_name);
    if (!fstatat(folder, object, &about, 0)) {
      add_file(all, folder, entries[index]->d_name);
      add_file(all, folder, object);
    }
    free(entries[index]);
  }
  if (count >= 0)
    free(entries);
}

/* Of what a model's files hold (`mlgo_gym.cc._kept.ModelCopy` has the same). */
static bool model_key(char *key, const char *model, const char *vocabulary) {
  struct stat about;
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  int folder = open(model, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0)
    return false;
  begin_digest(&digest);
  for (size_t index = 0; index < sizeof MODEL_FILES / sizeof *MODEL_FILES; ++index)
    add_file(&digest, folder, MODEL_FILES[index]);
  if (fstatat(folder, MODEL_FILES[0], &about, 0)) {
    for (size_t index = 0; index < sizeof SAVED_FILES / sizeof *SAVED_FILES; ++index)
      add_file(&digest, folder, SAVED_FILES[index]);
    add_frozen(&digest, model, folder);
  }
  close(folder);
  if (*vocabulary) {
    add_to_digest(&digest, vocabulary, strlen(vocabulary) + 1);
    add_file(&digest, AT_FDCWD, vocabulary);
  }
  end_digest(&digest, result);
  write_hex(key, result, KEY_BYTES);
  return true;
}

/* What the user names in place of what the model's card does; eviction has none. */
static const char *vocabulary_of(const struct settings *settings, enum problem problem) {
  return problem == INLINING && settings->ir2vec ? settings->ir2vec : "";
}

static void key_of_named(char *named, const char *key, const char *model) {
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  begin_digest(&digest);
  add_to_digest(&digest, key, strlen(key) + 1);
  add_to_digest(&digest, model, strlen(model));
  end_digest(&digest, result);
  write_hex(named, result, KEY_BYTES);
}

/* Lets Python freeze a policy; it writes the library, or says why it cannot. */
static bool freeze(const struct settings *settings, enum problem problem, const char *clang,
                   const char *library, const char *refusal, struct message *message) {
  char text[MESSAGE_BYTES - 64];
  char *command[] = {(char *)python_path(),
                     "-P",
                     "-m",
                     "mlgo_gym.cc._prepare",
                     "policy",
                     (char *)PROBLEMS[problem].name,
                     (char *)settings->models[problem],
                     (char *)library,
                     (char *)refusal,
                     (char *)clang,
                     (char *)vocabulary_of(settings, problem),
                     NULL};
  pass_timeout_on(settings);
  int status = ask(command, NULL, text, sizeof text);
  if (!status)
    return true;
  char *end = text + strlen(text);
  while (end > text && end[-1] == '\n')
    *--end = 0;
  char *line = strrchr(text, '\n');
  if (*text)
    snprintf(message->text, MESSAGE_BYTES, "%s", line ? line + 1 : text);
  else
    snprintf(message->text, MESSAGE_BYTES, "the process that compiles the %s model was killed",
             PROBLEMS[problem].name);
  return false;
}

static void say_unreadable(const char *model, struct message *message) {
  char names[MESSAGE_BYTES / 2];
  int error = errno;
  name_shipped(names, sizeof names);
  if (error == ENOENT && !strchr(model, '/'))
    snprintf(message->text, MESSAGE_BYTES,
             "model '%.300s': expected a folder, or one of %s; found neither", model, names);
  else
    snprintf(message->text, MESSAGE_BYTES, "model '%s': cannot be read: %s", model,
             strerror(error));
}

const struct mlgo_policy *load_policy(const struct settings *settings, const struct clang *clang,
                                      enum problem problem, int *file,
                                      struct message *message) {
  const char *kind = PROBLEMS[problem].name, *model = settings->models[problem];
  char key[KEY_DIGITS + 1], named[KEY_DIGITS + 1], path[4096], refusal_path[4096];
  char name[128], refusal[128];
  size_t size;
  if (!model_key(key, model, vocabulary_of(settings, problem))) {
    say_unreadable(model, message);
    return NULL;
  }
  key_of_named(named, key, model);
  snprintf(name, sizeof name, "%s-%s.so", kind, key);
  snprintf(refusal, sizeof refusal, "%s-%s.error", kind, named);
  if (!kept_path(path, sizeof path, name) ||
      !kept_path(refusal_path, sizeof refusal_path, refusal)) {
    snprintf(message->text, MESSAGE_BYTES, "policy: expected a shorter path of the cache");
    return NULL;
  }
  *file = open_kept(name, &size);
  if (*file < 0) {
    if (read_kept(refusal, message->text, MESSAGE_BYTES) ||
        !freeze(settings, problem, clang->path, path, refusal_path, message))
      return NULL;
    *file = open_kept(name, &size);
  }
  if (*file < 0) {
    snprintf(message->text, MESSAGE_BYTES, "policy: expected '%.600s' whole, found it damaged",
             path);
    return NULL;
  }
  char opened[64];
  snprintf(opened, sizeof opened, OPEN_FILE "%d", *file);
  return load_library(opened, path, message);
}
