/* A bump allocator whose memory is released all at once. */
#ifndef SAMPLE_ARENA_H
#define SAMPLE_ARENA_H

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { ARENA_BLOCK_BYTES = 4096 };

typedef struct arena_block {
  struct arena_block *prev;
  size_t used, cap;
  max_align_t data[];
} arena_block;

typedef struct {
  arena_block *top;
  size_t total;
} arena;

static inline size_t align_up(size_t n, size_t to) {
  return (n + to - 1) & ~(to - 1);
}

static inline int arena_grow(arena *a, size_t need) {
  size_t cap = need > ARENA_BLOCK_BYTES ? need : ARENA_BLOCK_BYTES;
  arena_block *b = (arena_block *)malloc(sizeof *b + cap);
  if (!b)
    return 0;
  b->prev = a->top;
  b->used = 0;
  b->cap = cap;
  a->top = b;
  return 1;
}

static inline void *arena_alloc(arena *a, size_t n) {
  n = align_up(n, _Alignof(max_align_t));
  if ((!a->top || a->top->cap - a->top->used < n) && !arena_grow(a, n))
    return NULL;
  void *p = (char *)a->top->data + a->top->used;
  a->top->used += n;
  a->total += n;
  return p;
}

static inline char *arena_copy(arena *a, const char *s, size_t n) {
  char *p = (char *)arena_alloc(a, n + 1);
  if (p) {
    memcpy(p, s, n);
    p[n] = '\0';
  }
  return p;
}

static inline void arena_release(arena *a) {
  while (a->top) {
    arena_block *prev = a->top->prev;
    free(a->top);
    a->top = prev;
  }
  a->total = 0;
}

#endif
