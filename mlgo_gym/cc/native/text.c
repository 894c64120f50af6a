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

/* U+0080 to U+009F in UTF-8, which some terminals obey as they do ESC and a letter. */
static bool is_c1(const char *at) {
  return (uint8_t)at[0] == 0xc2 && ((uint8_t)at[1] & 0xe0) == 0x80;
}

void put_printable(char *to, size_t room, const char *text) {
  size_t used = 0;
  for (const char *at = text; *at && used + sizeof "\\x00" <= room; ++at) {
    bool is_control = (uint8_t)*at < 0x20 || *at == 0x7f || is_c1(at) || (at > text && is_c1(at - 1));
    used += (size_t)snprintf(to + used, room - used, is_control ? "\\x%02x" : "%c", (uint8_t)*at);
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
