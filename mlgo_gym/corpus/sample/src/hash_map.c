/* String-keyed open-addressing hash map (Robin Hood probing) that owns its
 * keys, and a word counter built on it. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  char *key;
  size_t key_len;
  uint32_t hash;
  long value;
} map_slot;

typedef struct {
  map_slot *slots;
  size_t cap; /* zero or a power of two */
  size_t count;
} string_map;

static uint32_t hash_span(const char *s, size_t n) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < n; i++)
    h = (h ^ (unsigned char)s[i]) * 16777619u;
  h ^= h >> 15;
  h *= 0x2c1b3c6du;
  h ^= h >> 12;
  return h;
}

static char *copy_span(const char *s, size_t n) {
  char *p = (char *)malloc(n + 1);
  if (p) {
    memcpy(p, s, n);
    p[n] = '\0';
  }
  return p;
}

static int slot_used(const map_slot *s) { return s->key != NULL; }

static size_t slot_index(const string_map *m, size_t i) {
  return i & (m->cap - 1);
}

static size_t probe_distance(const string_map *m, const map_slot *s,
                             size_t at) {
  return slot_index(m, at + m->cap - slot_index(m, s->hash));
}

static int slot_matches(const map_slot *s, const char *key, size_t n,
                        uint32_t hash) {
  return s->hash == hash && s->key_len == n && memcmp(s->key, key, n) == 0;
}

static map_slot *find_slot(const string_map *m, const char *key, size_t n) {
  if (m->cap == 0)
    return NULL;
  uint32_t hash = hash_span(key, n);
  size_t i = slot_index(m, hash);
  for (size_t dist = 0;; dist++, i = slot_index(m, i + 1)) {
    map_slot *s = &m->slots[i];
    if (!slot_used(s) || probe_distance(m, s, i) < dist)
      return NULL;
    if (slot_matches(s, key, n, hash))
      return s;
  }
}

static void swap_slots(map_slot *a, map_slot *b) {
  map_slot t = *a;
  *a = *b;
  *b = t;
}

/* Places a slot whose key is known to be absent; the table has room. */
static void place_slot(string_map *m, map_slot incoming) {
  size_t i = slot_index(m, incoming.hash);
  for (size_t dist = 0;; dist++, i = slot_index(m, i + 1)) {
    map_slot *s = &m->slots[i];
    if (!slot_used(s)) {
      *s = incoming;
      m->count++;
      return;
    }
    size_t theirs = probe_distance(m, s, i);
    if (theirs < dist) {
      swap_slots(s, &incoming);
      dist = theirs;
    }
  }
}

static int rehash(string_map *m, size_t new_cap) {
  string_map bigger = {NULL, new_cap, 0};
  bigger.slots = (map_slot *)calloc(new_cap, sizeof *bigger.slots);
  if (!bigger.slots)
    return 0;
  for (size_t i = 0; i < m->cap; i++)
    if (slot_used(&m->slots[i]))
      place_slot(&bigger, m->slots[i]);
  free(m->slots);
  *m = bigger;
  return 1;
}

static int ensure_room(string_map *m) {
  if (m->cap == 0)
    return rehash(m, 8);
  if ((m->count + 1) * 8 > m->cap * 7)
    return rehash(m, m->cap * 2);
  return 1;
}

static map_slot *find_or_insert(string_map *m, const char *key, size_t n) {
  map_slot *s = find_slot(m, key, n);
  if (s)
    return s;
  if (!ensure_room(m))
    return NULL;
  map_slot fresh = {copy_span(key, n), n, hash_span(key, n), 0};
  if (!fresh.key)
    return NULL;
  place_slot(m, fresh);
  return find_slot(m, key, n);
}

void map_init(string_map *m) { memset(m, 0, sizeof *m); }

void map_clear(string_map *m) {
  for (size_t i = 0; i < m->cap; i++)
    if (slot_used(&m->slots[i]))
      free(m->slots[i].key);
  free(m->slots);
  map_init(m);
}

int map_set(string_map *m, const char *key, long value) {
  map_slot *s = find_or_insert(m, key, strlen(key));
  if (!s)
    return 0;
  s->value = value;
  return 1;
}

int map_add(string_map *m, const char *key, long delta) {
  map_slot *s = find_or_insert(m, key, strlen(key));
  if (!s)
    return 0;
  s->value += delta;
  return 1;
}

int map_get(const string_map *m, const char *key, long *value) {
  const map_slot *s = find_slot(m, key, strlen(key));
  if (!s)
    return 0;
  *value = s->value;
  return 1;
}

/* Removes a key by shifting the rest of its probe run back by one. */
int map_remove(string_map *m, const char *key) {
  map_slot *s = find_slot(m, key, strlen(key));
  if (!s)
    return 0;
  free(s->key);
  size_t i = (size_t)(s - m->slots);
  for (;;) {
    size_t next = slot_index(m, i + 1);
    map_slot *n = &m->slots[next];
    if (!slot_used(n) || probe_distance(m, n, next) == 0)
      break;
    m->slots[i] = *n;
    i = next;
  }
  memset(&m->slots[i], 0, sizeof m->slots[i]);
  m->count--;
  return 1;
}

static int is_word_char(char c) {
  return isalnum((unsigned char)c) != 0 || c == '_' || c == '\'';
}

static size_t skip_while(const char *text, size_t i, int word) {
  while (text[i] && is_word_char(text[i]) == word)
    i++;
  return i;
}

/* Counts the words of `text` into the map; returns how many there were. */
size_t map_count_words(string_map *m, const char *text) {
  size_t words = 0;
  size_t i = skip_while(text, 0, 0);
  while (text[i]) {
    size_t end = skip_while(text, i, 1);
    map_slot *s = find_or_insert(m, text + i, end - i);
    if (s) {
      s->value++;
      words++;
    }
    i = skip_while(text, end, 0);
  }
  return words;
}

/* The key with the largest value, the alphabetically first one of equals. */
const char *map_most_frequent(const string_map *m, long *value) {
  const map_slot *best = NULL;
  for (size_t i = 0; i < m->cap; i++) {
    const map_slot *s = &m->slots[i];
    if (!slot_used(s))
      continue;
    if (!best || s->value > best->value ||
        (s->value == best->value && strcmp(s->key, best->key) < 0))
      best = s;
  }
  if (best)
    *value = best->value;
  return best ? best->key : NULL;
}
