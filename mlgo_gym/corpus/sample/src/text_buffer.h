/* A growable, always NUL-terminated text buffer for the C files. */
#ifndef SAMPLE_TEXT_BUFFER_H
#define SAMPLE_TEXT_BUFFER_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char *data;
  size_t len;
  size_t cap;
  int failed;
} text_buffer;

static inline int reserve(text_buffer *b, size_t extra) {
  size_t need = b->len + extra + 1;
  if (b->failed)
    return 0;
  if (need <= b->cap)
    return 1;
  size_t cap = b->cap ? b->cap * 2 : 32;
  while (cap < need)
    cap *= 2;
  char *grown = (char *)realloc(b->data, cap);
  if (!grown) {
    b->failed = 1;
    return 0;
  }
  b->data = grown;
  b->cap = cap;
  return 1;
}

static inline void put_span(text_buffer *b, const char *s, size_t n) {
  if (!reserve(b, n))
    return;
  if (n)
    memcpy(b->data + b->len, s, n);
  b->len += n;
  b->data[b->len] = '\0';
}

static inline void put_repeated(text_buffer *b, char c, size_t n) {
  if (!reserve(b, n))
    return;
  memset(b->data + b->len, c, n);
  b->len += n;
  b->data[b->len] = '\0';
}

static inline void put_char(text_buffer *b, char c) { put_span(b, &c, 1); }

static inline void put_text(text_buffer *b, const char *s) {
  put_span(b, s, strlen(s));
}

/* The finished text, which the caller frees; NULL if memory ran out. */
static inline char *take_text(text_buffer *b) {
  put_span(b, "", 0);
  if (!b->failed)
    return b->data;
  free(b->data);
  b->data = NULL;
  return NULL;
}

#endif
