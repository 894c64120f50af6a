// Compiles the file of rules that its argument names, saves and loads them again in memory, and
// scans generated samples with them.
#include "samples.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yara.h>

typedef struct {
  uint32_t hash, rules, matches;
} Tally;

typedef struct {
  char *data;
  size_t size, at;
} Memory;

static void add(Tally *tally, const void *data, size_t size) {
  for (size_t i = 0; i < size; ++i)
    tally->hash = (tally->hash ^ ((const uint8_t *)data)[i]) * 16777619u;
}

static void check(int code, const char *what) {
  if (code == ERROR_SUCCESS)
    return;
  fprintf(stderr, "%s: error %d\n", what, code);
  exit(1);
}

static int on_message(YR_SCAN_CONTEXT *context, int message, void *data, void *user) {
  Tally *tally = user;
  if (message == CALLBACK_MSG_CONSOLE_LOG)
    add(tally, data, strlen(data));
  if (message == CALLBACK_MSG_TOO_MANY_MATCHES)
    ++tally->hash;
  if (message != CALLBACK_MSG_RULE_MATCHING)
    return CALLBACK_CONTINUE;
  YR_RULE *rule = data;
  YR_STRING *string;
  YR_MATCH *match;
  ++tally->rules;
  add(tally, rule->identifier, strlen(rule->identifier));
  yr_rule_strings_foreach(rule, string) yr_string_matches_foreach(context, string, match) {
    uint32_t place[] = {(uint32_t)match->offset, (uint32_t)match->match_length};
    ++tally->matches;
    add(tally, place, sizeof place);
  }
  return CALLBACK_CONTINUE;
}

static void on_error(int level, const char *file, int line, const YR_RULE *rule,
                     const char *message, void *user) {
  (void)file, (void)rule, (void)user;
  if (level == YARA_ERROR_LEVEL_ERROR)
    fprintf(stderr, "line %d: %s\n", line, message);
}

static size_t write_memory(const void *data, size_t size, size_t count, void *user) {
  Memory *memory = user;
  memory->data = realloc(memory->data, memory->size + size * count);
  memcpy(memory->data + memory->size, data, size * count);
  memory->size += size * count;
  return count;
}

static size_t read_memory(void *data, size_t size, size_t count, void *user) {
  Memory *memory = user;
  if (memory->size - memory->at < size * count)
    return 0;
  memcpy(data, memory->data + memory->at, size * count);
  memory->at += size * count;
  return count;
}

static YR_RULES *compile(const char *name) {
  YR_COMPILER *compiler;
  YR_RULES *rules;
  FILE *file = fopen(name, "r");
  check(yr_compiler_create(&compiler), "compiler");
  yr_compiler_set_callback(compiler, on_error, NULL);
  check(yr_compiler_define_integer_variable(compiler, "kind", -1), "variable");
  check(yr_compiler_define_string_variable(compiler, "label", "none"), "variable");
  check(file ? yr_compiler_add_file(compiler, file, "main", name) : 1, name);
  check(yr_compiler_get_rules(compiler, &rules), "rules");
  yr_compiler_destroy(compiler);
  fclose(file);
  return rules;
}

static YR_RULES *copied(YR_RULES *rules) {
  Memory memory = {NULL, 0, 0};
  YR_STREAM stream = {.user_data = &memory, .read = read_memory, .write = write_memory};
  YR_RULES *copy;
  check(yr_rules_save_stream(rules, &stream), "save");
  check(yr_rules_load_stream(&stream, &copy), "load");
  yr_rules_destroy(rules);
  free(memory.data);
  return copy;
}

int main(int argc, char **argv) {
  static const char *const labels[] = {"prose", "records", "noise", "program", "program"};
  static uint8_t sample[SAMPLE_BYTES];
  if (argc != 3)
    return 2;
  check(yr_initialize(), "initialize");
  YR_RULES *rules = copied(compile(argv[1]));
  for (int i = 0; i < atoi(argv[2]); ++i) {
    YR_SCANNER *scanner;
    Tally tally = {2166136261u, 0, 0};
    int kind = i % SAMPLE_KINDS;
    make_sample(sample, kind, 17 + i);
    check(yr_scanner_create(rules, &scanner), "scanner");
    yr_scanner_set_callback(scanner, on_message, &tally);
    yr_scanner_set_flags(scanner, SCAN_FLAGS_NO_TRYCATCH);
    check(yr_scanner_define_integer_variable(scanner, "kind", kind), "variable");
    check(yr_scanner_define_string_variable(scanner, "label", labels[kind]), "variable");
    check(yr_scanner_scan_mem(scanner, sample, SAMPLE_BYTES), "scan");
    printf("%d %s rules %u matches %u %08x\n", i, labels[kind], tally.rules, tally.matches,
           tally.hash);
    yr_scanner_destroy(scanner);
  }
  yr_rules_destroy(rules);
  check(yr_finalize(), "finalize");
  return 0;
}
