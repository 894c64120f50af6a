/* Ring buffer and a framed packet stream on top of it: escaped delimiters, a
 * state-machine decoder and a CRC-16 trailer. */
#include "bytes.h"

enum {
  RING_SIZE = 1024, /* a power of two */
  MAX_PAYLOAD = 256,
  FRAME_END = 0x7e,
  FRAME_ESCAPE = 0x7d,
  ESCAPE_MASK = 0x20
};

typedef struct {
  uint8_t data[RING_SIZE];
  uint32_t head; /* next write, free running */
  uint32_t tail; /* next read, free running */
} ring;

typedef enum { STATE_HUNT, STATE_DATA, STATE_ESCAPED } frame_state;

typedef struct {
  ring in;
  frame_state state;
  uint8_t payload[MAX_PAYLOAD + 2];
  size_t len;
  unsigned good, bad_crc, oversized, aborted;
} frame_decoder;

static uint32_t ring_used(const ring *r) { return r->head - r->tail; }
static uint32_t ring_free(const ring *r) { return RING_SIZE - ring_used(r); }
static uint32_t ring_at(uint32_t i) { return i & (RING_SIZE - 1); }
static uint32_t min_u32(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t contiguous(uint32_t from, uint32_t want) {
  return min_u32(want, RING_SIZE - ring_at(from));
}

void ring_reset(ring *r) { r->head = r->tail = 0; }

/* Copies in as much as fits, in at most two pieces. */
size_t ring_write(ring *r, const void *src, size_t len) {
  const uint8_t *p = (const uint8_t *)src;
  uint32_t n = len < ring_free(r) ? (uint32_t)len : ring_free(r);
  uint32_t first = contiguous(r->head, n);
  if (n == 0)
    return 0;
  memcpy(r->data + ring_at(r->head), p, first);
  memcpy(r->data, p + first, n - first);
  r->head += n;
  return n;
}

size_t ring_read(ring *r, void *dst, size_t len) {
  uint8_t *p = (uint8_t *)dst;
  uint32_t n = len < ring_used(r) ? (uint32_t)len : ring_used(r);
  uint32_t first = contiguous(r->tail, n);
  if (n == 0)
    return 0;
  memcpy(p, r->data + ring_at(r->tail), first);
  memcpy(p + first, r->data, n - first);
  r->tail += n;
  return n;
}

static int ring_pop(ring *r, uint8_t *b) {
  if (ring_used(r) == 0)
    return 0;
  *b = r->data[ring_at(r->tail++)];
  return 1;
}

static uint16_t crc16_step(uint16_t crc, uint8_t b) {
  crc ^= (uint16_t)(b << 8);
  for (int i = 0; i < 8; i++)
    crc = (uint16_t)(crc & 0x8000 ? crc << 1 ^ 0x1021 : crc << 1);
  return crc;
}

static uint16_t crc16(const uint8_t *p, size_t n) {
  uint16_t crc = 0xffff;
  while (n--)
    crc = crc16_step(crc, *p++);
  return crc;
}

static int needs_escape(uint8_t b) {
  return b == FRAME_END || b == FRAME_ESCAPE;
}

static void put_escaped(byte_writer *w, uint8_t b) {
  if (needs_escape(b)) {
    write_u8(w, FRAME_ESCAPE);
    write_u8(w, b ^ ESCAPE_MASK);
  } else {
    write_u8(w, b);
  }
}

/* Wraps a payload into a frame; returns its size, or zero if it cannot fit. */
size_t frame_encode(const void *payload, size_t len, void *out, size_t cap) {
  const uint8_t *p = (const uint8_t *)payload;
  byte_writer w = writer_over(out, cap);
  if (len > MAX_PAYLOAD)
    return 0;
  uint16_t crc = crc16(p, len);
  write_u8(&w, FRAME_END);
  for (size_t i = 0; i < len; i++)
    put_escaped(&w, p[i]);
  put_escaped(&w, (uint8_t)(crc >> 8));
  put_escaped(&w, (uint8_t)crc);
  write_u8(&w, FRAME_END);
  return w.failed ? 0 : w.len;
}

static void enter(frame_decoder *d, frame_state state) { d->state = state; }

static void restart(frame_decoder *d) {
  d->len = 0;
  enter(d, STATE_DATA);
}

static void drop(frame_decoder *d, unsigned *counter) {
  ++*counter;
  d->len = 0;
  enter(d, STATE_HUNT);
}

static void append(frame_decoder *d, uint8_t b) {
  if (d->len == sizeof d->payload)
    drop(d, &d->oversized);
  else
    d->payload[d->len++] = b;
}

static int crc_ok(const frame_decoder *d) {
  size_t n = d->len - 2;
  return crc16(d->payload, n) ==
         (uint16_t)(d->payload[n] << 8 | d->payload[n + 1]);
}

/* Whether a closing delimiter completed a valid frame. */
static int close_frame(frame_decoder *d) {
  if (d->len == 0)
    return 0; /* back-to-back delimiters */
  if (d->len < 2) {
    d->aborted++;
  } else if (!crc_ok(d)) {
    d->bad_crc++;
  } else {
    d->good++;
    return 1;
  }
  return 0;
}

static int step(frame_decoder *d, uint8_t b) {
  switch (d->state) {
  case STATE_HUNT:
    if (b == FRAME_END)
      restart(d);
    return 0;
  case STATE_DATA:
    if (b == FRAME_END)
      return 1;
    if (b == FRAME_ESCAPE)
      enter(d, STATE_ESCAPED);
    else
      append(d, b);
    return 0;
  case STATE_ESCAPED:
    if (b == FRAME_END) {
      drop(d, &d->aborted);
      restart(d);
    } else {
      enter(d, STATE_DATA);
      append(d, b ^ ESCAPE_MASK);
    }
    return 0;
  }
  return 0;
}

void frame_decoder_init(frame_decoder *d) {
  memset(d, 0, sizeof *d);
  enter(d, STATE_HUNT);
}

size_t frame_feed(frame_decoder *d, const void *data, size_t len) {
  return ring_write(&d->in, data, len);
}

/* Takes the next whole frame from the bytes fed so far. Returns its payload's
 * length, or -1 when more input is needed. */
long frame_next(frame_decoder *d, uint8_t out[MAX_PAYLOAD]) {
  uint8_t b;
  while (ring_pop(&d->in, &b)) {
    if (!step(d, b))
      continue;
    int complete = close_frame(d);
    size_t n = d->len;
    restart(d);
    if (complete) {
      memcpy(out, d->payload, n - 2);
      return (long)(n - 2);
    }
  }
  return -1;
}
