/* Clang and its jobs: they are started, waited for and ended here.
 *
 *   main process (the build started it)  ->  clang  ->  its jobs, if it forks any
 *
 * With FIFOs there is a server process between the first two (serve.c). Each dies with its parent: the
 * kernel sends the signal. A job that clang forked loses its parent when clang is killed, and is adopted
 * and ended by what is left of us. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIND_MS 1000
#define AGAIN_MS 200
#define STEP_MS 5
#define MOST_OTHERS 64

/* Children that this process had before it became ours: the shell's that started it with `exec`. */
static pid_t others[MOST_OTHERS];
static size_t other_count;

static void sleep_ms(long milliseconds) {
  nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

static bool is_other(pid_t child) {
  for (size_t index = 0; index < other_count; ++index)
    if (others[index] == child)
      return true;
  return false;
}

/* Calls for every child of this process; false where the kernel does not list them. */
static bool for_children(void (*call)(pid_t child, void *data), void *data) {
  FILE *list = fopen("/proc/thread-self/children", "re");
  long child;
  while (list && fscanf(list, "%ld", &child) == 1)
    call((pid_t)child, data);
  if (list)
    fclose(list);
  return list != NULL;
}

static void note_other(pid_t child, void *data) {
  (void)data;
  if (other_count < MOST_OTHERS)
    others[other_count++] = child;
}

struct ending {
  int number;
  size_t left;
};

static void end_child(pid_t child, void *data) {
  struct ending *ending = data;
  if (is_other(child) || waitpid(child, NULL, WNOHANG) == child)
    return;
  kill(child, ending->number);
  ++ending->left;
}

/* On its first signal clang removes what it has begun to write; a second one would end it before it is
 * through. The first may be the terminal's, so ours comes later, and seldom again. */
void end_children(pid_t clang) {
  for (int waited = 0;; waited += STEP_MS) {
    bool is_time = waited % AGAIN_MS == AGAIN_MS / 4;
    struct ending ending = {.number = waited >= KIND_MS ? SIGKILL : is_time ? SIGTERM : 0};
    if (!for_children(end_child, &ending) && clang > 0)
      end_child(clang, &ending);
    if (!ending.left)
      return;
    sleep_ms(STEP_MS);
  }
}

void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(1);
}

pid_t start_clang(const struct job *job, const sigset_t *mask) {
  int report[2], error = 0;
  if (pipe2(report, O_CLOEXEC))
    return -1;
  pid_t parent = getpid(), child = fork();
  if (child == 0) {
    die_with(parent);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (job->stdout_copy >= 0)
      dup2(job->stdout_copy, 1);
    if (job->stderr_copy >= 0)
      dup2(job->stderr_copy, 2);
    if (job->folder_file >= 0)
      fcntl(job->folder_file, F_SETFD, 0);
    if (job->vocabulary >= 0)
      fcntl(job->vocabulary, F_SETFD, 0);
    if (job->is_inside)
      put_preload(&job->preload);
    execv(job->clang->path, job->arguments);
    error = errno;
    _exit(write(report[1], &error, sizeof error) == sizeof error ? 127 : 126);
  }
  close(report[1]);
  if (child > 0 && read(report[0], &error, sizeof error) == sizeof error) {
    waitpid(child, NULL, 0);
    errno = error;
    child = -1;
  }
  close(report[0]);
  return child;
}

/* Sleeps until a child has ended or a signal asks this process to end, which is returned; or 0. */
static int next_signal(int signals) {
  struct pollfd ready = {.fd = signals, .events = POLLIN};
  struct signalfd_siginfo signal;
  int asked = 0;
  poll(&ready, 1, -1);
  while (read(signals, &signal, sizeof signal) == sizeof signal)
    if (signal.ssi_signo != SIGCHLD)
      asked = (int)signal.ssi_signo;
  return asked;
}

/* Waits for what clang's process has forked and left to us; the result is a signal that asked this
 * process to end, or 0. */
static int wait_for_forks(const struct page *page, int signals) {
  int asked = 0;
  for (size_t index = 0; index < page->fork_count && !asked; ++index) {
    pid_t child = atomic_load(&page->forks[index].pid);
    while (child > 0 && !asked && waitpid(child, NULL, WNOHANG) == 0)
      asked = next_signal(signals);
  }
  return asked;
}

/* Lets clang answer itself; the result is a signal that asked this process to end, or 0. */
static int run_inside(const struct job *job, const sigset_t *mask, int signals,
                      struct outcome *outcome) {
  struct page *page = job->preload.page;
  pid_t clang = signals < 0 ? -1 : start_clang(job, mask), ended = 0;
  int asked = 0;
  if (clang < 0) {
    snprintf(outcome->message.text, MESSAGE_BYTES, "cannot start %s: %s", job->clang->path,
             strerror(errno));
    return 0;
  }
  while (!asked && atomic_load(&page->state) != HAS_GIVEN_UP &&
         (ended = waitpid(clang, &outcome->status, WNOHANG)) == 0)
    asked = next_signal(signals);
  bool has_given_up = atomic_load(&page->state) == HAS_GIVEN_UP;
  if (has_given_up)
    outcome->message = page->message;
  else if (ended < 0)
    snprintf(outcome->message.text, MESSAGE_BYTES, "cannot wait for clang: %s", strerror(errno));
  outcome->is_served = ended == clang && !has_given_up;
  outcome->was_open = atomic_load(&page->is_open);
  outcome->was_asked = atomic_load(&page->is_asked);
  outcome->is_right = atomic_load(&page->is_right);
  if (outcome->is_served && !outcome->status)
    asked = wait_for_forks(page, signals);
  bool has_left_some = asked || (page->fork_count && outcome->status);
  if (!outcome->is_served || WIFSIGNALED(outcome->status) || has_left_some)
    end_children(ended ? 0 : clang);
  return asked;
}

/* Waits for the server; a signal that asks this process to end is passed on first. */
static int wait_for(pid_t server, int signals) {
  int asked = 0;
  while (waitpid(server, NULL, WNOHANG) == 0) {
    int number = next_signal(signals);
    if (number)
      kill(server, SIGTERM);
    asked = number ? number : asked;
  }
  return asked;
}

static int run_served(const struct job *job, const sigset_t *mask, int signals,
                      struct outcome *outcome) {
  int report[2], asked = 0;
  outcome->message = (struct message){"the process that answers clang was killed"};
  pid_t parent = getpid(), server = signals >= 0 && !pipe2(report, O_CLOEXEC) ? fork() : -1;
  if (server == 0) {
    die_with(parent);
    other_count = 0;
    run_server(job, mask, signals, report[1]);
  }
  if (server > 0) {
    close(report[1]);
    asked = wait_for(server, signals);
    if (read(report[0], outcome, sizeof *outcome) != sizeof *outcome)
      end_children(0);
    close(report[0]);
  } else
    snprintf(outcome->message.text, MESSAGE_BYTES, "cannot start a process: %s", strerror(errno));
  remove_folder(job);
  return asked;
}

static void end_by(int number) {
  sigset_t mask;
  signal(number, SIG_DFL);
  sigemptyset(&mask);
  sigaddset(&mask, number);
  raise(number);
  sigprocmask(SIG_UNBLOCK, &mask, NULL);
}

struct outcome run_job(const struct job *job) {
  struct outcome outcome = {0};
  sigset_t mask, ours;
  sigemptyset(&ours);
  for (const int *each = (int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0}; *each; ++each)
    sigaddset(&ours, *each);
  sigprocmask(SIG_BLOCK, &ours, &mask);
  int signals = signalfd(-1, &ours, SFD_NONBLOCK | SFD_CLOEXEC);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  other_count = 0;
  for_children(note_other, NULL);
  int asked = job->is_inside ? run_inside(job, &mask, signals, &outcome)
                             : run_served(job, &mask, signals, &outcome);
  close(signals);
  if (asked)
    end_by(asked);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return outcome;
}
