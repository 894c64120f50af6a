// Zopfli: `run` deflates text, records and noise in three formats and inflates them by lodepng,
// then optimises pictures' PNG files and reads them back.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "zopfli/zopfli.h"
#include "zopflipng/lodepng/lodepng.h"
#include "zopflipng/lodepng/lodepng_util.cpp" // The corpus is without it; zopflipng needs it.
#include "zopflipng/zopflipng_lib.h"

using Bytes = std::vector<unsigned char>;

static uint32_t seed = 5;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "wrong: %s\n", what);
    std::exit(1);
  }
}

static uint32_t hash(const Bytes &bytes) {
  uint32_t value = 2166136261u;
  for (unsigned char byte : bytes)
    value = (value ^ byte) * 16777619u;
  return value;
}

static Bytes text(size_t size) {
  static const char *const words[] = {"sea",  "of",   "the", "lantern", "grey", "under", "voyage",
                                      "said", "long", "it",  "captain", "rope", "and"};
  Bytes made;
  while (made.size() < size) {
    const char *word = words[next(1 + next(13))];
    made.insert(made.end(), word, word + std::strlen(word));
    made.push_back(" ,.\n  "[next(6)]);
  }
  return made;
}

static Bytes records(size_t count) {
  Bytes made;
  for (unsigned i = 0, drift = 5000; i < count; i++) {
    drift += next(16) - 8;
    for (unsigned value : {i, drift, next(7), 1u << next(8)}) {
      made.push_back((unsigned char)(value >> 8));
      made.push_back((unsigned char)value);
    }
  }
  return made;
}

static Bytes noise(size_t size) {
  Bytes made(size);
  for (unsigned char &byte : made)
    byte = (unsigned char)next(256);
  return made;
}

static void deflate(const char *name, const Bytes &data, ZopfliFormat format, int iterations) {
  ZopfliOptions options;
  ZopfliInitOptions(&options);
  options.numiterations = iterations;
  options.blocksplitting = iterations > 2;
  unsigned char *packed = nullptr, *back = nullptr;
  size_t size = 0, back_size = 0;
  ZopfliCompress(&options, format, data.data(), data.size(), &packed, &size);
  LodePNGDecompressSettings settings;
  lodepng_decompress_settings_init(&settings);
  unsigned error = 0;
  if (format == ZOPFLI_FORMAT_ZLIB)
    error = lodepng_zlib_decompress(&back, &back_size, packed, size, &settings);
  else if (format == ZOPFLI_FORMAT_DEFLATE)
    error = lodepng_inflate(&back, &back_size, packed, size, &settings);
  else // A gzip file: a header of ten bytes; a check sum and the size at the end.
    error = lodepng_inflate(&back, &back_size, packed + 10, size - 18, &settings);
  require(error == 0, "inflating");
  require(Bytes(back, back + back_size) == data, "what came back");
  std::printf("%s: %zu to %zu %08x\n", name, data.size(), size, hash(Bytes(packed, packed + size)));
  std::free(packed);
  std::free(back);
}

// A gradient, with a disc that is half transparent or a few flat colours and specks.
static Bytes picture(unsigned side, bool flat) {
  Bytes made;
  for (unsigned y = 0; y < side; y++)
    for (unsigned x = 0; x < side; x++) {
      unsigned dx = x - side / 2, dy = y - side / 2;
      bool inside = dx * dx + dy * dy < side * side / 9;
      unsigned char shade = (unsigned char)(x * 255 / side), spot = next(50) == 0 ? 200 : 0;
      if (flat)
        made.insert(made.end(), {(unsigned char)(inside ? 250 : 20), spot, 90, 255});
      else
        made.insert(made.end(), {shade, (unsigned char)(shade / 2 + y), (unsigned char)(y * 3),
                                 (unsigned char)(inside ? 128 : 255)});
    }
  return made;
}

static void shrink(const char *name, const Bytes &pixels, unsigned side) {
  Bytes png, smaller, back;
  require(lodepng::encode(png, pixels, side, side) == 0, "writing a picture");
  ZopfliPNGOptions options;
  options.num_iterations = 1;
  options.filter_strategies = {kStrategyMinSum};
  options.auto_filter_strategy = false;
  require(ZopfliPNGOptimize(png, options, false, &smaller) == 0, "optimising a picture");
  unsigned width = 0, height = 0;
  require(lodepng::decode(back, width, height, smaller) == 0, "reading a picture");
  require(width == side && height == side && back == pixels, "the pixels");
  std::printf("%s: %zu to %zu %08x\n", name, png.size(), smaller.size(), hash(smaller));
}

int main() {
  deflate("text", text(1000), ZOPFLI_FORMAT_DEFLATE, 3);
  deflate("records", records(80), ZOPFLI_FORMAT_ZLIB, 2);
  deflate("noise", noise(800), ZOPFLI_FORMAT_GZIP, 1);
  deflate("nothing", {}, ZOPFLI_FORMAT_ZLIB, 2);
  shrink("gradient", picture(12, false), 12);
  shrink("flat", picture(16, true), 16);
  return 0;
}
