// Wasm3: `run GUEST` loads a WebAssembly module, written in hexadecimal, many times, and calls its
// functions (see guest.c), which call the host back; one faults, on purpose.
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wasm3.h"

static uint8_t module_bytes[8192];
static uint64_t reported;

static void require(M3Result result, const char *what) {
  if (result) {
    fprintf(stderr, "wrong: %s: %s\n", what, result);
    exit(1);
  }
}

static size_t read_module(const char *path) {
  FILE *file = fopen(path, "r");
  size_t size = 0;
  unsigned byte;
  while (file && size < sizeof module_bytes && fscanf(file, "%2x", &byte) == 1)
    module_bytes[size++] = (uint8_t)byte;
  if (file)
    fclose(file);
  return size;
}

static m3ApiRawFunction(report) {
  (void)runtime, (void)_ctx, (void)_mem;
  m3ApiGetArg(int32_t, tag);
  m3ApiGetArg(uint64_t, value);
  reported = reported * 131 + (uint64_t)tag * 7 + value;
  m3ApiSuccess();
}

// Calls a function of the module by name; the arguments follow.
static IM3Function call(IM3Runtime runtime, const char *name, ...) {
  IM3Function function;
  va_list arguments;
  require(m3_FindFunction(&function, runtime, name), name);
  va_start(arguments, name);
  require(m3_CallVL(function, arguments), name);
  va_end(arguments);
  return function;
}

static int call_int(IM3Runtime runtime, const char *name, int argument) {
  int32_t result;
  require(m3_GetResultsV(call(runtime, name, argument), &result), name);
  return result;
}

static IM3Runtime load(IM3Environment environment, size_t size) {
  IM3Runtime runtime = m3_NewRuntime(environment, 32 << 10, NULL);
  IM3Module module;
  require(m3_ParseModule(environment, &module, module_bytes, (uint32_t)size), "parsing");
  require(m3_LoadModule(runtime, module), "loading");
  require(m3_LinkRawFunction(module, "host", "report", "v(iI)", report), "linking");
  require(m3_CompileModule(module), "compiling");
  return runtime;
}

static void fail(IM3Runtime runtime) {
  IM3Function function;
  require(m3_FindFunction(&function, runtime, "fault"), "fault");
  M3Result result = m3_CallV(function, 100 << 20);
  printf("a fault: %s\n", result ? result : "none");
  printf("grown: %d\n", call_int(runtime, "grow", 2));
  const char *arguments[] = {"12"};
  require(m3_FindFunction(&function, runtime, "fibonacci"), "fibonacci");
  require(m3_CallArgv(function, 1, arguments), "fibonacci of text");
  int32_t number = 0;
  require(m3_GetResultsV(function, &number), "the number");
  printf("%s/%d: %d\n", m3_GetFunctionName(function), (int)m3_GetArgCount(function), number);
}

int main(int argc, char **argv) {
  size_t size = argc == 2 ? read_module(argv[1]) : 0;
  if (size == 0) {
    fprintf(stderr, "usage: run GUEST\n");
    return 2;
  }
  IM3Environment environment = m3_NewEnvironment();
  for (int i = 0; i < 150; i++)
    m3_FreeRuntime(load(environment, size));
  IM3Runtime runtime = load(environment, size);
  for (int i = 0; i < 3; i++) {
    int64_t hash;
    double distance;
    float trace;
    printf("sorted %d, primes %d, ", call_int(runtime, "sorting", 250 * (i + 2)),
           call_int(runtime, "sieve", 1000 * (i + 2)));
    require(m3_GetResultsV(call(runtime, "hashing", 15000, (i + 1) * INT64_C(987654321)), &hash),
            "hashing");
    require(m3_GetResultsV(call(runtime, "orbit", 30000, 1.0 + i * 0.1), &distance), "orbit");
    require(m3_GetResultsV(call(runtime, "matrix", 14 + i), &trace), "matrix");
    printf("hash %llx, distance %.3f, trace %.0f, ", (long long)hash, distance, trace);
    printf("machine %d, fibonacci %d\n", call_int(runtime, "machine", 70000),
           call_int(runtime, "fibonacci", 20 + i));
  }
  fail(runtime);
  printf("reported %llx, memory %u\n", (long long)reported, (unsigned)m3_GetMemorySize(runtime));
  m3_FreeRuntime(runtime);
  m3_FreeEnvironment(environment);
  return 0;
}
