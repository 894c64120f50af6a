/* The host's end of LLVM's channel (llvm/lib/Analysis/InteractiveModelRunner.cpp): BASE.in to LLVM,
 * BASE.out from it.
 *
 *   {"features":[...],"advice":{...}}\n   once for each advisor that LLVM builds
 *   {"context":"NAME"}\n
 *   {"observation":N}\n RAW TENSORS \n    answered with the raw advice
 *
 * Clang runs the jobs of one command line one after another, and each opens the same names: a
 * header starts anew. The end to LLVM is open for reading too, so that LLVM never sees its end,
 * which it would take for answers. */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES (1 << 24)

static void name_of(const struct channel *channel, const char *end, char *path, size_t size) {
  snprintf(path, size, "%s.%s", channel->base, end);
}

static int open_outbound(const struct channel *channel) {
  char path[4200];
  name_of(channel, "out", path, sizeof path);
  return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

/* What clang is told names the model and nothing that differs from one run to the next: it gets
 * into objects (-grecord-command-line) and into the keys of ThinLTO's cache. */
static void name_channel(struct channel *channel, const char *folder, int folder_file) {
  char name[256];
  snprintf(name, sizeof name, "%s-%.64s-%zu", PROBLEMS[channel->problem].name,
           channel->policy->sha256, channel->policy->decision);
  snprintf(channel->base, sizeof channel->base, "%.3800s/%s", folder, name);
  if (folder_file >= 0)
    snprintf(channel->told, sizeof channel->told, "/proc/self/fd/%d/%s", folder_file, name);
  else
    memcpy(channel->told, channel->base, sizeof channel->told);
}

bool open_channel(struct channel *channel, const char *folder, int folder_file,
                  struct message *message) {
  char inbound[4200], outbound[4200];
  name_channel(channel, folder, folder_file);
  name_of(channel, "in", inbound, sizeof inbound);
  name_of(channel, "out", outbound, sizeof outbound);
  channel->inbound = channel->outbound = -1;
  if (!mkfifo(inbound, 0600) && !mkfifo(outbound, 0600)) {
    channel->inbound = open(inbound, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    channel->outbound = open_outbound(channel);
  }
  channel->capacity = 1 << 16;
  channel->buffer = malloc(channel->capacity);
  if (channel->inbound >= 0 && channel->outbound >= 0)
    return true;
  snprintf(message->text, MESSAGE_BYTES, "cannot make a channel in '%.512s': %s", folder,
           strerror(errno));
  return false;
}

void remove_channel(const struct channel *channel) {
  char path[4200];
  name_of(channel, "in", path, sizeof path);
  unlink(path);
  name_of(channel, "out", path, sizeof path);
  unlink(path);
}

/* Takes back an answer that a job which was killed did not wait for: the next would take it for
 * the answer to its first question. */
static void take_back(const struct channel *channel) {
  uint8_t unread[64];
  while (read(channel->inbound, unread, sizeof unread) > 0)
    continue;
}

/* LLVM has closed its end. Another reader without a past does not hang up at once. The next job may
 * ask before its header is looked at here, so that answers are taken back now. */
static bool start_over(struct channel *channel) {
  take_back(channel);
  int next = open_outbound(channel);
  close(channel->outbound);
  channel->outbound = next;
  channel->is_open = false;
  channel->used = 0;
  return next >= 0;
}

static bool take_header(struct channel *channel, size_t length, struct message *message) {
  take_back(channel);
  release_binding(channel->binding);
  channel->binding =
      bind_policy(channel->policy, channel->problem, (char *)channel->buffer, length, message);
  channel->is_open = channel->was_open = true;
  return channel->binding != NULL;
}

static bool send_answer(struct channel *channel, const uint8_t *observation,
                        struct message *message) {
  size_t size;
  const void *advice = answer(channel->binding, observation, &size, message);
  if (advice && write(channel->inbound, advice, size) != (ssize_t)size) {
    snprintf(message->text, MESSAGE_BYTES, "cannot answer clang: %s", strerror(errno));
    return false;
  }
  return advice != NULL;
}

/* Deals with the first message in the buffer; sets how long it is, 0 where it is not whole yet. */
static bool take_message(struct channel *channel, size_t *taken, struct message *message) {
  static const char OBSERVATION[] = "{\"observation\":", CONTEXT[] = "{\"context\":",
                    FEATURES[] = "{\"features\":";
  const char *text = (const char *)channel->buffer;
  const uint8_t *end = memchr(channel->buffer, '\n', channel->used);
  *taken = 0;
  if (!end)
    return true;
  size_t line = (size_t)(end - channel->buffer) + 1;
  if (!strncmp(text, FEATURES, strlen(FEATURES))) {
    *taken = line;
    return take_header(channel, line, message);
  }
  if (channel->binding && !strncmp(text, CONTEXT, strlen(CONTEXT))) {
    *taken = line;
    return true;
  }
  if (channel->binding && !strncmp(text, OBSERVATION, strlen(OBSERVATION))) {
    size_t whole = line + observation_bytes(channel->binding) + 1;
    if (channel->used < whole)
      return true;
    *taken = whole;
    return send_answer(channel, end + 1, message);
  }
  snprintf(message->text, MESSAGE_BYTES, "expected a message from clang, found '%.*s'",
           line > 40 ? 40 : (int)line - 1, text);
  return false;
}

static bool make_room(struct channel *channel) {
  if (channel->used + 1 < channel->capacity)
    return true;
  uint8_t *larger =
      channel->capacity < MOST_BYTES ? realloc(channel->buffer, 2 * channel->capacity) : NULL;
  if (!larger)
    return false;
  channel->buffer = larger;
  channel->capacity *= 2;
  return true;
}

bool serve_channel(struct channel *channel, struct message *message) {
  if (!make_room(channel)) {
    snprintf(message->text, MESSAGE_BYTES, "expected a message from clang of at most %d bytes",
             MOST_BYTES);
    return false;
  }
  ssize_t length = read(channel->outbound, channel->buffer + channel->used,
                        channel->capacity - channel->used - 1);
  if (length == 0)
    return start_over(channel);
  if (length < 0)
    return errno == EAGAIN || errno == EINTR;
  channel->used += (size_t)length;
  channel->buffer[channel->used] = 0;
  size_t taken;
  do {
    if (!take_message(channel, &taken, message))
      return false;
    channel->used -= taken;
    memmove(channel->buffer, channel->buffer + taken, channel->used + 1);
  } while (taken && channel->used);
  return true;
}
