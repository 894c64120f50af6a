/* What the user asked for: an option counts before the environment, that before the file. */
#define _GNU_SOURCE
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
  const char *option, *variable, *key, *value, *help;
} NAMES[] = {
    {"--mlgo-clang=", "MLGO_CLANG", "clang", "PATH", "the clang that compiles"},
    {"--mlgo-inlining-model=", "MLGO_INLINING_MODEL", "inlining-model", "MODEL",
     "decides what is inlined"},
    {"--mlgo-regalloc-model=", "MLGO_REGALLOC_MODEL", "regalloc-model", "MODEL",
     "decides which live range is evicted"},
    {"--mlgo-ir2vec=", "MLGO_IR2VEC", "ir2vec", "FILE",
     "the vocabulary of embeddings, in place of that of the model's card"},
    {"--mlgo-size-increase-threshold=", "MLGO_SIZE_INCREASE_THRESHOLD", "size-increase-threshold",
     "X", "growth of a module at which LLVM stops asking the model (2)"},
    {"--mlgo-timeout=", "MLGO_TIMEOUT", "timeout", "SECONDS",
     "how long another process is waited for (300)"},
    {"--mlgo-strict=", "MLGO_STRICT", "strict", "1", "make mlgo-cc's own warnings errors"},
    {"--mlgo-in-process=", "MLGO_IN_PROCESS", "in-process", "0",
     "answer over FIFOs, not in clang's own process"},
    {"--mlgo-keep-smaller=", "MLGO_KEEP_SMALLER", "keep-smaller", "1|MODEL,...",
     "keep the smallest object, clang's own among them"},
    {"--mlgo-kept-log=", "MLGO_KEPT_LOG", "kept-log", "FILE", "note which object was kept"},
    {"--mlgo-traces=", "MLGO_TRACES", "traces", "DIR", "repeat the answers that a search found"},
    {"--mlgo-project=", "MLGO_PROJECT", "project", "FILE",
     "make functions local that no other object of the project shares"},
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

/* What the script passes on of its own name: aarch64-linux-gnu-clang compiles for that target. */
#define TARGET "--mlgo-target="

#ifndef MLGO_MODELS
#error "MLGO_MODELS is the folder of the models that ship with mlgo_gym"
#endif

static bool is_shipped(const char *name) {
  char card[4096];
  return snprintf(card, sizeof card, "%s/%s/card.json", MLGO_MODELS, name) < (int)sizeof card &&
         !access(card, R_OK);
}

/* The folder of a shipped model where a text is its name; or NULL. */
static char *shipped_folder(const char *text) {
  char *folder = NULL;
  bool is_name = text && !strchr(text, '/') && is_shipped(text);
  return is_name && asprintf(&folder, "%s/%s", MLGO_MODELS, text) >= 0 ? folder : NULL;
}

/* That of a shipped model where nothing of its name is here (`mlgo_gym.model._card.find_model`). */
static const char *model_folder(const char *text) {
  char *folder = text && access(text, F_OK) ? shipped_folder(text) : NULL;
  return folder ? folder : text;
}

bool hides_shipped(const char *model) {
  struct stat here, there;
  char *folder = shipped_folder(model);
  bool is_hidden = folder && !stat(model, &here) && !stat(folder, &there) &&
                   (here.st_dev != there.st_dev || here.st_ino != there.st_ino);
  free(folder);
  return is_hidden;
}

static int is_model(const struct dirent *entry) {
  return is_shipped(entry->d_name);
}

void name_shipped(char *text, size_t size) {
  struct dirent **entries;
  int count = scandir(MLGO_MODELS, &entries, is_model, alphasort);
  text[0] = 0;
  for (int index = 0; index < count; ++index) {
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s", length ? ", " : "", entries[index]->d_name);
    free(entries[index]);
  }
  if (count >= 0)
    free(entries);
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

/* Whether reading it might not end. */
static bool is_odd(const char *path) {
  struct stat about;
  return !stat(path, &about) && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode) &&
         !is_null_device(path);
}

/* Lines `key = value`; a line that starts with # is a comment. */
static bool read_file(const char *path, bool must_exist, const char **values,
                      struct message *message) {
  const char *found[COUNT] = {0};
  if (is_odd(path)) {
    snprintf(message->text, MESSAGE_BYTES, "cannot read %s: expected a file, found a pipe or a device",
             path);
    return false;
  }
  FILE *file = fopen(path, "re");
  bool is_good = file || (!must_exist && (errno == ENOENT || errno == ENOTDIR));
  if (!is_good)
    snprintf(message->text, MESSAGE_BYTES, "cannot read %s: %s", path, strerror(errno));
  if (!file)
    return is_good;
  char *line = NULL;
  size_t room = 0;
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
    if (!is_good)
      snprintf(message->text, MESSAGE_BYTES,
               "%s: expected KEY = VALUE with a key that "
               "mlgo-cc knows, found '%s'",
               path, text);
    else if (found[which]) {
      is_good = false;
      snprintf(message->text, MESSAGE_BYTES, "%s: expected '%s' once, found it again: '%s'", path,
               NAMES[which].key, text);
    } else
      found[which] = strdup(trimmed(equals + 1));
  }
  if (is_good && ferror(file)) { /* of a folder */
    is_good = false;
    snprintf(message->text, MESSAGE_BYTES, "cannot read %s: %s", path, strerror(errno));
  }
  for (size_t which = 0; which < COUNT; ++which)
    values[which] = values[which] ? values[which] : found[which];
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
  if (folder && *folder == '/') /* a relative one is to be ignored, by its specification */
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

static bool check_switch(const char *key, const char *value, struct message *message) {
  bool is_good = !value || !strcmp(value, "0") || !strcmp(value, "1");
  if (!is_good)
    snprintf(message->text, MESSAGE_BYTES, "%s: expected 0 or 1, found '%.600s'", key, value);
  return is_good;
}

static bool check_models(const struct settings *settings, struct message *message) {
  const char *models[MOST_MODELS];
  size_t count = models_to_compare(settings, models);
  bool is_good = count && count <= MOST_MODELS && models[0];
  if (count > MOST_MODELS)
    snprintf(message->text, MESSAGE_BYTES, "keep-smaller: expected at most %d models, found %zu",
             MOST_MODELS, count);
  else if (!is_good)
    snprintf(message->text, MESSAGE_BYTES,
             "keep-smaller: expected a model to compare with clang's own, found none");
  return is_good;
}

static bool check(struct settings *settings, const char **values, struct message *message) {
  double threshold;
  settings->timeout_s = 300;
  if (!check_switch("strict", values[STRICT], message) ||
      !check_switch("in-process", values[IN_PROCESS], message))
    return false;
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
  return !settings->keep_smaller || check_models(settings, message);
}

/* A value of one of ours; false where it is none of them. */
static bool take_value(char *argument, const char **values) {
  if (!strcmp(argument, "--mlgo-keep-smaller")) {
    values[KEEP_SMALLER] = "1";
    return true;
  }
  for (size_t which = 0; which < COUNT; ++which) {
    size_t length = strlen(NAMES[which].option);
    if (!strncmp(argument, NAMES[which].option, length)) {
      values[which] = argument + length;
      return true;
    }
  }
  return false;
}

/* A request in place of a compilation; false where it is none. */
static bool take_request(const char *argument, struct settings *settings) {
  bool *wanted = !strcmp(argument, "--mlgo-fingerprint")  ? &settings->wants_fingerprint
                 : !strcmp(argument, "--mlgo-traces-key") ? &settings->wants_key
                 : !strcmp(argument, "--mlgo-help")       ? &settings->wants_help
                 : !strcmp(argument, "--mlgo-launch")     ? &settings->is_launcher
                                                          : NULL;
  if (wanted)
    *wanted = true;
  return wanted != NULL;
}

/* Whether a name is a compiler's: clang, x86_64-linux-gnu-g++, clang++-22. */
static bool names_compiler(const char *path) {
  static const char *const COMPILERS[] = {"clang", "clang++", "gcc", "g++", "cc", "c++"};
  const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
  size_t length = strlen(base), digits = length;
  while (digits && strchr("0123456789.", base[digits - 1]))
    --digits;
  if (digits && digits < length && base[digits - 1] == '-')
    length = digits - 1;
  for (size_t index = 0; index < sizeof COMPILERS / sizeof *COMPILERS; ++index) {
    size_t size = strlen(COMPILERS[index]);
    if (length >= size && !strncmp(base + length - size, COMPILERS[index], size) &&
        (length == size || base[length - size - 1] == '-'))
      return true;
  }
  return false;
}

/* The compiler that a build system wants started, in front of its own arguments: a program, or the
 * name of one on PATH, where no file is called so. */
static bool is_launched(const struct settings *settings, const char *argument) {
  if (settings->launched || settings->argument_count != 1)
    return false;
  if (settings->is_launcher)
    return true;
  bool is_program = !access(argument, X_OK), is_name = !strchr(argument, '/') && access(argument, F_OK);
  return argument[0] != '-' && (is_program || is_name) && names_compiler(argument);
}

/* Takes our own options out of clang's arguments. */
static bool take_options(struct settings *settings, int argc, char **argv, const char **values,
                         struct message *message) {
  settings->arguments = calloc((size_t)argc + 2, sizeof *settings->arguments);
  settings->arguments[settings->argument_count++] = argv[0];
  for (int index = 1; index < argc; ++index) {
    if (!strncmp(argv[index], TARGET, strlen(TARGET))) {
      char *target = argv[index] + strlen("--mlgo-") - 2; /* "--target=..." of it, in place */
      settings->arguments[settings->argument_count++] = memcpy(target, "--", 2);
    } else if (!strncmp(argv[index], "--mlgo-", 7)) {
      if (!take_request(argv[index], settings) && !take_value(argv[index], values) &&
          !message->text[0])
        snprintf(message->text, MESSAGE_BYTES,
                 "unknown option '%.600s'; --mlgo-help lists those that exist", argv[index]);
    } else if (is_launched(settings, argv[index])) {
      settings->is_launcher = true;
      settings->launched = argv[index];
    } else
      settings->arguments[settings->argument_count++] = argv[index];
  }
  if (settings->is_launcher && !settings->launched && !settings->wants_help && !message->text[0])
    snprintf(message->text, MESSAGE_BYTES, "expected the compiler to launch, found none");
  return !message->text[0];
}

void print_help(void) {
  char names[MESSAGE_BYTES / 2];
  name_shipped(names, sizeof names);
  for (char *comma = names; (comma = strchr(comma, ',')); ++comma)
    *comma = '\n'; /* a line for each, and a space in front */
  printf("usage: mlgo-cc [OPTION ...] CLANG-ARGUMENT ...\n"
         "       mlgo-launch [OPTION ...] CLANG CLANG-ARGUMENT ...\n\n"
         "Compile by clang, with a model's decisions in place of LLVM's own.\n"
         "An option counts before its variable, that before ~/.config/mlgo-gym/cc.conf,\n"
         "whose keys are the options' names without '--mlgo-'.\n\n");
  for (size_t which = 0; which < COUNT; ++which)
    printf("  %s%s\n      %s\n      variable: %s\n", NAMES[which].option, NAMES[which].value,
           NAMES[which].help, NAMES[which].variable);
  printf("  --mlgo-fingerprint\n      print what decides the code besides sources and command line\n"
         "  --mlgo-traces-key\n      print what stands for this module in a search's answers.txt\n"
         "  --mlgo-help\n      print this\n\n"
         "MODEL is a folder, or the name of a shipped model:\n"
         " %s\n"
         "MLGO_CACHE names the folder of compiled models, MLGO_CONFIG another\n"
         "configuration file.\n",
         names);
}

void pass_timeout_on(const struct settings *settings) {
  char timeout[32];
  snprintf(timeout, sizeof timeout, "%g", settings->timeout_s);
  setenv("MLGO_TIMEOUT", timeout, 1);
}

static bool is_eviction_alone(const struct settings *settings) {
  return !strcmp(settings->keep_smaller, "1") && !settings->models[INLINING];
}

void take_model(struct settings *settings, const char *model) {
  if (!is_eviction_alone(settings)) /* whose model is set */
    settings->models[INLINING] = model;
}

size_t models_to_compare(const struct settings *settings, const char **models) {
  size_t count = 0;
  if (!strcmp(settings->keep_smaller, "1")) {
    models[count++] = settings->models[is_eviction_alone(settings) ? REGALLOC : INLINING];
    return count;
  }
  char *rest, *words = strdup(settings->keep_smaller);
  for (char *word = strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest), ++count)
    if (count < MOST_MODELS)
      models[count] = model_folder(word);
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
  for (size_t which = 0; which < COUNT; ++which) /* nothing in place of what else is set */
    values[which] = values[which] && *values[which] ? values[which] : NULL;
  settings->clang = settings->launched ? settings->launched : values[CLANG];
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
  settings->traces = values[TRACES];
  settings->project = values[PROJECT];
  return is_good && check(settings, values, message);
}
