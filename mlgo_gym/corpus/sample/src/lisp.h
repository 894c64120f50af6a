/* S-expression cells and the reader that owns them. */
#ifndef SAMPLE_LISP_H
#define SAMPLE_LISP_H

#include <stdint.h>

#include "arena.h"

enum { SYMBOL_BUCKETS = 64 };

typedef struct symbol {
  struct symbol *next;
  const char *name;
  uint32_t hash;
} symbol;

typedef enum { CELL_NIL, CELL_INT, CELL_SYMBOL, CELL_PAIR } cell_kind;

typedef struct cell {
  cell_kind kind;
  union {
    int64_t number;
    const symbol *sym;
    struct {
      struct cell *head, *tail;
    } pair;
  } u;
} cell;

typedef struct {
  arena mem;
  symbol *buckets[SYMBOL_BUCKETS];
  const char *pos;
  int failed;
} lisp_reader;

void lisp_init(lisp_reader *r);
void lisp_done(lisp_reader *r);
cell *lisp_read(lisp_reader *r, const char *text);
size_t lisp_length(const cell *c);
int lisp_fold(const cell *c, int64_t *out);
int lisp_equal(const cell *a, const cell *b);
char *lisp_print(const cell *c);

#endif
