// Makes the data that is scanned: prose, records, noise, and small executables.
#include "samples.h"
#include <stdio.h>
#include <string.h>

static uint32_t state;

static uint32_t below(uint32_t limit) {
  state = state * 1664525 + 1013904223;
  return (state >> 16) % limit;
}

static void put(uint8_t *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i)
    at[i] = value >> i * 8;
}

static void noise(uint8_t *buffer, size_t size) {
  for (size_t i = 0; i < size; ++i)
    buffer[i] = below(8) ? below(256) : 0;
}

static void prose(uint8_t *buffer) {
  static const char *const words[] = {"invoice",
                                      "the",
                                      "Password: ",
                                      "admin@example.com",
                                      "of",
                                      "connect",
                                      "10.20.30.40",
                                      "https://a.example/x?id=7",
                                      "abcabcabc",
                                      "SECRET",
                                      "Secret",
                                      "and",
                                      "\"key\": \"v\"",
                                      "2024-11-05",
                                      "eval(unescape(",
                                      "cmd.exe /c",
                                      "aaaaab",
                                      "%TEMP%",
                                      "w\0i\0d\0e\0",
                                      "U0VDUkVU"};
  for (size_t at = 0; at + 64 < SAMPLE_BYTES;) {
    uint32_t which = below(20);
    size_t size = which == 18 ? 8 : strlen(words[which]);
    memcpy(buffer + at, words[which], size);
    at += size;
    buffer[at++] = below(12) ? ' ' : '\n';
  }
}

static void records(uint8_t *buffer) {
  for (size_t at = 0; at + 64 < SAMPLE_BYTES; at += 64) {
    put(buffer + at, 0xfeedc0de, 4);
    put(buffer + at + 4, at / 64, 4);
    put(buffer + at + 8, below(1000), 2);
    snprintf((char *)buffer + at + 16, 24, "user%04u:%08x", below(10000), below(1 << 16) * 977u);
    for (int i = 0; i < 16; ++i)
      buffer[at + 44 + i] = "secret and spam."[i] ^ (at / 64 % 32);
  }
}

static void imports(uint8_t *table) {
  static const char *const libraries[] = {"KERNEL32.dll", "USER32.dll", "ADVAPI32.dll",
                                          "WS2_32.dll"};
  for (uint32_t i = 0; i < 4; ++i) {
    put(table + i * 20, 0x2100 + i * 0x80, 4);
    put(table + i * 20 + 12, 0x2300 + i * 0x20, 4);
    put(table + i * 20 + 16, 0x2100 + i * 0x80, 4);
    strcpy((char *)table + 0x300 + i * 0x20, libraries[i]);
    for (uint32_t j = 0, count = 5 + below(10); j < count; ++j) {
      uint32_t name = 0x400 + (i * 16 + j) * 0x20;
      put(table + 0x100 + i * 0x80 + j * 4, 0x2000 + name, 4);
      snprintf((char *)table + name + 2, 30, "Function%c%u", "AW"[below(2)], below(50));
    }
  }
}

static void pe(uint8_t *buffer) {
  static const struct {
    const char *name;
    uint32_t address, size, offset, flags;
  } sections[] = {{".text", 0x1000, 0x1000, 0x400, 0x60000020},
                  {".rdata", 0x2000, 0x1000, 0x1400, 0x40000040},
                  {".data", 0x3000, 0xd000, 0x2400, 0xc0000040}};
  uint8_t *header = buffer + 0x80, *optional = header + 24;
  noise(buffer + 0x400, SAMPLE_BYTES - 0x400);
  memset(buffer, 0, 0x400);
  memset(buffer + 0x1400, 0, 0x1000);
  memcpy(buffer, "MZ", 2);
  put(buffer + 0x3c, 0x80, 4);
  memcpy(header, "PE\0\0", 4);
  put(header + 4, 0x14c, 2);
  put(header + 6, 3, 2);
  put(header + 8, 1000000 + below(5000), 4);
  put(header + 20, 224, 2);
  put(header + 22, 0x102, 2);
  put(optional, 0x10b, 2);
  put(optional + 16, 0x1000 + below(0x800), 4);
  put(optional + 28, 0x400000, 4);
  put(optional + 32, 0x1000, 4);
  put(optional + 36, 0x200, 4);
  put(optional + 56, 0x10000, 4);
  put(optional + 60, 0x400, 4);
  put(optional + 68, 2 + below(2), 2);
  put(optional + 92, 16, 4);
  put(optional + 104, 0x2000, 4);
  put(optional + 108, 100, 4);
  for (int i = 0; i < 3; ++i) {
    uint8_t *section = optional + 224 + i * 40;
    strcpy((char *)section, sections[i].name);
    put(section + 8, sections[i].size, 4);
    put(section + 12, sections[i].address, 4);
    put(section + 16, sections[i].size, 4);
    put(section + 20, sections[i].offset, 4);
    put(section + 36, sections[i].flags, 4);
  }
  imports(buffer + 0x1400);
}

static void elf(uint8_t *buffer) {
  // Sections: none, code, symbols, and the one table of all names.
  static const uint32_t types[] = {0, 1, 2, 3}, names[] = {0, 1, 7, 15};
  static const uint32_t offsets[] = {0, 0x1000, 0x8000, 0xc000},
                        sizes[] = {0, 0x7000, 0x600, 0x1000};
  noise(buffer, SAMPLE_BYTES);
  memset(buffer, 0, 0x1000);
  memset(buffer + 0x8000, 0, 0x8000);
  memcpy(buffer, "\177ELF\2\1\1", 7);
  put(buffer + 16, 2, 2);
  put(buffer + 18, 62, 2);
  put(buffer + 20, 1, 4);
  put(buffer + 24, 0x401000 + below(0x1000), 8);
  put(buffer + 32, 64, 8);
  put(buffer + 40, 0x200, 8);
  put(buffer + 52, 64 | 56 << 16, 4);
  put(buffer + 56, 1 | 64 << 16, 4);
  put(buffer + 60, 4 | 3 << 16, 4);
  put(buffer + 64, 1 | 5ull << 32, 8);
  put(buffer + 64 + 16, 0x400000, 8);
  put(buffer + 64 + 32, 0x8000, 8);
  put(buffer + 64 + 40, 0x8000, 8);
  memcpy(buffer + 0xc000, "\0.text\0.symtab\0.strtab", 23);
  for (int i = 0; i < 4; ++i) {
    uint8_t *section = buffer + 0x200 + i * 64;
    put(section, names[i], 4);
    put(section + 4, types[i], 4);
    put(section + 16, i == 1 ? 0x401000 : 0, 8);
    put(section + 24, offsets[i], 8);
    put(section + 32, sizes[i], 8);
    put(section + 40, i == 2 ? 3 : 0, 4);
    put(section + 56, i == 2 ? 24 : 0, 8);
  }
  for (uint32_t i = 1; i < 64; ++i) {
    uint8_t *symbol = buffer + 0x8000 + i * 24;
    put(symbol, 0x20 + i * 16, 4);
    put(symbol + 4, 0x12 + below(2), 1);
    put(symbol + 6, 1, 2);
    put(symbol + 8, 0x401000 + below(0x7000), 8);
    put(symbol + 16, below(200), 8);
    snprintf((char *)buffer + 0xc020 + i * 16, 16, "symbol_%u", below(1000));
  }
}

void make_sample(uint8_t *buffer, int kind, uint32_t seed) {
  state = seed;
  memset(buffer, 0, SAMPLE_BYTES);
  switch (kind) {
  case 0:
    prose(buffer);
    break;
  case 1:
    records(buffer);
    break;
  case 2:
    noise(buffer, SAMPLE_BYTES);
    break;
  case 3:
    pe(buffer);
    break;
  default:
    elf(buffer);
  }
}
