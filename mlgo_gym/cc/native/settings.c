/* What the user asked for: an option counts before the environment, that before the file. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
  const char *option, *variable, *key;
} NAMES[] = {
    {"--mlgo-clang=", "MLGO_CLANG", "clang"},
    {"--mlgo-inlining-model=", "MLGO_INLINING_MODEL", "inlining-model"},
    {"--mlgo-regalloc-model=", "MLGO_REGALLOC_MODEL", "regalloc-model"},
    {"--mlgo-ir2vec=", "MLGO_IR2VEC", "ir2vec"},
    {"--mlgo-size-increase-threshold=", "MLGO_SIZE_INCREASE_THRESHOLD", "size-increase-threshold"},
    {"--mlgo-timeout=", "MLGO_TIMEOUT", "timeout"},
    {"--mlgo-strict=", "MLGO_STRICT", "strict"},
    {"--mlgo-in-process=", "MLGO_IN_PROCESS", "in-process"},
    {"--mlgo-keep-smaller=", "MLGO_KEEP_SMALLER", "keep-smaller"},
    {"--mlgo-kept-log=", "MLGO_KEPT_LOG", "kept-log"},
    {"--mlgo-traces=", "MLGO_TRACES", "traces"},
    {"--mlgo-project=", "MLGO_PROJECT", "project"},
};
enum {
  CLANG,
  INLINING_MODEL,
  REGALLOC_MODEL,
  IR2VEC,
  THRESHOLD,
  TIMEOUT,
  STRICT,
  IN_PROCESS,
  KEEP_SMALLER,
  KEPT_LOG,
  TRACES,
  PROJECT,
  COUNT
};

#ifndef MLGO_MODELS
#error "MLGO_MODELS is the folder of the models that ship with mlgo_gym"
#endif

/* The folder of a shipped model where a text is its name and nothing of that name is here
 * (`mlgo_gym.model._shipped.find_model`). */
static const char *model_folder(const char *text) {
  char *card = NULL;
  if (!text || strchr(text, '/') || !access(text, F_OK) ||
      asprintf(&card, "%s/%s/card.json", MLGO_MODELS, text) < 0)
    return text;
  bool is_shipped = !access(card, R_OK);
  *strrchr(card, '/') = 0;
  return is_shipped ? card : text;
}

static bool is_key(const char *line, size_t length, size_t *which) {
  for (*which = 0; *which < COUNT; ++*which)
    if (strlen(NAMES[*which].key) == length && !strncmp(NAMES[*which].key, line, length))
      return true;
  return false;
}

static char *trimmed(char *text) {
  text += strspn(text, " \t");
  size_t length = strlen(text);
  while (length && strchr(" \t\r\n", text[length - 1]))
    text[--length] = 0;
  return text;
}

/* Lines `key = value`; a line that starts with # is a comment. */
static bool read_file(const char *path, bool must_exist, const char **values,
                      struct message *message) {
  FILE *file = fopen(path, "re");
  if (!file) {
    snprintf(message->text, MESSAGE_BYTES, "cannot read %s: %s", path, strerror(errno));
    return !must_exist;
  }
  char *line = NULL;
  size_t room = 0;
  bool is_good = true;
  while (is_good && getline(&line, &room, file) >= 0) {
    char *text = trimmed(line);
    char *equals = strchr(text, '=');
    if (!*text || *text == '#')
      continue;
    size_t which;
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    while (length && strchr(" \t", text[length - 1]))
      --length;
    is_good = equals && is_key(text, length, &which);
    if (is_good && !values[which])
      values[which] = strdup(trimmed(equals + 1));
    if (!is_good)
      snprintf(message->text, MESSAGE_BYTES,
               "%s: expected KEY = VALUE with a key that "
               "mlgo-cc knows, found '%s'",
               path, text);
  }
  free(line);
  fclose(file);
  return is_good;
}

static bool read_configuration(const char **values, struct message *message) {
  const char *named = getenv("MLGO_CONFIG");
  if (named)
    return read_file(named, true, values, message);
  const char *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
  char path[4096];
  if (folder && *folder)
    snprintf(path, sizeof path, "%s/mlgo-gym/cc.conf", folder);
  else if (home && *home)
    snprintf(path, sizeof path, "%s/.config/mlgo-gym/cc.conf", home);
  else
    return true;
  return read_file(path, false, values, message);
}

/* A positive number, read as C reads it, whatever the locale. */
static bool is_positive(const char *text, double *value) {
  char *end;
  *value = strtod(text, &end);
  return end != text && !*end && *value > 0;
}

static bool check(struct settings *settings, const char **values, struct message *message) {
  double threshold;
  settings->timeout_s = 300;
  if (values[TIMEOUT] && !is_positive(values[TIMEOUT], &settings->timeout_s)) {
    snprintf(message->text, MESSAGE_BYTES, "timeout: expected seconds above 0, found '%s'",
             values[TIMEOUT]);
    return false;
  }
  if (values[THRESHOLD] && !is_positive(values[THRESHOLD], &threshold)) {
    snprintf(message->text, MESSAGE_BYTES,
             "size-increase-threshold: expected a number above 0, found '%s'", values[THRESHOLD]);
    return false;
  }
  if (settings->keep_smaller && !strcmp(settings->keep_smaller, "1") && !values[INLINING_MODEL]) {
    snprintf(message->text, MESSAGE_BYTES,
             "keep-smaller: expected an inlining-model to compare with clang's own, found none");
    return false;
  }
  return true;
}

/* Takes our own options out of clang's arguments. */
static bool take_options(struct settings *settings, int argc, char **argv, const char **values,
                         struct message *message) {
  settings->arguments = calloc((size_t)argc + 1, sizeof *settings->arguments);
  for (int index = 0; index < argc; ++index) {
    if (index == 0 || strncmp(argv[index], "--mlgo-", 7)) {
      settings->arguments[settings->argument_count++] = argv[index];
      continue;
    }
    bool is_known = !strcmp(argv[index], "--mlgo-fingerprint");
    settings->wants_fingerprint |= is_known;
    if (!strcmp(argv[index], "--mlgo-traces-key"))
      is_known = settings->wants_key = true;
    if (!strcmp(argv[index], "--mlgo-keep-smaller")) {
      values[KEEP_SMALLER] = "1";
      is_known = true;
    }
    for (size_t which = 0; which < COUNT && !is_known; ++which) {
      size_t length = strlen(NAMES[which].option);
      is_known = !strncmp(argv[index], NAMES[which].option, length);
      if (is_known)
        values[which] = argv[index] + length;
    }
    if (!is_known && !message->text[0])
      snprintf(message->text, MESSAGE_BYTES, "unknown option '%s'", argv[index]);
  }
  return !message->text[0];
}

void pass_timeout_on(const struct settings *settings) {
  char timeout[32];
  snprintf(timeout, sizeof timeout, "%g", settings->timeout_s);
  setenv("MLGO_TIMEOUT", timeout, 1);
}

size_t models_to_compare(const struct settings *settings, const char **models) {
  size_t count = 0;
  if (!strcmp(settings->keep_smaller, "1")) {
    models[count++] = settings->models[INLINING];
    return count;
  }
  char *rest, *words = strdup(settings->keep_smaller);
  for (char *word = strtok_r(words, ",", &rest); word && count < MOST_MODELS;
       word = strtok_r(NULL, ",", &rest))
    models[count++] = model_folder(word);
  return count;
}

bool read_settings(struct settings *settings, int argc, char **argv, struct message *message) {
  const char *values[COUNT] = {0};
  bool is_good = take_options(settings, argc, argv, values, message);
  for (size_t which = 0; which < COUNT; ++which) {
    const char *value = getenv(NAMES[which].variable);
    if (!values[which] && value && *value)
      values[which] = value;
  }
  is_good = is_good && read_configuration(values, message);
  if (is_good)
    message->text[0] = 0; /* a configuration file that is not there */
  settings->clang = values[CLANG];
  settings->is_strict = values[STRICT] && strcmp(values[STRICT], "0");
  settings->is_in_process = !values[IN_PROCESS] || strcmp(values[IN_PROCESS], "0");
  settings->models[INLINING] = model_folder(values[INLINING_MODEL]);
  settings->models[REGALLOC] = model_folder(values[REGALLOC_MODEL]);
  settings->ir2vec = values[IR2VEC];
  settings->threshold = values[THRESHOLD];
  settings->keep_smaller = values[KEEP_SMALLER] && strcmp(values[KEEP_SMALLER], "0")
                             ? values[KEEP_SMALLER]
                             : NULL;
  settings->kept_log = values[KEPT_LOG];
  settings->traces = values[TRACES] && *values[TRACES] ? values[TRACES] : NULL;
  settings->project = values[PROJECT] && *values[PROJECT] ? values[PROJECT] : NULL;
  return is_good && check(settings, values, message);
}
