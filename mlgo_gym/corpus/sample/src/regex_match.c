/* Backtracking matcher for compiled regular expressions: search, count,
 * replace and split. */
#include "regex.h"

#include "text_buffer.h"

/* What is left to match once the current sequence ends. */
typedef struct continuation {
  const struct continuation *outer;
  int node;       /* node to go on with, or NONE */
  int repeat;     /* repeat node that is being iterated, or NONE */
  int count;      /* iterations of it done so far */
  const char *at; /* where the current iteration started */
} continuation;

typedef struct {
  const regex *re;
  const char *begin;
  const char *end;
  long steps;
} matcher;

static int match_seq(matcher *m, int node, const char *s,
                     const continuation *k);

static int iterate(matcher *m, int repeat, int count, const char *s,
                   const continuation *k) {
  const regex_node *n = &m->re->nodes[repeat];
  if (count < n->max || n->max == UNBOUNDED) {
    continuation again = {k, NONE, repeat, count, s};
    if (match_seq(m, n->left, s, &again))
      return 1;
  }
  return count >= n->min && match_seq(m, n->next, s, k);
}

static int resume(matcher *m, const char *s, const continuation *k) {
  if (!k) {
    m->end = s;
    return 1;
  }
  if (k->repeat == NONE)
    return match_seq(m, k->node, s, k->outer);
  int count = k->count + 1;
  if (s == k->at && count > m->re->nodes[k->repeat].min)
    return 0; /* an empty iteration leads nowhere new */
  return iterate(m, k->repeat, count, s, k->outer);
}

static int char_matches(const matcher *m, const regex_node *n, char c) {
  if (c == '\0')
    return 0;
  if (n->kind == NODE_CLASS)
    return class_has(&m->re->classes[n->ch], (unsigned char)c);
  return n->kind == NODE_ANY || n->ch == (unsigned char)c;
}

static int match_seq(matcher *m, int node, const char *s,
                     const continuation *k) {
  for (; node != NONE; node = m->re->nodes[node].next) {
    const regex_node *n = &m->re->nodes[node];
    continuation after = {k, n->next, NONE, 0, s};
    if (--m->steps < 0)
      return 0;
    switch ((node_kind)n->kind) {
    case NODE_CHAR:
    case NODE_ANY:
    case NODE_CLASS:
      if (!char_matches(m, n, *s))
        return 0;
      s++;
      break;
    case NODE_START:
      if (s != m->begin)
        return 0;
      break;
    case NODE_END:
      if (*s)
        return 0;
      break;
    case NODE_GROUP: return match_seq(m, n->left, s, &after);
    case NODE_REPEAT: return iterate(m, node, 0, s, k);
    case NODE_ALT:
      return match_seq(m, n->left, s, k) || match_seq(m, n->right, s, k);
    }
  }
  return resume(m, s, k);
}

static int match_from(const regex *re, const char *text, const char *s,
                      const char **end) {
  matcher m = {re, text, NULL, 100000};
  if (!match_seq(&m, re->root, s, NULL))
    return 0;
  *end = m.end;
  return 1;
}

/* The first match at or after `s`; NULL when there is none. */
static const char *find_from(const regex *re, const char *text, const char *s,
                             const char **end) {
  do {
    if (match_from(re, text, s, end))
      return s;
  } while (*s++);
  return NULL;
}

/* Whether the whole text matches. */
int regex_matches(const regex *re, const char *text) {
  const char *end;
  return match_from(re, text, text, &end) && *end == '\0';
}

/* Finds the first match; returns its offset or -1 and stores its length. */
long regex_search(const regex *re, const char *text, size_t *length) {
  const char *end;
  const char *at = find_from(re, text, text, &end);
  if (!at)
    return -1;
  if (length)
    *length = (size_t)(end - at);
  return (long)(at - text);
}

/* Where to look for the match after the one at `at`; NULL after the last. */
static const char *advance(const char *at, const char *end) {
  if (end > at)
    return end;
  return *at ? at + 1 : NULL;
}

size_t regex_count(const regex *re, const char *text) {
  size_t n = 0;
  const char *s = text, *end;
  while (s && (s = find_from(re, text, s, &end)) != NULL) {
    n++;
    s = advance(s, end);
  }
  return n;
}

/* Copies the replacement; '&' in it stands for the matched text. */
static void put_replacement(text_buffer *b, const char *with, const char *at,
                            const char *end) {
  for (; *with; with++) {
    if (*with == '&')
      put_span(b, at, (size_t)(end - at));
    else
      put_char(b, *with);
  }
}

/* The text with every match replaced; the caller frees it. */
char *regex_replace(const regex *re, const char *text, const char *with) {
  text_buffer b = {NULL, 0, 0, 0};
  const char *s = text, *copied = text, *end;
  while (s) {
    const char *at = find_from(re, text, s, &end);
    if (!at)
      break;
    put_span(&b, copied, (size_t)(at - copied));
    put_replacement(&b, with, at, end);
    copied = end;
    s = advance(at, end);
  }
  put_text(&b, copied);
  return take_text(&b);
}

/* Splits at the matches that are not empty. Stores up to `max` offset and
 * length pairs; returns how many pieces there are. */
size_t regex_split(const regex *re, const char *text, size_t (*pieces)[2],
                   size_t max) {
  size_t n = 0;
  const char *s = text, *start = text, *end;
  for (;;) {
    const char *at = s ? find_from(re, text, s, &end) : NULL;
    if (at && at == end) {
      s = advance(at, end);
      continue;
    }
    if (n < max) {
      pieces[n][0] = (size_t)(start - text);
      pieces[n][1] = at ? (size_t)(at - start) : strlen(start);
    }
    n++;
    if (!at)
      return n;
    s = start = end;
  }
}
