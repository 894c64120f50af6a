// Runs a script in QuickJS: `run SCRIPT`. It gives the script one function, print(), and runs the
// jobs of its promises; an uncaught exception is an error.
#include <stdio.h>
#include <stdlib.h>

#include "quickjs.h"

static JSValue print(JSContext *context, JSValueConst self, int count, JSValueConst *values) {
  (void)self;
  for (int i = 0; i < count; i++) {
    const char *text = JS_ToCString(context, values[i]);
    if (!text)
      return JS_EXCEPTION;
    printf(i ? " %s" : "%s", text);
    JS_FreeCString(context, text);
  }
  putchar('\n');
  return JS_UNDEFINED;
}

static int report(JSContext *context) {
  JSValue error = JS_GetException(context);
  const char *text = JS_ToCString(context, error);
  fprintf(stderr, "uncaught: %s\n", text ? text : "?");
  JS_FreeCString(context, text);
  JS_FreeValue(context, error);
  return 1;
}

static char *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  if (!file)
    return NULL;
  char *text = calloc(1, 1 << 16); // No script here is as long.
  *size = fread(text, 1, (1 << 16) - 1, file);
  fclose(file);
  return text;
}

int main(int argc, char **argv) {
  size_t size = 0;
  char *source = argc == 2 ? read_file(argv[1], &size) : NULL;
  if (!source) {
    fprintf(stderr, "usage: run SCRIPT\n");
    return 2;
  }
  JSRuntime *runtime = JS_NewRuntime();
  JSContext *context = JS_NewContext(runtime);
  JSValue global = JS_GetGlobalObject(context);
  JS_SetPropertyStr(context, global, "print", JS_NewCFunction(context, print, "print", 1));
  JS_FreeValue(context, global);

  int status = 0;
  JSValue value = JS_Eval(context, source, size, argv[1], JS_EVAL_TYPE_GLOBAL);
  if (JS_IsException(value))
    status = report(context);
  JS_FreeValue(context, value);
  for (JSContext *job; !status;) {
    int left = JS_ExecutePendingJob(runtime, &job);
    if (left < 0)
      status = report(job);
    if (left <= 0)
      break;
  }
  JS_FreeContext(context);
  JS_FreeRuntime(runtime);
  free(source);
  return status;
}
