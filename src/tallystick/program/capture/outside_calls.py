"""Calls of the person's code that read what no state of Python is: a file, a clock, a process.

What they give is no function of how often the loss was called before, and nothing puts it back. So
they have no place in a loss whose steps are traced one by one (PROGRAM 5.25).
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

from tallystick.program.capture.follow_calls import changing, changing_code
from tallystick.program.capture.python_state import PythonState
from tallystick.program.capture.source import is_installed, is_model, line_of

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
        outer = sys.getprofile()
        sys.setprofile(self._event)
        try:
            yield
        finally:
            sys.setprofile(outer)
