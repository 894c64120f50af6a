// Brotli: `run` compresses text, records and noise at several qualities and decompresses them, in
// one go and by small steps, the latter with a dictionary too.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "brotli/decode.h"
#include "brotli/encode.h"

enum { SIZE = 20000 };

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

static void at_once(const char *name, int quality, BrotliEncoderMode mode) {
  size_t size = sizeof packed, back_size = SIZE;
  require(BrotliEncoderCompress(quality, 18, mode, SIZE, data, &size, packed), "compressing");
  require(BrotliDecoderDecompress(size, packed, &back_size, back) == BROTLI_DECODER_RESULT_SUCCESS,
          "decompressing");
  require(back_size == SIZE && !memcmp(data, back, SIZE), "what came back");
  printf("%s %d: %zu %08x\n", name, quality, size, hash(packed, size));
}

// Feeds the encoder uneven pieces, flushing now and then; returns how much it made.
static size_t encode_stream(BrotliEncoderState *state) {
  size_t made = 0, space = sizeof packed;
  unsigned char *out = packed;
  for (size_t at = 0; at < SIZE;) {
    size_t piece = 1 + next(3000);
    piece = piece < SIZE - at ? piece : SIZE - at;
    const unsigned char *in = data + at;
    at += piece;
    BrotliEncoderOperation operation = at == SIZE     ? BROTLI_OPERATION_FINISH
                                       : next(4) == 0 ? BROTLI_OPERATION_FLUSH
                                                      : BROTLI_OPERATION_PROCESS;
    require(BrotliEncoderCompressStream(state, operation, &piece, &in, &space, &out, &made),
            "a step of compressing");
    require(piece == 0, "a piece left over");
  }
  require(BrotliEncoderIsFinished(state), "the end of compressing");
  return made;
}

static void decode_stream(BrotliDecoderState *state, size_t size) {
  const unsigned char *in = packed;
  unsigned char *out = back;
  size_t total = 0;
  BrotliDecoderResult result = BROTLI_DECODER_RESULT_NEEDS_MORE_INPUT;
  while (result != BROTLI_DECODER_RESULT_SUCCESS) {
    size_t left = (size_t)(packed + size - in), room = SIZE - total;
    size_t piece = left < 700 ? left : 700, space = room < 999 ? room : 999;
    result = BrotliDecoderDecompressStream(state, &piece, &in, &space, &out, &total);
    require(result != BROTLI_DECODER_RESULT_ERROR, "a step of decompressing");
  }
  require(total == SIZE && !memcmp(data, back, SIZE), "what came back by steps");
}

static void by_steps(const char *name, int quality, const char *dictionary) {
  size_t length = strlen(dictionary);
  const uint8_t *bytes = (const uint8_t *)dictionary;
  BrotliEncoderState *encoder = BrotliEncoderCreateInstance(NULL, NULL, NULL);
  BrotliDecoderState *decoder = BrotliDecoderCreateInstance(NULL, NULL, NULL);
  BrotliEncoderPreparedDictionary *prepared = NULL;
  BrotliEncoderSetParameter(encoder, BROTLI_PARAM_QUALITY, (uint32_t)quality);
  BrotliEncoderSetParameter(encoder, BROTLI_PARAM_LGWIN, 16);
  if (length > 0) {
    prepared = BrotliEncoderPrepareDictionary(BROTLI_SHARED_DICTIONARY_RAW, length, bytes,
                                              BROTLI_MAX_QUALITY, NULL, NULL, NULL);
    require(BrotliEncoderAttachPreparedDictionary(encoder, prepared), "a dictionary");
    BrotliDecoderAttachDictionary(decoder, BROTLI_SHARED_DICTIONARY_RAW, length, bytes);
  }
  size_t size = encode_stream(encoder);
  decode_stream(decoder, size);
  BrotliEncoderDestroyInstance(encoder);
  BrotliDecoderDestroyInstance(decoder);
  BrotliEncoderDestroyPreparedDictionary(prepared);
  printf("%s %d by steps: %zu %08x\n", name, quality, size, hash(packed, size));
}

int main(void) {
  make_text();
  for (int quality = 0; quality <= 9; quality++)
    at_once("text", quality, BROTLI_MODE_TEXT);
  by_steps("text", 5, "quick winter river, the old stone which was nothing in time\n");
  make_records();
  for (int quality = 1; quality <= 11; quality += 5)
    at_once("records", quality, BROTLI_MODE_GENERIC);
  by_steps("records", 4, "");
  make_noise();
  at_once("noise", 3, BROTLI_MODE_GENERIC);
  by_steps("noise", 6, "");
  return 0;
}
