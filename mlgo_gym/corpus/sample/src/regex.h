/* Compiled form of the small backtracking regular expressions. */
#ifndef SAMPLE_REGEX_H
#define SAMPLE_REGEX_H

#include <stddef.h>
#include <stdint.h>

enum { MAX_NODES = 128, MAX_CLASSES = 16, UNBOUNDED = 255, NONE = -1 };

typedef enum {
  NODE_CHAR,
  NODE_ANY,
  NODE_CLASS,
  NODE_START,
  NODE_END,
  NODE_GROUP,
  NODE_REPEAT,
  NODE_ALT
} node_kind;

typedef struct {
  uint8_t kind;
  uint8_t ch;       /* character or class index */
  uint8_t min, max; /* for repeats */
  int16_t next;     /* what follows in the sequence */
  int16_t left;     /* body of a group or repeat, first choice of an ALT */
  int16_t right;    /* second choice of an ALT */
} regex_node;

typedef struct {
  uint8_t bits[32];
} char_class;

typedef struct {
  regex_node nodes[MAX_NODES];
  char_class classes[MAX_CLASSES];
  int node_count;
  int class_count;
  int root;
} regex;

int regex_compile(regex *re, const char *pattern);
int regex_matches(const regex *re, const char *text);
long regex_search(const regex *re, const char *text, size_t *length);
size_t regex_count(const regex *re, const char *text);
char *regex_replace(const regex *re, const char *text, const char *with);

static inline void class_add(char_class *c, int ch) {
  c->bits[ch >> 3 & 31] |= (uint8_t)(1 << (ch & 7));
}

static inline int class_has(const char_class *c, int ch) {
  return c->bits[ch >> 3 & 31] >> (ch & 7) & 1;
}

#endif
