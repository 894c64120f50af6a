/* What a module is known by in a folder of traces: its source as the preprocessor leaves it, the
 * options that decide the code, and clang. Where something else may decide, it is not known. */
#define _GNU_SOURCE
#include "traces.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* What names files whose contents decide the code and which the preprocessor does not show. */
static const char *const UNSEEN[] = {
    "profile-use", "profile-instr-use", "profile-sample-use", "auto-profile", "-fmodule",
    "cxx-modules", "prebuilt-module", "include-pch", "ignorelist", "blacklist", "allowlist",
    "plugin", "-Xclang", "-Xpreprocessor", "--config", "-list=", "=list=", "xray-always",
    "xray-never", "remapping-file", "openmp-targets", "offload", "-fsycl", "--language",
    "=native", /* another on each machine */
    "-frewrite-", "-fdirectives-only", "-fkeep-system-includes", /* it shows less by these */
};
/* So are the devices' parts of a source in one of these languages. */
static const char *const OF_DEVICES[] = {"cu", "hip"};
/* What is about files besides the object, links and messages. The word behind one of the first is its
 * value. What a search leaves out of a build's commands is among these: _LEFT_UNSAID in
 * corpus_tools/allowed/driver.py. */
static const char *const ASIDE[] = {
    "-o", "--output", "-MF", "-MT", "-MQ", "-MJ", "-dumpdir", "--serialize-diagnostics",
    "-serialize-diagnostics", "-gen-cdb-fragment-path", "-fdebug-compilation-dir", "-Xlinker", "-L",
    "-l", "-T", "-e", "-u", "-rpath",
};
static const char *const ASIDE_PREFIXES[] = {
    "-M", "--output=", "--write-dependencies", "--write-user-dependencies", "-fproc-stat-report",
    "-Q", "--start-no-unused-arguments", "--end-no-unused-arguments", "-fansi-escape-codes",
    "-fcaret-diagnostics", "-fno-caret-diagnostics", "-ftabstop=", "-fcrash-diagnostics",
    "-fno-crash-diagnostics", "-fshow-", "-fno-show-", "-ferror-limit=", "-fmax-errors=",
    "-fmacro-backtrace-limit=", "-fspell-checking", "-fno-spell-checking", "-ftime-report",
    "-ftime-trace", "-fdiagnostics-", "-fno-diagnostics-", "-fcolor-diagnostics",
    "-fno-color-diagnostics", "-fmessage-length=", "-fdebug-prefix-map=",
    "-fdebug-compilation-dir=", "-ffile-compilation-dir=", "-fcoverage-prefix-map=",
    "-fcoverage-compilation-dir=", "-fstack-usage", "-save-temps", "--save-temps",
    "-fembed-bitcode", "-fsave-optimization-record", "-fno-save-optimization-record",
    "-foptimization-record-", "-pipe", "-pedantic", "--pedantic", "-Wl,", "-Wa,--noexecstack",
    "-fuse-ld=", "--ld-path=", "-L", "-l", "-R", "-T",
};
static const char *const ASIDE_ALONE[] = {"-v", "-H", "-time"};
/* What is for the preprocessor behind commas: a file of dependencies, or macros. */
#define PREPROCESSOR "-Wp,"
static const char *const DEPENDENCIES[] = {PREPROCESSOR "-MD,", PREPROCESSOR "-MMD,"};
static const char *const MACROS[] = {",-D", ",-U"};
/* What the preprocessor has seen to, and messages. The word behind one of the first is its value. */
static const char *const SEEN[] = {
    "-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-isysroot",
    "--sysroot",
};
static const char *const SEEN_PREFIXES[] = {
    "-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include", "-imacros", "--sysroot=",
    "-ffile-prefix-map=", "-fmacro-prefix-map=",
};
static const char *const SEEN_ALONE[] = {"-c", "--compile", "-w", "--"};

/* By -Werror, a word that only compilations use would be an error. */
static const char *const FIRST[] = {"-E", "-P", "-w", "-Qunused-arguments", "-o", "-"};
/* What these tell is another in each folder, line or minute. */
static const char *const VOLATILE[] = {
    "-D__FILE__=\"\"", "-D__BASE_FILE__=\"\"", "-D__LINE__=0", "-D__DATE__=\"\"",
    "-D__TIME__=\"\"", "-D__TIMESTAMP__=\"\"",
};

static bool is_among(const char *argument, const char *const *words, size_t count) {
  for (size_t index = 0; index < count; ++index)
    if (!strcmp(argument, words[index]))
      return true;
  return false;
}

static bool begins(const char *argument, const char *const *prefixes, size_t count) {
  for (size_t index = 0; index < count; ++index)
    if (!strncmp(argument, prefixes[index], strlen(prefixes[index])))
      return true;
  return false;
}

static bool names_dependencies(const char *argument) {
  const char *last = strrchr(argument, ',');
  return begins(argument, DEPENDENCIES, COUNT(DEPENDENCIES)) &&
         last == strchr(argument + strlen(PREPROCESSOR), ',') && last[1];
}

static bool is_of_macros(const char *argument) {
  const char *word = argument + strlen(PREPROCESSOR) - 1;
  while (word && begins(word, MACROS, COUNT(MACROS)))
    word = strchr(word + 1, ',');
  return !word;
}

static bool is_aside(const char *argument) {
  bool names_object = !strncmp(argument, "-o", 2) && strncmp(argument, "-objc", 5);
  return names_object || names_dependencies(argument) ||
         is_among(argument, ASIDE_ALONE, COUNT(ASIDE_ALONE)) ||
         begins(argument, ASIDE_PREFIXES, COUNT(ASIDE_PREFIXES));
}

/* What goes to clang's front end in two words: bitcode beside the code, for a corpus. */
static bool embeds_bitcode(char *const *words) {
  static const char EMBED[] = "-fembed-bitcode";
  return !strcmp(words[0], "-Xclang") && words[1] && !strncmp(words[1], EMBED, strlen(EMBED));
}

static bool is_warning(const char *argument) {
  return !strncmp(argument, "-W", 2) && (argument[2] == '\0' || argument[3] != ',');
}

static bool is_seen(const char *argument) {
  return is_warning(argument) || is_among(argument, SEEN_ALONE, COUNT(SEEN_ALONE)) ||
         begins(argument, SEEN_PREFIXES, COUNT(SEEN_PREFIXES));
}

/* Whether it decides something that the preprocessor does not show, or has it show something else. */
static bool is_unseen(const char *argument, const char *next) {
  const char *language = argument[2] ? argument + 2 : next;
  for (size_t each = 0; each < COUNT(UNSEEN); ++each)
    if (strstr(argument, UNSEEN[each]))
      return true;
  if (!strncmp(argument, "-x", 2) && language)
    return begins(language, OF_DEVICES, COUNT(OF_DEVICES));
  if (!strncmp(argument, PREPROCESSOR, strlen(PREPROCESSOR)))
    return !names_dependencies(argument) && !is_of_macros(argument);
  return argument[1] == 'd' && isupper((unsigned char)argument[2]); /* -dM: macros alone */
}

const char *untold_part(const struct settings *settings, const struct plan *plan) {
  const char *dot = plan->input ? strrchr(plan->input, '.') : NULL;
  for (size_t index = 1; index < settings->argument_count; ++index) {
    const char *argument = settings->arguments[index];
    if (embeds_bitcode(settings->arguments + index)) {
      ++index;
      continue;
    }
    if (argument[0] == '@' ||
        (argument[0] == '-' && argument[1] && is_unseen(argument, settings->arguments[index + 1])))
      return argument;
  }
  return dot && begins(dot + 1, OF_DEVICES, COUNT(OF_DEVICES)) ? plan->input : NULL;
}

static void add_text(struct digest *digest, const char *text) {
  add_to_digest(digest, text, strlen(text) + 1);
}

static char **add_words(char **end, const char *const *words, size_t count) {
  for (size_t index = 0; index < count; ++index)
    *end++ = (char *)words[index];
  return end;
}

/* Takes in the options, and fills in a command line of the preprocessor's. */
static void read_arguments(struct digest *digest, char **command, const struct settings *settings,
                           const char *input) {
  for (size_t index = 1; index < settings->argument_count; ++index) {
    char *argument = settings->arguments[index];
    if (is_among(argument, ASIDE, COUNT(ASIDE)) || embeds_bitcode(settings->arguments + index)) {
      ++index;
      continue;
    }
    if (is_aside(argument))
      continue;
    *command++ = argument;
    if (is_among(argument, SEEN, COUNT(SEEN)) && index + 1 < settings->argument_count)
      *command++ = settings->arguments[++index];
    else if (!is_seen(argument) && strcmp(argument, input))
      add_text(digest, argument);
  }
}

static bool add_preprocessed(struct digest *digest, char **command) {
  struct stat about;
  int output = memory_file(), errors = open("/dev/null", O_WRONLY | O_CLOEXEC);
  bool is_good = !run(command, NULL, output, errors) && !fstat(output, &about) &&
                 about.st_size && /* what is preprocessed already, or bitcode, is not printed */
                 add_file_to_digest(digest, output, (size_t)about.st_size) == (size_t)about.st_size;
  close(output);
  close(errors);
  return is_good;
}

bool module_key(char *key, const struct settings *settings, const struct clang *clang,
                const struct plan *plan) {
  struct digest digest;
  struct utsname machine;
  uint8_t result[DIGEST_BYTES];
  const char *dot = plan->input ? strrchr(plan->input, '.') : NULL;
  if (plan->action != ADVISE_COMPILATION || !plan->object || plan->reads_stdin ||
      plan->has_vocabulary || untold_part(settings, plan) || uname(&machine))
    return false;
  size_t most = settings->argument_count + COUNT(FIRST) + COUNT(VOLATILE) + 3;
  char **command = calloc(most, sizeof *command), **end = command;
  *end++ = (char *)clang->path;
  end = add_words(end, FIRST, COUNT(FIRST));
  if (clang->needs_cxx_mode)
    *end++ = (char *)"--driver-mode=g++";
  char **constants = end;
  end = add_words(end, VOLATILE, COUNT(VOLATILE));
  begin_digest(&digest);
  add_to_digest(&digest, &clang->version, sizeof clang->version);
  add_text(&digest, machine.machine);
  add_text(&digest, settings->is_cxx ? "c++" : "c");
  add_text(&digest, dot ? dot : "");
  read_arguments(&digest, end, settings, plan->input);
  bool is_good = add_preprocessed(&digest, command);
  if (!is_good) { /* where a source includes itself by __FILE__, or counts lines */
    for (size_t index = 0; index < COUNT(VOLATILE); ++index)
      constants[index] = (char *)"-w"; /* once more: it says nothing new */
    is_good = add_preprocessed(&digest, command);
  }
  end_digest(&digest, result);
  write_hex(key, result, KEY_BYTES);
  free(command);
  return is_good;
}
