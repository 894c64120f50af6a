/* A folder of what search found. Its answers.txt is made for version control, and may come from
 * anybody:
 *
 *   mlgo-gym answers 1
 *   KEY QUESTIONS COUNT ANSWERS NAME    for each module, sorted by NAME
 *   end
 *
 * KEY stands for the module, QUESTIONS for what LLVM asks and is answered (answers.c); ANSWERS has
 * a hexadecimal digit for each four of COUNT, the first in the lowest bit. NAME is for people. */
#define _GNU_SOURCE
#include "traces.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define NAME "answers.txt"
#define FIRST_LINE "mlgo-gym answers 1\n"
#define LAST_LINE "end\n"
#define MOST_BYTES (1 << 26)
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What names files whose contents decide the code and which the preprocessor does not show. */
static const char *const UNSEEN[] = {
    "profile-use", "profile-instr-use", "profile-sample-use", "auto-profile", "-fmodule",
    "cxx-modules", "prebuilt-module", "include-pch", "ignorelist", "blacklist", "allowlist",
    "plugin", "-Xclang", "-Xpreprocessor", "--config",
};
/* What is about files besides the object. The word behind one of the first is its value. */
static const char *const OUTPUTS[] = {
    "-o", "--output", "-MF", "-MT", "-MQ", "-MJ", "-dumpdir",
    "--serialize-diagnostics", "-serialize-diagnostics",
};
static const char *const OUTPUT_PREFIXES[] = {"-M", "--output=", "-Wp,-M"};
/* What the preprocessor has seen to, and messages. The word behind one of the first is its value. */
static const char *const SEEN[] = {
    "-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-isysroot",
    "--sysroot",
};
static const char *const SEEN_PREFIXES[] = {
    "-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "--sysroot=",
    "-fdiagnostics-", "-fcolor-diagnostics", "-fno-color-diagnostics", "-fmessage-length=",
    "-fdebug-prefix-map=", "-ffile-prefix-map=", "-fmacro-prefix-map=",
    "-fdebug-compilation-dir=", "-ffile-compilation-dir=", "-pipe", "-pedantic",
};
static const char *const SEEN_ALONE[] = {"-c", "--compile", "-w", "--"};

static bool is_among(const char *argument, const char *const *words, size_t count) {
  for (size_t index = 0; index < count; ++index)
    if (!strcmp(argument, words[index]))
      return true;
  return false;
}

static bool begins(const char *argument, const char *const *prefixes, size_t count) {
  for (size_t index = 0; index < count; ++index)
    if (!strncmp(argument, prefixes[index], strlen(prefixes[index])))
      return true;
  return false;
}

static bool is_output(const char *argument) {
  bool names_object = !strncmp(argument, "-o", 2) && strncmp(argument, "-objc", 5);
  return names_object || begins(argument, OUTPUT_PREFIXES, COUNT(OUTPUT_PREFIXES));
}

static bool is_warning(const char *argument) {
  return !strncmp(argument, "-W", 2) && (argument[2] == '\0' || argument[3] != ',');
}

static bool is_seen(const char *argument) {
  return is_warning(argument) || is_among(argument, SEEN_ALONE, COUNT(SEEN_ALONE)) ||
         begins(argument, SEEN_PREFIXES, COUNT(SEEN_PREFIXES));
}

static bool can_tell_all(const struct settings *settings) {
  for (size_t index = 1; index < settings->argument_count; ++index) {
    const char *argument = settings->arguments[index];
    if (argument[0] == '@')
      return false;
    for (size_t each = 0; each < COUNT(UNSEEN); ++each)
      if (argument[0] == '-' && strstr(argument, UNSEEN[each]))
        return false;
  }
  return true;
}

static void add_text(struct digest *digest, const char *text) {
  add_to_digest(digest, text, strlen(text) + 1);
}

/* Takes in the options, and fills in a command line of the preprocessor's. */
static void read_arguments(struct digest *digest, char **command, const struct settings *settings,
                           const char *input) {
  for (size_t index = 1; index < settings->argument_count; ++index) {
    char *argument = settings->arguments[index];
    if (is_among(argument, OUTPUTS, COUNT(OUTPUTS))) {
      ++index;
      continue;
    }
    if (is_output(argument))
      continue;
    *command++ = argument;
    if (is_among(argument, SEEN, COUNT(SEEN)) && index + 1 < settings->argument_count)
      *command++ = settings->arguments[++index];
    else if (!is_seen(argument) && strcmp(argument, input))
      add_text(digest, argument);
  }
}

static bool add_preprocessed(struct digest *digest, char **command) {
  struct stat about;
  int output = memory_file(), errors = open("/dev/null", O_WRONLY | O_CLOEXEC);
  bool is_good = !run(command, NULL, output, errors) && !fstat(output, &about) &&
                 about.st_size && /* what is preprocessed already, or bitcode, is not printed */
                 add_file_to_digest(digest, output, (size_t)about.st_size) == (size_t)about.st_size;
  close(output);
  close(errors);
  return is_good;
}

bool module_key(char *key, const struct settings *settings, const struct clang *clang,
                const struct plan *plan) {
  struct digest digest;
  struct utsname machine;
  uint8_t result[DIGEST_BYTES];
  if (plan->action != ADVISE_COMPILATION || !plan->object || plan->reads_stdin ||
      plan->has_vocabulary || !can_tell_all(settings) || uname(&machine))
    return false;
  const char *dot = strrchr(plan->input, '.');
  char **command = calloc(settings->argument_count + 8, sizeof *command), **end = command;
  for (const char *const *word = (const char *const[]){clang->path, "-E", "-P", "-o", "-", NULL};
       *word; ++word)
    *end++ = (char *)*word;
  if (clang->needs_cxx_mode)
    *end++ = (char *)"--driver-mode=g++";
  begin_digest(&digest);
  add_to_digest(&digest, &clang->version, sizeof clang->version);
  add_text(&digest, machine.machine);
  add_text(&digest, settings->is_cxx ? "c++" : "c");
  add_text(&digest, dot ? dot : "");
  read_arguments(&digest, end, settings, plan->input);
  bool is_good = add_preprocessed(&digest, command);
  end_digest(&digest, result);
  write_hex(key, result, KEY_BYTES);
  free(command);
  return is_good;
}

static bool refuse(const struct settings *settings, const char *words, struct message *message) {
  snprintf(message->text, MESSAGE_BYTES, "traces '%.600s': " NAME ": %s", settings->traces, words);
  return false;
}

/* All of the file, with a NUL behind it; NULL with a message. */
static char *read_traces(const struct settings *settings, size_t *size, struct message *message) {
  char path[4096], words[128] = "";
  struct stat about = {0};
  char *text = NULL;
  snprintf(path, sizeof path, "%s/" NAME, settings->traces);
  int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0 || fstat(file, &about))
    snprintf(words, sizeof words, "cannot be read: %s", strerror(errno));
  else if (!S_ISREG(about.st_mode))
    snprintf(words, sizeof words, "expected a regular file");
  else if (about.st_size > MOST_BYTES)
    snprintf(words, sizeof words, "expected at most %d bytes, found %lld", MOST_BYTES,
             (long long)about.st_size);
  else
    text = calloc((size_t)about.st_size + 1, 1);
  *size = (size_t)about.st_size;
  if (text && pread(file, text, *size, 0) != (ssize_t)*size) {
    snprintf(words, sizeof words, "cannot be read: %s", strerror(errno));
    free(text);
    text = NULL;
  }
  if (file >= 0)
    close(file);
  if (!text)
    refuse(settings, words, message);
  return text;
}

static int digit_of(char digit) {
  static const char DIGITS[] = "0123456789abcdef";
  const char *found = digit ? strchr(DIGITS, digit) : NULL;
  return found ? (int)(found - DIGITS) : -1;
}

static bool is_hex(const char *text, size_t length) {
  for (size_t index = 0; index < length; ++index)
    if (digit_of(text[index]) < 0)
      return false;
  return true;
}

/* Of a line: where its answers are, and how many; NULL where it is no such line. */
static const char *answers_in(const char *line, uint32_t *count) {
  const char *at = line + 2 * (KEY_DIGITS + 1);
  if (strnlen(line, (size_t)(at - line)) != (size_t)(at - line) || !is_hex(line, KEY_DIGITS) ||
      line[KEY_DIGITS] != ' ' || !is_hex(line + KEY_DIGITS + 1, KEY_DIGITS) || at[-1] != ' ')
    return NULL;
  for (*count = 0; *at >= '0' && *at <= '9' && *count <= MOST_ANSWERS; ++at)
    *count = 10 * *count + (uint32_t)(*at - '0');
  size_t digits = ((size_t)*count + 3) / 4;
  if (!*count || *count > MOST_ANSWERS || *at++ != ' ' || strnlen(at, digits + 2) < digits + 2 ||
      !is_hex(at, digits) || at[digits] != ' ' || at[digits + 1] == '\n')
    return NULL;
  bool has_more = *count % 4 && digit_of(at[digits - 1]) >> *count % 4;
  return has_more ? NULL : at;
}

static struct answers *answers_of(const char *line, const char *digits, uint32_t count) {
  struct answers *answers = calloc(1, sizeof *answers + (count + 7) / 8);
  if (!answers)
    abort();
  answers->count = count;
  for (size_t index = 0; index < KEY_BYTES; ++index) {
    const char *at = line + KEY_DIGITS + 1 + 2 * index;
    answers->expected[index] = (uint8_t)(digit_of(at[0]) << 4 | digit_of(at[1]));
  }
  for (uint32_t index = 0; index < (count + 3) / 4; ++index)
    answers->bits[index / 2] |= (uint8_t)(digit_of(digits[index]) << 4 * (index % 2));
  return answers;
}

/* Goes through all lines, so that what is damaged is told whichever module comes first. */
static bool read_lines(const struct settings *settings, const char *text, const char *key,
                       struct answers **found, struct message *message) {
  char words[64];
  const char *line = text + strlen(FIRST_LINE);
  if (strncmp(text, FIRST_LINE, strlen(FIRST_LINE)))
    return refuse(settings, "expected '" NAME "' of version 1 in the first line", message);
  for (int number = 2; strcmp(line, LAST_LINE); ++number) {
    uint32_t count;
    const char *end = strchr(line, '\n'), *digits = end ? answers_in(line, &count) : NULL;
    if (!end)
      return refuse(settings, "expected 'end' in the last line, found it cut", message);
    if (!digits || digits > end) {
      snprintf(words, sizeof words, "line %d: expected KEY QUESTIONS COUNT ANSWERS NAME", number);
      return refuse(settings, words, message);
    }
    if (!*found && !strncmp(line, key, KEY_DIGITS))
      *found = answers_of(line, digits, count);
    line = end + 1;
  }
  return true;
}

bool find_answers(const struct settings *settings, const char *key, struct answers **found,
                  struct message *message) {
  size_t size;
  char *text = read_traces(settings, &size, message);
  *found = NULL;
  bool is_good = text && read_lines(settings, text, *key ? key : "-", found, message);
  if (!is_good) {
    free(*found);
    *found = NULL;
  }
  free(text);
  return is_good;
}

bool digest_of_traces(const struct settings *settings, char *hex, struct message *message) {
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  struct answers *none = NULL;
  size_t size;
  char *text = read_traces(settings, &size, message);
  bool is_good = text && read_lines(settings, text, "-", &none, message);
  begin_digest(&digest);
  add_to_digest(&digest, text ? text : "", text ? size : 0);
  end_digest(&digest, result);
  write_hex(hex, result, sizeof result);
  free(text);
  return is_good;
}

bool open_answers(struct channel *channel, const struct answers *answers,
                  struct mlgo_policy *policy) {
  static char name[KEY_DIGITS + 1];
  size_t size = sizeof *answers + (answers->count + 7) / 8;
  write_hex(name, answers->expected, KEY_BYTES);
  *policy = SEARCHED;
  policy->sha256 = name;
  channel->stream.policy = policy;
  channel->policy_file = memory_file();
  channel->answers_bytes = size;
  return write(channel->policy_file, answers, size) == (ssize_t)size;
}
