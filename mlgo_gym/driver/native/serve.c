/* The server process: clang's parent. It answers LLVM, and sees to it that nothing is left behind.
 *
 *   main process (the build started it)  ->  server  ->  clang  ->  its jobs, if it forks any
 *
 * Each dies with its parent: the kernel sends the signal. A job that clang forked loses its parent
 * when clang is killed and would wait for advice for ever; the server, or if that was killed the
 * main process, adopts it and ends it. */
#define _GNU_SOURCE
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIND_MS 1000
#define STEP_MS 5

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void sleep_ms(long milliseconds) {
  nanosleep(&(struct timespec){milliseconds / 1000, milliseconds % 1000 * 1000000}, NULL);
}

/* Sends a signal to every child of this process; false where the kernel does not list them. */
static bool signal_children(int number) {
  FILE *list = fopen("/proc/thread-self/children", "re");
  long child;
  while (list && fscanf(list, "%ld", &child) == 1)
    kill((pid_t)child, number);
  if (list)
    fclose(list);
  return list != NULL;
}

/* Ends all children, adopted ones included; clang removes its unfinished outputs on SIGTERM. */
static void end_children(void) {
  for (int waited = 0;; waited += STEP_MS) {
    bool is_listed = signal_children(waited < KIND_MS ? SIGTERM : SIGKILL);
    pid_t ended;
    while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
      continue;
    if (ended < 0 || !is_listed)
      return;
    sleep_ms(STEP_MS);
  }
}

/* Removes a folder of ours that holds nothing but FIFOs. */
static void remove_fifos(const char *folder) {
  int file = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat about;
  bool is_ours = file >= 0 && !fstat(file, &about) && about.st_uid == getuid();
  DIR *directory = is_ours ? fdopendir(file) : NULL;
  if (!directory) {
    if (file >= 0)
      close(file);
    return;
  }
  for (struct dirent *entry; (entry = readdir(directory));)
    if (!fstatat(dirfd(directory), entry->d_name, &about, AT_SYMLINK_NOFOLLOW) &&
        S_ISFIFO(about.st_mode))
      unlinkat(dirfd(directory), entry->d_name, 0);
  closedir(directory);
  rmdir(folder);
}

void remove_folder(const struct job *job) {
  for (size_t index = 0; index < job->channel_count; ++index)
    remove_channel(&job->channels[index]);
  rmdir(job->folder);
}

/* What processes left behind that were killed together with their server. */
static void sweep(const struct job *job) {
  char parent[4096];
  snprintf(parent, sizeof parent, "%s", job->folder);
  char *name = strrchr(parent, '/');
  *name++ = 0;
  char *dash = strrchr(name, '-');
  while (dash > name && dash[-1] != '-') /* behind the pid is what makes the name unique */
    --dash;
  size_t prefix = (size_t)(dash - name);
  DIR *directory = opendir(parent);
  for (struct dirent *entry; directory && (entry = readdir(directory));) {
    if (strncmp(entry->d_name, name, prefix))
      continue;
    long owner = strtol(entry->d_name + prefix, NULL, 10);
    char path[4096];
    if (owner > 0 && kill((pid_t)owner, 0) && errno == ESRCH &&
        snprintf(path, sizeof path, "%s/%s", parent, entry->d_name) < (int)sizeof path)
      remove_fifos(path);
  }
  if (directory)
    closedir(directory);
}

void die_with(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    _exit(1);
}

/* Starts clang; the result is its pid, or -1 with errno. */
static pid_t start_clang(const struct job *job, const sigset_t *mask) {
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

static bool any_open(const struct job *job) {
  for (size_t index = 0; index < job->channel_count; ++index)
    if (job->channels[index].is_open)
      return true;
  return false;
}

static bool answer_all(const struct job *job, const struct pollfd *ready, struct message *message) {
  for (size_t index = 0; index < job->channel_count; ++index)
    if (ready[index].revents && !serve_channel(&job->channels[index], message))
      return false;
  return true;
}

/* Answers until clang has ended; false where it cannot go on, or was told to stop. */
static bool serve(const struct job *job, pid_t clang, int signals, struct outcome *outcome) {
  double last_word = now_s();
  struct pollfd ready[PROBLEM_COUNT + 1];
  pid_t ended;
  while ((ended = waitpid(clang, &outcome->status, WNOHANG)) == 0) {
    for (size_t index = 0; index < job->channel_count; ++index)
      ready[index] = (struct pollfd){.fd = job->channels[index].outbound, .events = POLLIN};
    ready[job->channel_count] = (struct pollfd){.fd = signals, .events = POLLIN};
    double left = any_open(job) ? last_word + job->timeout_s - now_s() : 3600;
    int count = poll(ready, job->channel_count + 1,
                     left > 3600 ? 3600000
                     : left < 0  ? 0
                                 : (int)(1000 * left));
    if (count == 0 && any_open(job) && now_s() >= last_word + job->timeout_s) {
      snprintf(outcome->message.text, MESSAGE_BYTES,
               "expected clang's next word within %g s, found none", job->timeout_s);
      return false;
    }
    struct signalfd_siginfo signal;
    while (read(signals, &signal, sizeof signal) == sizeof signal)
      if (signal.ssi_signo != SIGCHLD)
        return false;
    if (!answer_all(job, ready, &outcome->message))
      return false;
    if (count > 0)
      last_word = now_s();
  }
  if (ended != clang)
    snprintf(outcome->message.text, MESSAGE_BYTES, "cannot wait for clang: %s", strerror(errno));
  return ended == clang;
}

static void run_server(const struct job *job, const sigset_t *mask, int signals, int report) {
  struct outcome outcome = {0};
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_t clang = start_clang(job, mask);
  if (clang < 0)
    snprintf(outcome.message.text, MESSAGE_BYTES, "cannot start %s: %s", job->clang->path,
             strerror(errno));
  else {
    sweep(job);
    outcome.is_served = serve(job, clang, signals, &outcome);
    if (!outcome.is_served || WIFSIGNALED(outcome.status))
      end_children();
  }
  for (size_t index = 0; index < job->channel_count; ++index)
    outcome.was_asked |= job->channels[index].was_open;
  remove_folder(job);
  _exit(write(report, &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
}

/* Waits for the server; a signal that asks this process to end is passed on first. */
static int wait_for(pid_t server, int signals) {
  int asked = 0;
  while (waitpid(server, NULL, WNOHANG) == 0) {
    struct pollfd ready = {.fd = signals, .events = POLLIN};
    poll(&ready, 1, -1);
    struct signalfd_siginfo signal;
    while (read(signals, &signal, sizeof signal) == sizeof signal)
      if (signal.ssi_signo != SIGCHLD) {
        asked = (int)signal.ssi_signo;
        kill(server, SIGTERM);
      }
  }
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
  struct outcome outcome = {.message = {"the process that answers clang was killed"}};
  sigset_t mask, ours;
  int report[2];
  sigemptyset(&ours);
  for (const int *each = (int[]){SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, 0}; *each; ++each)
    sigaddset(&ours, *each);
  sigprocmask(SIG_BLOCK, &ours, &mask);
  int signals = signalfd(-1, &ours, SFD_NONBLOCK | SFD_CLOEXEC);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  pid_t parent = getpid();
  pid_t server = signals >= 0 && !pipe2(report, O_CLOEXEC) ? fork() : -1;
  if (server == 0) {
    die_with(parent);
    run_server(job, &mask, signals, report[1]);
  }
  int asked = 0;
  if (server > 0) {
    close(report[1]);
    asked = wait_for(server, signals);
    if (read(report[0], &outcome, sizeof outcome) != sizeof outcome)
      end_children();
    close(report[0]);
  } else
    snprintf(outcome.message.text, MESSAGE_BYTES, "cannot start a process: %s", strerror(errno));
  remove_folder(job);
  close(signals);
  if (asked)
    end_by(asked);
  prctl(PR_SET_CHILD_SUBREAPER, 0);
  sigprocmask(SIG_SETMASK, &mask, NULL);
  return outcome;
}
