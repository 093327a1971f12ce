"""The line of the model that is at work: for refusals that name file and line, and for errors of
the model in a trace, which are told with it and a next action that fits.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor

from tallystick.errors import UsageError
from tallystick.program.capture.batch import NoSuchTensorError

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


_VALUES = re.compile(
    r"meta tensor|item\(\)|data-dependent|get value out of a tracing tensor|is_nonzero"
    r"|local_scalar_dense",
    re.IGNORECASE,
)
_BY_MASK = re.compile(r"torch\.nonzero|aten::(masked_select|nonzero|unique)")
_SHAPES = re.compile(
    r"size of tensor|mat1 and mat2|shapes? cannot|must match|must have same"
    r"|shape .* is invalid|expected input|Expected .*(size|dim|shape|channels)"
    r"|broadcast|split_with_sizes|Sizes of tensors"
    r"|normalized_shape|Dimension out of range|equation|same (size|shape)|batch size",
    re.IGNORECASE,
)
_ARGUMENTS = re.compile(r"positional argument|keyword argument|missing \d+ required|argument after")
_DEVICE = re.compile(r"not on the expected device|same device|CUDA|cuda")


def add_line(error: UsageError) -> None:
    """The model's file and line in the message, unless it has them."""
    where = raised_at(error)
    if where and where.strip(" ()") not in error.message:
        error.message = f"{error.message.removesuffix('.')}{where}."
        error.args = (error.message,)


def _types(batch: Mapping[str, Tensor]) -> str:
    return ", ".join(
        f"{name} {str(t.dtype)[6:]}{list(t.shape)}" for name, t in batch.items()
    )  # fmt: skip


def explained(error: Exception, batch: Mapping[str, Tensor]) -> UsageError:
    """`error`, which the model raised while it was traced, as an error of ours."""
    where = raised_at(error)
    lines = str(error).splitlines()
    text = lines[0] if lines else "no message"
    if isinstance(error, NoSuchTensorError):
        return UsageError(
            f"{error.args[0]}{where}.", "Use one of those names, or put the tensor into the batch."
        )
    if _BY_MASK.search(str(error)):
        return UsageError(
            "The model reads or assigns by a mask, with a shape that depends on the mask's values"
            f"{where}.",
            "Use torch.where or multiply by the mask, so that every element keeps its place.",
        )
    if _VALUES.search(str(error)):
        return UsageError(
            f"The model looks at the values of tensors while it runs{where}: {text}",
            "A program's shape cannot depend on data: remove .item(), tensor-valued `if`, and "
            "boolean-mask indexing, or pass the value in the batch.",
        )
    if isinstance(error, TypeError) and _ARGUMENTS.search(text):
        hint = (
            "A function is called with other arguments than it takes: see how the loss calls the "
            "module. capture calls loss(module, batch)."
        )
    elif isinstance(error, KeyError):
        hint = f"A dictionary of the model has no such key. The batch has {_types(batch)}."
    elif _DEVICE.search(text):
        hint = (
            "A trace runs on meta tensors: make tensors on the device of the inputs, and register "
            "constant ones as buffers."
        )
    elif _SHAPES.search(text):
        hint = f"Shapes do not fit at that line. The batch has {_types(batch)}."
    else:
        hint = (
            "Call the loss with the module and a batch of your own: an error there is the model's. "
            "Where there is none, the model depends on values or devices, which a trace lacks."
        )
    return UsageError(f"The model could not be traced{where}: {type(error).__name__}: {text}", hint)
