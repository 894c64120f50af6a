/* JSON reader: a recursive descent parser into a tree of nodes. */
#include "json.h"

#include <math.h>

#include "text_buffer.h"

typedef struct {
  const char *pos;
  int depth;
  const char *error;
} json_parser;

enum { MAX_DEPTH = 64 };

static json_node *parse_value(json_parser *p);

static void *fail(json_parser *p, const char *why) {
  if (!p->error)
    p->error = why;
  return NULL;
}

static json_node *new_node(json_parser *p, json_kind kind) {
  json_node *n = (json_node *)calloc(1, sizeof *n);
  if (!n)
    return (json_node *)fail(p, "out of memory");
  n->kind = kind;
  return n;
}

void json_free(json_node *n) {
  while (n) {
    json_node *next = n->next;
    json_free(n->child);
    free(n->text);
    free(n->key);
    free(n);
    n = next;
  }
}

static char skip_space(json_parser *p) {
  while (*p->pos == ' ' || *p->pos == '\t' || *p->pos == '\n' ||
         *p->pos == '\r')
    p->pos++;
  return *p->pos;
}

static int accept(json_parser *p, char c) {
  if (skip_space(p) != c)
    return 0;
  p->pos++;
  return 1;
}

static int accept_word(json_parser *p, const char *word) {
  size_t n = strlen(word);
  if (strncmp(p->pos, word, n) != 0)
    return 0;
  p->pos += n;
  return 1;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  if (c >= 'A' && c <= 'F')
    return c - 'A' + 10;
  return -1;
}

static int parse_hex4(json_parser *p) {
  int value = 0;
  for (int i = 0; i < 4; i++) {
    int d = hex_digit(*p->pos);
    if (d < 0)
      return -1;
    value = value * 16 + d;
    p->pos++;
  }
  return value;
}

static void put_utf8(text_buffer *b, unsigned cp) {
  if (cp < 0x80) {
    put_char(b, (char)cp);
  } else if (cp < 0x800) {
    put_char(b, (char)(0xc0 | cp >> 6));
    put_char(b, (char)(0x80 | (cp & 0x3f)));
  } else if (cp < 0x10000) {
    put_char(b, (char)(0xe0 | cp >> 12));
    put_char(b, (char)(0x80 | (cp >> 6 & 0x3f)));
    put_char(b, (char)(0x80 | (cp & 0x3f)));
  } else {
    put_char(b, (char)(0xf0 | cp >> 18));
    put_char(b, (char)(0x80 | (cp >> 12 & 0x3f)));
    put_char(b, (char)(0x80 | (cp >> 6 & 0x3f)));
    put_char(b, (char)(0x80 | (cp & 0x3f)));
  }
}

static int parse_unicode_escape(json_parser *p, text_buffer *b) {
  int cp = parse_hex4(p);
  if (cp >= 0xd800 && cp < 0xdc00 && accept_word(p, "\\u")) {
    int low = parse_hex4(p);
    if (low < 0xdc00 || low > 0xdfff)
      return 0;
    cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
  }
  if (cp <= 0 || (cp >= 0xd800 && cp < 0xe000))
    return 0;
  put_utf8(b, (unsigned)cp);
  return 1;
}

static int parse_escape(json_parser *p, text_buffer *b) {
  static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
  char c = *p->pos;
  if (c == '\0')
    return 0;
  p->pos++;
  if (c == 'u')
    return parse_unicode_escape(p, b);
  const char *at = strchr(names, c);
  if (!at)
    return 0;
  put_char(b, values[at - names]);
  return 1;
}

static char *parse_text(json_parser *p) {
  text_buffer b = {NULL, 0, 0, 0};
  if (!accept(p, '"'))
    return (char *)fail(p, "expected a string");
  while (!p->error && (unsigned char)*p->pos >= 0x20 && *p->pos != '"') {
    char c = *p->pos++;
    if (c != '\\')
      put_char(&b, c);
    else if (!parse_escape(p, &b))
      fail(p, "bad escape");
  }
  if (*p->pos == '"' && !p->error) {
    p->pos++;
    return take_text(&b);
  }
  free(b.data);
  return (char *)fail(p, "bad string");
}

static json_node *parse_number(json_parser *p) {
  char *end;
  double v = strtod(p->pos, &end);
  size_t plain = strspn(p->pos, "0123456789+-.eE"); /* no hex, no names */
  if (end == p->pos || end > p->pos + plain || !isfinite(v))
    return (json_node *)fail(p, "expected a value");
  json_node *n = new_node(p, JSON_NUMBER);
  if (n)
    n->number = v;
  p->pos = end;
  return n;
}

static json_node *parse_member(json_parser *p, int keyed) {
  char *key = NULL;
  if (keyed) {
    key = parse_text(p);
    if (!key)
      return NULL;
    if (!accept(p, ':'))
      fail(p, "expected ':'");
  }
  json_node *n = p->error ? NULL : parse_value(p);
  if (!n) {
    free(key);
    return NULL;
  }
  n->key = key;
  return n;
}

static json_node *parse_container(json_parser *p, json_kind kind, char close) {
  json_node *list = new_node(p, kind);
  if (!list || accept(p, close))
    return list;
  json_node **tail = &list->child;
  do {
    *tail = parse_member(p, kind == JSON_OBJECT);
    if (*tail)
      tail = &(*tail)->next;
  } while (!p->error && accept(p, ','));
  if (!p->error && !accept(p, close))
    fail(p, "unterminated container");
  if (p->error) {
    json_free(list);
    return NULL;
  }
  return list;
}

static json_node *parse_string_node(json_parser *p) {
  char *text = parse_text(p);
  if (!text)
    return NULL;
  json_node *n = new_node(p, JSON_STRING);
  if (n)
    n->text = text;
  else
    free(text);
  return n;
}

static json_node *parse_value(json_parser *p) {
  if (++p->depth > MAX_DEPTH)
    return (json_node *)fail(p, "nested too deeply");
  json_node *n;
  char c = skip_space(p);
  if (c == '{' && accept(p, '{'))
    n = parse_container(p, JSON_OBJECT, '}');
  else if (c == '[' && accept(p, '['))
    n = parse_container(p, JSON_ARRAY, ']');
  else if (c == '"')
    n = parse_string_node(p);
  else if (accept_word(p, "true"))
    n = new_node(p, JSON_TRUE);
  else if (accept_word(p, "false"))
    n = new_node(p, JSON_FALSE);
  else if (accept_word(p, "null"))
    n = new_node(p, JSON_NULL);
  else
    n = parse_number(p);
  p->depth--;
  return n;
}

json_node *json_parse(const char *text, const char **error) {
  json_parser p = {text, 0, NULL};
  json_node *n = parse_value(&p);
  if (n && skip_space(&p) != '\0')
    fail(&p, "text after the value");
  if (p.error) {
    json_free(n);
    n = NULL;
  }
  if (error)
    *error = p.error;
  return n;
}
