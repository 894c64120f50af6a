/* LZ77-style compressor with hash chains and lazy matching, and its
 * decompressor. Output: varint size, then literal runs and matches. */
#include <stdlib.h>

#include "bytes.h"

enum {
  HASH_BITS = 12,
  HASH_SIZE = 1 << HASH_BITS,
  WINDOW = 1 << 15,
  MIN_MATCH = 4,
  MAX_MATCH = 1 << 10,
  MAX_CHAIN = 24
};

typedef struct {
  const uint8_t *src;
  size_t len;
  int32_t head[HASH_SIZE];
  int32_t *prev; /* earlier position with the same hash, by position */
  byte_writer out;
} lz_encoder;

typedef struct {
  size_t length;
  size_t distance;
} lz_match;

static uint32_t hash_at(const uint8_t *p) {
  return load_le32(p) * 2654435761u >> (32 - HASH_BITS);
}

static int can_match(const lz_encoder *e, size_t at) {
  return at + MIN_MATCH <= e->len;
}

static void remember(lz_encoder *e, size_t at) {
  if (!can_match(e, at))
    return;
  uint32_t h = hash_at(e->src + at);
  e->prev[at] = e->head[h];
  e->head[h] = (int32_t)at;
}

static void remember_range(lz_encoder *e, size_t from, size_t to) {
  for (size_t i = from; i < to; i++)
    remember(e, i);
}

static size_t common_prefix(const uint8_t *a, const uint8_t *b, size_t max) {
  size_t n = 0;
  while (n < max && a[n] == b[n])
    n++;
  return n;
}

static size_t match_limit(const lz_encoder *e, size_t at) {
  size_t left = e->len - at;
  return left < MAX_MATCH ? left : MAX_MATCH;
}

static lz_match longest_match(const lz_encoder *e, size_t at, int chain) {
  lz_match best = {0, 0};
  if (!can_match(e, at))
    return best;
  size_t limit = match_limit(e, at);
  int32_t cand = e->head[hash_at(e->src + at)];
  while (cand >= 0 && chain-- > 0) {
    size_t distance = at - (size_t)cand;
    if (distance > WINDOW)
      break;
    size_t n = common_prefix(e->src + cand, e->src + at, limit);
    if (n > best.length) {
      best.length = n;
      best.distance = distance;
      if (n == limit)
        break;
    }
    cand = e->prev[cand];
  }
  if (best.length < MIN_MATCH)
    best.length = 0;
  return best;
}

/* Tokens are varints: an even one starts a literal run, an odd one a match. */
static void put_literals(lz_encoder *e, size_t from, size_t to) {
  if (from == to)
    return;
  write_varint(&e->out, (uint64_t)(to - from) << 1);
  write_span(&e->out, e->src + from, to - from);
}

static void put_match(lz_encoder *e, lz_match m) {
  write_varint(&e->out, (uint64_t)(m.length - MIN_MATCH) << 1 | 1);
  write_varint(&e->out, m.distance);
}

static int worth_waiting(lz_match now, lz_match next) {
  return next.length > now.length + 1;
}

static int encoder_init(lz_encoder *e, const void *src, size_t len, void *dst,
                        size_t cap) {
  e->src = (const uint8_t *)src;
  e->len = len;
  e->out = writer_over(dst, cap);
  memset(e->head, 0xff, sizeof e->head);
  e->prev = (int32_t *)malloc((len + 1) * sizeof *e->prev);
  return e->prev != NULL;
}

static void encode_all(lz_encoder *e) {
  size_t at = 0, literals = 0;
  while (at < e->len) {
    lz_match m = longest_match(e, at, MAX_CHAIN);
    remember(e, at);
    if (m.length == 0) {
      at++;
      continue;
    }
    if (m.length < 32 &&
        worth_waiting(m, longest_match(e, at + 1, MAX_CHAIN / 4))) {
      at++;
      continue;
    }
    put_literals(e, literals, at);
    put_match(e, m);
    remember_range(e, at + 1, at + m.length);
    at += m.length;
    literals = at;
  }
  put_literals(e, literals, e->len);
}

/* An upper bound for the packed size of `len` bytes. */
size_t lz_bound(size_t len) { return len + len / 64 + 32; }

/* Returns the packed size, or zero when `cap` is too small. */
size_t lz_pack(const void *src, size_t len, void *dst, size_t cap) {
  lz_encoder *e;
  size_t packed = 0;
  if (len > INT32_MAX - 1)
    return 0;
  e = (lz_encoder *)malloc(sizeof *e);
  if (!e)
    return 0;
  if (encoder_init(e, src, len, dst, cap)) {
    write_varint(&e->out, len);
    encode_all(e);
    packed = e->out.failed ? 0 : e->out.len;
    free(e->prev);
  }
  free(e);
  return packed;
}

static void copy_match(byte_writer *w, size_t distance, size_t length) {
  if (distance == 0 || distance > w->len || length > w->cap - w->len) {
    w->failed = 1;
    return;
  }
  uint8_t *to = w->data + w->len;
  const uint8_t *from = to - distance; /* may overlap what is written */
  for (size_t i = 0; i < length; i++)
    to[i] = from[i];
  w->len += length;
}

static void copy_literals(byte_reader *r, byte_writer *w, size_t n) {
  const uint8_t *p = read_span(r, n);
  if (p)
    write_span(w, p, n);
}

static void decode_token(byte_reader *r, byte_writer *w) {
  uint64_t token = read_varint(r);
  if (token >> 1 > w->cap)
    w->failed = 1;
  else if (token & 1)
    copy_match(w, (size_t)read_varint(r), (size_t)(token >> 1) + MIN_MATCH);
  else
    copy_literals(r, w, (size_t)(token >> 1));
}

/* The unpacked size a packed buffer announces. */
size_t lz_unpacked_size(const void *src, size_t len) {
  byte_reader r = reader_over(src, len);
  uint64_t n = read_varint(&r);
  return r.failed ? 0 : (size_t)n;
}

/* Returns 1 when exactly the announced number of bytes came out. */
int lz_unpack(const void *src, size_t len, void *dst, size_t cap) {
  byte_reader r = reader_over(src, len);
  uint64_t size = read_varint(&r);
  if (r.failed || size > cap)
    return 0;
  byte_writer w = writer_over(dst, (size_t)size);
  while (reader_left(&r) > 0 && !r.failed && !w.failed)
    decode_token(&r, &w);
  return !r.failed && !w.failed && w.len == size;
}
