"""Calls of the person's code while a trace runs, watched; torch's own kernels are left out.

Python tells a profile function of every call of every function, and makes a dict of the caller's
names for it: within a kernel of torch's, which calls no code of the person's, that takes longer
than the kernel.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

Watcher = Callable[[FrameType, str, Any], object]
_active: list[Watcher] = []


@contextlib.contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """All calls of this thread are told to `watcher`, but for those within `unwatched`."""
    outer = sys.getprofile()
    _active.append(watcher)
    sys.setprofile(watcher)
    try:
        yield
    finally:
        sys.setprofile(outer)
        _active.remove(watcher)


def unwatched(function: Callable[..., Any], *given: Any) -> Any:
    """`function(*given)`, of which no watcher is told. A profiler of the person's own is."""
    watcher = sys.getprofile() if _active else None
    if watcher is None or not any(watcher is one for one in _active):
        return function(*given)
    sys.setprofile(None)
    try:
        return function(*given)
    finally:
        sys.setprofile(watcher)
