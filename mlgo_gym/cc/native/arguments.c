/* What clang's command line means for us. Clang itself parses it; what matters here is whether its
 * back end may run. Advice that is asked for and not wanted costs a millisecond and changes
 * nothing, so where in doubt a command line counts as a compilation. */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* With one of these no code is generated. */
static const char *const NO_CODE[] = {
    "-###",
    "-E",
    "--preprocess",
    "-M",
    "--dependencies",
    "-MM",
    "--user-dependencies",
    "-fsyntax-only",
    "-cc1",
    "-cc1as",
    "-cc1gen-reproducer",
    "--version",
    "--help",
    "-help",
    "--help-hidden",
    "-dumpversion",
    "-dumpmachine",
    "--precompile",
    "--analyze",
    "-verify-pch",
    "-rewrite-objc",
};
static const char *const NO_CODE_PREFIXES[] = {"-print-", "--print-", "--autocomplete"};
/* With one of these nothing is linked. */
static const char *const NO_LINK[] = {"-c", "--compile", "-S", "--assemble", "-emit-llvm"};
/* The word behind one of these is its value: clang's options of the kinds Separate and
 * JoinedOrSeparate (clang/Options/Options.td). */
static const char *const VALUED[] = {
    "--CLASSPATH", "--analyzer-output", "--assert", "--bootclasspath", "--classpath", "--config",
    "--define-macro", "--dyld-prefix", "--encoding", "--extdirs", "--for-linker", "--force-link",
    "--imacros", "--include", "--include-directory", "--include-directory-after",
    "--include-prefix", "--include-with-prefix", "--include-with-prefix-after",
    "--include-with-prefix-before", "--language", "--library-directory", "--mhwdiv",
    "--no-system-header-prefix", "--output", "--output-class-directory", "--param", "--prefix",
    "--print-file-name", "--print-prog-name", "--resource", "--rtlib", "--serialize-diagnostics",
    "--specs", "--std", "--stdlib", "--sysroot", "--system-header-prefix", "--undefine-macro",
    "--vfsoverlay", "-A", "-B", "-D", "-F", "-G", "-I", "-L", "-MF", "-MJ", "-MQ", "-MT", "-T",
    "-U", "-V", "-Xanalyzer", "-Xarch_device", "-Xarch_host", "-Xassembler", "-Xclang",
    "-Xclangas", "-Xcuda-fatbinary", "-Xcuda-ptxas", "-Xlinker", "-Xmicrosoft-visualc-tools-root",
    "-Xmicrosoft-visualc-tools-version", "-Xmicrosoft-windows-sdk-root",
    "-Xmicrosoft-windows-sdk-version", "-Xmicrosoft-windows-sys-root", "-Xopenmp-target",
    "-Xpreprocessor", "-Zlinker-input", "-alias_list", "-allowable_client", "-arch", "-arch_only",
    "-b", "-bundle_loader", "-ccc-gcc-name", "-ccc-install-dir", "-client_name",
    "-compatibility_version", "-current_version", "-cxx-isystem", "-darwin-target-variant",
    "-darwin-target-variant-triple", "-dependency-dot", "-dependency-file", "-dsym-dir",
    "-dumpdir", "-dylib_file", "-dylinker_install_name", "-e", "-exported_symbols_list",
    "-fdebug-compilation-dir", "-fexperimental-openacc-macro-override", "-filelist",
    "-fmodule-implementation-of", "-fmodules-user-build-path", "-fnew-alignment", "-force_load",
    "-framework", "-ftrapv-handler", "-gen-cdb-fragment-path", "-hlsl-entry", "-iapinotes-modules",
    "-idirafter", "-iframework", "-iframeworkwithsysroot", "-imacros", "-image_base", "-imultilib",
    "-include", "-include-pch", "-init", "-install_name", "-interface-stub-version=", "-iprefix",
    "-iquote", "-isysroot", "-isystem", "-isystem-after", "-ivfsoverlay", "-iwithprefix",
    "-iwithprefixbefore", "-iwithsysroot", "-l", "-lazy_framework", "-lazy_library", "-meabi",
    "-mllvm", "-mmlir", "-module-dependency-dir", "-mthread-model", "-multiply_defined",
    "-multiply_defined_unused", "-o", "-object-file-name", "-pagezero_size", "-read_only_relocs",
    "-reexport_framework", "-reexport_library", "-resource-dir", "-rpath", "-seg1addr",
    "-seg_addr_table", "-seg_addr_table_filename", "-segs_read_only_addr", "-segs_read_write_addr",
    "-serialize-diagnostics", "-specs", "-stdlib++-isystem", "-sub_library", "-sub_umbrella",
    "-target", "-u", "-umbrella", "-undefined", "-unexported_symbols_list", "-validator-version",
    "-vfsoverlay", "-weak_framework", "-weak_library", "-weak_reference_mismatches",
    "-working-directory", "-x", "-z",
};
/* So is the word behind one that begins so: JoinedAndSeparate. */
static const char *const VALUED_PREFIXES[] = {"-Xarch_", "-Xoffload-linker", "-Xopenmp-target="};
/* Options with the name of a file directly behind them. */
static const char *const JOINED[] = {"-o", "--output=", "-MF", "-MJ"};
#define LANGUAGE "--language"
/* What these name may be a pipe today, and a file in the next call. */
static const char *const STREAMS[] = {"/dev/std", "/dev/fd/", "/proc/"};
/* Somebody else has an advisor of their own; with a channel it is a driver that started clang, which
 * is this one. */
static const char *const ADVISORS[] = {"-enable-ml-inliner", "-regalloc-enable-advisor"};
#define CHANNEL "-interactive-channel-base"
static const char *const SOURCES[] = {
    "c",   "i",  "cc",  "cp", "cpp", "cxx", "c++", "C",    "CC",   "CPP", "ii",  "m",
    "mi",  "mm", "mii", "M",  "h",   "hh",  "hpp", "H",    "cl",   "cu",  "hip", "cppm",
    "ixx", "bc", "ll",  "f",  "F90", "f90", "ccm", "cxxm", "c++m", "pcm", "tcc", "hxx",
};

/* With one of these no object comes out, though nothing is linked. */
static const char *const NO_OBJECT[] = {"-S", "--assemble", "-emit-llvm"};
#define EMBED_BITCODE "-fembed-bitcode"
/* With one of these there is more to an object than the object, or it may be elsewhere: another one in
 * its place would not do. Those of clang's jobs and of LLVM come behind -Xclang and -mllvm. */
#define APART "puts a part of the object elsewhere"
#define ABOUT "writes about the code of clang's own object"
#define ELSEWHERE "may put the object elsewhere"
#define UNREAD "names options that are not read here"
static const struct {
  const char *option, *reason;
} MORE[] = {
    {"-gsplit-dwarf", APART},
    {"-split-dwarf-file", APART},
    {"-split-dwarf-output", APART},
    {"-save-temps", ABOUT},
    {"--save-temps", ABOUT},
    {"-ftime-trace", ABOUT},
    {"-fsave-optimization-record", ABOUT},
    {"-foptimization-record", ABOUT},
    {"-opt-record-", ABOUT},
    {"-fstack-usage", ABOUT},
    {"-stack-usage-file", ABOUT},
    {"-save-stats", ABOUT},
    {"--save-stats", ABOUT},
    {"-stats-file", ABOUT},
    {EMBED_BITCODE, "takes no options of LLVM's beside it"},
    {"-fthinlto-index", "is the second half of ThinLTO"},
    {"-working-directory", ELSEWHERE},
    {"--driver-mode", ELSEWHERE},
    {"--config", UNREAD},
};
/* With one of these a second compilation would write anew what clang's own has written. */
static const char *const REPEATED[] = {
    "-MJ", "-fproc-stat-report", "-serialize-diagnostics", "--serialize-diagnostics",
    "-serialize-diagnostic-file", "-header-include-file", "-diagnostic-log-file",
    "-info-output-file", "-gen-cdb-fragment-path",
};
static const char *const ASSEMBLY[] = {"s", "S", "sx", "asm"};
/* Of clang's own: what the command line says is edited by it. */
#define EDITS "CCC_OVERRIDE_OPTIONS"

static const char *const VOCABULARY[] = {"-ir2vec-vocab-path", "-ml-inliner-ir2vec-vocab-file"};

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MOST_RESPONSES 8 /* response files, one in another */

struct seen {
  bool compiles, has_source, links_lto, is_thin, is_lld, no_code, has_channel, reads_stdin;
  bool runs_once, is_unseen, expects_value, has_vocabulary;
  bool makes_object, makes_none, is_assembly;
  const char *language; /* of the inputs that follow; or NULL where their names tell */
  const char *obstacle, *repeated; /* to comparing the object; to compiling it twice */
  const char *advisor; /* an option of LLVM's by which somebody else advises */
  const char *option; /* whose value comes next */
  const char *input, *output;
  size_t input_count;
  const struct response *response; /* that is being read */
};

/* A response file, and the one that names it. */
struct response {
  dev_t device;
  ino_t inode;
  int depth;
  const struct response *outer;
};

static bool has_prefix(const char *text, const char *prefix) {
  return !strncmp(text, prefix, strlen(prefix));
}

static bool is_among(const char *argument, const char *const *words, size_t count) {
  for (size_t index = 0; index < count; ++index)
    if (!strcmp(argument, words[index]))
      return true;
  return false;
}

static bool begins_with(const char *argument, const char *const *prefixes, size_t count) {
  for (size_t index = 0; index < count; ++index)
    if (has_prefix(argument, prefixes[index]))
      return true;
  return false;
}

static bool is_source(const char *argument) {
  const char *dot = strrchr(argument, '.');
  return dot && is_among(dot + 1, SOURCES, COUNT(SOURCES));
}

bool is_null_device(const char *path) {
  struct stat about;
  return !stat(path, &about) && S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3);
}

/* Whether what is read or written there is gone afterwards: a pipe, a socket, a terminal. */
static bool is_stream(const char *path) {
  struct stat about;
  return begins_with(path, STREAMS, COUNT(STREAMS)) ||
         (!stat(path, &about) && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode) &&
          !is_null_device(path));
}

static bool names_stream(const char *argument) {
  if (argument[0] != '-')
    return is_stream(argument);
  for (size_t index = 0; index < COUNT(JOINED); ++index)
    if (has_prefix(argument, JOINED[index]) && is_stream(argument + strlen(JOINED[index])))
      return true;
  return false;
}

static void look_at(const char *argument, struct seen *seen);

static char *read_whole(const char *path, size_t *size) {
  struct stat about;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  bool is_open = file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode);
  char *text = is_open ? calloc((size_t)about.st_size + 1, 1) : NULL;
  ssize_t length, used = 0;
  while (text && used < about.st_size &&
         (length = read(file, text + used, (size_t)(about.st_size - used))) > 0)
    used += length;
  if (file >= 0)
    close(file);
  *size = (size_t)used;
  return text;
}

#define MARK_BYTES 3 /* of UTF-8, in front of a text */

static char *put_utf8(char *to, uint32_t code) {
  int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  *to++ = (char)(more ? (0xf00 >> (more + 1) & 0xf0) | code >> 6 * more : code);
  while (more--)
    *to++ = (char)(0x80 | (code >> 6 * more & 0x3f));
  return to;
}

/* UTF-16 as UTF-8, without the mark in front, which tells the order of bytes. */
static char *utf8_of(const uint8_t *text, size_t size) {
  bool is_big = text[0] == 0xfe;
  char *all = calloc(size / 2 * 3 + 1, 1), *to = all;
  for (size_t at = 2; all && at + 1 < size; at += 2) {
    uint32_t code = (uint32_t)(text[at + !is_big] << 8 | text[at + is_big]);
    if (code >= 0xd800 && code < 0xdc00 && at + 3 < size) { /* the first half of a pair */
      at += 2;
      code = 0x10000 + ((code - 0xd800) << 10) +
             ((uint32_t)(text[at + !is_big] << 8 | text[at + is_big]) - 0xdc00);
    }
    to = put_utf8(to, code);
  }
  return all;
}

/* A response file, which may begin with a mark of its encoding, as clang reads it. */
static char *read_response(const char *path) {
  size_t size;
  char *text = read_whole(path, &size);
  if (!text)
    return NULL;
  if (size >= 2 && (!memcmp(text, "\xff\xfe", 2) || !memcmp(text, "\xfe\xff", 2))) {
    char *all = utf8_of((const uint8_t *)text, size);
    free(text);
    return all;
  }
  if (size >= MARK_BYTES && !memcmp(text, "\xef\xbb\xbf", MARK_BYTES))
    memmove(text, text + MARK_BYTES, size - MARK_BYTES + 1);
  return text;
}

/* The next word of a response file, in its place, as LLVM's TokenizeGNUCommandLine has it
 * (llvm/lib/Support/CommandLine.cpp): quotes join, a backslash takes the next character as it is. */
static char *next_argument(char **rest) {
  char *from = *rest + strspn(*rest, " \t\r\n"), *word = from, *to = from, quote = 0;
  if (!*from)
    return NULL;
  for (; *from && (quote || !strchr(" \t\r\n", *from)); ++from) {
    bool is_quote = quote ? *from == quote : *from == '"' || *from == '\'';
    if (is_quote)
      quote = quote ? 0 : *from;
    else
      *to++ = *from == '\\' && from[1] ? *++from : *from;
  }
  *rest = from + (*from != 0);
  *to = 0;
  return word;
}

static bool is_read(const struct stat *about, const struct response *response) {
  for (; response; response = response->outer)
    if (response->device == about->st_dev && response->inode == about->st_ino)
      return true;
  return false;
}

/* A response file; one that cannot be read, or names itself, is clang's to complain about, and one that
 * can be read only once is left to clang. */
static void look_into(const char *path, struct seen *seen) {
  struct stat about;
  const struct response *outer = seen->response;
  int depth = outer ? outer->depth + 1 : 1;
  seen->has_source = true; /* whatever it names */
  if (is_stream(path)) {
    seen->runs_once = seen->is_unseen = true;
    return;
  }
  bool is_taken = depth <= MOST_RESPONSES && !stat(path, &about) && !is_read(&about, outer);
  char *text = is_taken ? read_response(path) : NULL;
  if (!text)
    return;
  struct response response = {about.st_dev, about.st_ino, depth, outer};
  seen->response = &response;
  char *rest = text; /* which stays: what was seen points into it */
  for (char *word = next_argument(&rest); word; word = next_argument(&rest))
    look_at(word, seen);
  seen->response = outer;
}

/* Whether objects come out that LLVM makes: not in links, nor of assembly. */
static bool makes_objects(const struct seen *seen) {
  return seen->makes_object && !seen->makes_none && seen->input_count && !seen->is_assembly;
}

/* The name of what comes out, where it is one object of one input. */
static const char *name_of(const struct seen *seen) {
  char *text = NULL;
  if (!makes_objects(seen) || seen->input_count > 1)
    return NULL;
  if (seen->output)
    return seen->output;
  const char *slash = strrchr(seen->input, '/'), *start = slash ? slash + 1 : seen->input;
  const char *dot = strrchr(start, '.');
  int length = dot ? (int)(dot - start) : (int)strlen(start);
  if (asprintf(&text, "%.*s.o", length, start) < 0)
    abort();
  return text;
}

static const char *several_inputs(const struct seen *seen) {
  char *text = NULL;
  if (asprintf(&text, "expected one input, found %zu", seen->input_count) < 0)
    abort();
  return text;
}

/* Why the object that a compilation makes is not known; or NULL. */
static const char *reason_unnamed(const struct seen *seen) {
  if (makes_objects(seen))
    return seen->input_count > 1 ? several_inputs(seen) : NULL;
  return seen->is_unseen ? "a response file is a pipe or a device" : NULL;
}

/* Why objects that come out cannot be compiled again and compared; or NULL. */
static const char *obstacle_of(const struct seen *seen) {
  if (!seen->makes_object || seen->makes_none || !seen->input_count)
    return NULL;
  if (seen->input_count > 1)
    return several_inputs(seen);
  if (seen->is_assembly)
    return NULL;
  if (seen->links_lto)
    return "an object of -flto has no code yet";
  if (seen->obstacle)
    return seen->obstacle;
  if (seen->runs_once)
    return "an input or output is a pipe or a device";
  return seen->output && !strcmp(seen->output, "-") ? "the object goes to standard output" : NULL;
}

/* What else may come out by an option, one of clang's driver or its value for clang or LLVM. */
static void look_for_more(const char *argument, struct seen *seen) {
  char *text = NULL;
  if (has_prefix(argument, "-mllvm=") || has_prefix(argument, "-Xclang="))
    argument = strchr(argument, '=') + 1;
  for (size_t index = 0; index < COUNT(MORE) && !seen->obstacle; ++index)
    if (has_prefix(argument, MORE[index].option)) {
      if (asprintf(&text, "'%.200s' %s", argument, MORE[index].reason) < 0)
        abort();
      seen->obstacle = text;
    }
  for (size_t index = 0; index < COUNT(REPEATED); ++index)
    if (has_prefix(argument, REPEATED[index]))
      seen->repeated = REPEATED[index];
}

static void set_language(const char *language, struct seen *seen) {
  seen->language = strcmp(language, "none") ? strdup(language) : NULL;
}

static void add_input(const char *argument, struct seen *seen) {
  const char *dot = strrchr(argument, '.');
  ++seen->input_count;
  seen->input = strdup(argument);
  seen->is_assembly |= seen->language ? has_prefix(seen->language, "assembler")
                                      : dot && is_among(dot + 1, ASSEMBLY, COUNT(ASSEMBLY));
}

static void look_for_files(const char *argument, bool is_value, struct seen *seen) {
  const char *option = seen->option;
  seen->option = argument;
  if (is_value) {
    if (!strcmp(option, "-o") || !strcmp(option, "--output"))
      seen->output = strdup(argument);
    else if (!strcmp(option, "-x") || !strcmp(option, LANGUAGE))
      set_language(argument, seen);
    else if (!strcmp(option, "-mllvm") || has_prefix(option, "-Xarch_") ||
             (!strcmp(option, "-Xclang") && !has_prefix(argument, EMBED_BITCODE)))
      look_for_more(argument, seen); /* a front end that embeds bitcode takes all else */
    return;
  }
  if (argument[0] != '-' || !argument[1]) {
    if (argument[0] != '@')
      add_input(argument, seen);
  } else if (has_prefix(argument, LANGUAGE "="))
    set_language(argument + strlen(LANGUAGE "="), seen);
  else if (has_prefix(argument, "-x"))
    set_language(argument + strlen("-x"), seen);
  else if (has_prefix(argument, "--output="))
    seen->output = strdup(argument + strlen("--output="));
  else if (has_prefix(argument, "-o") && argument[2] && !has_prefix(argument, "-objc"))
    seen->output = strdup(argument + 2);
  seen->makes_object |= !strcmp(argument, "-c") || !strcmp(argument, "--compile");
  seen->makes_none |= is_among(argument, NO_OBJECT, COUNT(NO_OBJECT));
  look_for_more(argument, seen);
}

static void look_at(const char *argument, struct seen *seen) {
  bool is_value = seen->expects_value;
  look_for_files(argument, is_value, seen);
  seen->expects_value =
      !is_value && (is_among(argument, VALUED, COUNT(VALUED)) ||
                    begins_with(argument, VALUED_PREFIXES, COUNT(VALUED_PREFIXES)));
  seen->runs_once |= names_stream(argument);
  seen->has_channel |= strstr(argument, CHANNEL) != NULL;
  for (size_t index = 0; index < COUNT(ADVISORS); ++index)
    if (strstr(argument, ADVISORS[index]))
      seen->advisor = ADVISORS[index];
  for (size_t index = 0; index < COUNT(VOCABULARY); ++index)
    seen->has_vocabulary |= strstr(argument, VOCABULARY[index]) != NULL;
  if (is_value)
    return;
  seen->no_code |= is_among(argument, NO_CODE, COUNT(NO_CODE));
  seen->no_code |= begins_with(argument, NO_CODE_PREFIXES, COUNT(NO_CODE_PREFIXES));
  if (argument[0] == '@')
    look_into(argument + 1, seen);
  else if (!strcmp(argument, "-"))
    seen->has_source = seen->reads_stdin = true;
  else if (is_among(argument, NO_LINK, COUNT(NO_LINK)))
    seen->compiles = true;
  else if (has_prefix(argument, "-x") || has_prefix(argument, LANGUAGE))
    seen->has_source = true;
  else if (!strcmp(argument, "-flto") || has_prefix(argument, "-flto=")) {
    seen->links_lto = true;
    seen->is_thin = !strcmp(argument, "-flto=thin");
  } else if (!strcmp(argument, "-fno-lto"))
    seen->links_lto = false;
  else if (has_prefix(argument, "-fuse-ld=") || has_prefix(argument, "--ld-path="))
    seen->is_lld = strstr(argument, "lld") != NULL;
  else if (argument[0] != '-' && is_source(argument))
    seen->has_source = true;
}

struct plan plan_of(const struct settings *settings) {
  const char *edits = getenv(EDITS);
  struct seen seen = {.obstacle = edits && *edits ? EDITS " " ELSEWHERE : NULL};
  for (size_t index = 1; index < settings->argument_count; ++index)
    look_at(settings->arguments[index], &seen);
  struct plan plan = {.action = PASS_ON,
                      .reads_stdin = seen.reads_stdin,
                      .runs_once = seen.runs_once,
                      .is_unseen = seen.is_unseen,
                      .has_vocabulary = seen.has_vocabulary,
                      .repeated = seen.repeated,
                      .input = seen.input,
                      .named = name_of(&seen),
                      .unnamed = reason_unnamed(&seen),
                      .obstacle = obstacle_of(&seen),
                      .shared.file = -1};
  plan.object = plan.obstacle ? NULL : plan.named;
  bool compiles = seen.compiles || seen.has_source;
  bool links = !seen.compiles && seen.links_lto && seen.is_lld;
  if (!seen.no_code && !seen.has_channel && (compiles || links))
    plan.advisor = seen.advisor;
  if (seen.no_code || seen.has_channel || seen.advisor)
    return plan;
  plan.is_thin_link = links && seen.is_thin;
  if (compiles && links)
    plan.action = ADVISE_BOTH;
  else if (compiles)
    plan.action = ADVISE_COMPILATION;
  else if (links)
    plan.action = ADVISE_LINK;
  return plan;
}
