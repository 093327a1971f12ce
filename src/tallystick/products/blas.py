"""The number of threads of numpy's BLAS, set through the library that is loaded.

The bits of results do not depend on it (NUMERICS 13.6). But a person who gives `--threads 1` wants
one thread in this library too.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

_NAMES = tuple(
    f"{prefix}openblas_set_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "", "64", "_")
)
_last = 0
_one_at_a_time = [threading.Lock()]


def _unlocked() -> None:
    # A thread that the child process does not have may hold the old lock.
    _one_at_a_time[0] = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlocked)


def _loaded_libraries() -> list[str]:
    """Paths of shared libraries in this process that may be a BLAS. Only Linux lists them."""
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = {line.split(" ", 5)[-1].strip() for line in lines if "/" in line}
    return sorted(p for p in paths if "blas" in Path(p).name.lower())


def _bundled_libraries() -> list[str]:
    """OpenBLAS as numpy's wheels bring it, where the system does not list loaded libraries."""
    import numpy

    root = Path(numpy.__file__).parent
    places = (root.parent / "numpy.libs", root / ".dylibs")
    return [str(p) for place in places if place.is_dir() for p in sorted(place.glob("*openblas*"))]


@lru_cache(maxsize=1)
def _setters() -> tuple[Callable[[int], None], ...]:
    """OpenBLAS's own function to set its threads, for each copy that numpy may use."""
    found: list[Callable[[int], None]] = []
    for path in _loaded_libraries() or _bundled_libraries():
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for name in _NAMES:
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = (ctypes.c_int,), None
                found.append(function)
                break
    return tuple(found)


def threads_used(count: int) -> int:
    """The number of threads that BLAS uses inside of `threads_limited(count)`. Where no function
    sets it, BLAS may use a thread for every processor."""
    return count if _setters() else max(count, os.cpu_count() or 1)


@contextmanager
def threads_limited(count: int) -> Iterator[None]:
    """Within the block BLAS uses `count` threads, or its own number where no function sets it.

    The number is the whole process's, so executions in other contexts wait for the block to end.
    """
    global _last
    with _one_at_a_time[0]:
        if count != _last:
            for function in _setters():
                function(count)
            _last = count
        yield
