/* What is read or held back in memory, since plain clang may have to start over: standard input, and
 * what clang says. */
#define _GNU_SOURCE
#include "driver.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int memory_file(void) { return memfd_create("mlgo-cc", MFD_CLOEXEC); }

bool keep_stdin(void) {
  char data[1 << 16];
  int copy = memory_file();
  if (copy < 0)
    return false;
  for (ssize_t length; (length = read(0, data, sizeof data)) != 0;) {
    if (length < 0 && errno == EINTR)
      continue;
    if (length < 0 || write(copy, data, (size_t)length) != length)
      return false;
  }
  lseek(copy, 0, SEEK_SET);
  return dup2(copy, 0) == 0 && !close(copy);
}

/* Writes all, also to a pipe that does not block. */
static bool write_whole(int stream, const char *data, ssize_t length) {
  for (ssize_t done; length > 0; data += done, length -= done)
    while ((done = write(stream, data, (size_t)length)) < 0) {
      struct pollfd ready = {.fd = stream, .events = POLLOUT};
      if (errno == EAGAIN)
        poll(&ready, 1, -1);
      else if (errno != EINTR)
        return false;
    }
  return true;
}

bool show(int copy, int stream) {
  char data[1 << 14];
  ssize_t length = 0;
  for (off_t at = 0; copy >= 0 && (length = pread(copy, data, sizeof data, at)) > 0; at += length)
    if (!write_whole(stream, data, length))
      return false;
  return length == 0;
}

static const char *behind_colours(const char *text) {
  while (*text == '\033') {
    text += strcspn(text, "m");
    text += *text == 'm';
  }
  return text;
}

/* Whether ":NUMBER" ends there. */
static bool is_place(const char *start, const char *end) {
  const char *digit = end;
  while (digit > start && isdigit((unsigned char)digit[-1]))
    --digit;
  return digit < end && digit > start && digit[-1] == ':';
}

static char *text_of(int copy) {
  struct stat about;
  char *text = copy < 0 || fstat(copy, &about) ? NULL : calloc((size_t)about.st_size + 1, 1);
  if (text && pread(copy, text, (size_t)about.st_size, 0) < 0)
    *text = 0;
  return text;
}

bool blames_a_source(int copy) {
  char *text = text_of(copy);
  bool is_found = false;
  const char *at = text ? strstr(text, ": ") : NULL;
  for (; at && !is_found; at = strstr(at + 1, ": ")) { /* f.c:1:2: error: */
    const char *word = behind_colours(at + 2);
    word += strncmp(word, "fatal ", 6) ? 0 : 6;
    is_found = is_place(text, at) && !strncmp(word, "error: ", 7);
  }
  free(text);
  return is_found;
}

bool takes_error(int copy, const char *program, struct message *message) {
  char *text = text_of(copy), start[64];
  snprintf(start, sizeof start, "%.40s: error: ", program);
  bool is_ours = text && !strncmp(text, start, strlen(start));
  if (is_ours)
    snprintf(message->text, MESSAGE_BYTES, "%.*s",
             (int)strcspn(text + strlen(start), "\n"), text + strlen(start));
  free(text);
  return is_ours;
}

bool misses_a_channel(int copy) {
  char *text = text_of(copy);
  bool is_found = text && strstr(text, "Cannot open inbound file");
  free(text);
  return is_found;
}

void drop(int copy) {
  if (copy >= 0 && !ftruncate(copy, 0))
    lseek(copy, 0, SEEK_SET);
}
