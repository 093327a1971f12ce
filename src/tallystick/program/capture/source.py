"""The line of the model that is at work: for refusals that name file and line."""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep
_TORCH = str(Path(torch.__file__).resolve().parent) + os.sep
_PYTHON = sysconfig.get_paths()["stdlib"] + os.sep
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


@lru_cache(maxsize=4096)
def is_model(filename: str) -> bool:
    """Whether `filename` is neither ours, torch's nor Python's: a model, a loss, or a library."""
    if filename.startswith((PACKAGE, _TORCH, "<frozen", "<string>", "<__array")):
        return False
    return not filename.startswith(_PYTHON) or is_installed(filename)


@lru_cache(maxsize=4096)
def is_installed(filename: str) -> bool:
    """Whether `filename` is of an installed package, and not of the person's own code."""
    return any(part in filename for part in _INSTALLED)


@lru_cache(maxsize=4096)
def package_of(filename: str) -> str:
    """The name of the installed package that `filename` belongs to, or nothing."""
    for part in _INSTALLED:
        _, found, after = filename.rpartition(part)
        if found:
            return after.partition(os.sep)[0].removesuffix(".py")
    return ""


@lru_cache(maxsize=4096)
def line_of(filename: str, number: int) -> str:
    """`file:line`; the file from the working directory where it lies below."""
    with contextlib.suppress(ValueError):
        near = os.path.relpath(filename)
        filename = filename if near.startswith(os.pardir) else near
    return f"{filename}:{number}"


def code_line(code: CodeType) -> str:
    """`file:line` of a function's first line."""
    return line_of(code.co_filename, code.co_firstlineno)


def _line_from(frame: FrameType | None) -> str | None:
    while frame is not None:
        if is_model(frame.f_code.co_filename):
            return line_of(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def model_line() -> str | None:
    """The innermost line of the model among the present calls, as `file:line`."""
    return _line_from(sys._getframe(1))


def here() -> str:
    """` (file:line)` of the model, or nothing."""
    line = model_line()
    return f" ({line})" if line else ""


def raised_at(error: BaseException) -> str:
    """` (file:line)` of the model's innermost line that `error` passed, or nothing."""
    found, at = None, error.__traceback__
    while at is not None:
        if is_model(at.tb_frame.f_code.co_filename):
            found = line_of(at.tb_frame.f_code.co_filename, at.tb_lineno)
        at = at.tb_next
    return f" ({found})" if found else ""


class Blame:
    """Finds the line of the model after which `look()` gives something else."""

    def __init__(self, look: Callable[[], Any]) -> None:
        self.look = look
        self.seen = look()
        self.line: str | None = None
        self.last: dict[FrameType, int] = {}

    def _event(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if self.line is not None or not is_model(frame.f_code.co_filename):
            return None
        before, self.last[frame] = self.last.get(frame), frame.f_lineno
        if self.look() != self.seen:
            # At a call, the line at work is the caller's.
            if event == "call":
                self.line = _line_from(frame.f_back)
            elif before is not None:
                self.line = line_of(frame.f_code.co_filename, before)
        if event == "return":
            self.last.pop(frame, None)
        return self._event

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Slow: for a trace that is refused anyway."""
        outer = sys.gettrace()
        sys.settrace(self._event)
        try:
            yield
        finally:
            sys.settrace(outer)
