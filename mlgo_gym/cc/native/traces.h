/* What search found: in a folder, and on its way to LLVM. */
#ifndef MLGO_TRACES_H
#define MLGO_TRACES_H

#include "driver.h"

/* answers.c */
struct answers {
  uint32_t count, next;
  uint8_t expected[KEY_BYTES];
  struct digest digest;
  int64_t advice;
  bool has_begun;
  bool is_right; /* LLVM has asked what it asked in the search, to the end */
  uint8_t bits[];
};
extern const struct mlgo_policy SEARCHED; /* what LLVM is to send, and is told */
bool begin_answers(struct answers *answers, const void *header, size_t length,
                   struct message *message);
const void *next_answer(struct answers *answers, const void *observation, size_t length,
                        struct message *message);

/* module.c */
/* The first word of a command line that decides code in a way that neither options nor headers tell; or
 * NULL. */
const char *untold_part(const struct settings *settings, const struct plan *plan);
/* Stands for the source as the preprocessor leaves it, the options and clang; false where the command
 * line is for more than one object, or not all that counts can be seen. */
bool module_key(char *key, const struct settings *settings, const struct clang *clang,
                const struct plan *plan);

/* traces.c */
#define MOST_ANSWERS (1 << 22)
/* The answers of a folder for a command line's module, NULL where there are none; false where the
 * folder is bad. */
bool find_answers(const struct settings *settings, const struct clang *clang,
                  const struct plan *plan, struct answers **found, struct message *message);
/* Tells what the whole folder holds. */
bool digest_of_traces(const struct settings *settings, char *text, struct message *message);
/* Lets a channel answer by them. */
bool open_answers(struct channel *channel, const struct answers *answers,
                  struct mlgo_policy *policy);

/* compile.c */
/* By what search found for this very module; false where LLVM asks otherwise now, or clang fails:
 * whatever came of it is made anew by others. */
bool compile_searched(const struct settings *settings, const struct clang *clang,
                      const struct plan *plan, struct answers *answers);

#endif
