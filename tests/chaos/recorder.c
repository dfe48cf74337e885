// Preloaded library that records every change of a process to the files below one directory, in order and with its
// data, and that can make the disk of that directory full or its syncs fail.
//
//     CHAOS_ROOT    the directory, absolute and without symbolic links
//     CHAOS_TRACE   where the records go; the first process that starts creates it, and is the only one recorded
//     CHAOS_FAULTS  a file with a `struct faults`, which the harness changes while the process runs
//
// A record is a `struct record`, then a path or data, then, for a rename or link, a second path. Changes are recorded
// after the system call that made them, under one lock with it. A sync is recorded when it has returned, with the length
// that the trace had when it began: it covers the changes recorded before that.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MAX_DESCRIPTORS 65536
#define REAL(name) \
  static __typeof__(&name) real; \
  if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

enum flag { CREATED = 1, EMPTIED = 2, DIRECTORY = 4 };

struct record {
  char op;  // open, write, truncate, sync, rename, link, unlink, mkdir: the first letter; unlink is also rmdir
  uint32_t file;
  uint64_t number;  // flags, offset, size, or the trace's length when a sync began
  uint32_t first, second;
} __attribute__((packed));

struct faults {
  uint64_t room;  // bytes that can be written before the disk is full; all ones: no limit
  uint64_t failing_syncs;
};

static struct {
  uint32_t file;
  dev_t device;
  ino_t inode;
} opened[MAX_DESCRIPTORS];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_length;
static int trace = -1;
static pid_t owner;
static uint32_t files;
static uint64_t length;
static volatile struct faults *faults;

__attribute__((constructor)) static void begin(void) {
  const char *folder = getenv("CHAOS_ROOT"), *path = getenv("CHAOS_TRACE"), *control = getenv("CHAOS_FAULTS");
  if (!folder || strlen(folder) >= PATH_MAX) return;
  strcpy(root, folder);
  root_length = strlen(root);
  if (control) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDWR | O_CLOEXEC);
    void *mapped = fd < 0 ? MAP_FAILED : mmap(0, sizeof *faults, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) faults = mapped;
    if (fd >= 0) syscall(SYS_close, fd);
  }
  if (!path) return;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  trace = fcntl(fd, F_DUPFD_CLOEXEC, 900);  // out of the way of programs that close low descriptors
  syscall(SYS_close, fd);
  owner = getpid();
}

static int is_recording(void) { return trace >= 0 && getpid() == owner; }

static void fail(const char *what) {
  dprintf(2, "recorder: %s\n", what);
  abort();
}

// Called with the lock held.
static void record(char op, uint32_t file, uint64_t number, const void *a, size_t na, const void *b, size_t nb) {
  struct record head = {op, file, number, (uint32_t)na, (uint32_t)nb};
  struct iovec parts[3] = {{&head, sizeof head}, {(void *)a, na}, {(void *)b, nb}};
  ssize_t want = (ssize_t)(sizeof head + na + nb);
  if (syscall(SYS_writev, trace, parts, 3) != want) fail("the trace could not be written");
  length += (uint64_t)want;
}

// Whether a path is the root or below it; its absolute form goes to `out`.
static int is_below(int directory, const char *path, char *out) {
  size_t n = 0;
  if (!root_length || !path) return 0;
  if (path[0] != '/') {
    if (directory == AT_FDCWD) {
      if (!getcwd(out, PATH_MAX)) return 0;
      n = strlen(out);
    } else {
      char link[40];
      snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
      ssize_t got = readlink(link, out, PATH_MAX - 1);
      if (got <= 0) return 0;
      n = (size_t)got;
    }
    out[n++] = '/';
  }
  for (; *path && n < PATH_MAX - 1; path++) {
    int is_repeated = *path == '/' && n && out[n - 1] == '/';
    int is_dot = path[0] == '.' && n && out[n - 1] == '/' && (path[1] == '/' || !path[1]);
    if (!is_repeated && !is_dot) out[n++] = *path;
  }
  while (n > 1 && out[n - 1] == '/') n--;
  out[n] = 0;
  return !strncmp(out, root, root_length) && (out[root_length] == '/' || !out[root_length]);
}

static int exists(int directory, const char *path) {
  struct stat status;
  return !fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW);
}

// The number of a file that was opened below the root, or 0. Called with the lock held.
static uint32_t number_of(int fd) {
  struct stat status;
  if (fd < 0 || fd >= MAX_DESCRIPTORS || !opened[fd].file || fstat(fd, &status)) return 0;
  return status.st_ino == opened[fd].inode && status.st_dev == opened[fd].device ? opened[fd].file : 0;
}

static int is_our_disk(int fd) {
  struct stat status;
  char link[40], path[PATH_MAX];
  if (!faults || fstat(fd, &status) || !S_ISREG(status.st_mode)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t got = readlink(link, path, PATH_MAX - 1);
  if (got <= 0) return 0;
  path[got] = 0;
  return !strncmp(path, root, root_length) && path[root_length] == '/';
}

// ------------------------------------------------------------------------------------------------- opening, closing

static void note_open(int fd, int flags, const char *path, int existed) {
  struct stat status;
  if (fd < 0 || fd >= MAX_DESCRIPTORS || fstat(fd, &status)) return;
  opened[fd].file = 0;
  if ((flags & O_TMPFILE) == O_TMPFILE) return;  // a file without a name does not outlive its process
  int is_directory = S_ISDIR(status.st_mode);
  if (!is_directory && (flags & O_ACCMODE) == O_RDONLY && existed) return;
  opened[fd].file = ++files;
  opened[fd].device = status.st_dev;
  opened[fd].inode = status.st_ino;
  uint64_t how = is_directory ? DIRECTORY : (existed ? 0 : CREATED) | (flags & O_TRUNC ? EMPTIED : 0);
  record('o', files, how, path, strlen(path), 0, 0);
}

#define OPENING(directory, call)                                        \
  char full[PATH_MAX];                                                  \
  if (!is_recording() || !is_below(directory, path, full)) return call; \
  pthread_mutex_lock(&lock);                                            \
  int existed = exists(AT_FDCWD, full), fd = call, saved = errno;       \
  note_open(fd, flags, full, existed);                                  \
  pthread_mutex_unlock(&lock);                                          \
  errno = saved;                                                        \
  return fd
#define MODE                                                                       \
  va_list more;                                                                    \
  va_start(more, flags);                                                           \
  mode_t mode = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(more, mode_t) : 0; \
  va_end(more)

int open(const char *path, int flags, ...) { MODE; REAL(open); OPENING(AT_FDCWD, real(path, flags, mode)); }
int open64(const char *path, int flags, ...) { MODE; REAL(open64); OPENING(AT_FDCWD, real(path, flags, mode)); }
int openat(int at, const char *path, int flags, ...) { MODE; REAL(openat); OPENING(at, real(at, path, flags, mode)); }
int openat64(int at, const char *path, int flags, ...) { MODE; REAL(openat64); OPENING(at, real(at, path, flags, mode)); }

int close(int fd) {
  REAL(close);
  if (fd >= 0 && fd < MAX_DESCRIPTORS && is_recording()) {
    pthread_mutex_lock(&lock);
    opened[fd].file = 0;
    pthread_mutex_unlock(&lock);
  }
  return real(fd);
}

// ---------------------------------------------------------------------------------------------------------- writing

// How many of `n` bytes the disk has room for: fewer than `n` with errno set if it has room for none.
static size_t take_room(int fd, size_t n) {
  if (!is_our_disk(fd)) return n;
  pthread_mutex_lock(&lock);
  uint64_t room = faults->room;
  size_t taken = room < n ? (size_t)room : n;
  if (room != UINT64_MAX) faults->room = room - taken;
  pthread_mutex_unlock(&lock);
  if (n && !taken) errno = ENOSPC;
  return taken;
}

static ssize_t wrote(int fd, const void *data, ssize_t n, off_t offset) {
  if (n <= 0 || !is_recording()) return n;
  int saved = errno;
  pthread_mutex_lock(&lock);
  uint32_t file = number_of(fd);
  if (file) record('w', file, (uint64_t)(offset < 0 ? lseek(fd, 0, SEEK_CUR) - n : offset), data, (size_t)n, 0, 0);
  pthread_mutex_unlock(&lock);
  errno = saved;
  return n;
}

ssize_t write(int fd, const void *data, size_t n) {
  REAL(write);
  size_t taken = take_room(fd, n);
  return n && !taken ? -1 : wrote(fd, data, real(fd, data, taken), -1);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t offset) {
  REAL(pwrite);
  size_t taken = take_room(fd, n);
  return n && !taken ? -1 : wrote(fd, data, real(fd, data, taken, offset), offset);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset) {
  REAL(pwrite64);
  size_t taken = take_room(fd, n);
  return n && !taken ? -1 : wrote(fd, data, real(fd, data, taken, offset), offset);
}

// Ways to write that nothing recorded here uses: a trace without them would be wrong, so they end the process.
static void refuse(int fd, const char *name) {
  if (!is_recording()) return;
  pthread_mutex_lock(&lock);
  if (number_of(fd)) fail(name);
  pthread_mutex_unlock(&lock);
}
ssize_t writev(int fd, const struct iovec *parts, int count) { REAL(writev); refuse(fd, "writev"); return real(fd, parts, count); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) {
  REAL(pwritev);
  refuse(fd, "pwritev");
  return real(fd, parts, count, offset);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t n);
ssize_t sendfile(int to, int from, off_t *offset, size_t n) { REAL(sendfile); refuse(to, "sendfile"); return real(to, from, offset, n); }
ssize_t sendfile64(int to, int from, off64_t *offset, size_t n);
ssize_t sendfile64(int to, int from, off64_t *offset, size_t n) { REAL(sendfile64); refuse(to, "sendfile"); return real(to, from, offset, n); }
ssize_t copy_file_range(int from, off64_t *a, int to, off64_t *b, size_t n, unsigned flags) {
  REAL(copy_file_range);
  refuse(to, "copy_file_range");
  return real(from, a, to, b, n, flags);
}

static int truncated(int fd, uint64_t size, int result) {
  if (result || !is_recording()) return result;
  pthread_mutex_lock(&lock);
  uint32_t file = number_of(fd);
  if (file) record('t', file, size, 0, 0, 0, 0);
  pthread_mutex_unlock(&lock);
  return result;
}
int ftruncate(int fd, off_t size) { REAL(ftruncate); return truncated(fd, (uint64_t)size, real(fd, size)); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64); return truncated(fd, (uint64_t)size, real(fd, size)); }

static int allocated(int fd, int mode, off64_t end) {
  if (!(mode & FALLOC_FL_KEEP_SIZE)) refuse(fd, "fallocate that changes a size");
  if (mode & FALLOC_FL_PUNCH_HOLE || !is_our_disk(fd) || faults->room >= (uint64_t)end) return 0;
  errno = ENOSPC;
  return -1;
}
int fallocate(int fd, int mode, off_t start, off_t n) { REAL(fallocate); return allocated(fd, mode, n) ? -1 : real(fd, mode, start, n); }
int fallocate64(int fd, int mode, off64_t start, off64_t n) { REAL(fallocate64); return allocated(fd, mode, n) ? -1 : real(fd, mode, start, n); }

int statvfs(const char *path, struct statvfs *found) {
  REAL(statvfs);
  char full[PATH_MAX];
  int result = real(path, found);
  if (!result && faults && faults->room != UINT64_MAX && is_below(AT_FDCWD, path, full))
    found->f_bavail = found->f_bfree = faults->room / found->f_frsize;
  return result;
}
int statvfs64(const char *path, struct statvfs64 *found) {
  REAL(statvfs64);
  char full[PATH_MAX];
  int result = real(path, found);
  if (!result && faults && faults->room != UINT64_MAX && is_below(AT_FDCWD, path, full))
    found->f_bavail = found->f_bfree = faults->room / found->f_frsize;
  return result;
}

// ---------------------------------------------------------------------------------------------------------- syncing

static int is_failing(int fd) {
  if (!is_our_disk(fd)) return 0;
  pthread_mutex_lock(&lock);
  int failing = faults->failing_syncs > 0;
  if (failing) faults->failing_syncs--;
  pthread_mutex_unlock(&lock);
  if (failing) errno = EIO;
  return failing;
}

static int synced(int fd, int (*real)(int)) {
  if (is_failing(fd)) return -1;
  if (!is_recording()) return real(fd);
  pthread_mutex_lock(&lock);
  uint64_t began = length;
  uint32_t file = number_of(fd);
  pthread_mutex_unlock(&lock);
  int result = real(fd);
  if (!result && file) {
    pthread_mutex_lock(&lock);
    record('s', file, began, 0, 0, 0, 0);
    pthread_mutex_unlock(&lock);
  }
  return result;
}
int fsync(int fd) { REAL(fsync); return synced(fd, real); }
int fdatasync(int fd) { REAL(fdatasync); return synced(fd, real); }

// ------------------------------------------------------------------------------------------------------------ names

#define NAMING(op, directory, path, call)                               \
  char full[PATH_MAX];                                                  \
  if (!is_recording() || !is_below(directory, path, full)) return call; \
  pthread_mutex_lock(&lock);                                            \
  int result = call, saved = errno;                                     \
  if (!result) record(op, 0, 0, full, strlen(full), 0, 0);              \
  pthread_mutex_unlock(&lock);                                          \
  errno = saved;                                                        \
  return result
#define NAMING_TWO(op, from, old, to, new, call)                                                              \
  char a[PATH_MAX], b[PATH_MAX];                                                                              \
  if (!is_recording() || !is_below(from, old, a) || !is_below(to, new, b)) return call;                       \
  pthread_mutex_lock(&lock);                                                                                  \
  int result = call, saved = errno;                                                                           \
  if (!result) record(op, 0, 0, a, strlen(a), b, strlen(b));                                                  \
  pthread_mutex_unlock(&lock);                                                                                \
  errno = saved;                                                                                              \
  return result

int mkdir(const char *path, mode_t mode) { REAL(mkdir); NAMING('m', AT_FDCWD, path, real(path, mode)); }
int mkdirat(int at, const char *path, mode_t mode) { REAL(mkdirat); NAMING('m', at, path, real(at, path, mode)); }
int unlink(const char *path) { REAL(unlink); NAMING('u', AT_FDCWD, path, real(path)); }
int unlinkat(int at, const char *path, int flags) { REAL(unlinkat); NAMING('u', at, path, real(at, path, flags)); }
int remove(const char *path) { REAL(remove); NAMING('u', AT_FDCWD, path, real(path)); }
int rmdir(const char *path) { REAL(rmdir); NAMING('u', AT_FDCWD, path, real(path)); }
int rename(const char *old, const char *new) { REAL(rename); NAMING_TWO('r', AT_FDCWD, old, AT_FDCWD, new, real(old, new)); }
int renameat(int from, const char *old, int to, const char *new) { REAL(renameat); NAMING_TWO('r', from, old, to, new, real(from, old, to, new)); }
int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
  REAL(renameat2);
  NAMING_TWO('r', from, old, to, new, real(from, old, to, new, flags));
}
int link(const char *old, const char *new) { REAL(link); NAMING_TWO('l', AT_FDCWD, old, AT_FDCWD, new, real(old, new)); }
int linkat(int from, const char *old, int to, const char *new, int flags) {
  REAL(linkat);
  NAMING_TWO('l', from, old, to, new, real(from, old, to, new, flags));
}
