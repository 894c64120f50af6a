/* Regular-expression parser: literals, '.', classes, escapes, groups,
 * alternation, anchors and the * + ? {m,n} quantifiers. */
#include "regex.h"

#include <ctype.h>
#include <string.h>

typedef struct {
  regex *re;
  const char *pos;
  int failed;
} parser;

static int parse_alternatives(parser *p);
static int fail(parser *p) {
  p->failed = 1;
  return NONE;
}

static int new_node(parser *p, node_kind kind) {
  if (p->re->node_count == MAX_NODES)
    return fail(p);
  int i = p->re->node_count++;
  regex_node *n = &p->re->nodes[i];
  memset(n, 0, sizeof *n);
  n->kind = (uint8_t)kind;
  n->next = n->left = n->right = NONE;
  return i;
}

static regex_node *node_at(parser *p, int i) {
  return &p->re->nodes[i < 0 ? 0 : i];
}

static int new_char(parser *p, node_kind kind, int ch) {
  int i = new_node(p, kind);
  if (i != NONE)
    node_at(p, i)->ch = (uint8_t)ch;
  return i;
}

static void class_add_range(char_class *c, int lo, int hi) {
  for (int ch = lo; ch <= hi; ch++)
    class_add(c, ch);
}

static void class_invert(char_class *c) {
  for (int i = 0; i < 32; i++)
    c->bits[i] = (uint8_t)~c->bits[i];
}

/* Adds what an escape such as \d stands for; zero if it is a plain one. */
static int class_add_escape(char_class *c, int ch) {
  char_class set = {{0}};
  switch (tolower(ch)) {
  case 'd': class_add_range(&set, '0', '9'); break;
  case 's':
    class_add(&set, ' ');
    class_add_range(&set, '\t', '\r');
    break;
  case 'w':
    class_add_range(&set, '0', '9');
    class_add_range(&set, 'a', 'z');
    class_add_range(&set, 'A', 'Z');
    class_add(&set, '_');
    break;
  default: return 0;
  }
  if (isupper(ch))
    class_invert(&set);
  for (int i = 0; i < 32; i++)
    c->bits[i] |= set.bits[i];
  return 1;
}

static int new_class(parser *p, char_class **out) {
  if (p->re->class_count == MAX_CLASSES)
    return fail(p);
  int index = p->re->class_count++;
  *out = &p->re->classes[index];
  memset(*out, 0, sizeof **out);
  return new_char(p, NODE_CLASS, index);
}

static int next_char(parser *p) {
  return *p->pos ? (unsigned char)*p->pos++ : fail(p);
}

static int accept(parser *p, char c) {
  if (*p->pos != c)
    return 0;
  p->pos++;
  return 1;
}

static int parse_class(parser *p) {
  char_class *set = NULL;
  int node = new_class(p, &set);
  int inverted = accept(p, '^');
  do {
    int lo = next_char(p);
    if (p->failed)
      return NONE;
    if (lo == '\\') {
      lo = next_char(p);
      if (class_add_escape(set, lo))
        continue;
    }
    int hi = lo;
    if (p->pos[0] == '-' && p->pos[1] && p->pos[1] != ']') {
      p->pos++;
      hi = next_char(p);
    }
    class_add_range(set, lo, hi);
  } while (!accept(p, ']') && !p->failed);
  if (inverted)
    class_invert(set);
  return node;
}

static int parse_escape(parser *p) {
  char_class probe = {{0}};
  int ch = next_char(p);
  if (p->failed || !class_add_escape(&probe, ch))
    return p->failed ? NONE : new_char(p, NODE_CHAR, ch);
  char_class *set = NULL;
  int node = new_class(p, &set);
  if (node != NONE)
    *set = probe;
  return node;
}

static int parse_group(parser *p) {
  int group = new_node(p, NODE_GROUP);
  int body = parse_alternatives(p);
  if (!accept(p, ')'))
    return fail(p);
  if (group != NONE)
    node_at(p, group)->left = (int16_t)body;
  return group;
}

static int parse_atom(parser *p) {
  int c = next_char(p);
  switch (c) {
  case '(': return parse_group(p);
  case '[': return parse_class(p);
  case '\\': return parse_escape(p);
  case '.': return new_node(p, NODE_ANY);
  case '^': return new_node(p, NODE_START);
  case '$': return new_node(p, NODE_END);
  case '*':
  case '+':
  case '?': return fail(p);
  default: return new_char(p, NODE_CHAR, c);
  }
}

static int parse_count(parser *p, int missing) {
  int v = 0;
  if (!isdigit((unsigned char)*p->pos))
    return missing;
  while (isdigit((unsigned char)*p->pos) && v < UNBOUNDED)
    v = v * 10 + (*p->pos++ - '0');
  return v < UNBOUNDED ? v : fail(p);
}

static int repeat_of(parser *p, int body, int min, int max) {
  int r = new_node(p, NODE_REPEAT);
  if (r != NONE) {
    regex_node *n = node_at(p, r);
    n->left = (int16_t)body;
    n->min = (uint8_t)min;
    n->max = (uint8_t)max;
  }
  return r;
}

static int parse_quantified(parser *p) {
  int atom = parse_atom(p);
  if (p->failed)
    return NONE;
  if (accept(p, '*'))
    return repeat_of(p, atom, 0, UNBOUNDED);
  if (accept(p, '+'))
    return repeat_of(p, atom, 1, UNBOUNDED);
  if (accept(p, '?'))
    return repeat_of(p, atom, 0, 1);
  if (accept(p, '{')) {
    int min = parse_count(p, 0);
    int max = accept(p, ',') ? parse_count(p, UNBOUNDED) : min;
    if (!accept(p, '}') || max < min)
      return fail(p);
    return repeat_of(p, atom, min, max);
  }
  return atom;
}

static int parse_sequence(parser *p) {
  int first = NONE, last = NONE;
  while (*p->pos && *p->pos != '|' && *p->pos != ')' && !p->failed) {
    int n = parse_quantified(p);
    if (n == NONE)
      break;
    if (last == NONE)
      first = n;
    else
      node_at(p, last)->next = (int16_t)n;
    last = n;
  }
  return first;
}

static int parse_alternatives(parser *p) {
  int left = parse_sequence(p);
  if (p->failed || !accept(p, '|'))
    return left;
  int alt = new_node(p, NODE_ALT);
  int right = parse_alternatives(p);
  if (alt != NONE) {
    node_at(p, alt)->left = (int16_t)left;
    node_at(p, alt)->right = (int16_t)right;
  }
  return alt;
}

/* Returns zero for a malformed or oversized pattern. */
int regex_compile(regex *re, const char *pattern) {
  parser p = {re, pattern, 0};
  memset(re, 0, sizeof *re);
  re->root = parse_alternatives(&p);
  return !p.failed && *p.pos == '\0';
}
