/* S-expressions with interned symbols whose cells live in an arena: reader,
 * printer, comparison and integer folding. */
#include "lisp.h"

#include <ctype.h>
#include <stdio.h>

#include "text_buffer.h"

enum { MAX_DEPTH = 100 };

static cell nil_cell = {CELL_NIL, {0}};

static uint32_t hash_name(const char *s, size_t n) {
  uint32_t h = 5381;
  while (n--)
    h = h * 33 ^ (unsigned char)*s++;
  return h;
}

static int symbol_is(const symbol *s, uint32_t hash, const char *name,
                     size_t n) {
  return s->hash == hash && strncmp(s->name, name, n) == 0 && !s->name[n];
}

static const symbol *intern(lisp_reader *r, const char *name, size_t n) {
  uint32_t hash = hash_name(name, n);
  symbol **bucket = &r->buckets[hash % SYMBOL_BUCKETS];
  for (symbol *s = *bucket; s; s = s->next)
    if (symbol_is(s, hash, name, n))
      return s;
  symbol *s = (symbol *)arena_alloc(&r->mem, sizeof *s);
  if (!s || !(s->name = arena_copy(&r->mem, name, n)))
    return NULL;
  s->hash = hash;
  s->next = *bucket;
  return *bucket = s;
}

static cell *fail(lisp_reader *r) {
  r->failed = 1;
  return &nil_cell;
}

static cell *new_cell(lisp_reader *r, cell_kind kind) {
  cell *c = (cell *)arena_alloc(&r->mem, sizeof *c);
  if (!c)
    return fail(r);
  c->kind = kind;
  return c;
}

static cell *cons(lisp_reader *r, cell *head, cell *tail) {
  cell *c = new_cell(r, CELL_PAIR);
  if (c->kind == CELL_PAIR) {
    c->u.pair.head = head;
    c->u.pair.tail = tail;
  }
  return c;
}

static cell *make_int(lisp_reader *r, int64_t v) {
  cell *c = new_cell(r, CELL_INT);
  if (c->kind == CELL_INT)
    c->u.number = v;
  return c;
}

static cell *make_symbol(lisp_reader *r, const char *name, size_t n) {
  const symbol *s = intern(r, name, n);
  cell *c = s ? new_cell(r, CELL_SYMBOL) : fail(r);
  if (c->kind == CELL_SYMBOL)
    c->u.sym = s;
  return c;
}

static char skip_space(lisp_reader *r) {
  for (;; r->pos++) {
    if (*r->pos == ';')
      while (*r->pos && *r->pos != '\n')
        r->pos++;
    if (!isspace((unsigned char)*r->pos))
      return *r->pos;
  }
}

static int is_atom_char(char c) {
  return c && !isspace((unsigned char)c) && c != '(' && c != ')' && c != ';' &&
         c != '\'';
}

static size_t atom_length(const char *s) {
  size_t n = 0;
  while (is_atom_char(s[n]))
    n++;
  return n;
}

static int parse_int(const char *s, size_t n, int64_t *out) {
  size_t i = n > 1 && *s == '-';
  int64_t v = 0;
  if (n - i > 18)
    return 0;
  for (size_t k = i; k < n; k++) {
    if (!isdigit((unsigned char)s[k]))
      return 0;
    v = v * 10 + (s[k] - '0');
  }
  *out = i ? -v : v;
  return 1;
}

static cell *read_datum(lisp_reader *r, int depth);

static cell *read_atom(lisp_reader *r) {
  size_t n = atom_length(r->pos);
  const char *s = r->pos;
  int64_t v;
  if (n == 0)
    return fail(r);
  r->pos += n;
  return parse_int(s, n, &v) ? make_int(r, v) : make_symbol(r, s, n);
}

static cell *read_list(lisp_reader *r, int depth) {
  cell *list = &nil_cell, **tail = &list;
  while (skip_space(r) != ')') {
    if (*r->pos == '\0' || r->failed)
      return fail(r);
    cell *c = cons(r, read_datum(r, depth), &nil_cell);
    if (c->kind != CELL_PAIR)
      return c;
    *tail = c;
    tail = &c->u.pair.tail;
  }
  r->pos++;
  return list;
}

static cell *read_datum(lisp_reader *r, int depth) {
  if (depth > MAX_DEPTH)
    return fail(r);
  switch (skip_space(r)) {
  case '(': r->pos++; return read_list(r, depth + 1);
  case '\'': {
    r->pos++;
    cell *quoted = read_datum(r, depth + 1);
    return cons(r, make_symbol(r, "quote", 5), cons(r, quoted, &nil_cell));
  }
  default: return read_atom(r);
  }
}

void lisp_init(lisp_reader *r) { memset(r, 0, sizeof *r); }
void lisp_done(lisp_reader *r) { arena_release(&r->mem); }

/* Reads one datum from `text`; NULL for a syntax error or no memory. */
cell *lisp_read(lisp_reader *r, const char *text) {
  r->pos = text;
  r->failed = 0;
  cell *c = read_datum(r, 0);
  return r->failed ? NULL : c;
}

size_t lisp_length(const cell *c) {
  size_t n = 0;
  for (; c->kind == CELL_PAIR; c = c->u.pair.tail)
    n++;
  return n;
}

static int head_named(const cell *c, const char *name) {
  const cell *h = c->u.pair.head;
  return h->kind == CELL_SYMBOL && strcmp(h->u.sym->name, name) == 0;
}

static uint64_t fold_step(char op, uint64_t acc, uint64_t v) {
  switch (op) {
  case '+': return acc + v;
  case '*': return acc * v;
  default: return acc - v;
  }
}

static int fold_args(const cell *args, char op, int64_t *out) {
  uint64_t acc = op == '*';
  for (size_t i = 0; args->kind == CELL_PAIR; args = args->u.pair.tail, i++) {
    int64_t v;
    if (!lisp_fold(args->u.pair.head, &v))
      return 0;
    acc = op == '-' && i == 0 ? (uint64_t)v : fold_step(op, acc, (uint64_t)v);
  }
  *out = (int64_t)acc;
  return 1;
}

/* Evaluates integer sums, differences and products; zero for anything else. */
int lisp_fold(const cell *c, int64_t *out) {
  if (c->kind == CELL_INT) {
    *out = c->u.number;
    return 1;
  }
  if (c->kind != CELL_PAIR)
    return 0;
  const cell *args = c->u.pair.tail;
  return head_named(c, "+")   ? fold_args(args, '+', out)
         : head_named(c, "*") ? fold_args(args, '*', out)
         : head_named(c, "-") ? fold_args(args, '-', out)
                              : 0;
}

int lisp_equal(const cell *a, const cell *b) {
  for (; a->kind == CELL_PAIR && b->kind == CELL_PAIR;
       a = a->u.pair.tail, b = b->u.pair.tail)
    if (!lisp_equal(a->u.pair.head, b->u.pair.head))
      return 0;
  if (a->kind != b->kind)
    return 0;
  return a->kind == CELL_INT      ? a->u.number == b->u.number
         : a->kind == CELL_SYMBOL ? a->u.sym == b->u.sym
                                  : 1;
}

static void print_cell(text_buffer *b, const cell *c) {
  char digits[24];
  switch (c->kind) {
  case CELL_NIL: put_text(b, "()"); break;
  case CELL_SYMBOL: put_text(b, c->u.sym->name); break;
  case CELL_INT:
    snprintf(digits, sizeof digits, "%lld", (long long)c->u.number);
    put_text(b, digits);
    break;
  case CELL_PAIR:
    put_char(b, '(');
    for (; c->kind == CELL_PAIR; c = c->u.pair.tail) {
      print_cell(b, c->u.pair.head);
      if (c->u.pair.tail->kind == CELL_PAIR)
        put_char(b, ' ');
    }
    put_char(b, ')');
    break;
  }
}

/* The datum as text, which the caller frees. */
char *lisp_print(const cell *c) {
  text_buffer b = {NULL, 0, 0, 0};
  print_cell(&b, c);
  return take_text(&b);
}
