// Zstandard: `run` compresses text, records and noise at many levels and decompresses them; then
// with a dictionary trained on small samples, and as streams with a check sum.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "zdict.h"
#include "zstd.h"

enum { SIZE = 24000, SAMPLE = 200, DICTIONARY = 1500 };

static unsigned char data[SIZE], packed[2 * SIZE], back[SIZE];
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
      data[i++] = (unsigned char)*word;
    if (next(40) == 0 && i + 3 < SIZE)
      data[i++] = (unsigned char)('0' + next(10));
    if (i < SIZE)
      data[i++] = (unsigned char)" ,.\n    "[next(8)];
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
    data[i] = (unsigned char)next(256);
}

static uint32_t hash(const unsigned char *bytes, size_t size) {
  uint32_t value = 2166136261u;
  for (size_t i = 0; i < size; i++)
    value = (value ^ bytes[i]) * 16777619u;
  return value;
}

static void require(int condition, const char *what) {
  if (!condition) {
    fprintf(stderr, "wrong: %s\n", what);
    exit(1);
  }
}

static size_t sure(size_t result) {
  require(!ZSTD_isError(result), ZSTD_getErrorName(result));
  return result;
}

static void levels(const char *name) {
  static const int wanted[] = {-5, 1, 3, 6, 9, 13, 16};
  for (int i = 0; i < 7; i++) {
    size_t size = sure(ZSTD_compress(packed, sizeof packed, data, SIZE, wanted[i]));
    require(ZSTD_getFrameContentSize(packed, size) == SIZE, "the size in the frame");
    require(sure(ZSTD_decompress(back, SIZE, packed, size)) == SIZE, "the size");
    require(!memcmp(data, back, SIZE), "what came back");
    printf("%s %d: %zu %08x\n", name, wanted[i], size, hash(packed, size));
  }
}

// Trains a dictionary on the data in small samples; compresses each of a part of them by it.
static void dictionary(const char *name) {
  static unsigned char trained[DICTIONARY];
  size_t sizes[SIZE / SAMPLE];
  for (int i = 0; i < SIZE / SAMPLE; i++)
    sizes[i] = SAMPLE;
  size_t size = ZDICT_trainFromBuffer(trained, sizeof trained, data, sizes, SIZE / SAMPLE);
  require(!ZDICT_isError(size), ZDICT_getErrorName(size));
  ZSTD_CDict *for_packing = ZSTD_createCDict(trained, size, 5);
  ZSTD_DDict *for_unpacking = ZSTD_createDDict(trained, size);
  ZSTD_CCtx *packer = ZSTD_createCCtx();
  ZSTD_DCtx *unpacker = ZSTD_createDCtx();
  size_t total = 0;
  uint32_t sum = 0;
  for (int at = 0; at < SIZE / 2; at += SAMPLE) {
    size_t part = sure(
        ZSTD_compress_usingCDict(packer, packed, sizeof packed, data + at, SAMPLE, for_packing));
    sure(ZSTD_decompress_usingDDict(unpacker, back, SIZE, packed, part, for_unpacking));
    require(!memcmp(data + at, back, SAMPLE), "a sample");
    total += part;
    sum = sum * 31 + hash(packed, part);
  }
  ZSTD_freeCDict(for_packing);
  ZSTD_freeDDict(for_unpacking);
  ZSTD_freeCCtx(packer);
  ZSTD_freeDCtx(unpacker);
  printf("%s by a dictionary of %zu: %zu %08x\n", name, size, total, sum);
}

static size_t pack_stream(int level) {
  ZSTD_CCtx *context = ZSTD_createCCtx();
  sure(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level));
  sure(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1));
  sure(ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 13));
  sure(ZSTD_CCtx_setParameter(context, ZSTD_c_enableLongDistanceMatching, level > 5));
  ZSTD_outBuffer out = {packed, sizeof packed, 0};
  for (size_t at = 0; at < SIZE;) {
    size_t piece = 1 + next(4000);
    piece = piece < SIZE - at ? piece : SIZE - at;
    ZSTD_inBuffer in = {data + at, piece, 0};
    at += piece;
    ZSTD_EndDirective how = at == SIZE ? ZSTD_e_end : next(4) == 0 ? ZSTD_e_flush : ZSTD_e_continue;
    size_t left = sure(ZSTD_compressStream2(context, &out, &in, how));
    require(in.pos == in.size && (how == ZSTD_e_continue || left == 0), "a piece");
  }
  ZSTD_freeCCtx(context);
  return out.pos;
}

static void stream(const char *name, int level) {
  size_t size = pack_stream(level), more = 1;
  ZSTD_DCtx *context = ZSTD_createDCtx();
  ZSTD_inBuffer in = {packed, 0, 0};
  ZSTD_outBuffer out = {back, SIZE, 0};
  while (more != 0) {
    in.size = in.size + 777 < size ? in.size + 777 : size;
    more = sure(ZSTD_decompressStream(context, &out, &in));
    require(more == 0 || in.size < size || in.pos < size, "the end of a stream");
  }
  ZSTD_freeDCtx(context);
  require(out.pos == SIZE && !memcmp(data, back, SIZE), "what came back by steps");
  printf("%s %d by steps: %zu %08x\n", name, level, size, hash(packed, size));
}

int main(void) {
  make_text();
  levels("text");
  dictionary("text");
  stream("text", 3);
  stream("text", 8);
  make_records();
  levels("records");
  dictionary("records");
  stream("records", 19);
  make_noise();
  stream("noise", 4);
  return 0;
}
