/* Byte-order helpers and bounds-checked byte cursors for the C codecs. */
#ifndef SAMPLE_BYTES_H
#define SAMPLE_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
  const uint8_t *pos;
  const uint8_t *end;
  int failed;
} byte_reader;

typedef struct {
  uint8_t *data;
  size_t len;
  size_t cap;
  int failed;
} byte_writer;

static inline uint32_t rotl32(uint32_t x, unsigned n) {
  return (x << n) | (x >> ((32 - n) & 31));
}

static inline uint32_t rotr32(uint32_t x, unsigned n) {
  return (x >> n) | (x << ((32 - n) & 31));
}

static inline uint32_t load_le32(const uint8_t *p) {
  return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
         (uint32_t)p[3] << 24;
}

static inline uint32_t load_be32(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
         (uint32_t)p[3];
}

static inline void store_be32(uint8_t *p, uint32_t v) {
  p[0] = (uint8_t)(v >> 24);
  p[1] = (uint8_t)(v >> 16);
  p[2] = (uint8_t)(v >> 8);
  p[3] = (uint8_t)v;
}

static inline void store_be64(uint8_t *p, uint64_t v) {
  store_be32(p, (uint32_t)(v >> 32));
  store_be32(p + 4, (uint32_t)v);
}

static inline byte_reader reader_over(const void *data, size_t len) {
  byte_reader r = {(const uint8_t *)data, (const uint8_t *)data + len, 0};
  return r;
}

static inline size_t reader_left(const byte_reader *r) {
  return (size_t)(r->end - r->pos);
}

static inline uint8_t read_u8(byte_reader *r) {
  if (r->pos == r->end) {
    r->failed = 1;
    return 0;
  }
  return *r->pos++;
}

/* Reads an unsigned integer of 7-bit groups, least significant group first. */
static inline uint64_t read_varint(byte_reader *r) {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    uint8_t b = read_u8(r);
    value |= (uint64_t)(b & 0x7f) << shift;
    if (!(b & 0x80))
      return value;
  }
  r->failed = 1;
  return 0;
}

static inline const uint8_t *read_span(byte_reader *r, size_t n) {
  if (reader_left(r) < n) {
    r->failed = 1;
    return NULL;
  }
  const uint8_t *p = r->pos;
  r->pos += n;
  return p;
}

static inline byte_writer writer_over(void *data, size_t cap) {
  byte_writer w = {(uint8_t *)data, 0, cap, 0};
  return w;
}

static inline void write_u8(byte_writer *w, uint8_t b) {
  if (w->len == w->cap) {
    w->failed = 1;
    return;
  }
  w->data[w->len++] = b;
}

static inline void write_varint(byte_writer *w, uint64_t v) {
  while (v >= 0x80) {
    write_u8(w, (uint8_t)(v | 0x80));
    v >>= 7;
  }
  write_u8(w, (uint8_t)v);
}

static inline void write_span(byte_writer *w, const void *src, size_t n) {
  if (w->cap - w->len < n) {
    w->failed = 1;
    return;
  }
  if (n)
    memcpy(w->data + w->len, src, n);
  w->len += n;
}

#endif
