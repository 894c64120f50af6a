/* Clang's command line with what is added to it: the advisors' options, and a terminal's colours. */
#define _GNU_SOURCE
#include "inside.h"

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

static void add(struct list *list, bool to_linker, const char *option) {
  if (to_linker)
    add_word(list, "-Xlinker");
  add_word(list, "-mllvm");
  if (to_linker)
    add_word(list, "-Xlinker");
  add_word(list, option);
}

static void add_advisor(struct list *list, const struct settings *settings,
                        const struct channel *channel) {
  const struct problem_flags *flags = &PROBLEMS[channel->stream.problem];
  add_word(list, flags->enable);
  add_word(list, joined(flags->channel, channel->told));
  if (flags->include_default && wants_input(channel->stream.policy, flags->default_name))
    add_word(list, flags->include_default);
  if (channel->stream.problem == INLINING && settings->threshold)
    add_word(list, joined("-ml-advisor-size-increase-threshold=", settings->threshold));
}

size_t advice_options(const struct settings *settings, const struct job *job,
                      const char **options) {
  struct list list = {(char **)options, 0};
  char path[64];
  for (size_t index = 0; index < job->channel_count; ++index)
    add_advisor(&list, settings, &job->channels[index]);
  if (job->is_forked) /* nothing that it has closed counts, and no option gets into an object */
    snprintf(path, sizeof path, DRIVERS_FILE, (int)getpid(), job->vocabulary);
  else
    snprintf(path, sizeof path, OPEN_FILE "%d", job->vocabulary);
  if (job->vocabulary >= 0) {
    add_word(&list, joined("-ml-inliner-ir2vec-vocab-file=", path));
    add_word(&list, joined("-ir2vec-vocab-path=", path));
  }
  return list.count;
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
  const char *options[MOST_OPTIONS];
  size_t count = advice_options(settings, job, options);
  add_word(&list, job->clang->name);
  if (job->clang->needs_cxx_mode)
    add_word(&list, "--driver-mode=g++");
  add_word(&list, "--start-no-unused-arguments");
  for (size_t index = 0; compiles && index < count; ++index)
    add(&list, false, options[index]);
  for (size_t index = 0; links && index < count; ++index)
    add(&list, true, options[index]);
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

char **plain_arguments(const struct settings *settings, const struct clang *clang) {
  struct list list = {calloc(settings->argument_count + 2, sizeof *list.items), 0};
  add_word(&list, clang->name);
  if (clang->needs_cxx_mode)
    add_word(&list, "--driver-mode=g++");
  for (size_t index = 1; index < settings->argument_count; ++index)
    add_word(&list, settings->arguments[index]);
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
