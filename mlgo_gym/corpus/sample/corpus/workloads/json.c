/* Reads a document of made-up records again and again, and writes it twice: flat and indented. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct json_node json_node;
json_node *json_parse(const char *text, const char **error);
void json_free(json_node *node);
char *json_write(const json_node *node, int indent);

static unsigned state = 1;

static unsigned draw(unsigned count) {
  state = state * 1664525u + 1013904223u;
  return (state >> 8) % count;
}

static char *make_document(int records) {
  char *text = malloc((size_t)records * 200 + 16), *at = text;
  at += sprintf(at, "[");
  for (int record = 0; record < records; ++record)
    at += sprintf(at,
                  "%s{\"id\": %d, \"name\": \"item \\\"%u\\\"\", \"price\": %u.%02u, \"tags\": "
                  "[\"a%u\", null, %s], \"size\": {\"w\": -%u, \"h\": 1.5e%u}}",
                  record ? ",\n " : "", record, draw(1000), draw(500), draw(100), draw(50),
                  draw(2) ? "true" : "false", draw(90), draw(9));
  sprintf(at, "]");
  return text;
}

static unsigned hash(const char *text) {
  unsigned value = 2166136261u;
  while (*text)
    value = (value ^ (unsigned char)*text++) * 16777619u;
  return value;
}

int main(void) {
  unsigned sum = 0;
  for (int round = 0; round < 40; ++round) {
    const char *error = NULL;
    char *text = make_document(200);
    json_node *node = json_parse(text, &error);
    if (!node) {
      fprintf(stderr, "json: %s\n", error);
      return 1;
    }
    char *flat = json_write(node, 0), *indented = json_write(node, 2);
    json_node *again = json_parse(indented, &error);
    char *second = json_write(again, 0);
    if (strcmp(flat, second)) {
      fprintf(stderr, "json: expected the same document, found another\n");
      return 1;
    }
    sum = sum * 31 + hash(indented);
    free(text), free(flat), free(indented), free(second);
    json_free(node), json_free(again);
  }
  printf("%08x\n", sum);
  return 0;
}
