// LZ4: `run` compresses text, records and noise as blocks (fast and high compression), as chained
// blocks with a dictionary, and as frames with checksums; and decompresses them.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lz4.h"
#include "lz4frame.h"
#include "lz4hc.h"

enum { SIZE = 40000, PIECE = 2500 };

static char data[SIZE], packed[2 * SIZE], back[SIZE];
static uint32_t seed = 1;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

// Words, common ones more often, in sentences and lines.
static void make_text(void) {
  static const char *const words[] = {"the", "of ", "and", "a",     "which", "river",  "stone",
                                      "old", "in",  "was", "quick", "time",  "winter", "nothing"};
  for (size_t i = 0; i < SIZE;) {
    const char *word = words[next(1 + next(14))];
    for (; *word && i < SIZE; word++)
      data[i++] = *word;
    if (next(40) == 0 && i + 3 < SIZE)
      data[i++] = ('0' + next(10));
    if (i < SIZE)
      data[i++] = " ,.\n    "[next(8)];
  }
}

// Records of 16 bytes: a counter, a measurement that drifts, a few flags.
static void make_records(void) {
  uint32_t drift = 100000;
  for (size_t i = 0; i + 16 <= SIZE; i += 16) {
    drift += next(64) - 32;
    uint32_t record[4] = {(uint32_t)i / 16, drift, 1u << next(5), next(9) ? 0 : next(1 << 16)};
    memcpy(data + i, record, sizeof record);
  }
}

static void make_noise(void) {
  for (size_t i = 0; i < SIZE; i++)
    data[i] = next(256);
}

static uint32_t hash(const char *bytes, size_t size) {
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < size; i++)
    value = (value ^ (unsigned char)bytes[i]) * 16777619u;
  return value;
}

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
  }
}

static void check(const char *name, const char *how, size_t size, size_t back_size) {
  require(back_size == SIZE && !memcmp(data, back, SIZE), how);
  printf("%s %s: %zu %08x\n", name, how, size, hash(packed, size));
  memset(back, 0, sizeof back);
}

static void blocks(const char *name) {
  for (int acceleration = 1; acceleration <= 16; acceleration *= 4) {
    int size = LZ4_compress_fast(data, packed, SIZE, sizeof packed, acceleration);
    check(name, "fast", (size_t)size, (size_t)LZ4_decompress_safe(packed, back, size, SIZE));
  }
  for (int level = 3; level <= 12; level += 3) {
    int size = LZ4_compress_HC(data, packed, SIZE, sizeof packed, level);
    check(name, "high", (size_t)size, (size_t)LZ4_decompress_safe(packed, back, size, SIZE));
  }
  int taken = SIZE, size = LZ4_compress_destSize(data, packed, &taken, 5000);
  int given = LZ4_decompress_safe_partial(packed, back, size, taken / 2, SIZE);
  require(given >= taken / 2 && !memcmp(data, back, (size_t)given), "a part");
  printf("%s fits: %d of %d\n", name, size, taken);
}

// Blocks each of which may refer to the ones before and to a dictionary: the data's own end.
static void chain(const char *name) {
  LZ4_stream_t *fast = LZ4_createStream();
  LZ4_streamHC_t *high = LZ4_createStreamHC();
  LZ4_streamDecode_t *decoder = LZ4_createStreamDecode();
  const char *dictionary = data + SIZE - 4096;
  char own[4096];
  memcpy(own, dictionary, sizeof own);
  LZ4_resetStreamHC_fast(high, 8);
  LZ4_loadDictHC(high, own, sizeof own);
  LZ4_loadDict(fast, own, sizeof own);
  for (int pass = 0; pass < 2; pass++) {
    size_t total = 0, back_size = 0;
    LZ4_setStreamDecode(decoder, own, sizeof own);
    for (int at = 0; at < SIZE; at += PIECE) {
      char *out = packed + total;
      int size = pass ? LZ4_compress_HC_continue(high, data + at, out, PIECE, 2 * PIECE)
                      : LZ4_compress_fast_continue(fast, data + at, out, PIECE, 2 * PIECE, 1);
      require(size > 0, "a link");
      int got = LZ4_decompress_safe_continue(decoder, out, back + at, size, PIECE);
      total += (size_t)size;
      back_size += (size_t)got;
    }
    check(name, pass ? "high chain" : "fast chain", total, back_size);
  }
  LZ4_freeStream(fast);
  LZ4_freeStreamHC(high);
  LZ4_freeStreamDecode(decoder);
}

static size_t decode_frame(size_t size) {
  LZ4F_dctx *context = NULL;
  LZ4F_createDecompressionContext(&context, LZ4F_VERSION);
  size_t at = 0, made = 0, hint = 1;
  while (hint != 0 && at < size) {
    size_t room = SIZE - made, piece = size - at < 3001 ? size - at : 3001;
    hint = LZ4F_decompress(context, back + made, &room, packed + at, &piece, NULL);
    require(!LZ4F_isError(hint), LZ4F_getErrorName(hint));
    at += piece;
    made += room;
  }
  LZ4F_freeDecompressionContext(context);
  return made;
}

static void frame(const char *name, int level, LZ4F_blockMode_t mode) {
  LZ4F_preferences_t wanted = {0};
  wanted.compressionLevel = level;
  wanted.frameInfo.blockMode = mode;
  wanted.frameInfo.contentChecksumFlag = LZ4F_contentChecksumEnabled;
  wanted.frameInfo.blockChecksumFlag = LZ4F_blockChecksumEnabled;
  wanted.frameInfo.contentSize = SIZE;
  LZ4F_cctx *context = NULL;
  LZ4F_createCompressionContext(&context, LZ4F_VERSION);
  size_t size = LZ4F_compressBegin(context, packed, sizeof packed, &wanted);
  for (size_t at = 0; at < SIZE; at += PIECE) {
    char *out = packed + size;
    size += LZ4F_compressUpdate(context, out, sizeof packed - size, data + at, PIECE, NULL);
    if (next(5) == 0)
      size += LZ4F_flush(context, packed + size, sizeof packed - size, NULL);
  }
  size += LZ4F_compressEnd(context, packed + size, sizeof packed - size, NULL);
  LZ4F_freeCompressionContext(context);
  check(name, mode == LZ4F_blockLinked ? "linked frame" : "frame", size, decode_frame(size));
}

int main(void) {
  static void (*const makers[])(void) = {make_text, make_records, make_noise};
  static const char *const names[] = {"text", "records", "noise"};
  for (int i = 0; i < 3; i++) {
    makers[i]();
    blocks(names[i]);
    chain(names[i]);
    frame(names[i], 0, LZ4F_blockIndependent);
    frame(names[i], 0, LZ4F_blockLinked);
    frame(names[i], 9, LZ4F_blockLinked);
  }
  return 0;
}
