// jq: `run` makes orders as JSON, parses them, and puts programs to them: grouping, paths, regular
// expressions, reductions and formats.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>

#include "jq.h"
#include "jv.h"

// jq takes the seed of its hashes from a device, or else from these: it opens nothing here.
int open(const char *path, int flags, ...) {
  (void)path, (void)flags;
  return -1;
}
pid_t getpid(void) { return 1; }
time_t time(time_t *now) { return now ? *now = 0 : 0; }

static char text[1 << 17];
static size_t length;
static uint32_t seed = 10;

static unsigned next(unsigned limit) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % limit;
}

static const char *pick(const char *const *list, unsigned count) { return list[next(count)]; }

static void make_orders(int count) {
  static const char *const who[] = {"Ada", "Bo", "Chloé", "Dmitri", "\\u0395va", "Finn \\\"F\\\""};
  static const char *const what[] = {"tea", "lamp", "rope 3m", "map", "ink-blue", "box/42"};
  length = 1;
  text[0] = '[';
  for (int i = 0; i < count; i++) {
    length += (size_t)sprintf(
        text + length, "%s{\"id\": %d, \"who\": \"%s\", \"at\": %u,\n \"paid\": %s, \"lines\": [",
        i ? "," : "", i, pick(who, 6), 1000000000 + next(99999999),
        next(4)   ? "true"
        : next(2) ? "null"
                  : "false");
    for (unsigned k = 0, lines = 1 + next(4); k < lines; k++)
      length += (size_t)sprintf(
          text + length,
          "%s{\"what\": \"%s\", \"n\": %u, \"price\": %u.%02u, \"tags\": [%u, %ue2]}", k ? "," : "",
          pick(what, 6), 1 + next(9), next(90), next(100), next(7), next(5));
    length += (size_t)sprintf(text + length, "], \"note\": \"%s %u\"}\n",
                              next(3) ? "to be sent" : "x", next(5000));
  }
  text[length++] = ']';
}

static const char *const PROGRAMS[] = {
    "map(select(.paid)) | group_by(.who) | map({(.[0].who): (map(.lines[].n) | add)}) | add",
    "[.[] | .lines |= sort_by(.price, .what) | .lines[0].what] | unique",
    "[.. | strings] | unique | map(ascii_upcase | ltrimstr(\"TO \")) | .[3:9] | join(\",\")",
    "[.[].note | capture(\"(?<word>[a-z ]+) (?<n>[0-9]{3,})$\").n | tonumber] | max",
    "[.[].lines[].what | gsub(\"(?<v>[aeiou])\"; \"<\\(.v)>\") | test(\"^<|\\\\d\")] | "
    "map(select(.)) | length",
    "reduce .[] as {who: $w, lines: [{n: $n}]} ({}; .[$w] += $n) | to_entries | max_by(.value)",
    "map(.at % 7) | group_by(.) | map(\"\\(.[0]):\\(length)\") | .[0:3] | join(\" \")",
    "[.[] | try (if .paid == null then error(\"unpaid\") else .id end) catch .] | map(type) | "
    "unique",
    "def depth: if type == \"object\" or type == \"array\" then 1 + (map(depth) | max // 0) else 0 "
    "end;"
    " map(del(.note)) | .[0:20] | depth",
    "[.[0:30][] | @csv \"\\([.id, .who])\", @html \"\\(.who)\", @uri \"\\(.who)\", (.who | "
    "@base64)]"
    " | map(length) | add",
    "[.[].lines[].tags[]] | (add / length * 100 | floor), (sort | .[length / 2 | floor])",
    "map({id, total: ([.lines[] | .n * .price] | add | round)}) | sort_by(-.total, .id) | .[0:2] | "
    "tojson",
    "[range(0; 300)] | map(select(. as $n | [range(2; 1 + ($n | sqrt | floor))] | all($n % . != "
    "0)))"
    " | length",
    "def fib: if . < 2 then . else (. - 1 | fib) + (. - 2 | fib) end; [range(10) | fib] | tojson",
    "(.[0:25] | tojson | fromjson) == .[0:25], ([.[0:25] | walk(if type == \"number\" then . + 1 "
    "else . end)"
    " | .[][].id?] | length)",
    "([splits(\"a\")]? // \"no text\"), ([.[] | .who | explode | implode] | "
    "unique | length)",
    "[.[] | getpath([\"lines\", 0, \"price\"])] | (min, max, (sort | bsearch(1000000)))",
    "INDEX(.id) | with_entries(select(.key | endswith(\"7\"))) | keys_unsorted | length",
    "[.[].who] | unique | ([[., .] | combinations | join(\"+\")] | .[8]), (map(test(\"É\"; \"i\")) "
    "| index(true))",
    ".[1] | [paths(scalars) | map(tostring) | join(\"/\")] | .[-3:] | join(\" \")",
    "label $out | foreach .[] as $o (0; . + ($o.lines | length); if . > 50 then ., break $out else "
    "empty end)",
    ".[\"none\"]?, (.[0] | has(\"id\")), ([.[] | .id] | indices([5, 6])), (.[3] | keys)",
};

static void say(jv value) {
  jv dumped = jv_dump_string(value, JV_PRINT_SORTED);
  printf("%.100s\n", jv_string_value(dumped));
  jv_free(dumped);
}

static void put(const char *program, jv input) {
  jq_state *jq = jq_init();
  if (!jq || !jq_compile(jq, program)) {
    fprintf(stderr, "wrong: %s\n", program);
    exit(1);
  }
  jq_start(jq, input, 0);
  jv value = jq_next(jq);
  for (; jv_is_valid(value); value = jq_next(jq))
    say(value);
  if (jv_invalid_has_msg(jv_copy(value))) {
    jv message = jv_invalid_get_msg(value);
    printf("error: %.90s\n", jv_string_value(message));
    jv_free(message);
  } else {
    jv_free(value);
  }
  jq_teardown(&jq);
}

int main(void) {
  make_orders(60);
  jv orders = jv_parse_sized(text, (int)length);
  if (!jv_is_valid(orders)) {
    fprintf(stderr, "wrong: the orders\n");
    return 1;
  }
  for (size_t i = 0; i < sizeof PROGRAMS / sizeof *PROGRAMS; i++)
    put(PROGRAMS[i], jv_copy(orders));
  jv again = jv_parse("[1, {\"a\": [true, 1e3]}");
  printf("not closed: %d\n", jv_is_valid(again));
  jv_free(again);
  jv_free(orders);
  return 0;
}
