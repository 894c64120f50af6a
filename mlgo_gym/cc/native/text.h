/* Files that are made for version control, and may come from anybody. */
#ifndef MLGO_TEXT_H
#define MLGO_TEXT_H

#include "driver.h"

#define WORDS_BYTES 160

/* All of a file, with a NUL behind it; NULL with words. */
char *read_text(const char *path, char words[WORDS_BYTES]);
/* Text without what a terminal would obey, or what would end a line of a log; long text is cut. */
void put_printable(char *to, size_t room, const char *text);
void digest_of_text(const char *text, char hex[2 * DIGEST_BYTES + 1]);

#endif
