/* Clang's command line with what is added to it: the advisors' options, and a terminal's colours. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Terminals that LLVM writes to in colour (llvm/lib/Support/Unix/Process.inc). */
static const char *const COLOURFUL[] = {"ansi",  "cygwin", "linux", "screen",
                                        "xterm", "vt100",  "rxvt"};

struct list {
  char **items;
  size_t count;
};

static void add_word(struct list *list, const char *word) {
  list->items[list->count++] = (char *)word;
}

static const char *joined(const char *option, const char *value) {
  char *text = NULL;
  if (asprintf(&text, "%s%s", option, value) < 0)
    abort();
  return text;
}

static void add(struct list *list, bool to_linker, const char *option, const char *value) {
  if (to_linker)
    add_word(list, "-Xlinker");
  add_word(list, "-mllvm");
  if (to_linker)
    add_word(list, "-Xlinker");
  add_word(list, joined(option, value));
}

static void add_vocabulary(struct list *list, bool to_linker, int file) {
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  add(list, to_linker, "-ml-inliner-ir2vec-vocab-file=", path);
  add(list, to_linker, "-ir2vec-vocab-path=", path);
}

static void add_advisor(struct list *list, bool to_linker, const struct settings *settings,
                        const struct channel *channel) {
  const struct problem_flags *flags = &PROBLEMS[channel->stream.problem];
  add(list, to_linker, flags->enable, "");
  add(list, to_linker, flags->channel, channel->told);
  if (flags->include_default && wants_input(channel->stream.policy, flags->default_name))
    add(list, to_linker, flags->include_default, "");
  if (channel->stream.problem == INLINING && settings->threshold)
    add(list, to_linker, "-ml-advisor-size-increase-threshold=", settings->threshold);
}

static bool has_colours(void) {
  const char *terminal = getenv("TERM"), *wish = getenv("NO_COLOR");
  if (!terminal || (wish && *wish))
    return false;
  for (size_t index = 0; index < COUNT(COLOURFUL); ++index)
    if (!strncmp(terminal, COLOURFUL[index], strlen(COLOURFUL[index])))
      return true;
  return strstr(terminal, "color") != NULL;
}

/* All of a link's code is generated in turn: threads would share FIFOs, and each take the other's
 * advice. */
static void add_turns(struct list *list) {
  add_word(list, "--start-no-unused-arguments");
  add_word(list, "-Wl,--thinlto-jobs=1,--lto-partitions=1");
  add_word(list, "--end-no-unused-arguments");
}

/* What clang would find out about the terminal that its messages are kept from until it ends. */
static void add_terminal(struct list *list) {
  const char *columns = getenv("COLUMNS");
  if (has_colours())
    add_word(list, "-fcolor-diagnostics");
  if (columns && atoi(columns) > 0)
    add_word(list, joined("-fmessage-length=", columns));
}

/* Ours stand in front, where nothing can swallow them and the user's have the last word. What keeps
 * a link in turn comes last, for it must have that word; behind "--" there are only inputs. */
char **advised(const struct settings *settings, const struct plan *plan, const struct job *job) {
  struct list list = {calloc(settings->argument_count + 64, sizeof *list.items), 0};
  bool links = plan->action != ADVISE_COMPILATION, compiles = plan->action != ADVISE_LINK;
  add_word(&list, job->clang->name);
  if (job->clang->needs_cxx_mode)
    add_word(&list, "--driver-mode=g++");
  add_word(&list, "--start-no-unused-arguments");
  for (size_t index = 0; index < job->channel_count; ++index) {
    if (compiles)
      add_advisor(&list, false, settings, &job->channels[index]);
    if (links)
      add_advisor(&list, true, settings, &job->channels[index]);
  }
  if (job->vocabulary >= 0 && compiles)
    add_vocabulary(&list, false, job->vocabulary);
  if (job->vocabulary >= 0 && links)
    add_vocabulary(&list, true, job->vocabulary);
  if (job->stderr_copy >= 0 && isatty(2))
    add_terminal(&list);
  add_word(&list, "--end-no-unused-arguments");
  bool is_told = !links || job->is_inside;
  for (size_t index = 1; index < settings->argument_count; ++index) {
    if (!is_told && !strcmp(settings->arguments[index], "--")) {
      add_turns(&list);
      is_told = true;
    }
    add_word(&list, settings->arguments[index]);
  }
  if (!is_told)
    add_turns(&list);
  return list.items;
}

bool is_accepted(const struct job *job) {
  char text[16];
  size_t count = 0;
  while (job->arguments[count])
    ++count;
  char **dry = calloc(count + 2, sizeof *dry);
  dry[0] = (char *)job->clang->path;
  dry[1] = (char *)"-###";
  memcpy(dry + 2, job->arguments + 1, (count - 1) * sizeof *dry);
  bool is_good = !ask(dry, NULL, text, sizeof text);
  free(dry);
  return is_good;
}
