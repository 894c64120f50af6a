/* The files that are kept between compilations, and why they may be trusted.
 *
 *   FOLDER/bin/mlgo-cc   this program
 *   FOLDER/kept/NAME     what it has found out
 *
 * Each file ends in its checksum: 64 digits, the digest of its name, a NUL and all that stands in
 * front. What has another, or what others than its user and root could have written, is not looked
 * at: it is made anew (mlgo_gym.cc._kept has the other half). */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKSUM_DIGITS (2 * DIGEST_BYTES)
#define PROGRAM "mlgo-cc"
#define OTHERS_WRITE (S_IWGRP | S_IWOTH)
#define LEVELS_OF_OURS 3 /* the program, its folder, and the folder of that */

static bool program_path(char *path, size_t size) {
  ssize_t length = readlink("/proc/self/exe", path, size - 1);
  path[length > 0 ? length : 0] = 0;
  return length > 0 && path[0] == '/';
}

static void cut_name(char *path) {
  char *slash = strrchr(path, '/');
  slash[slash == path] = 0;
}

bool kept_path(char *path, size_t size, const char *name) {
  char folder[4096];
  if (!program_path(folder, sizeof folder))
    return false;
  cut_name(folder);
  cut_name(folder);
  return (size_t)snprintf(path, size, "%s/kept%s%s", folder, *name ? "/" : "", name) < size;
}

static bool is_ours(const struct stat *about) {
  return (about->st_uid == geteuid() || about->st_uid == 0) && !(about->st_mode & OTHERS_WRITE);
}

/* A folder above ours: nobody else can put another in the place of what lies in it. A group of the
 * owner's number is the owner's own. In a user namespace root may be nobody; it owns "/". */
static bool is_safe_above(const struct stat *about) {
  struct stat top;
  bool is_trusted = about->st_uid == geteuid() || about->st_uid == 0 ||
                    (!stat("/", &top) && about->st_uid == top.st_uid);
  bool group_writes = (about->st_mode & S_IWGRP) && about->st_gid != about->st_uid;
  return is_trusted && ((about->st_mode & S_ISVTX) || !(group_writes || about->st_mode & S_IWOTH));
}

size_t add_file_to_digest(struct digest *digest, int file, size_t size) {
  uint8_t data[1 << 16];
  size_t done = 0;
  for (ssize_t length = 1; done < size && length > 0; done += length > 0 ? (size_t)length : 0) {
    size_t wanted = size - done < sizeof data ? size - done : sizeof data;
    length = pread(file, data, wanted, (off_t)done);
    if (length > 0)
      add_to_digest(digest, data, (size_t)length);
  }
  return done;
}

static void checksum_of(char *checksum, struct digest *digest) {
  uint8_t result[DIGEST_BYTES];
  end_digest(digest, result);
  write_hex(checksum, result, sizeof result);
}

static bool is_whole(int file, const char *name, size_t size) {
  struct digest digest;
  char expected[CHECKSUM_DIGITS + 1], found[CHECKSUM_DIGITS];
  if (size < CHECKSUM_DIGITS)
    return false;
  size -= CHECKSUM_DIGITS;
  begin_digest(&digest);
  add_to_digest(&digest, name, strlen(name) + 1);
  bool is_read = add_file_to_digest(&digest, file, size) == size &&
                  pread(file, found, sizeof found, (off_t)size) == sizeof found;
  checksum_of(expected, &digest);
  return is_read && !memcmp(expected, found, sizeof found);
}

static bool check_program(const char *path, struct message *message) {
  struct stat about;
  int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  bool is_good = file >= 0 && !fstat(file, &about) && is_ours(&about) &&
                 is_whole(file, PROGRAM, (size_t)about.st_size);
  if (file >= 0)
    close(file);
  if (!is_good)
    snprintf(message->text, MESSAGE_BYTES,
             "'%.600s' is damaged, or others could write to it; it is made anew at the next call",
             path);
  return is_good;
}

/* The script that started this one has seen that the program is its user's; here all folders on the
 * way to it are looked at, as they are when links are followed. */
bool check_cache(struct message *message) {
  char program[4096], path[4096];
  if (!program_path(program, sizeof program)) {
    snprintf(message->text, MESSAGE_BYTES, "cannot read /proc/self/exe: %s", strerror(errno));
    return false;
  }
  bool is_good = check_program(program, message);
  memcpy(path, program, sizeof path);
  for (int level = 1; is_good && path[1]; ++level) {
    struct stat about = {0};
    cut_name(path);
    bool is_ours_to_mend = level < LEVELS_OF_OURS;
    if (!lstat(path, &about) && (is_ours_to_mend ? is_ours(&about) : is_safe_above(&about)))
      continue;
    snprintf(message->text, MESSAGE_BYTES,
             "'%.600s': expected a folder that nobody else can write to, found owner %u, mode "
             "%04o; %s",
             path, (unsigned)about.st_uid, (unsigned)about.st_mode & 07777,
             is_ours_to_mend ? "what is in it is made anew at the next call"
                             : "MLGO_CACHE names another");
    if (!is_ours_to_mend)
      return false;
    is_good = false;
  }
  if (!is_good)
    unlink(program);
  return is_good;
}

void forget_program(void) {
  char program[4096];
  if (program_path(program, sizeof program))
    unlink(program);
}

int open_kept(const char *name, size_t *size) {
  struct stat about;
  char folder[4096];
  int parent = kept_path(folder, sizeof folder, "")
                   ? open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                   : -1;
  bool is_good = parent >= 0 && !fstat(parent, &about) && is_ours(&about);
  int flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int file = is_good ? openat(parent, name, flags) : -1;
  if (parent >= 0)
    close(parent);
  is_good = file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode) && is_ours(&about) &&
            is_whole(file, name, (size_t)about.st_size);
  if (is_good) {
    *size = (size_t)about.st_size - CHECKSUM_DIGITS;
    return file;
  }
  if (file >= 0)
    close(file);
  return -1;
}

bool read_kept(const char *name, char *text, size_t room) {
  size_t size;
  int file = open_kept(name, &size);
  ssize_t length = file < 0 ? -1 : pread(file, text, size < room ? size : room - 1, 0);
  if (file >= 0)
    close(file);
  text[length > 0 ? length : 0] = 0;
  return length > 0;
}

/* Where it cannot be written, it is found out again the next time. One that was killed leaves a file
 * which the next writes anew: the names are the same. An empty folder gives way. */
void keep(const char *name, const char *text) {
  char path[4096], partial[4200], checksum[CHECKSUM_DIGITS + 1];
  struct digest digest;
  if (!kept_path(path, sizeof path, name))
    return;
  begin_digest(&digest);
  add_to_digest(&digest, name, strlen(name) + 1);
  add_to_digest(&digest, text, strlen(text));
  checksum_of(checksum, &digest);
  snprintf(partial, sizeof partial, "%s.partial", path);
  int file = open(partial, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0)
    return;
  int length = (int)(strlen(text) + CHECKSUM_DIGITS);
  bool is_written = dprintf(file, "%s%s", text, checksum) == length && !fsync(file);
  rmdir(path);
  if (close(file) || !is_written || rename(partial, path))
    unlink(partial);
}
