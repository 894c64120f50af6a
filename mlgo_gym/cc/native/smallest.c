/* The smallest of several objects: clang's own, and one by each model. Plain clang has the word, in
 * status and messages; its object stays unless another has less text. */
#define _GNU_SOURCE
#include "smallest.h"
#include "text.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NO_TEXT ((uint64_t)-1)

struct file {
  const uint8_t *data;
  size_t size;
};

static struct file map_file(int descriptor) {
  struct stat about;
  struct file file = {NULL, 0};
  if (descriptor < 0 || fstat(descriptor, &about) || !S_ISREG(about.st_mode) || !about.st_size)
    return file;
  void *data = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (data != MAP_FAILED)
    file = (struct file){data, (size_t)about.st_size};
  return file;
}

static bool is_within(const struct file *file, uint64_t offset, uint64_t size) {
  return offset <= file->size && size <= file->size - offset;
}

struct object {
  struct file file;
  bool is_64, is_big; /* of 64 bits; of the other byte order than x86's */
};

static uint64_t number(const struct object *object, uint64_t at, size_t size) {
  uint64_t value = 0;
  for (size_t index = 0; index < size; ++index) {
    size_t byte = object->is_big ? index : size - 1 - index;
    value = value << 8 | object->file.data[at + byte];
  }
  return value;
}

/* A field of a header, which is known to be within the file. */
#define SIZE_OF(type, field) sizeof(((type *)0)->field)
#define FIELD(object, kind, at, field)                                                             \
  ((object)->is_64                                                                                 \
       ? number(object, (at) + offsetof(Elf64_##kind, field), SIZE_OF(Elf64_##kind, field))        \
       : number(object, (at) + offsetof(Elf32_##kind, field), SIZE_OF(Elf32_##kind, field)))

static bool is_text(const struct file *file, uint64_t names, uint64_t names_size, uint64_t name) {
  static const char TEXT[] = ".text", LARGE[] = ".ltext";
  if (!is_within(file, names, names_size) || name >= names_size)
    return false;
  const char *at = (const char *)file->data + names + name;
  size_t left = names_size - name;
  return (left > strlen(TEXT) && !strncmp(at, TEXT, strlen(TEXT))) ||
         (left > strlen(LARGE) && !strncmp(at, LARGE, strlen(LARGE)));
}

/* The bytes of an object's sections of code (`mlgo_gym.llvm.CompilationResult.text_size_bytes`), in
 * its own byte order; of what is no object of ELF nothing is known. */
static uint64_t text_bytes(const struct file *file) {
  if (file->size < sizeof(Elf64_Ehdr) || memcmp(file->data, ELFMAG, SELFMAG))
    return NO_TEXT;
  struct object object = {*file, file->data[EI_CLASS] == ELFCLASS64,
                          file->data[EI_DATA] == ELFDATA2MSB};
  size_t size = object.is_64 ? sizeof(Elf64_Shdr) : sizeof(Elf32_Shdr);
  uint64_t first = FIELD(&object, Ehdr, 0, e_shoff), total = 0;
  uint64_t count = FIELD(&object, Ehdr, 0, e_shnum), last = FIELD(&object, Ehdr, 0, e_shstrndx);
  if (FIELD(&object, Ehdr, 0, e_type) != ET_REL ||
      FIELD(&object, Ehdr, 0, e_shentsize) != size || !is_within(file, first, size))
    return NO_TEXT;
  count = count ? count : FIELD(&object, Shdr, first, sh_size); /* of more than fit there */
  last = last == SHN_XINDEX ? FIELD(&object, Shdr, first, sh_link) : last;
  if (count > file->size / size || !is_within(file, first, count * size) || last >= count)
    return NO_TEXT;
  uint64_t names = FIELD(&object, Shdr, first + last * size, sh_offset);
  uint64_t names_size = FIELD(&object, Shdr, first + last * size, sh_size);
  for (uint64_t at = first; at < first + count * size; at += size)
    if (is_text(file, names, names_size, FIELD(&object, Shdr, at, sh_name)))
      total += FIELD(&object, Shdr, at, sh_size);
  return total;
}

/* What a file is that is no object of ELF; NULL of a precompiled header, which has no code. */
static const char *format_of(const struct file *file) {
  static const struct {
    const char *magic;
    size_t size;
    const char *name;
  } FORMATS[] = {
      {"CPCH", 4, NULL},
      {"BC\xC0\xDE", 4, "LLVM bitcode"},
      {"\xDE\xC0\x17\x0B", 4, "LLVM bitcode"},
      {"\0asm", 4, "WebAssembly"},
      {"\xCF\xFA\xED\xFE", 4, "Mach-O"},
      {"\xCE\xFA\xED\xFE", 4, "Mach-O"},
      {"\xFE\xED\xFA\xCF", 4, "Mach-O"},
      {"\xFE\xED\xFA\xCE", 4, "Mach-O"},
      {"\x64\x86", 2, "COFF"},
      {"\x4C\x01", 2, "COFF"},
      {"\x64\xAA", 2, "COFF"},
      {"\xC4\x01", 2, "COFF"},
      {"\x01\xDF", 2, "XCOFF"},
      {"\x01\xF7", 2, "XCOFF"},
  };
  for (size_t index = 0; index < sizeof FORMATS / sizeof *FORMATS; ++index)
    if (file->size >= FORMATS[index].size &&
        !memcmp(file->data, FORMATS[index].magic, FORMATS[index].size))
      return FORMATS[index].name;
  return "another format";
}

/* The code of what stands under a name, and why it has none that is known; or NULL. */
static uint64_t look_at_object(const char *path, const char **format) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  struct file file = map_file(descriptor);
  uint64_t size = file.data ? text_bytes(&file) : NO_TEXT;
  *format = size != NO_TEXT ? NULL : file.data ? format_of(&file) : "nothing";
  if (file.data)
    munmap((void *)file.data, file.size);
  if (descriptor >= 0)
    close(descriptor);
  return size;
}

bool copy_to(int target, const char *path) {
  char data[1 << 16];
  int source = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length = -1;
  bool is_good = source >= 0 && !ftruncate(target, 0) && lseek(target, 0, SEEK_SET) == 0;
  while (is_good && (length = read(source, data, sizeof data)) > 0)
    is_good = write(target, data, (size_t)length) == length;
  if (source >= 0)
    close(source);
  return is_good && length == 0;
}

struct stat look_before(const char *path) {
  struct stat about = {0};
  if (stat(path, &about))
    about = (struct stat){0};
  return about;
}

bool is_written(const char *path, const struct stat *before) {
  struct stat now;
  return !stat(path, &now) &&
         (now.st_dev != before->st_dev || now.st_ino != before->st_ino ||
          now.st_ctim.tv_sec != before->st_ctim.tv_sec ||
          now.st_ctim.tv_nsec != before->st_ctim.tv_nsec);
}

void remove_written(const char *path, const struct stat *before) {
  struct stat about;
  if (is_written(path, before) && !lstat(path, &about) && S_ISREG(about.st_mode))
    unlink(path);
}

int stay_plain(const struct settings *settings, const struct plan *plan, const struct stat *before,
               const struct message *message) {
  bool goes_on = complain(settings, message->text, "; compiled by plain clang");
  if (!goes_on)
    remove_written(plan->object, before);
  return !goes_on;
}

/* Puts what was kept in an object's place, whole or not at all. */
static bool put(int kept, const char *path, mode_t mode) {
  char partial[4200], source[64];
  snprintf(source, sizeof source, OPEN_FILE "%d", kept);
  if (snprintf(partial, sizeof partial, "%s.mlgo-%ld", path, (long)getpid()) >=
      (int)sizeof partial)
    return false;
  int file = open(partial, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0)
    return false;
  bool is_good = copy_to(file, source) && !fchmod(file, mode & 07777);
  is_good = !close(file) && is_good && !rename(partial, path);
  if (!is_good)
    unlink(partial);
  return is_good;
}

/* What was not done, though there is an object; an error, and then none, where the user is strict. */
static bool goes_on_without(const struct settings *settings, const struct plan *plan,
                            const struct stat *before, const char *words) {
  struct message message;
  snprintf(message.text, MESSAGE_BYTES, "%s: %s", words, strerror(errno));
  bool goes_on = complain(settings, message.text, "");
  if (!goes_on)
    remove_written(plan->object, before);
  return goes_on;
}

/* One line for each object, for whoever wants to know; written at once, so that many may write. */
static bool note(const struct settings *settings, const char *object, const char *kept,
                 uint64_t size, uint64_t plain) {
  char path[4096], shown[4 * sizeof path], name[4 * sizeof path], line[3 * sizeof shown];
  int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC; /* a FIFO may have no reader */
  if (!settings->kept_log)
    return true;
  put_printable(name, sizeof name, kept);
  put_printable(shown, sizeof shown, realpath(object, path) ? path : object);
  int file = open(settings->kept_log, flags, 0666);
  int length = snprintf(line, sizeof line, "%s\t%llu\t%llu\t%s\n", name, (unsigned long long)size,
                        (unsigned long long)plain, shown);
  bool is_noted =
      file >= 0 && length < (int)sizeof line && write(file, line, (size_t)length) == length;
  if (file >= 0)
    close(file);
  return is_noted;
}

struct choice {
  int plain, best; /* files in memory; the best may be -1 */
  size_t which;
  uint64_t plain_bytes, least;
  bool is_overwritten;
};

static void choose(struct choice *choice, const struct attempts *attempts) {
  char path[64];
  const char *format;
  for (size_t index = 0; index < attempts->count; ++index) {
    int object = attempts->object_of(attempts->data, index, &choice->is_overwritten);
    snprintf(path, sizeof path, OPEN_FILE "%d", object);
    uint64_t size = object < 0 ? NO_TEXT : look_at_object(path, &format);
    int other = object;
    if (size < choice->least) {
      other = choice->best;
      choice->best = object;
      choice->which = index;
      choice->least = size;
    }
    if (other >= 0)
      close(other);
  }
}

/* Whether clang's object can be compared; where it cannot, why. Clang may have written through a link,
 * or under another name. */
static bool can_compare(const struct plan *plan, const struct attempts *attempts,
                        struct choice *choice, struct stat *about, struct message *message) {
  const char *format = "nothing", *object = plan->object;
  bool is_there = is_written(object, attempts->before) && !lstat(object, about);
  if (is_there && !S_ISREG(about->st_mode)) {
    snprintf(message->text, MESSAGE_BYTES, "keep-smaller: expected a file at '%.600s', found a %s",
             object, S_ISLNK(about->st_mode) ? "link" : "device");
    return false;
  }
  choice->plain_bytes = choice->least = is_there ? look_at_object(object, &format) : NO_TEXT;
  if (choice->least == NO_TEXT && format)
    snprintf(message->text, MESSAGE_BYTES,
             "keep-smaller: expected an ELF object at '%.600s', found %s", object, format);
  return choice->least != NO_TEXT && attempts->can_go_on(attempts->data, message);
}

int compile_smallest(const struct settings *settings, const struct plan *plan,
                     const struct attempts *attempts) {
  struct stat about;
  struct message message = {""};
  struct choice choice = {.plain = memory_file(), .best = -1};
  int status = attempts->compile(attempts->data);
  if (status)
    return status;
  if (!can_compare(plan, attempts, &choice, &about, &message))
    return *message.text ? stay_plain(settings, plan, attempts->before, &message) : 0;
  if (copy_to(choice.plain, plan->object))
    choose(&choice, attempts);
  bool is_less = choice.best >= 0 && put(choice.best, plan->object, about.st_mode);
  if (choice.best >= 0 && !is_less &&
      !goes_on_without(settings, plan, attempts->before, "cannot keep the smaller object"))
    return 1;
  if (!is_less && choice.is_overwritten && !put(choice.plain, plan->object, about.st_mode)) {
    say("error", "cannot put clang's object back: ", strerror(errno));
    remove_written(plan->object, attempts->before);
    return 1;
  }
  bool is_noted = note(settings, plan->object, is_less ? attempts->names[choice.which] : "LLVM",
                       is_less ? choice.least : choice.plain_bytes, choice.plain_bytes);
  return !is_noted && !goes_on_without(settings, plan, attempts->before,
                                       "cannot write to the log of what was kept");
}
