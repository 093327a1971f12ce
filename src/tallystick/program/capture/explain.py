"""Errors of the model in a trace, told with its file and line and a next action that fits."""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from tallystick.errors import UsageError
from tallystick.program.capture.batch import NoSuchTensorError
from tallystick.program.capture.source import raised_at

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
