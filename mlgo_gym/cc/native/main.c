/* The process that the build started. It compiles with advice; where that cannot be done, it becomes
 * plain clang. */
#define _GNU_SOURCE
#include "project.h"
#include "text.h"
#include "traces.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MLGO_NATIVE
#error "MLGO_NATIVE is the folder of these files, and MLGO_NATIVE_S the time of its last change"
#endif

#define RENEWED "MLGO_RENEWED"
#define WITHOUT_PROJECT "; compiled without the project file"

const char *program = "mlgo-cc";

void say(const char *kind, const char *text, const char *rest) {
  char all[8 * MESSAGE_BYTES], shown[2 * sizeof all];
  snprintf(all, sizeof all, "%s%s", text, rest);
  put_printable(shown, sizeof shown, all);
  fprintf(stderr, "%s: %s: %s\n", program, kind, shown);
}

bool complain(const struct settings *settings, const char *text, const char *rest) {
  say(settings->is_strict ? "error" : "warning", text, settings->is_strict ? "" : rest);
  return !settings->is_strict;
}

int become_clang(const struct settings *settings, const struct clang *clang) {
  struct message message;
  execv(clang->path, plain_arguments(settings, clang));
  const char *reason = strerror(errno);
  snprintf(message.text, MESSAGE_BYTES, "cannot start %.900s: ", clang->path);
  say("error", message.text, reason);
  return 126;
}

int fall_back(const struct settings *settings, const struct clang *clang,
              const struct message *message) {
  if (settings->is_strict || clang->leads_back) {
    say("error", message->text, "");
    return clang->leads_back ? LED_BACK : 1;
  }
  bool is_other = settings->launched && clang->version < MINIMUM_CLANG;
  say("warning", message->text,
      is_other ? "; compiled without a model" : "; compiled by plain clang");
  return become_clang(settings, clang);
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
  struct plan plan = plan_of(settings);
  char *text = NULL;
  if (is_usable && check_cache(message) && check_clang(clang, message))
    text = fingerprint_of(settings, clang, plan.named, message);
  if (text)
    return printf("%s", text) < 0 || fflush(stdout) != 0;
  say("error", message->text, "");
  return 1;
}

/* What stands for the module in a folder of traces, for whoever writes one. */
static int print_key(const struct settings *settings, struct clang *clang,
                     struct message *message) {
  struct plan plan = plan_of(settings);
  char key[KEY_DIGITS + 1];
  if (check_cache(message) && check_clang(clang, message)) {
    if (module_key(key, settings, clang, &plan))
      return printf("%s\n", key) < 0 || fflush(stdout) != 0;
    const char *part = untold_part(settings, &plan);
    if (part)
      snprintf(message->text, MESSAGE_BYTES,
               "traces: expected options and headers that tell all that decides the code, "
               "found '%.200s'",
               part);
    else
      snprintf(message->text, MESSAGE_BYTES,
               "traces: expected a command line that makes one object of one source");
  }
  say("error", message->text, "");
  return 1;
}

/* Compiles by what search found, if it found something for this module; false where the folder of that
 * is bad. */
static bool try_traces(const struct settings *settings, const struct clang *clang,
                       const struct plan *plan, bool *is_done, struct message *message) {
  struct answers *answers;
  if (!find_answers(settings, clang, plan, &answers, message))
    return false;
  *is_done = answers && compile_searched(settings, clang, plan, answers);
  free(answers);
  return true;
}

/* Finds what the project file says of the object; false where that, or clang, is no good. */
static bool open_project(const struct settings *settings, const struct clang *clang,
                         struct plan *plan, struct message *message) {
  if (!find_shared(settings->project, plan->named, &plan->shared, message))
    return false;
  bool is_good = plan->shared.file < 0 || plan->shared.is_plain || (settings->is_in_process && clang->has_llvm);
  if (!is_good)
    snprintf(message->text, MESSAGE_BYTES, "project: expected a clang with LLVM in a shared "
             "library, which can be preloaded, found '%.600s'", clang->path);
  if (is_good || settings->is_strict)
    return is_good;
  say("warning", message->text, WITHOUT_PROJECT);
  plan->shared.file = -1;
  return true;
}

/* A model that is taken in place of a shipped one of the same name; or NULL. */
static const char *find_hiding(const struct settings *settings) {
  const char *models[MOST_MODELS + PROBLEM_COUNT];
  size_t count = settings->keep_smaller ? models_to_compare(settings, models) : 0;
  for (enum problem problem = 0; problem < PROBLEM_COUNT; ++problem)
    models[count++] = settings->models[problem];
  for (size_t index = 0; index < count; ++index)
    if (hides_shipped(models[index]))
      return models[index];
  return NULL;
}

static bool check_names(const struct settings *settings) {
  struct message message;
  const char *model = find_hiding(settings);
  if (model)
    snprintf(message.text, MESSAGE_BYTES,
             "model '%.300s': expected one of that name, found a shipped model and '%.300s' here, "
             "which './%.300s' names",
             model, model, model);
  return !model || complain(settings, message.text, "; that is taken");
}

/* When a file was last changed, as the kernel tells it: a library in this process may have the C library
 * tell another time (libfaketime). -1 where it cannot be told. */
static long long changed_s(const char *path) {
  struct statx about;
  bool is_told = !syscall(SYS_statx, AT_FDCWD, path, 0, STATX_MTIME, &about);
  return is_told ? (long long)about.stx_mtime.tv_sec : -1;
}

/* Where mlgo_gym has been installed again since this was made, has the script make it anew; once, since
 * the script may see other times than this. */
static void renew(char **argv) {
  char self[4096];
  const char *script = getenv("MLGO_SELF"), *renewed = getenv(RENEWED);
  long long time_s = changed_s(MLGO_NATIVE);
  bool is_renewed = renewed && script && !strcmp(renewed, script);
  unsetenv(RENEWED);
  ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  if (!script || length <= 0 || time_s < 0 || time_s == MLGO_NATIVE_S || is_renewed)
    return;
  self[length] = 0;
  setenv(RENEWED, script, 1);
  if (!unlink(self) || errno == ENOENT) /* else it is another user's to renew */
    execv(script, argv);
  unsetenv(RENEWED);
}

int main(int argc, char **argv) {
  struct settings settings = {0};
  struct clang clang;
  struct message message = {""}, refusal = {""};
  const char *slash = strrchr(argv[0], '/');
  program = slash ? slash + 1 : argv[0];
  renew(argv);
  open_standard_streams();
  signal(SIGCHLD, SIG_DFL); /* ignored, it would leave no status to wait for */
  settings.is_cxx = !strcmp(program, "mlgo-c++");
  settings.is_launcher = !strcmp(program, "mlgo-launch");
  bool is_told = take_cached_arguments(&argc, &argv, &message);
  bool is_usable = read_settings(&settings, argc, argv, &message) && is_told;
  if (settings.wants_help) {
    print_help();
    return fflush(stdout) != 0;
  }
  if (settings.is_launcher && !settings.launched) {
    say("error", message.text, "");
    return 1;
  }
  if (!find_clang(&settings, &clang, &refusal)) {
    say("error", refusal.text, "");
    return 1;
  }
  if (!check_nesting(&clang, &refusal))
    return fall_back(&settings, &clang, &refusal);
  if (settings.wants_fingerprint)
    return fingerprint(&settings, &clang, is_usable, &message);
  if (!is_usable)
    return fall_back(&settings, &clang, &message);
  if (settings.wants_key)
    return print_key(&settings, &clang, &message);
  struct plan plan = plan_of(&settings);
  bool has_model =
      settings.models[INLINING] || settings.models[REGALLOC] || settings.keep_smaller;
  bool has_project = settings.project && plan.named;
  if (plan.advisor && (has_model || settings.traces)) {
    snprintf(message.text, MESSAGE_BYTES, "expected no advisor on the command line beside a model, "
             "found '%s'; one of the two must go", plan.advisor);
    return fall_back(&settings, &clang, &message);
  }
  if (settings.project && plan.unnamed && plan.action != PASS_ON) {
    snprintf(message.text, MESSAGE_BYTES, "project: %s", plan.unnamed);
    if (!complain(&settings, message.text, WITHOUT_PROJECT))
      return 1;
  }
  if (plan.action == PASS_ON || !(has_model || has_project || settings.traces))
    return become_clang(&settings, &clang);
  if (!check_names(&settings))
    return 1;
  if (!check_cache(&message) || !check_clang(&clang, &message))
    return fall_back(&settings, &clang, &message);
  if (!check_compiler_cache(&settings, &clang, has_project, &message)) {
    if (!complain(&settings, message.text, has_project ? WITHOUT_PROJECT : ""))
      return 1;
    has_project = false;
  }
  if (has_project && !open_project(&settings, &clang, &plan, &message))
    return fall_back(&settings, &clang, &message);
  if (plan.shared.is_plain)
    return become_clang(&settings, &clang);
  bool is_done = false;
  if (settings.traces && !try_traces(&settings, &clang, &plan, &is_done, &message))
    return fall_back(&settings, &clang, &message);
  if (is_done || !(has_model || plan.shared.file >= 0))
    return is_done ? 0 : become_clang(&settings, &clang);
  if (settings.keep_smaller)
    return compile_and_keep(&settings, &clang, &plan);
  return compile(&settings, &clang, &plan);
}
