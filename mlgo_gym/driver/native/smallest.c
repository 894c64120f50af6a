/* The smallest of several objects: clang's own, and one by each model. Plain clang has the word, in
 * status and messages; its object stays unless another has less text. */
#define _GNU_SOURCE
#include "smallest.h"

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

static bool is_text(const struct file *file, uint64_t names, uint64_t names_size, uint64_t name) {
  static const char TEXT[] = ".text", LARGE[] = ".ltext";
  if (!is_within(file, names, names_size) || name >= names_size)
    return false;
  const char *at = (const char *)file->data + names + name;
  size_t left = names_size - name;
  return (left > strlen(TEXT) && !strncmp(at, TEXT, strlen(TEXT))) ||
         (left > strlen(LARGE) && !strncmp(at, LARGE, strlen(LARGE)));
}

/* The bytes of an object's sections of code (`mlgo_gym.llvm.CompilationResult.text_size_bytes`). */
#define TEXT_OF(BITS)                                                                            \
  static uint64_t text_of_##BITS(const struct file *file) {                                      \
    Elf##BITS##_Ehdr header;                                                                     \
    Elf##BITS##_Shdr names, section;                                                             \
    uint64_t total = 0;                                                                          \
    if (file->size < sizeof header)                                                              \
      return NO_TEXT;                                                                            \
    memcpy(&header, file->data, sizeof header);                                                  \
    uint64_t count = header.e_shnum, last = header.e_shstrndx;                                   \
    if (header.e_type != ET_REL || header.e_shentsize != sizeof section ||                       \
        !is_within(file, header.e_shoff, sizeof section))                                        \
      return NO_TEXT;                                                                            \
    memcpy(&section, file->data + header.e_shoff, sizeof section);                               \
    count = count ? count : section.sh_size; /* of more than fit there */                        \
    last = last == SHN_XINDEX ? section.sh_link : last;                                          \
    if (count > file->size / sizeof section ||                                                   \
        !is_within(file, header.e_shoff, count * sizeof section) || last >= count)               \
      return NO_TEXT;                                                                            \
    memcpy(&names, file->data + header.e_shoff + last * sizeof section, sizeof names);           \
    for (uint64_t index = 0; index < count; ++index) {                                           \
      memcpy(&section, file->data + header.e_shoff + index * sizeof section, sizeof section);    \
      if (is_text(file, names.sh_offset, names.sh_size, section.sh_name))                        \
        total += section.sh_size;                                                                \
    }                                                                                            \
    return total;                                                                                \
  }
TEXT_OF(32)
TEXT_OF(64)

/* Of what is no object of ELF in this machine's byte order nothing is known. */
static uint64_t text_bytes(const struct file *file) {
  uint8_t order = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
  if (file->size < EI_NIDENT || memcmp(file->data, ELFMAG, SELFMAG) ||
      file->data[EI_DATA] != order)
    return NO_TEXT;
  return file->data[EI_CLASS] == ELFCLASS64 ? text_of_64(file) : text_of_32(file);
}

static uint64_t text_of_path(const char *path) {
  int descriptor = open(path, O_RDONLY | O_CLOEXEC);
  struct file file = map_file(descriptor);
  uint64_t size = file.data ? text_bytes(&file) : NO_TEXT;
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

/* One line for each object, for whoever wants to know; written at once, so that many may write. */
static void note(const struct settings *settings, const char *object, const char *kept,
                 uint64_t size, uint64_t plain) {
  char path[4096], line[9000];
  const char *whole = realpath(object, path) ? path : object;
  if (!settings->kept_log)
    return;
  int file = open(settings->kept_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  int length = snprintf(line, sizeof line, "%s\t%llu\t%llu\t%s\n", kept, (unsigned long long)size,
                        (unsigned long long)plain, whole);
  if (file < 0 || length >= (int)sizeof line || write(file, line, (size_t)length) != length)
    say("warning", "cannot write to the log of what was kept: ", strerror(errno));
  if (file >= 0)
    close(file);
}

struct choice {
  int plain, best; /* files in memory; the best may be -1 */
  size_t which;
  uint64_t plain_bytes, least;
  bool is_overwritten;
};

static void choose(struct choice *choice, const struct attempts *attempts) {
  char path[64];
  for (size_t index = 0; index < attempts->count; ++index) {
    int object = attempts->object_of(attempts->data, index, &choice->is_overwritten);
    snprintf(path, sizeof path, OPEN_FILE "%d", object);
    uint64_t size = object < 0 ? NO_TEXT : text_of_path(path);
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

int compile_smallest(const struct settings *settings, const struct plan *plan,
                     const struct attempts *attempts) {
  struct stat about, before = look_before(plan->object);
  struct choice choice = {.plain = memory_file(), .best = -1};
  int status = attempts->compile(attempts->data);
  if (status || !is_written(plan->object, &before)) /* clang's object may have another name */
    return status;
  choice.plain_bytes = choice.least = text_of_path(plan->object);
  if (choice.least == NO_TEXT) /* a header, or another machine's */
    return 0;
  if (!stat(plan->object, &about) && copy_to(choice.plain, plan->object))
    choose(&choice, attempts);
  bool is_less = choice.best >= 0 && put(choice.best, plan->object, about.st_mode);
  if (choice.best >= 0 && !is_less)
    say("warning", "cannot keep the smaller object: ", strerror(errno));
  if (!is_less && choice.is_overwritten && !put(choice.plain, plan->object, about.st_mode)) {
    say("error", "cannot put clang's object back: ", strerror(errno));
    unlink(plan->object);
    return 1;
  }
  note(settings, plan->object, is_less ? attempts->names[choice.which] : "LLVM",
       is_less ? choice.least : choice.plain_bytes, choice.plain_bytes);
  return 0;
}
