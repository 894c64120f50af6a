/* Whether ccache or sccache, where one started us, knows that a model or a project file decides the code.
 * By themselves they look at the compiler's file and the command line, and give back objects of other
 * models. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FINGERPRINT "--mlgo-fingerprint"
#define BUSTER "SCCACHE_C_CUSTOM_CACHE_BUSTER"

/* A setting of ccache's, from its variable or its configuration file; "" where it has none. */
static const char *setting(char *ccache, const char *variable, const char *key, char *text,
                           size_t size) {
  const char *value = getenv(variable);
  char *command[] = {ccache, "--get-config", (char *)key, NULL};
  if (value)
    return value;
  if (ask(command, NULL, text, size))
    text[0] = 0;
  text[strcspn(text, "\n")] = 0;
  return text;
}

static bool check_sccache(struct message *message) {
  const char *value = getenv(BUSTER);
  if (value && *value)
    return true;
  snprintf(message->text, MESSAGE_BYTES, "sccache: expected " BUSTER "=\"$(mlgo-cc " FINGERPRINT
           ")\", found none, without which it gives back objects of another model");
  return false;
}

bool check_compiler_cache(struct message *message) {
  char link[64], path[4096], check[256], files[256];
  snprintf(link, sizeof link, "/proc/%ld/exe", (long)getppid());
  ssize_t length = readlink(link, path, sizeof path - 1);
  path[length > 0 ? length : 0] = 0;
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : "";
  if (!strcmp(name, "sccache"))
    return check_sccache(message);
  if (strcmp(name, "ccache"))
    return true;
  const char *found = setting(path, "CCACHE_COMPILERCHECK", "compiler_check", check, sizeof check);
  if (strstr(found, FINGERPRINT) ||
      *setting(path, "CCACHE_EXTRAFILES", "extra_files_to_hash", files, sizeof files))
    return true;
  snprintf(message->text, MESSAGE_BYTES, "ccache: expected CCACHE_COMPILERCHECK='%%compiler%% "
           FINGERPRINT "', found '%.200s', by which it gives back objects of another model", found);
  return false;
}
