/* Message digests and checksums: SHA-256, CRC-32, Adler-32 and FNV-1a. */
#include "bytes.h"

typedef struct {
  uint32_t state[8];
  uint64_t total;
  uint8_t block[64];
  size_t fill;
} sha256_ctx;

/* The first 32 bits of the fractional parts of the square and cube roots of
 * the first primes are computed once instead of being spelled out. */
static uint32_t round_keys[64];
static uint32_t initial_state[8];
static int tables_ready;
static uint32_t crc_table[256];

static int is_prime(unsigned n) {
  for (unsigned d = 2; d * d <= n; d++)
    if (n % d == 0)
      return 0;
  return n > 1;
}

static unsigned next_prime(unsigned n) {
  do
    n++;
  while (!is_prime(n));
  return n;
}

/* Multiplies a 40-bit fixed-point number by itself `power - 1` times and says
 * whether the result is still at most prime * 2^(32 * power). */
static int power_fits(uint64_t x, unsigned power, unsigned prime) {
  uint32_t limbs[4] = {1, 0, 0, 0};
  uint32_t lo = (uint32_t)x, hi = (uint32_t)(x >> 32);
  for (unsigned p = 0; p < power; p++) {
    uint32_t out[4] = {0, 0, 0, 0};
    uint64_t carry = 0;
    for (int i = 0; i < 4; i++) {
      uint64_t acc = (uint64_t)limbs[i] * lo + carry;
      out[i] = (uint32_t)acc;
      carry = acc >> 32;
    }
    carry = 0;
    for (int i = 0; i < 3; i++) {
      uint64_t acc = (uint64_t)limbs[i] * hi + out[i + 1] + carry;
      out[i + 1] = (uint32_t)acc;
      carry = acc >> 32;
    }
    memcpy(limbs, out, sizeof limbs);
  }
  for (unsigned i = 3; i > power; i--)
    if (limbs[i])
      return 0;
  return limbs[power] < prime;
}

static uint32_t root_fraction(unsigned prime, unsigned power) {
  uint64_t x = 0;
  for (int bit = 36; bit >= 0; bit--) {
    uint64_t candidate = x | (uint64_t)1 << bit;
    if (power_fits(candidate, power, prime))
      x = candidate;
  }
  return (uint32_t)x;
}

static uint32_t crc_entry(uint32_t n) {
  for (int k = 0; k < 8; k++)
    n = (n & 1) ? 0xEDB88320u ^ (n >> 1) : n >> 1;
  return n;
}

static void prepare_tables(void) {
  if (tables_ready)
    return;
  unsigned prime = 1;
  for (int i = 0; i < 64; i++) {
    prime = next_prime(prime);
    round_keys[i] = root_fraction(prime, 3);
    if (i < 8)
      initial_state[i] = root_fraction(prime, 2);
  }
  for (uint32_t i = 0; i < 256; i++)
    crc_table[i] = crc_entry(i);
  tables_ready = 1;
}

static uint32_t choose(uint32_t x, uint32_t y, uint32_t z) {
  return (x & y) ^ (~x & z);
}

static uint32_t majority(uint32_t x, uint32_t y, uint32_t z) {
  return (x & y) ^ (x & z) ^ (y & z);
}

static uint32_t mix3(uint32_t x, unsigned a, unsigned b, unsigned c) {
  return rotr32(x, a) ^ rotr32(x, b) ^ rotr32(x, c);
}

static uint32_t small_sigma(uint32_t x, unsigned a, unsigned b, unsigned c) {
  return rotr32(x, a) ^ rotr32(x, b) ^ (x >> c);
}

static void expand_schedule(const uint8_t *block, uint32_t *w) {
  for (int i = 0; i < 16; i++)
    w[i] = load_be32(block + 4 * i);
  for (int i = 16; i < 64; i++)
    w[i] = small_sigma(w[i - 2], 17, 19, 10) + w[i - 7] +
           small_sigma(w[i - 15], 7, 18, 3) + w[i - 16];
}

static void sha256_block(sha256_ctx *ctx, const uint8_t *block) {
  uint32_t w[64], s[8];
  expand_schedule(block, w);
  memcpy(s, ctx->state, sizeof s);
  for (int i = 0; i < 64; i++) {
    uint32_t t1 = s[7] + mix3(s[4], 6, 11, 25) + choose(s[4], s[5], s[6]) +
                  round_keys[i] + w[i];
    uint32_t t2 = mix3(s[0], 2, 13, 22) + majority(s[0], s[1], s[2]);
    memmove(s + 1, s, 7 * sizeof *s);
    s[4] += t1;
    s[0] = t1 + t2;
  }
  for (int i = 0; i < 8; i++)
    ctx->state[i] += s[i];
}

void sha256_init(sha256_ctx *ctx) {
  prepare_tables();
  memcpy(ctx->state, initial_state, sizeof ctx->state);
  ctx->total = 0;
  ctx->fill = 0;
}

void sha256_update(sha256_ctx *ctx, const void *data, size_t len) {
  const uint8_t *p = (const uint8_t *)data;
  ctx->total += len;
  while (len > 0) {
    size_t room = sizeof ctx->block - ctx->fill;
    size_t take = len < room ? len : room;
    memcpy(ctx->block + ctx->fill, p, take);
    ctx->fill += take;
    p += take;
    len -= take;
    if (ctx->fill == sizeof ctx->block) {
      sha256_block(ctx, ctx->block);
      ctx->fill = 0;
    }
  }
}

void sha256_final(sha256_ctx *ctx, uint8_t out[32]) {
  uint64_t bits = ctx->total * 8;
  ctx->block[ctx->fill++] = 0x80;
  if (ctx->fill > 56) {
    memset(ctx->block + ctx->fill, 0, 64 - ctx->fill);
    sha256_block(ctx, ctx->block);
    ctx->fill = 0;
  }
  memset(ctx->block + ctx->fill, 0, 56 - ctx->fill);
  store_be64(ctx->block + 56, bits);
  sha256_block(ctx, ctx->block);
  for (int i = 0; i < 8; i++)
    store_be32(out + 4 * i, ctx->state[i]);
}

void sha256(const void *data, size_t len, uint8_t out[32]) {
  sha256_ctx ctx;
  sha256_init(&ctx);
  sha256_update(&ctx, data, len);
  sha256_final(&ctx, out);
}

/* HMAC over SHA-256; `key` longer than one block is hashed first. */
void hmac_sha256(const void *key, size_t key_len, const void *msg,
                 size_t msg_len, uint8_t out[32]) {
  uint8_t pad[64] = {0};
  sha256_ctx ctx;
  if (key_len > sizeof pad)
    sha256(key, key_len, pad);
  else if (key_len)
    memcpy(pad, key, key_len);
  for (size_t i = 0; i < sizeof pad; i++)
    pad[i] ^= 0x36;
  sha256_init(&ctx);
  sha256_update(&ctx, pad, sizeof pad);
  sha256_update(&ctx, msg, msg_len);
  sha256_final(&ctx, out);
  for (size_t i = 0; i < sizeof pad; i++)
    pad[i] ^= 0x36 ^ 0x5c;
  sha256_init(&ctx);
  sha256_update(&ctx, pad, sizeof pad);
  sha256_update(&ctx, out, 32);
  sha256_final(&ctx, out);
}

uint32_t crc32_bytes(uint32_t crc, const void *data, size_t len) {
  const uint8_t *p = (const uint8_t *)data;
  prepare_tables();
  crc = ~crc;
  while (len--)
    crc = crc_table[(crc ^ *p++) & 0xff] ^ (crc >> 8);
  return ~crc;
}

uint32_t adler32_bytes(const void *data, size_t len) {
  const uint8_t *p = (const uint8_t *)data;
  uint32_t a = 1, b = 0;
  while (len--) {
    a = (a + *p++) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

uint64_t fnv1a_bytes(const void *data, size_t len) {
  const uint8_t *p = (const uint8_t *)data;
  uint64_t h = 0xcbf29ce484222325u;
  while (len--)
    h = (h ^ *p++) * 0x100000001b3u;
  return h;
}
