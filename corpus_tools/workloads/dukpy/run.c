// Runs a script in Duktape: `run SCRIPT`. It gives the script print() and sum(), a C function of
// any number of arguments; then it works on what the script left, through Duktape's stack.
#include <stdio.h>
#include <stdlib.h>

#include "duktape.h"

static char source[1 << 16]; // No script here is as long.

static duk_ret_t print(duk_context *context) {
  duk_push_string(context, " ");
  duk_insert(context, 0);
  duk_join(context, duk_get_top(context) - 1);
  printf("%s\n", duk_safe_to_string(context, -1));
  return 0;
}

static duk_ret_t sum(duk_context *context) {
  double total = 0;
  for (duk_idx_t i = 0; i < duk_get_top(context); i++)
    total += duk_require_number(context, i);
  duk_push_number(context, total);
  return 1;
}

// Counts the keys and the items of all that is below the value on top of the stack.
static int count_below(duk_context *context) {
  if (!duk_is_object(context, -1))
    return 1;
  int count = 1;
  duk_enum(context, -1, DUK_ENUM_OWN_PROPERTIES_ONLY);
  while (duk_next(context, -1, 1)) {
    count += count_below(context);
    duk_pop_2(context);
  }
  duk_pop(context);
  return count;
}

// Walks, encodes and compiles anew what the script left in the global `left`.
static duk_ret_t use_what_is_left(duk_context *context, void *unused) {
  (void)unused;
  duk_get_global_string(context, "left");
  int count = count_below(context);
  duk_json_encode(context, -1);
  duk_size_t size = 0;
  duk_get_lstring(context, -1, &size);
  printf("left %d values, %d bytes as JSON\n", count, (int)size);

  duk_compile_string(context, DUK_COMPILE_FUNCTION, "function (x) { return x * x + 1; }");
  duk_dump_function(context);
  duk_load_function(context);
  int total = 0;
  for (int i = 0; i < 500; i++) {
    duk_dup(context, -1);
    duk_push_int(context, i);
    duk_call(context, 1);
    total += duk_get_int(context, -1);
    duk_pop(context);
  }
  printf("squares %d\n", total);
  return 0;
}

int main(int argc, char **argv) {
  FILE *file = argc == 2 ? fopen(argv[1], "rb") : NULL;
  if (!file) {
    fprintf(stderr, "usage: run SCRIPT\n");
    return 2;
  }
  fread(source, 1, sizeof source - 1, file);
  fclose(file);
  duk_context *context = duk_create_heap_default();
  duk_push_c_function(context, print, DUK_VARARGS);
  duk_put_global_string(context, "print");
  duk_push_c_function(context, sum, DUK_VARARGS);
  duk_put_global_string(context, "sum");
  int failed = duk_peval_string(context, source) != 0;
  if (!failed)
    failed = duk_safe_call(context, use_what_is_left, NULL, 0, 1) != DUK_EXEC_SUCCESS;
  if (failed)
    fprintf(stderr, "uncaught: %s\n", duk_safe_to_string(context, -1));
  duk_destroy_heap(context);
  return failed;
}
