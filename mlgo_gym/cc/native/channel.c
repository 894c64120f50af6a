/* The host's end of LLVM's channel: BASE.in to LLVM, BASE.out from it.
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

#define PIECE_BYTES (1 << 16)

static void name_of(const struct channel *channel, const char *end, char *path, size_t size) {
  snprintf(path, size, "%s.%s", channel->base, end);
}

static int open_outbound(const struct channel *channel) {
  char path[4200];
  name_of(channel, "out", path, sizeof path);
  return open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
}

bool open_channel(struct channel *channel, const char *folder, struct message *message) {
  char inbound[4200], outbound[4200];
  name_of(channel, "in", inbound, sizeof inbound);
  name_of(channel, "out", outbound, sizeof outbound);
  channel->inbound = channel->outbound = -1;
  if (!mkfifo(inbound, 0600) && !mkfifo(outbound, 0600)) {
    channel->inbound = open(inbound, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    channel->outbound = open_outbound(channel);
  }
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
static bool reopen(struct channel *channel) {
  take_back(channel);
  int next = open_outbound(channel);
  close(channel->outbound);
  channel->outbound = next;
  channel->is_open = false;
  start_over(&channel->stream);
  return next >= 0;
}

static bool send(const struct channel *channel, const struct word *word, struct message *message) {
  if (write(channel->inbound, word->advice, word->size) == (ssize_t)word->size)
    return true;
  snprintf(message->text, MESSAGE_BYTES, "cannot answer clang: %s", strerror(errno));
  return false;
}

bool serve_channel(struct channel *channel, struct message *message) {
  uint8_t piece[PIECE_BYTES];
  struct word word;
  ssize_t length = read(channel->outbound, piece, sizeof piece);
  if (length == 0)
    return reopen(channel);
  if (length < 0)
    return errno == EAGAIN || errno == EINTR;
  if (!offer(&channel->stream, piece, (size_t)length, message))
    return false;
  do {
    bool is_good = next_word(&channel->stream, &word, message);
    if (word.kind == HEADER) {
      take_back(channel);
      channel->is_open = channel->was_open = true;
    }
    if (!is_good || (word.kind == OBSERVATION && !send(channel, &word, message)))
      return false;
  } while (word.kind != NO_WORD);
  return true;
}
