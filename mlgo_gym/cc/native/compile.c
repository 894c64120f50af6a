/* Clang with advice: its word counts, or plain clang is to say it. */
#define _GNU_SOURCE
#include "smallest.h"
#include "traces.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_crash(int status) {
  int number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return number == SIGSEGV || number == SIGABRT || number == SIGILL || number == SIGBUS ||
         number == SIGFPE || number == SIGTRAP;
}

/* Whether the advice, the options that ask for it or the sources are to blame, plain clang will
 * tell. It need not where clang has found fault with a source before it asked. */
static bool is_doubtful(const struct outcome *outcome, int stderr_copy) {
  bool failed = WIFEXITED(outcome->status) && WEXITSTATUS(outcome->status);
  return is_crash(outcome->status) ||
         (failed && WEXITSTATUS(outcome->status) != LED_BACK &&
          (outcome->was_asked || !blames_a_source(stderr_copy)));
}

/* Plain clang, once more, with nothing on our side: its word counts. */
static int try_plain(const struct settings *settings, const struct clang *clang) {
  int status = 0;
  fflush(stderr);
  pid_t parent = getpid(), child = fork(), ended;
  if (child == 0) {
    die_with(parent);
    _exit(become_clang(settings, clang));
  }
  while (child > 0 && (ended = waitpid(child, &status, 0)) < 0 && errno == EINTR)
    continue;
  if (child > 0 && ended != child) {
    say("error", "cannot wait for clang: ", strerror(errno));
    return 1;
  }
  if (child > 0 && WIFEXITED(status) && !WEXITSTATUS(status))
    say("warning", "clang failed with advice", "; compiled by plain clang");
  return child > 0 ? end_as(status) : become_clang(settings, clang);
}

/* Whether LLVM did not find us: what is preloaded may have passed by one of clang's processes, a
 * linker that is static. */
static bool is_unreached(const struct outcome *outcome, const struct job *job) {
  bool failed = outcome->is_served && (is_crash(outcome->status) || WEXITSTATUS(outcome->status));
  if (!failed || !job->is_inside || job->stderr_copy < 0 ||
      WEXITSTATUS(outcome->status) == LED_BACK)
    return false;
  return misses_a_channel(job->stderr_copy) ||
         (!outcome->was_open && !blames_a_source(job->stderr_copy));
}

/* Once more, over FIFOs, with nothing said and nothing read yet. */
static bool run_again(struct job *job, const struct settings *settings, const struct plan *plan,
                      struct outcome *outcome) {
  close_inside(job);
  drop(job->stdout_copy);
  drop(job->stderr_copy);
  if (plan->reads_stdin)
    lseek(0, 0, SEEK_SET);
  *outcome = (struct outcome){0};
  if (!open_channels(job, &outcome->message))
    return false;
  job->arguments = advised(settings, plan, job);
  *outcome = run_job(job);
  return true;
}

/* What clang made counts, or plain clang is to make it. */
static int conclude(const struct settings *settings, const struct plan *plan, const struct job *job,
                    const struct outcome *outcome) {
  bool is_final = settings->is_strict || plan->runs_once || !is_doubtful(outcome, job->stderr_copy);
  if (outcome->is_served && is_final) {
    bool is_shown = show(job->stdout_copy, 1);
    if (!is_shown)
      say("error", "cannot write to standard output: ", strerror(errno));
    show(job->stderr_copy, 2);
    return is_shown ? end_as(outcome->status) : 1;
  }
  if (plan->runs_once) {
    say("error", outcome->message.text, "; a pipe among clang's files cannot be had twice");
    return 1;
  }
  if (plan->reads_stdin)
    lseek(0, 0, SEEK_SET);
  if (outcome->is_served)
    return try_plain(settings, job->clang);
  return fall_back(settings, job->clang, &outcome->message);
}

static struct job new_job(const struct settings *settings, const struct clang *clang,
                          const struct plan *plan, struct channel *channels) {
  return (struct job){.clang = clang,
                      .shared = &plan->shared,
                      .channels = channels,
                      .folder_file = -1,
                      .vocabulary = -1,
                      .timeout_s = settings->timeout_s,
                      .stdout_copy = -1,
                      .stderr_copy = -1};
}

int compile(const struct settings *settings, const struct clang *clang, const struct plan *plan) {
  struct channel channels[PROBLEM_COUNT] = {0};
  struct job job = new_job(settings, clang, plan, channels);
  struct message message = {""};
  if (!open_policies(&job, settings, plan, &message))
    return fall_back(settings, clang, &message);
  bool is_inside = settings->is_in_process && clang->can_preload && open_inside(&job);
  if (!is_inside && !open_channels(&job, &message))
    return fall_back(settings, clang, &message);
  if (plan->reads_stdin && !keep_stdin()) {
    remove_folder(&job);
    say("error", "cannot keep standard input: ", strerror(errno));
    return 1;
  }
  if (!plan->runs_once) { /* nothing is said twice */
    job.stdout_copy = memory_file();
    job.stderr_copy = memory_file();
  }
  job.arguments = advised(settings, plan, &job);
  if (plan->runs_once && !plan->is_unseen && !settings->is_strict && !is_accepted(&job)) {
    remove_folder(&job);
    return try_plain(settings, clang);
  }
  if (plan->is_thin_link && !is_inside)
    say("warning", "ThinLTO's back ends share one channel: linking with one thread", "");
  struct outcome outcome = run_job(&job);
  if (is_unreached(&outcome, &job) && !run_again(&job, settings, plan, &outcome))
    return fall_back(settings, clang, &outcome.message);
  return conclude(settings, plan, &job, &outcome);
}

static bool run_searched(const struct settings *settings, const struct plan *plan, struct job *job) {
  struct message message;
  bool is_inside = settings->is_in_process && job->clang->can_preload && open_inside(job);
  if (!is_inside && !open_channels(job, &message))
    return false;
  job->stdout_copy = memory_file();
  job->stderr_copy = memory_file();
  job->arguments = advised(settings, plan, job);
  struct outcome outcome = run_job(job);
  if (is_unreached(&outcome, job) && !run_again(job, settings, plan, &outcome))
    return false;
  close_inside(job);
  return outcome.is_served && !outcome.status && outcome.is_right && show(job->stdout_copy, 1) &&
         show(job->stderr_copy, 2);
}

bool compile_searched(const struct settings *settings, const struct clang *clang,
                      const struct plan *plan, struct answers *answers) {
  struct settings searched = *settings;
  struct mlgo_policy policy;
  struct channel channel = {.stream = {.problem = INLINING, .answers = answers}};
  struct job job = new_job(settings, clang, plan, &channel);
  struct stat before = look_before(plan->object);
  job.channel_count = 1;
  searched.threshold = NULL; /* LLVM's own */
  if (!open_answers(&channel, answers, &policy))
    return false;
  bool is_good = run_searched(&searched, plan, &job);
  if (!is_good) /* nobody may find it, should we be killed */
    remove_written(plan->object, &before);
  return is_good;
}
