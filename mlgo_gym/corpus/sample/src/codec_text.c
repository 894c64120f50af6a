/* Text codecs for binary data: base64 (two alphabets), hexadecimal, and
 * quoted percent-encoding. */
#include "bytes.h"

typedef struct {
  const char *symbols;
  int padded;
} base64_variant;

static const char standard_symbols[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
static const char url_symbols[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

static const base64_variant variants[] = {
    {standard_symbols, 1},
    {url_symbols, 0},
};

static void encode_group(byte_writer *w, const base64_variant *v,
                         const uint8_t *in, size_t n) {
  uint32_t bits = (uint32_t)in[0] << 16;
  if (n > 1)
    bits |= (uint32_t)in[1] << 8;
  if (n > 2)
    bits |= in[2];
  for (size_t i = 0; i < 4; i++) {
    if (i <= n)
      write_u8(w, (uint8_t)v->symbols[bits >> (18 - 6 * i) & 63]);
    else if (v->padded)
      write_u8(w, '=');
  }
}

static size_t finish(byte_writer *w) {
  size_t len = w->len;
  write_u8(w, 0);
  return w->failed ? 0 : len;
}

static size_t encode_with(const base64_variant *v, const void *data,
                          size_t len, char *out, size_t cap) {
  byte_reader r = reader_over(data, len);
  byte_writer w = writer_over(out, cap);
  while (reader_left(&r) > 0) {
    size_t n = reader_left(&r) < 3 ? reader_left(&r) : 3;
    encode_group(&w, v, read_span(&r, n), n);
  }
  return finish(&w);
}

/* All encoders write a terminating NUL and return the text's length, zero when
 * `cap` is too small (or for empty data). */
size_t base64_encode(const void *data, size_t len, char *out, size_t cap) {
  return encode_with(&variants[0], data, len, out, cap);
}

size_t base64url_encode(const void *data, size_t len, char *out, size_t cap) {
  return encode_with(&variants[1], data, len, out, cap);
}

static int in_range(int c, int lo, int hi) { return c >= lo && c <= hi; }

/* Accepts the symbols of both alphabets; -1 for anything else. */
static int symbol_value(int c) {
  if (in_range(c, 'A', 'Z'))
    return c - 'A';
  if (in_range(c, 'a', 'z'))
    return c - 'a' + 26;
  if (in_range(c, '0', '9'))
    return c - '0' + 52;
  if (c == '+' || c == '-')
    return 62;
  if (c == '/' || c == '_')
    return 63;
  return -1;
}

static int is_blank(int c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Decoders return the number of bytes, or -1 for bad text or a small buffer. */
long base64_decode(const char *text, void *out, size_t cap) {
  byte_writer w = writer_over(out, cap);
  uint32_t bits = 0;
  unsigned have = 0, symbols = 0, padding = 0;
  for (; *text; text++) {
    int c = (unsigned char)*text;
    if (is_blank(c))
      continue;
    if (c == '=') {
      padding++;
      continue;
    }
    int v = symbol_value(c);
    if (v < 0 || padding)
      return -1;
    bits = bits << 6 | (uint32_t)v;
    have += 6;
    symbols++;
    if (have >= 8) {
      have -= 8;
      write_u8(&w, (uint8_t)(bits >> have));
    }
  }
  int stray_bits = (bits & ((1u << have) - 1)) != 0;
  if (w.failed || stray_bits || symbols % 4 == 1 || padding > 2)
    return -1;
  if (padding && (symbols + padding) % 4 != 0)
    return -1;
  return (long)w.len;
}

static uint8_t hex_symbol(unsigned nibble, int upper) {
  return (uint8_t)(nibble < 10 ? '0' + nibble
                               : (upper ? 'A' : 'a') + nibble - 10);
}

static int hex_value(int c) {
  if (in_range(c, '0', '9'))
    return c - '0';
  if (in_range(c, 'a', 'f'))
    return c - 'a' + 10;
  if (in_range(c, 'A', 'F'))
    return c - 'A' + 10;
  return -1;
}

static void write_hex(byte_writer *w, uint8_t b, int upper) {
  write_u8(w, hex_symbol(b >> 4, upper));
  write_u8(w, hex_symbol(b & 15, upper));
}

/* Two digits to a byte, or -1. Never reads past a terminating NUL. */
static int parse_hex_pair(const char *s) {
  int hi = hex_value((unsigned char)s[0]);
  int lo = hi < 0 ? -1 : hex_value((unsigned char)s[1]);
  return lo < 0 ? -1 : hi << 4 | lo;
}

size_t hex_encode(const void *data, size_t len, char *out, size_t cap) {
  byte_reader r = reader_over(data, len);
  byte_writer w = writer_over(out, cap);
  while (reader_left(&r) > 0)
    write_hex(&w, read_u8(&r), 0);
  return finish(&w);
}

long hex_decode(const char *text, void *out, size_t cap) {
  byte_writer w = writer_over(out, cap);
  while (*text) {
    if (is_blank((unsigned char)*text)) {
      text++;
      continue;
    }
    int b = parse_hex_pair(text);
    if (b < 0)
      return -1;
    write_u8(&w, (uint8_t)b);
    text += 2;
  }
  return w.failed ? -1 : (long)w.len;
}

static int is_plain(int c) {
  return in_range(c, 'A', 'Z') || in_range(c, 'a', 'z') ||
         in_range(c, '0', '9') || c == '-' || c == '_' || c == '.' || c == '~';
}

static void write_percent(byte_writer *w, uint8_t b, int spaces_as_plus) {
  if (is_plain(b)) {
    write_u8(w, b);
  } else if (b == ' ' && spaces_as_plus) {
    write_u8(w, '+');
  } else {
    write_u8(w, '%');
    write_hex(w, b, 1);
  }
}

static size_t percent_encode_with(const char *text, char *out, size_t cap,
                                  int spaces_as_plus) {
  byte_writer w = writer_over(out, cap);
  for (; *text; text++)
    write_percent(&w, (uint8_t)*text, spaces_as_plus);
  return finish(&w);
}

size_t percent_encode(const char *text, char *out, size_t cap) {
  return percent_encode_with(text, out, cap, 0);
}

size_t form_encode(const char *text, char *out, size_t cap) {
  return percent_encode_with(text, out, cap, 1);
}

long percent_decode(const char *text, char *out, size_t cap, int form) {
  byte_writer w = writer_over(out, cap);
  for (; *text; text++) {
    int b = (unsigned char)*text;
    if (b == '%') {
      b = parse_hex_pair(text + 1);
      if (b < 0)
        return -1;
      text += 2;
    } else if (b == '+' && form) {
      b = ' ';
    }
    write_u8(&w, (uint8_t)b);
  }
  long len = (long)w.len;
  write_u8(&w, 0);
  return w.failed ? -1 : len;
}
