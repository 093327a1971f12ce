"""A stranger in the process: a small C library that changes the floating-point environment, as one
built with -ffast-math does when it is loaded, or `fesetround` in somebody's code.

Loaded by ctypes it acts when called; preloaded into a new process, before anything else runs
there. Preloaded it can also make `pthread_create` fail.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Subnormals flushed (FTZ and DAZ); rounding upward, downward, toward zero.
MODES = ("flush", "upward", "downward", "toward-zero")

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
static void flush(void) { _mm_setcsr(_mm_getcsr() | 0x8040); }
static void keep(void) { _mm_setcsr(_mm_getcsr() & ~0x8040u); }
uint64_t environment_word(void) { return _mm_getcsr() & ~0x3fu; }
#else
static uint64_t get(void) { uint64_t v; __asm__ volatile("mrs %0, fpcr" : "=r"(v)); return v; }
static void set(uint64_t v) { __asm__ volatile("msr fpcr, %0" : : "r"(v)); }
static void flush(void) { set(get() | (1u << 24)); }
static void keep(void) { set(get() & ~(uint64_t)(1u << 24)); }
uint64_t environment_word(void) { return get(); }
#endif
void environment_set(const char* mode) {
  keep();
  fesetround(FE_TONEAREST);
  if (!strcmp(mode, "flush")) flush();
  if (!strcmp(mode, "upward")) fesetround(FE_UPWARD);
  if (!strcmp(mode, "downward")) fesetround(FE_DOWNWARD);
  if (!strcmp(mode, "toward-zero")) fesetround(FE_TOWARDZERO);
}
__attribute__((constructor)) static void start(void) {
  const char* mode = getenv("STRANGER_MODE");
  if (mode) environment_set(mode);
}
static int allowed = -1;
void threads_allowed(int n) { allowed = n; }
int pthread_create(pthread_t* t, const pthread_attr_t* a, void* (*f)(void*), void* x) {
  static int (*real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (!real) *(void**)&real = dlsym(RTLD_NEXT, "pthread_create");
  if (allowed == 0) return EAGAIN;
  if (allowed > 0) --allowed;
  return real(t, a, f, x);
}
"""


@lru_cache(maxsize=1)
def shim_path() -> Path:
    """The compiled library. Skips the test, with the reason, where it cannot be made."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a C compiler and Linux's LD_PRELOAD are needed to play the stranger")
    directory = Path(tempfile.mkdtemp(prefix="stranger-"))
    source, library = directory / "stranger.c", directory / "stranger.so"
    source.write_text(_SOURCE)
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl", "-lm"]
    subprocess.run(command, check=True)
    return library


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(shim_path()))
    library.environment_word.restype = ctypes.c_uint64
    library.environment_set.argtypes = (ctypes.c_char_p,)
    return library


def disturb(mode: str) -> None:
    """Change the environment of the calling thread; "default" undoes it."""
    _library().environment_set(mode.encode())


def word() -> int:
    """The calling thread's control word without the exceptions seen."""
    return int(_library().environment_word())


@contextmanager
def disturbed(mode: str) -> Iterator[None]:
    """Within the block, the calling thread has this environment unless somebody changes it."""
    disturb(mode)
    try:
        yield
    finally:
        disturb("default")


def preloaded(
    arguments: list[str], mode: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run Python with `arguments` in a process whose main thread begins in `mode`."""
    paths = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            # Only a process that begins in the usual mode leaves bytecode: compiled in another one
            # the package has wrong numbers (devices/environment.py).
            "PYTHONDONTWRITEBYTECODE": "" if mode == "default" else "1",
            "LD_PRELOAD": str(shim_path()),
            "STRANGER_MODE": mode,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            **environment,
        },
    )
