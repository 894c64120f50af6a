/* The server process: clang's parent, where clang's own process does not answer. It answers LLVM
 * over FIFOs, and sees to it that nothing is left behind.
 *
 *   main process (the build started it)  ->  server  ->  clang  ->  its jobs, if it forks any
 *
 * A job that clang forked loses its parent when clang is killed and would wait for advice for ever; the
 * server, or if that was killed the main process, adopts it and ends it. */
#define _GNU_SOURCE
#include "traces.h"

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

static double now_s(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
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
               "expected clang's next word within %g s (MLGO_TIMEOUT), found none", job->timeout_s);
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

void run_server(const struct job *job, const sigset_t *mask, int signals, int report) {
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
      end_children(clang);
  }
  for (size_t index = 0; index < job->channel_count; ++index) {
    const struct answers *answers = job->channels[index].stream.answers;
    outcome.was_open = outcome.was_asked |= job->channels[index].was_open;
    outcome.is_right |= answers && answers->is_right;
  }
  remove_folder(job);
  _exit(write(report, &outcome, sizeof outcome) == sizeof outcome ? 0 : 1);
}
