/* JSON values as a tree of linked nodes. */
#ifndef SAMPLE_JSON_H
#define SAMPLE_JSON_H

typedef enum {
  JSON_NULL,
  JSON_FALSE,
  JSON_TRUE,
  JSON_NUMBER,
  JSON_STRING,
  JSON_ARRAY,
  JSON_OBJECT
} json_kind;

typedef struct json_node {
  json_kind kind;
  double number;
  char *text; /* string value */
  char *key;  /* member name when the parent is an object */
  struct json_node *child;
  struct json_node *next;
} json_node;

json_node *json_parse(const char *text, const char **error);
void json_free(json_node *n);
char *json_write(const json_node *n, int indent);
const json_node *json_at(const json_node *n, const char *path);

#endif
