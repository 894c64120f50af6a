/* BLAKE2b with 32 bytes of result and no key (RFC 7693); Python has the same in hashlib. */
#define _GNU_SOURCE
#include "driver.h"

#include <endian.h>
#include <string.h>

#define ROUNDS 12
#define PARAMETERS (0x01010000u | DIGEST_BYTES)

static const uint64_t START[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};
static const uint8_t ORDER[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4},
    {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13},
    {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11},
    {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5},
    {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t turned(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

static void mix(uint64_t *work, int a, int b, int c, int d, uint64_t x, uint64_t y) {
  work[a] += work[b] + x;
  work[d] = turned(work[d] ^ work[a], 32);
  work[c] += work[d];
  work[b] = turned(work[b] ^ work[c], 24);
  work[a] += work[b] + y;
  work[d] = turned(work[d] ^ work[a], 16);
  work[c] += work[d];
  work[b] = turned(work[b] ^ work[c], 63);
}

static void take_block(struct digest *digest, const uint8_t *block, size_t size, bool is_last) {
  uint64_t words[16], work[16];
  memcpy(words, block, sizeof words);
  for (int index = 0; index < 16; ++index)
    words[index] = le64toh(words[index]);
  digest->count += size;
  memcpy(work, digest->state, sizeof digest->state);
  memcpy(work + 8, START, sizeof START);
  work[12] ^= digest->count;
  work[14] ^= is_last ? UINT64_MAX : 0;
#pragma GCC unroll 12 /* each round then knows its order: a quarter faster */
  for (int round = 0; round < ROUNDS; ++round) {
    const uint8_t *at = ORDER[round % 10];
#pragma GCC unroll 4
    for (int column = 0; column < 4; ++column, at += 2)
      mix(work, column, column + 4, column + 8, column + 12, words[at[0]], words[at[1]]);
#pragma GCC unroll 4
    for (int column = 0; column < 4; ++column, at += 2)
      mix(work, column, (column + 1) % 4 + 4, (column + 2) % 4 + 8, (column + 3) % 4 + 12,
          words[at[0]], words[at[1]]);
  }
  for (int index = 0; index < 8; ++index)
    digest->state[index] ^= work[index] ^ work[index + 8];
}

void begin_digest(struct digest *digest) {
  *digest = (struct digest){0};
  memcpy(digest->state, START, sizeof START);
  digest->state[0] ^= PARAMETERS;
}

/* A block is taken in when more is known to follow: the last one counts differently. */
void add_to_digest(struct digest *digest, const void *data, size_t size) {
  const uint8_t *at = data;
  while (size) {
    if (digest->used == sizeof digest->block) {
      take_block(digest, digest->block, sizeof digest->block, false);
      digest->used = 0;
    }
    for (; !digest->used && size > sizeof digest->block; at += sizeof digest->block) {
      take_block(digest, at, sizeof digest->block, false);
      size -= sizeof digest->block;
    }
    size_t room = sizeof digest->block - digest->used, taken = size < room ? size : room;
    memcpy(digest->block + digest->used, at, taken);
    digest->used += taken;
    at += taken;
    size -= taken;
  }
}

void end_digest(struct digest *digest, uint8_t result[DIGEST_BYTES]) {
  memset(digest->block + digest->used, 0, sizeof digest->block - digest->used);
  take_block(digest, digest->block, digest->used, true);
  for (int index = 0; index < DIGEST_BYTES / 8; ++index)
    digest->state[index] = htole64(digest->state[index]);
  memcpy(result, digest->state, DIGEST_BYTES);
}

void write_hex(char *text, const uint8_t *bytes, size_t count) {
  for (size_t index = 0; index < count; ++index) {
    *text++ = "0123456789abcdef"[bytes[index] >> 4];
    *text++ = "0123456789abcdef"[bytes[index] & 15];
  }
  *text = 0;
}
