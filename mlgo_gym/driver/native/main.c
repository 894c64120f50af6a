/* The process that the build started. It asks a server process to run clang with advice; where that
 * cannot be done, it becomes plain clang. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

const char *program = "mlgo-cc";

void say(const char *kind, const char *text, const char *rest) {
  fprintf(stderr, "%s: %s: %s%s\n", program, kind, text, rest);
}

int become_clang(const struct settings *settings, const struct clang *clang) {
  execv(clang->path, plain_arguments(settings, clang));
  fprintf(stderr, "%s: error: cannot start %s: %s\n", program, clang->path, strerror(errno));
  return 126;
}

/* Our side failed: a warning and plain clang, or where the user wants that an error. */
static int give_up(const struct settings *settings, const struct clang *clang,
                   const struct message *message) {
  if (settings->is_strict) {
    say("error", message->text, "");
    return 1;
  }
  say("warning", message->text, "; compiled by plain clang");
  return become_clang(settings, clang);
}

static int become_python(const struct settings *settings, const struct clang *clang) {
  char **arguments = calloc(settings->argument_count + 12, sizeof *arguments);
  size_t count = 0;
  const char *const start[] = {python_path(),
                               "-P",
                               "-m",
                               "mlgo_gym.driver._development",
                               settings->model_under_training,
                               settings->training_log ? settings->training_log : "",
                               clang->path,
                               clang->needs_cxx_mode ? "--driver-mode=g++" : NULL};
  pass_timeout_on(settings);
  if (settings->ir2vec)
    setenv("MLGO_IR2VEC", settings->ir2vec, 1);
  if (settings->threshold)
    setenv("MLGO_SIZE_INCREASE_THRESHOLD", settings->threshold, 1);
  for (size_t index = 0; index < sizeof start / sizeof *start && start[index]; ++index)
    arguments[count++] = (char *)start[index];
  memcpy(arguments + count, settings->arguments + 1,
         (settings->argument_count - 1) * sizeof *arguments);
  execv(python_path(), arguments);
  fprintf(stderr, "%s: error: cannot start %s: %s\n", program, python_path(), strerror(errno));
  return 1;
}

int end_as(int status) {
  if (!WIFSIGNALED(status))
    return WEXITSTATUS(status);
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
  signal(WTERMSIG(status), SIG_DFL);
  raise(WTERMSIG(status));
  return 128 + WTERMSIG(status);
}

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
         (failed && (outcome->was_asked || !blames_a_source(stderr_copy)));
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

/* Whether LLVM did not find us: what is preloaded may have passed by one of clang's processes, a linker
 * that is static. */
static bool is_unreached(const struct outcome *outcome, const struct job *job) {
  bool failed = outcome->is_served && (is_crash(outcome->status) || WEXITSTATUS(outcome->status));
  if (!failed || !job->is_inside || job->stderr_copy < 0)
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
static int conclude(const struct settings *settings, const struct plan *plan,
                    const struct job *job, const struct outcome *outcome) {
  bool is_final = settings->is_strict || plan->runs_once ||
                  !is_doubtful(outcome, job->stderr_copy);
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
  return give_up(settings, job->clang, &outcome->message);
}

int compile(const struct settings *settings, const struct clang *clang, const struct plan *plan) {
  struct channel channels[PROBLEM_COUNT] = {0};
  struct job job = {.clang = clang,
                    .channels = channels,
                    .folder_file = -1,
                    .vocabulary = -1,
                    .timeout_s = settings->timeout_s,
                    .stdout_copy = -1,
                    .stderr_copy = -1};
  struct message message = {""};
  if (!open_policies(&job, settings, plan, &message))
    return give_up(settings, clang, &message);
  bool is_inside = settings->is_in_process && clang->can_preload && open_inside(&job);
  if (!is_inside && !open_channels(&job, &message))
    return give_up(settings, clang, &message);
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
    return give_up(settings, clang, &outcome.message);
  return conclude(settings, plan, &job, &outcome);
}

/* Whoever started this may have closed them (ccache closes standard input); from here on none of our
 * own descriptors takes their place. */
static void open_standard_streams(void) {
  int file = open("/dev/null", O_RDWR);
  while (file >= 0 && file <= 2)
    file = open("/dev/null", O_RDWR);
  if (file > 2)
    close(file);
}

/* For a compiler cache, which keeps nothing where this fails. */
static int fingerprint(const struct settings *settings, struct clang *clang, bool is_usable,
                       struct message *message) {
  if (is_usable && settings->model_under_training) {
    snprintf(message->text, MESSAGE_BYTES, "development mode has no fingerprint: it writes logs");
    is_usable = false;
  }
  if (is_usable && check_cache(message) && check_clang(clang, message) &&
      print_fingerprint(settings, clang, message))
    return 0;
  say("error", message->text, "");
  return 1;
}

int main(int argc, char **argv) {
  struct settings settings = {0};
  struct clang clang;
  struct message message = {""}, refusal = {""};
  const char *slash = strrchr(argv[0], '/');
  program = slash ? slash + 1 : argv[0];
  open_standard_streams();
  signal(SIGCHLD, SIG_DFL); /* ignored, it would leave no status to wait for */
  settings.is_cxx = !strcmp(program, "mlgo-c++");
  bool is_usable = read_settings(&settings, argc, argv, &message);
  if (!find_clang(&settings, &clang, &refusal)) {
    say("error", refusal.text, "");
    return 1;
  }
  if (settings.wants_fingerprint)
    return fingerprint(&settings, &clang, is_usable, &message);
  if (!is_usable)
    return give_up(&settings, &clang, &message);
  struct plan plan = plan_of(&settings);
  bool has_model = settings.models[INLINING] || settings.models[REGALLOC] || settings.keep_smaller;
  if (plan.action == PASS_ON || !(has_model || settings.model_under_training))
    return become_clang(&settings, &clang);
  if (!check_cache(&message) || !check_clang(&clang, &message))
    return give_up(&settings, &clang, &message);
  if (settings.model_under_training)
    return become_python(&settings, &clang);
  if (settings.keep_smaller)
    return compile_and_keep(&settings, &clang, &plan);
  return compile(&settings, &clang, &plan);
}
