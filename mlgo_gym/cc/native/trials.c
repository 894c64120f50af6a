/* How the objects come about that are compared. Plain clang compiles. Where a library in its
 * process finds LLVM's pipeline about to be built, it forks there once for each model, and the
 * sources are read once (forked.c); elsewhere, each model has a compilation of its own, after that.
 */
#define _GNU_SOURCE
#include "inside.h"
#include "smallest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct trial {
  struct settings settings; /* with the model; strict, since there must be its advice or nothing */
  struct channel channels[PROBLEM_COUNT];
  struct job job;
  int object;
  bool is_out; /* no good, as was said */
};

struct trials {
  const struct settings *settings;
  const struct clang *clang;
  const struct plan *plan;
  const char *models[MOST_MODELS];
  size_t count;
  struct trial *all;
  struct stat before; /* what stood under the object's name */
  bool are_forked;
};

static void leave_out(const struct trials *trials, size_t index, const char *reason) {
  bool goes_on = complain(trials->settings, reason, "; not compared");
  trials->all[index].is_out = true;
  if (goes_on)
    return;
  remove_written(trials->plan->object, &trials->before);
  exit(1);
}

static bool put_options(const struct trial *trial, struct page *page) {
  const char *options[MOST_OPTIONS];
  size_t count = advice_options(&trial->settings, &trial->job, options), used = 0;
  for (size_t index = 0; index < count; ++index) {
    size_t size = strlen(options[index]) + 1;
    if (used + size >= sizeof page->options)
      return false;
    memcpy(page->options + used, options[index], size);
    used += size;
  }
  return true;
}

/* Looks at all models before anything compiles; the result is how many can be compared. */
static size_t open_models(const struct trials *trials) {
  size_t count = 0;
  for (size_t index = 0; index < trials->count; ++index) {
    struct trial *trial = &trials->all[index];
    struct message message = {""};
    trial->settings = *trials->settings;
    take_model(&trial->settings, trials->models[index]);
    trial->settings.is_strict = true;
    trial->job = (struct job){.clang = trials->clang,
                              .shared = &trials->plan->shared,
                              .channels = trial->channels,
                              .folder_file = -1,
                              .vocabulary = -1,
                              .is_forked = true};
    if (open_policies(&trial->job, &trial->settings, trials->plan, &message))
      ++count;
    else
      leave_out(trials, index, message.text);
  }
  return count;
}

/* What a process forked for a model needs; false where there can be none. */
static bool open_trial(const struct trials *trials, size_t index, int *page_file) {
  struct trial *trial = &trials->all[index];
  *page_file = -1;
  if (trial->is_out)
    return true;
  trial->object = memory_file();
  if (trial->object < 0 || !open_inside(&trial->job))
    return false;
  *page_file = trial->job.preload.page_file;
  trial->job.preload.page->object_file = trial->object;
  return put_options(trial, trial->job.preload.page);
}

static bool may_fork(const struct trials *trials) {
  return trials->settings->is_in_process && trials->clang->can_preload &&
         strlen(trials->plan->object) < PATH_BYTES;
}

/* Lets a library into plain clang that forks; false where that cannot be done. */
static bool open_forks(const struct trials *trials, struct preload *preload) {
  if (!may_fork(trials) || !open_preload(preload))
    return false;
  struct page *page = preload->page;
  page->is_trial = false;
  page->shared = trials->plan->shared;
  strcpy(page->object, trials->plan->object);
  for (size_t index = 0; index < trials->count; ++index)
    if (!open_trial(trials, index, &page->forks[index].page))
      return false;
  page->fork_count = trials->count;
  return true;
}

/* Waits for a child, which this process has started for nothing else. */
static int wait_for(pid_t child) {
  int status = 0;
  pid_t ended = child;
  while (child > 0 && (ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
    continue;
  if (child < 0 || ended != child) {
    say("error", "cannot wait for clang: ", strerror(errno));
    exit(1);
  }
  return status;
}

static int run_plain(const struct trials *trials) {
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    die_with(parent);
    _exit(become_clang(trials->settings, trials->clang));
  }
  return end_as(wait_for(child));
}

static int compile_plainly(void *data) {
  struct trials *trials = data;
  struct job job = {.clang = trials->clang,
                    .folder_file = -1,
                    .vocabulary = -1,
                    .is_inside = true,
                    .stdout_copy = -1,
                    .stderr_copy = -1};
  if (!open_forks(trials, &job.preload))
    return run_plain(trials);
  job.arguments = plain_arguments(trials->settings, trials->clang);
  struct outcome outcome = run_job(&job);
  if (!outcome.is_served) {
    say("error", outcome.message.text, "");
    return 1;
  }
  trials->are_forked = atomic_load(&job.preload.page->has_forked);
  if (!outcome.status || atomic_load(&job.preload.page->is_loaded))
    return end_as(outcome.status);
  if (trials->plan->reads_stdin) /* what cannot be loaded does no harm either */
    lseek(0, 0, SEEK_SET);
  return run_plain(trials);
}

static int forked_object(const struct trials *trials, size_t index) {
  const struct trial *trial = &trials->all[index];
  const struct page *page = trial->job.preload.page;
  if (atomic_load(&page->state) == HAS_GIVEN_UP)
    leave_out(trials, index, page->message.text);
  return atomic_load(&page->is_whole) ? trial->object : -1;
}

/* In a child: what it is to say is not said, unless we are to blame. What clang writes besides by its
 * environment stays as plain clang has written it. */
static void run_trial(const struct trials *trials, size_t index, int copy) {
  static const char *const LOGS[] = {"CC_LOG_DIAGNOSTICS",      "CC_PRINT_HEADERS",
                                     "CC_PRINT_HEADERS_FORMAT", "CC_PRINT_OPTIONS",
                                     "CC_PRINT_PROC_STAT",      "CC_PRINT_INTERNAL_STAT"};
  for (size_t each = 0; each < sizeof LOGS / sizeof *LOGS; ++each)
    unsetenv(LOGS[each]);
  int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0 || dup2(nowhere, 1) < 0 || dup2(copy, 2) < 0)
    _exit(1);
  int status = compile(&trials->all[index].settings, trials->clang, trials->plan);
  fflush(stderr);
  _exit(status);
}

static int compiled_object(const struct trials *trials, size_t index) {
  struct message message;
  int copy = memory_file(), object = -1;
  if (trials->plan->reads_stdin)
    lseek(0, 0, SEEK_SET);
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    die_with(parent);
    run_trial(trials, index, copy);
  }
  int status = wait_for(child);
  if (!status) {
    object = memory_file();
    if (object >= 0 && !copy_to(object, trials->plan->object)) {
      close(object);
      object = -1;
    }
    remove_written(trials->plan->object, &trials->before); /* nobody may find it if we are killed */
  } else if (takes_error(copy, program, &message))
    leave_out(trials, index, message.text);
  if (copy >= 0)
    close(copy);
  return object;
}

static int object_of(void *data, size_t index, bool *is_overwritten) {
  const struct trials *trials = data;
  if (trials->all[index].is_out)
    return -1;
  if (trials->are_forked)
    return forked_object(trials, index);
  *is_overwritten = true;
  return compiled_object(trials, index);
}

/* Whether models can compile after clang's own compilation, where they have not been forked from it. */
static bool can_go_on(void *data, struct message *message) {
  const struct trials *trials = data;
  bool is_good = trials->are_forked || !trials->plan->repeated;
  if (!is_good)
    snprintf(message->text, MESSAGE_BYTES,
             "keep-smaller: a second compilation would write to the file of '%s' again",
             trials->plan->repeated);
  return is_good;
}

/* Whether another object could take the place of the one that stands there, which clang could write
 * to all the same. */
static bool can_replace(const struct trials *trials, struct message *message) {
  const char *object = trials->plan->object, *slash = strrchr(object, '/');
  char folder[PATH_BYTES];
  snprintf(folder, sizeof folder, "%.*s.", slash ? (int)(slash + 1 - object) : 0, object);
  bool is_good = !trials->before.st_ino || !faccessat(AT_FDCWD, folder, W_OK, AT_EACCESS);
  if (!is_good)
    snprintf(message->text, MESSAGE_BYTES, "keep-smaller: cannot make files beside '%.600s': %s",
             object, strerror(errno));
  return is_good;
}

/* What cannot be compared is left to clang: nothing is larger than its own. */
int compile_and_keep(const struct settings *settings, const struct clang *clang,
                     const struct plan *plan) {
  struct trials trials = {settings, clang, plan, .count = 0};
  struct message message = {""};
  if (plan->obstacle) {
    snprintf(message.text, sizeof message.text, "keep-smaller: %s", plan->obstacle);
    return fall_back(settings, clang, &message);
  }
  if (!plan->object)
    return become_clang(settings, clang);
  trials.count = models_to_compare(settings, trials.models);
  trials.all = calloc(trials.count, sizeof *trials.all);
  trials.before = look_before(plan->object);
  if (!open_models(&trials) || is_null_device(plan->object))
    return become_clang(settings, clang);
  if (!can_replace(&trials, &message) || (!may_fork(&trials) && !can_go_on(&trials, &message)))
    return fall_back(settings, clang, &message);
  if (plan->reads_stdin && !keep_stdin()) {
    say("error", "cannot keep standard input: ", strerror(errno));
    return 1;
  }
  struct attempts attempts = {.count = trials.count,
                              .names = trials.models,
                              .before = &trials.before,
                              .compile = compile_plainly,
                              .can_go_on = can_go_on,
                              .object_of = object_of,
                              .data = &trials};
  return compile_smallest(settings, plan, &attempts);
}
