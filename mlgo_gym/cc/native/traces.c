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
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME "answers.txt"
#define FIRST_LINE "mlgo-gym answers 1\n"
#define LAST_LINE "end\n"

static bool refuse(const struct settings *settings, const char *words, struct message *message) {
  snprintf(message->text, MESSAGE_BYTES, "traces '%.600s': " NAME ": %s", settings->traces, words);
  return false;
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
static bool check_lines(const struct settings *settings, const char *text,
                        struct message *message) {
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
    line = end + 1;
  }
  return true;
}

/* All of the file, where it is good; NULL with a message. */
static char *good_traces(const struct settings *settings, struct message *message) {
  char path[4096], words[WORDS_BYTES];
  snprintf(path, sizeof path, "%s/" NAME, settings->traces);
  char *text = read_text(path, words);
  if (text ? check_lines(settings, text, message) : refuse(settings, words, message))
    return text;
  free(text);
  return NULL;
}

bool find_answers(const struct settings *settings, const struct clang *clang,
                  const struct plan *plan, struct answers **found, struct message *message) {
  char key[KEY_DIGITS + 1], *text = good_traces(settings, message);
  const char *line = text ? text + strlen(FIRST_LINE) : LAST_LINE;
  *found = NULL;
  if (strcmp(line, LAST_LINE) && module_key(key, settings, clang, plan))
    for (; !*found && strcmp(line, LAST_LINE); line = strchr(line, '\n') + 1) {
      uint32_t count;
      const char *digits = strncmp(line, key, KEY_DIGITS) ? NULL : answers_in(line, &count);
      *found = digits ? answers_of(line, digits, count) : NULL;
    }
  bool is_good = text;
  free(text);
  return is_good;
}

bool digest_of_traces(const struct settings *settings, char *hex, struct message *message) {
  char *text = good_traces(settings, message);
  if (text)
    digest_of_text(text, hex);
  free(text);
  return text != NULL;
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
