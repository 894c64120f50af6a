/* JSON writer (compact or indented), path lookup and deep comparison. */
#include "json.h"

#include <stdio.h>

#include "text_buffer.h"

typedef struct {
  text_buffer out;
  int indent; /* spaces per level, zero for the compact form */
  int level;
} writer;

static void write_value(writer *w, const json_node *n);

static void write_string(text_buffer *b, const char *s) {
  put_char(b, '"');
  for (; *s; s++) {
    unsigned char c = (unsigned char)*s;
    char hex[8];
    if (c == '"' || c == '\\') {
      put_char(b, '\\');
      put_char(b, *s);
    } else if (c < 0x20) {
      snprintf(hex, sizeof hex, "\\u%04x", c);
      put_text(b, hex);
    } else {
      put_char(b, *s);
    }
  }
  put_char(b, '"');
}

static void write_number(text_buffer *b, double v) {
  char digits[32];
  snprintf(digits, sizeof digits, "%.15g", v);
  if (strtod(digits, NULL) != v)
    snprintf(digits, sizeof digits, "%.17g", v);
  put_text(b, digits);
}

static void new_line(writer *w) {
  if (w->indent == 0)
    return;
  put_char(&w->out, '\n');
  put_repeated(&w->out, ' ', (size_t)(w->indent * w->level));
}

static void write_key(writer *w, const char *key) {
  write_string(&w->out, key);
  put_text(&w->out, w->indent ? ": " : ":");
}

static void write_list(writer *w, const json_node *n, char open, char close) {
  put_char(&w->out, open);
  w->level++;
  for (const json_node *c = n->child; c; c = c->next) {
    if (c != n->child)
      put_char(&w->out, ',');
    new_line(w);
    if (c->key)
      write_key(w, c->key);
    write_value(w, c);
  }
  w->level--;
  if (n->child)
    new_line(w);
  put_char(&w->out, close);
}

static void write_value(writer *w, const json_node *n) {
  switch (n->kind) {
  case JSON_NULL: put_text(&w->out, "null"); break;
  case JSON_FALSE: put_text(&w->out, "false"); break;
  case JSON_TRUE: put_text(&w->out, "true"); break;
  case JSON_NUMBER: write_number(&w->out, n->number); break;
  case JSON_STRING: write_string(&w->out, n->text); break;
  case JSON_ARRAY: write_list(w, n, '[', ']'); break;
  case JSON_OBJECT: write_list(w, n, '{', '}'); break;
  }
}

/* Returns a malloc'ed string, or NULL when memory runs out. */
char *json_write(const json_node *n, int indent) {
  writer w = {{NULL, 0, 0, 0}, indent, 0};
  write_value(&w, n);
  return take_text(&w.out);
}

static int key_is(const json_node *n, const char *key, size_t len) {
  return strncmp(n->key, key, len) == 0 && n->key[len] == '\0';
}

static const json_node *member(const json_node *n, const char *key,
                               size_t len) {
  if (n->kind != JSON_OBJECT)
    return NULL;
  for (n = n->child; n; n = n->next)
    if (key_is(n, key, len))
      return n;
  return NULL;
}

static const json_node *element(const json_node *n, const char *digits,
                                size_t len) {
  size_t index = 0;
  if (n->kind != JSON_ARRAY || len == 0 || len > 9)
    return NULL;
  for (size_t i = 0; i < len; i++) {
    if (digits[i] < '0' || digits[i] > '9')
      return NULL;
    index = index * 10 + (size_t)(digits[i] - '0');
  }
  for (n = n->child; n && index > 0; index--)
    n = n->next;
  return n;
}

/* Follows a path such as "servers/0/name"; NULL when there is no such value. */
const json_node *json_at(const json_node *n, const char *path) {
  while (n && *path) {
    size_t len = strcspn(path, "/");
    n = n->kind == JSON_ARRAY ? element(n, path, len) : member(n, path, len);
    path += len;
    if (*path == '/')
      path++;
  }
  return n;
}

double json_number_at(const json_node *n, const char *path, double missing) {
  const json_node *found = json_at(n, path);
  return found && found->kind == JSON_NUMBER ? found->number : missing;
}

const char *json_text_at(const json_node *n, const char *path,
                         const char *missing) {
  const json_node *found = json_at(n, path);
  return found && found->kind == JSON_STRING ? found->text : missing;
}

static size_t child_count(const json_node *n) {
  size_t count = 0;
  for (n = n->child; n; n = n->next)
    count++;
  return count;
}

int json_equal(const json_node *a, const json_node *b);

static int arrays_equal(const json_node *a, const json_node *b) {
  for (a = a->child, b = b->child; a && b; a = a->next, b = b->next)
    if (!json_equal(a, b))
      return 0;
  return a == b; /* both ran out */
}

static int objects_equal(const json_node *a, const json_node *b) {
  if (child_count(a) != child_count(b))
    return 0;
  for (const json_node *c = a->child; c; c = c->next) {
    const json_node *other = member(b, c->key, strlen(c->key));
    if (!other || !json_equal(c, other))
      return 0;
  }
  return 1;
}

/* Deep equality; the order of an object's members does not matter. */
int json_equal(const json_node *a, const json_node *b) {
  if (a->kind != b->kind)
    return 0;
  switch (a->kind) {
  case JSON_NUMBER: return a->number == b->number;
  case JSON_STRING: return strcmp(a->text, b->text) == 0;
  case JSON_ARRAY: return arrays_equal(a, b);
  case JSON_OBJECT: return objects_equal(a, b);
  default: return 1;
  }
}
