/* Loaded before libc: writes a line for each call that changes or syncs a file below FULMAR_CALLS_ROOT, then makes the call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void tell(const char *call, const char *path, const char *to) {
  const char *root = getenv("FULMAR_CALLS_ROOT"), *log = getenv("FULMAR_CALLS_LOG");
  if (!root || !log || strncmp(path, root, strlen(root))) return;
  char line[2 * PATH_MAX + 32];
  int bytes = snprintf(line, sizeof line, "%s\t%s\t%s\n", call, path, to);
  int file = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600);
  syscall(SYS_write, file, line, bytes);
  syscall(SYS_close, file);
}

static void tell_file(const char *call, int file) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  ssize_t bytes = readlink(link, path, sizeof path - 1);
  if (bytes < 0) return;
  path[bytes] = 0;
  tell(call, path, "");
}

int open64(const char *path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  int mode = va_arg(rest, int);
  va_end(rest);
  if (flags & O_CREAT) tell("create", path, "");
  return NEXT(open64)(path, flags, mode);
}
int mkdir(const char *path, mode_t mode) {
  int result = NEXT(mkdir)(path, mode);
  if (result == 0) tell("create", path, "");
  return result;
}
int rename(const char *from, const char *to) {
  tell("rename", from, to);
  return NEXT(rename)(from, to);
}
ssize_t write(int file, const void *bytes, size_t count) {
  tell_file("write", file);
  return NEXT(write)(file, bytes, count);
}
ssize_t writev(int file, const struct iovec *parts, int count) {
  tell_file("write", file);
  return NEXT(writev)(file, parts, count);
}
ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
  tell_file("write", file);
  return NEXT(pwrite64)(file, bytes, count, at);
}
int fsync(int file) {
  tell_file("sync", file);
  return NEXT(fsync)(file);
}
int fdatasync(int file) {
  tell_file("sync", file);
  return NEXT(fdatasync)(file);
}
