/* What clang is started with: policies, what LLVM reads of them, and where it is to ask. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* For LLVM to read what the inliner's policy was made with, under a number that stays. */
static bool open_vocabulary(struct job *job, const struct mlgo_policy *policy,
                            struct message *message) {
  int file = memory_file();
  bool is_whole = file >= 0 && write(file, policy->vocabulary, policy->vocabulary_bytes) ==
                                   (ssize_t)policy->vocabulary_bytes;
  job->vocabulary = is_whole ? fcntl(file, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR) : -1;
  if (job->vocabulary < 0)
    snprintf(message->text, MESSAGE_BYTES, "cannot keep a vocabulary of %zu bytes: %s",
             policy->vocabulary_bytes, strerror(errno));
  close(file);
  return job->vocabulary >= 0;
}

bool open_policies(struct job *job, const struct settings *settings, const struct plan *plan,
                   struct message *message) {
  for (enum problem problem = 0; problem < PROBLEM_COUNT; ++problem) {
    if (!settings->models[problem])
      continue;
    struct channel *channel = &job->channels[job->channel_count++];
    channel->stream.problem = problem;
    channel->stream.policy =
        load_policy(settings, job->clang, problem, &channel->policy_file, message);
    const struct mlgo_policy *policy = channel->stream.policy;
    if (!policy || (policy->vocabulary_bytes && !plan->has_vocabulary &&
                    !open_vocabulary(job, policy, message)))
      return false;
  }
  return true;
}

/* What clang is told names the model and nothing that differs from one run to the next: it gets
 * into objects (-grecord-command-line) and into the keys of ThinLTO's cache. */
void name_channel(struct channel *channel, const char *folder, int number) {
  const struct stream *stream = &channel->stream;
  char name[256];
  snprintf(name, sizeof name, "%s-%.64s-%zu", PROBLEMS[stream->problem].name,
           stream->policy->sha256, stream->policy->decision);
  if (folder)
    snprintf(channel->base, sizeof channel->base, "%.3800s/%s", folder, name);
  if (number >= 0)
    snprintf(channel->told, sizeof channel->told, OPEN_FILE "%d/%s", number, name);
  else
    memcpy(channel->told, channel->base, sizeof channel->told);
}

/* The name that `mlgo_gym.stream._channel.remove_stale_folders` knows too. */
static bool make_folder(struct job *job, struct message *message) {
  const char *parent = getenv("TMPDIR");
  struct stat names = {0};
  parent = parent && *parent ? parent : "/tmp";
  stat("/proc/self/ns/pid", &names);
  int length = snprintf(job->folder, 3800, "%s/mlgo-gym-channel-%u-%llu-%ld-XXXXXX", parent,
                        (unsigned)getuid(), (unsigned long long)names.st_ino, (long)getpid());
  if (length < 3800 && mkdtemp(job->folder)) {
    int file = open(job->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    job->folder_file = fcntl(file, F_DUPFD_CLOEXEC, FIRST_DESCRIPTOR);
    close(file);
    return true;
  }
  snprintf(message->text, MESSAGE_BYTES,
           "cannot make a folder in '%.512s': %s; TMPDIR names another", parent, strerror(errno));
  return false;
}

bool open_channels(struct job *job, struct message *message) {
  if (!make_folder(job, message))
    return false;
  for (size_t index = 0; index < job->channel_count; ++index) {
    name_channel(&job->channels[index], job->folder, job->folder_file);
    if (!open_channel(&job->channels[index], job->folder, message)) {
      remove_folder(job);
      return false;
    }
  }
  return true;
}

void remove_folder(const struct job *job) {
  if (!*job->folder)
    return;
  for (size_t index = 0; index < job->channel_count; ++index)
    remove_channel(&job->channels[index]);
  rmdir(job->folder);
}
