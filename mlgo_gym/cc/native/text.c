/* Files that are made for version control, and may come from anybody. */
#define _GNU_SOURCE
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_BYTES (1 << 26)

char *read_text(const char *path, char words[WORDS_BYTES]) {
  struct stat about = {0};
  char *text = NULL;
  int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0 || fstat(file, &about))
    snprintf(words, WORDS_BYTES, "cannot be read: %s", strerror(errno));
  else if (!S_ISREG(about.st_mode))
    snprintf(words, WORDS_BYTES, "expected a regular file");
  else if (about.st_size > MOST_BYTES)
    snprintf(words, WORDS_BYTES, "expected at most %d bytes, found %lld", MOST_BYTES,
             (long long)about.st_size);
  else
    text = calloc((size_t)about.st_size + 1, 1);
  if (text && pread(file, text, (size_t)about.st_size, 0) != (ssize_t)about.st_size) {
    snprintf(words, WORDS_BYTES, "cannot be read: %s", strerror(errno));
    free(text);
    text = NULL;
  }
  if (file >= 0)
    close(file);
  return text;
}

/* Ranges of characters that a terminal obeys, or that hide or turn letters; each range is of
 * characters that differ in their last byte of UTF-8 alone. */
static const struct {
  char first[5], last[5];
} HIDDEN[] = {
    {"\x01", "\x1f"},
    {"\x7f", "\x7f"},
    {"\xc2\x80", "\xc2\x9f"}, /* some terminals obey them as they do ESC and a letter */
    {"\xc2\xad", "\xc2\xad"},
    {"\xd8\x9c", "\xd8\x9c"},
    {"\xe2\x80\x8b", "\xe2\x80\x8f"},
    {"\xe2\x80\xa8", "\xe2\x80\xae"}, /* U+202E turns what follows */
    {"\xe2\x81\xa0", "\xe2\x81\xaf"},
    {"\xef\xbb\xbf", "\xef\xbb\xbf"},
};

/* The bytes of a hidden character, 0 if it is none. */
static size_t hidden_bytes(const char *at) {
  for (size_t index = 0; index < sizeof HIDDEN / sizeof *HIDDEN; ++index) {
    const char *first = HIDDEN[index].first, *last = HIDDEN[index].last;
    size_t most = strlen(first) - 1;
    if (!strncmp(at, first, most) && (uint8_t)at[most] >= (uint8_t)first[most] &&
        (uint8_t)at[most] <= (uint8_t)last[most])
      return most + 1;
  }
  return 0;
}

void put_printable(char *to, size_t room, const char *text) {
  size_t used = 0, hidden = 0;
  for (const char *at = text; *at && used + sizeof "\\x00" <= room; ++at) {
    hidden = hidden ? hidden - 1 : 0;
    if (!hidden)
      hidden = hidden_bytes(at);
    used += (size_t)snprintf(to + used, room - used, hidden ? "\\x%02x" : "%c", (uint8_t)*at);
  }
  to[used] = 0;
}

void digest_of_text(const char *text, char hex[2 * DIGEST_BYTES + 1]) {
  struct digest digest;
  uint8_t result[DIGEST_BYTES];
  begin_digest(&digest);
  add_to_digest(&digest, text, strlen(text));
  end_digest(&digest, result);
  write_hex(hex, result, sizeof result);
}
