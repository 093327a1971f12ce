"""Calls of the person's code while a trace runs, watched: among them those that read what no state
of Python is, as a file, a clock, a process.

Python tells a profile function of every call of every function, and makes a dict of the caller's
names for it: within a kernel of torch's, which calls no code of the person's, that takes longer
than the kernel.

What they give is no function of how often the loss was called before, and nothing puts it back. So
they have no place in a loss whose steps are traced one by one (PROGRAM 5.25).

A loss may tell the time, and no step of it is another one for that. A clock that decides is noticed
where the second walk comes to other steps. A deadline is far away in both walks; so the clock there
is years ahead, and each look at it is a day after the one before (`ahead`, PROGRAM 5.25 a).
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from tallystick.program.capture.follow_calls import changing, changing_code
from tallystick.program.capture.python_state import PythonState
from tallystick.program.capture.source import is_installed, is_model, line_of

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


CLOCK = "the clock"


@functools.lru_cache(maxsize=4096)
def _is_persons(file: str) -> bool:
    return is_model(file) and not is_installed(file)


class OutsideCalls:
    """`found` is the first such call: what it reads, and ` (file:line)`. `numbered` is the place of
    the first call of id(), and `clock` that of the first look at a clock, which counts as such a
    call with `clocks`."""

    def __init__(self, clocks: bool = False) -> None:
        self.found: tuple[str, str] | None = None
        self.clocks = clocks
        self.clock: str | None = None
        self.numbered: str | None = None

    def _event(self, frame: FrameType, event: str, function: Any) -> None:
        if self.found is not None or event not in ("c_call", "call"):
            return
        caller = frame if event == "c_call" else frame.f_back
        if caller is None or not _is_persons(caller.f_code.co_filename):
            return
        if function is id and self.numbered is None:
            line = line_of(caller.f_code.co_filename, caller.f_lineno)
            self.numbered = f" ({line})" if line else ""
        source = changing(function) if event == "c_call" else changing_code(frame)
        if source is not None and source not in PythonState.GENERATORS:
            line = line_of(caller.f_code.co_filename, caller.f_lineno)
            where = f" ({line})" if line else ""
            if source != CLOCK:
                self.found = source, where
                return
            self.clock = where if self.clock is None else self.clock
            if self.clocks:
                self.found = source, where

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with watched_by(self._event):
            yield


_DAY = 24 * 3600
_YEARS = 20 * 365
_SECONDS = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
# By the position of the time that they take, without which they tell the present one.
_TOLD = {"localtime": 0, "gmtime": 0, "ctime": 0, "strftime": 1, "asctime": 0}


class _Ahead:
    """What tells the time, years ahead, and by a day more at each look."""

    def __init__(self) -> None:
        self.days = _YEARS

    def seconds(self) -> int:
        self.days += 1
        return self.days * _DAY

    def count(self, function: Callable[[], Any], unit: int) -> Any:
        return function() + self.seconds() * unit

    def told(self, name: str, position: int, *given: Any) -> Any:
        if len(given) > position and given[position] is not None:
            return getattr(time, name)(*given)
        now: Any = time.time() + self.seconds()
        if name in ("strftime", "asctime"):
            now = time.localtime(now)
        return getattr(time, name)(*given[:position], now)

    def functions(self) -> dict[str, Callable[..., Any]]:
        made: dict[str, Callable[..., Any]] = {}
        for name in _SECONDS:
            made[name] = functools.partial(self.count, getattr(time, name), 1)
            made[f"{name}_ns"] = functools.partial(self.count, getattr(time, f"{name}_ns"), 10**9)
        for name, position in _TOLD.items():
            made[name] = functools.partial(self.told, name, position)
        return made

    def kind(self, real: Any, *names: str) -> Any:
        """The class `real`, date or datetime, whose methods `names` tell the present time."""

        class ClockKind(type):
            def __instancecheck__(cls, value: Any) -> bool:
                return isinstance(value, real)

        def now(name: str, cls: Any, *given: Any, **named: Any) -> Any:
            return getattr(real, name)(*given, **named) + datetime.timedelta(seconds=self.seconds())

        methods = {name: classmethod(functools.partial(now, name)) for name in names}
        return ClockKind(real.__name__, (real,), methods)


def _stand_ins() -> list[tuple[Any, Any]]:
    """Each clock, and what stands in its place."""
    ahead = _Ahead()
    functions = ahead.functions()
    of_datetime = ahead.kind(datetime.datetime, "now", "utcnow", "today")
    of_date = ahead.kind(datetime.date, "today")
    times, dates = types.ModuleType("time"), types.ModuleType("datetime")
    vars(times).update(vars(time) | functions)
    vars(dates).update(vars(datetime) | {"datetime": of_datetime, "date": of_date})
    return [
        (time, times),
        (datetime, dates),
        (datetime.datetime, of_datetime),
        (datetime.date, of_date),
        *((getattr(time, name), function) for name, function in functions.items()),
    ]


@contextlib.contextmanager
def ahead(objects: Sequence[Any]) -> Iterator[None]:
    """Clocks that run ahead under the names of modules whose functions are among `objects`, where
    these are the person's."""
    by_identity = {id(real): stand_in for real, stand_in in _stand_ins()}
    put: list[tuple[dict[str, Any], str, Any]] = []
    spaces = {
        id(o.__globals__): o.__globals__
        for o in objects
        if type(o) is types.FunctionType
        and is_model(o.__code__.co_filename)
        and not is_installed(o.__code__.co_filename)
    }
    try:
        for space in spaces.values():
            for name, value in list(space.items()):
                if id(value) in by_identity:
                    put.append((space, name, value))
                    space[name] = by_identity[id(value)]
        yield
    finally:
        for space, name, value in put:
            space[name] = value
