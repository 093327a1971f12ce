/* Stands between a program and the disk; loaded with LD_PRELOAD by kept_driver.py. It looks only at
   files whose path holds the text in SHIM_PATH, once it is armed: with a file for the trace of
   writes, truncations and flushes (or -1), and with the number n of the call at which
     'k'   half of a write is made, and the process ends by SIGKILL
     'f'   writes and growth fail with ENOSPC from there on; half of the first one is made
     's'   the flush, or the next one, fails with EIO, once. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ready, armed, trace = -1, failing;
static long at, calls;
static char kind;
static const char* watched;

static ssize_t (*real_write)(int, const void*, size_t);
static ssize_t (*real_pwrite)(int, const void*, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int), (*real_ftruncate)(int, off_t);

static void begin(void) {
  if (ready) return;
  real_write = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  real_pwrite = (ssize_t(*)(int, const void*, size_t, off_t))dlsym(RTLD_NEXT, "pwrite64");
  real_fsync = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  real_fdatasync = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
  real_ftruncate = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate64");
  watched = getenv("SHIM_PATH");
  ready = 1;
}

void disk_shim_arm(long n, char what, int into) {
  begin();
  at = n;
  kind = what;
  trace = into;
  calls = failing = 0;
  armed = 1;
}
long disk_shim_disarm(void) {
  armed = 0;
  return calls;
}

static const char* path_of(int file) {
  static __thread char path[4096];
  char link[64];
  if (!armed) return NULL;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0 || !watched) return NULL;
  path[n] = 0;
  return strstr(path, watched) ? path : NULL;
}

/* One record: u8 kind, u32 length of the path, u64 offset, u64 length, path, data. */
static void note(char what, const char* path, uint64_t offset, uint64_t n, const void* data) {
  if (trace < 0) return;
  const uint32_t length = (uint32_t)strlen(path);
  real_write(trace, &what, 1);
  real_write(trace, &length, 4);
  real_write(trace, &offset, 8);
  real_write(trace, &n, 8);
  real_write(trace, path, length);
  if (data) real_write(trace, data, n);
}

static int trips(void) { return ++calls == at; }

static ssize_t put(int file, const void* from, size_t n, off_t offset, int positioned) {
  begin();
  const char* path = path_of(file);
  if (!path) return positioned ? real_pwrite(file, from, n, offset) : real_write(file, from, n);
  pthread_mutex_lock(&lock);
  if (!positioned) offset = lseek(file, 0, SEEK_CUR);
  size_t part = n;
  int error = 0;
  if (trips()) {
    if (kind == 'k' || kind == 'f') part = n / 2;
    failing = 1;
  } else if (failing && kind == 'f') {
    part = 0;
  }
  if (failing && kind == 'f') error = ENOSPC;
  if (part) {
    real_pwrite(file, from, part, offset);
    if (!positioned) lseek(file, (off_t)part, SEEK_CUR);
    note('w', path, (uint64_t)offset, part, from);
  }
  if (failing && kind == 'k') raise(SIGKILL);
  pthread_mutex_unlock(&lock);
  if (error) {
    errno = error;
    return -1;
  }
  return (ssize_t)n;
}

ssize_t write(int file, const void* from, size_t n) { return put(file, from, n, 0, 0); }
ssize_t pwrite(int file, const void* from, size_t n, off_t o) { return put(file, from, n, o, 1); }
ssize_t pwrite64(int file, const void* from, size_t n, off_t o) { return put(file, from, n, o, 1); }

static int flush(int file, int (**real)(int)) {
  begin();
  const char* path = path_of(file);
  if (!path) return (*real)(file);
  pthread_mutex_lock(&lock);
  if (trips()) failing = 1;
  if (failing && kind == 'k') raise(SIGKILL);
  if (failing && kind == 's') {
    failing = 0;
    kind = 0;
    pthread_mutex_unlock(&lock);
    errno = EIO;
    return -1;
  }
  note('s', path, 0, 0, NULL);
  pthread_mutex_unlock(&lock);
  return 0; /* a real flush would only be slow: what is lost is what the trace says */
}
int fsync(int file) { return flush(file, &real_fsync); }
int fdatasync(int file) { return flush(file, &real_fdatasync); }

static int cut(int file, off_t n) {
  begin();
  const char* path = path_of(file);
  if (!path) return real_ftruncate(file, n);
  pthread_mutex_lock(&lock);
  if (trips()) failing = 1;
  if (failing && kind == 'k') raise(SIGKILL);
  struct stat now;
  const int grows = !fstat(file, &now) && n > now.st_size;
  if (failing && kind == 'f' && grows) {
    pthread_mutex_unlock(&lock);
    errno = ENOSPC;
    return -1;
  }
  note('t', path, (uint64_t)n, 0, NULL);
  const int done = real_ftruncate(file, n);
  pthread_mutex_unlock(&lock);
  return done;
}
int ftruncate(int file, off_t n) { return cut(file, n); }
int ftruncate64(int file, off_t n) { return cut(file, n); }
