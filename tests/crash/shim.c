/* Makes the n-th call to the C library's allocation, thread or file functions fail, once it is
   armed. Loaded with LD_PRELOAD by fault_driver.py; counts calls of every thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { ALLOCATION = 1, THREAD = 2, FILES = 4, SHORT = 8 };

static atomic_int armed;     /* the kinds that are counted, 0 for none */
static atomic_int lasting;   /* whether every call from the n-th on fails */
static atomic_long at, seen;

void shim_arm(long n, int kinds, int from_there_on) {
  atomic_store(&seen, 0);
  atomic_store(&at, n);
  atomic_store(&lasting, from_there_on);
  atomic_store(&armed, kinds);
}
long shim_disarm(void) {
  atomic_store(&armed, 0);
  return atomic_load(&seen);
}

static int trips(int kind) {
  if (!(atomic_load_explicit(&armed, memory_order_relaxed) & kind)) return 0;
  const long n = atomic_fetch_add(&seen, 1), when = atomic_load(&at);
  return n == when || (n > when && atomic_load(&lasting));
}

/* -- allocation ------------------------------------------------------------------------------- */
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);

#define NO_ROOM(failed) \
  do {                  \
    errno = ENOMEM;     \
    return failed;      \
  } while (0)

void* malloc(size_t n) {
  if (trips(ALLOCATION)) NO_ROOM(NULL);
  return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
  if (trips(ALLOCATION)) NO_ROOM(NULL);
  return __libc_calloc(n, size);
}
void* realloc(void* old, size_t n) {
  if (trips(ALLOCATION)) NO_ROOM(NULL);
  return __libc_realloc(old, n);
}
void* memalign(size_t alignment, size_t n) {
  if (trips(ALLOCATION)) NO_ROOM(NULL);
  return __libc_memalign(alignment, n);
}
void* aligned_alloc(size_t alignment, size_t n) { return memalign(alignment, n); }
int posix_memalign(void** out, size_t alignment, size_t n) {
  if (trips(ALLOCATION)) return ENOMEM;
  *out = __libc_memalign(alignment, n);
  return *out ? 0 : ENOMEM;
}

/* -- what goes through the next library -------------------------------------------------------- */
#define NEXT(type, name, ...)                             \
  static type (*next)(__VA_ARGS__);                       \
  if (!next) next = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

void* mmap(void* address, size_t n, int protection, int flags, int file, off_t offset) {
  NEXT(void*, mmap, void*, size_t, int, int, int, off_t);
  if (trips(flags & MAP_ANONYMOUS ? ALLOCATION : FILES)) NO_ROOM(MAP_FAILED);
  return next(address, n, protection, flags, file, offset);
}
void* mmap64(void* address, size_t n, int protection, int flags, int file, off_t offset) {
  return mmap(address, n, protection, flags, file, offset);
}

int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* argument) {
  NEXT(int, pthread_create, pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (trips(THREAD)) return EAGAIN;
  return next(t, a, f, argument);
}

#define FAILS(error)  \
  if (trips(FILES)) { \
    errno = error;    \
    return -1;        \
  }

static mode_t mode_of(int flags, va_list rest) {
  return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}
int open(const char* path, int flags, ...) {
  NEXT(int, open, const char*, int, ...);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  FAILS(EMFILE)
  return next(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return open(path, flags, mode);
}
int openat(int directory, const char* path, int flags, ...) {
  NEXT(int, openat, int, const char*, int, ...);
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  FAILS(EMFILE)
  return next(directory, path, flags, mode);
}
int openat64(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = mode_of(flags, rest);
  va_end(rest);
  return openat(directory, path, flags, mode);
}
ssize_t read(int file, void* into, size_t n) {
  NEXT(ssize_t, read, int, void*, size_t);
  FAILS(EIO)
  if (n > 1 && trips(SHORT)) n /= 2;
  return next(file, into, n);
}
ssize_t pread(int file, void* into, size_t n, off_t offset) {
  NEXT(ssize_t, pread, int, void*, size_t, off_t);
  FAILS(EIO)
  if (n > 1 && trips(SHORT)) n /= 2;
  return next(file, into, n, offset);
}
ssize_t pread64(int file, void* into, size_t n, off_t offset) {
  return pread(file, into, n, offset);
}
ssize_t write(int file, const void* from, size_t n) {
  NEXT(ssize_t, write, int, const void*, size_t);
  FAILS(ENOSPC)
  if (n > 1 && trips(SHORT)) n /= 2;
  return next(file, from, n);
}
int fsync(int file) {
  NEXT(int, fsync, int);
  FAILS(EIO)
  return next(file);
}
int rename(const char* from, const char* to) {
  NEXT(int, rename, const char*, const char*);
  FAILS(EIO)
  return next(from, to);
}
int ftruncate(int file, off_t n) {
  NEXT(int, ftruncate, int, off_t);
  FAILS(EIO)
  return next(file, n);
}
int fstat(int file, struct stat* out) {
  NEXT(int, fstat, int, struct stat*);
  FAILS(EIO)
  return next(file, out);
}
int stat(const char* path, struct stat* out) {
  NEXT(int, stat, const char*, struct stat*);
  FAILS(EIO)
  return next(path, out);
}
int lstat(const char* path, struct stat* out) {
  NEXT(int, lstat, const char*, struct stat*);
  FAILS(EIO)
  return next(path, out);
}
off_t lseek(int file, off_t offset, int from) {
  NEXT(off_t, lseek, int, off_t, int);
  FAILS(EIO)
  return next(file, offset, from);
}
int mkdir(const char* path, mode_t mode) {
  NEXT(int, mkdir, const char*, mode_t);
  FAILS(ENOSPC)
  return next(path, mode);
}

/* The same by their names for large files. */
int fstat64(int file, struct stat64* out) { return fstat(file, (struct stat*)out); }
int stat64(const char* path, struct stat64* out) { return stat(path, (struct stat*)out); }
int lstat64(const char* path, struct stat64* out) { return lstat(path, (struct stat*)out); }
off64_t lseek64(int file, off64_t offset, int from) { return lseek(file, offset, from); }
int ftruncate64(int file, off64_t n) { return ftruncate(file, n); }
