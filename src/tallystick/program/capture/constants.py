"""Tensors with content that a model makes or keeps: they become constants of the program.

A trace runs on meta tensors. A tensor with content is one that the model makes from Python data
(`torch.tensor([...])`), or keeps as a plain attribute. It stays as it is until it meets a tensor
of the trace. Then its content becomes one node, `tallystick.constant`, which `rules_constant.py`
writes as `full`, `arange` and `cat` (PROGRAM 5.10).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from tallystick.errors import UsageError
from tallystick.program.capture import custom_ops
from tallystick.program.capture.factories import is_place, refuse_computed
from tallystick.program.capture.source import here
from tallystick.program.capture.stand_ins import StandIns

# A table of 64 by 64. Without runs each element is a node of its own (some 100 bytes of program,
# some microseconds of every step), so a larger table is better in a state slot.
MOST_ELEMENTS = 4096
_EXACT = (torch.bool, torch.int64, torch.int32, torch.uint8)
_BITS = {torch.float32: np.int32, torch.float64: np.int64}
_BUFFER = "Register it as a buffer (register_buffer), so that it is part of the state."

# These read a tensor's type or content, and make none.
_READS = frozenset({
    Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.size, Tensor.dim, Tensor.numel,
    Tensor.element_size, Tensor.stride, Tensor.__len__, Tensor.__bool__, Tensor.__int__,
    Tensor.__float__, Tensor.__index__, Tensor.__format__, Tensor.__repr__, Tensor.__hash__,
    Tensor.is_floating_point, torch.is_tensor, torch.is_floating_point, torch.numel, torch.equal,
    Tensor.is_contiguous, Tensor.storage_offset, Tensor.__array__, Tensor.__contains__,
})  # fmt: skip
# Of these the answer is in the elements.
_READS_CONTENT = frozenset({
    Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__bool__, Tensor.__int__, Tensor.__float__,
    Tensor.__index__, Tensor.__array__, Tensor.__contains__, torch.equal,
})  # fmt: skip
INDEXES = frozenset({Tensor.__getitem__, Tensor.__setitem__})
# These move content and compute nothing: floats too keep every bit.
_MOVES = frozenset({
    Tensor.__getitem__, Tensor.view, Tensor.reshape, Tensor.flatten, Tensor.unsqueeze,
    Tensor.squeeze, Tensor.permute, Tensor.transpose, Tensor.t, Tensor.expand, Tensor.contiguous,
    Tensor.clone, Tensor.detach, Tensor.cpu, Tensor.float, Tensor.long, Tensor.int, Tensor.bool,
    Tensor.to, Tensor.type, Tensor.__iter__, Tensor.unbind, torch.flatten,
    torch.unsqueeze, torch.squeeze, torch.reshape,
    torch.clone, torch.stack, torch.cat, torch.unbind,
    *(vars(torch._C.TensorBase)[name].__get__ for name in ("T", "mT", "data")),
})  # fmt: skip


def bits_of(tensor: Tensor) -> list[int]:
    """The elements in row-major order: floats as their bit patterns."""
    array = np.ascontiguousarray(tensor.detach().resolve_conj().resolve_neg().numpy())
    kind = _BITS.get(tensor.dtype)
    found: list[int] = (array.view(kind) if kind else array.astype(np.int64)).reshape(-1).tolist()
    return found


def tensor_of(bits: list[int], shape: list[int], dtype: torch.dtype) -> Tensor:
    """The tensor that `bits_of` read."""
    kind = _BITS.get(dtype)
    if kind is None:
        return torch.tensor(bits, dtype=dtype).reshape(shape)
    return torch.tensor(bits, dtype=getattr(torch, kind.__name__)).view(dtype).reshape(shape)


def has_content(value: Any) -> bool:
    """Whether `value` is a tensor with content, and not one of a trace."""
    return (
        isinstance(value, Tensor)
        and not value.is_meta
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )


def each(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, (list, tuple)):
            yield from each(value)
        elif isinstance(value, slice):
            yield from (value.start, value.stop, value.step)
        else:
            yield value


def replaced(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, (list, tuple)):
        items = [replaced(v, change) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, slice):
        return slice(*(replaced(v, change) for v in (value.start, value.stop, value.step)))
    return change(value)


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Calls on tensors with content leave no node in the trace, and are made on the CPU."""
    with disable_proxy_modes_tracing(), torch.device("cpu"), torch._C.DisableTorchFunction():
        yield


def _no_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Arguments without devices: a tensor with content has its place on the CPU."""
    kept = tuple(a for a in args if not is_place(a))
    return kept, {k: v for k, v in kwargs.items() if k != "device"}


class Constants:
    """Replaces tensors with content among a call's arguments.

    `stand_ins` has a tensor of the trace for each real tensor of the state, which a model may
    hold under other names too. `written` gets the memory of every tensor with content that the
    model changes in place, with the line: it is no constant. `left` are tensors that an earlier
    trace has left behind, with their places; `stale` says which of them the model uses.
    """

    def __init__(self, rng: Tensor, stand_ins: StandIns) -> None:
        self.rng = rng
        self.stand_ins = stand_ins
        # By identity and in-place changes; the tensor is kept, so that no other gets its identity.
        self.placed: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        # Where each was placed, by the identity of the tensor of the trace; and what was read.
        self.lines: dict[int, str] = {}
        self.read: dict[int, Tensor] = {}
        # `torch.tensor(3)` is a node at once; here are such tensors with their content.
        self.numbers: dict[int, tuple[Tensor, Tensor]] = {}
        self.written: dict[int, str] = {}
        self.left: Mapping[int, tuple[Tensor, str]] = {}
        self.stale: tuple[str, str] | None = None
        # What can be no constant, as a large one: the memory of it.
        self.beyond: set[int] = set()
        # Made while tracing: a change in place of these is the model's own affair.
        self.fresh: dict[int, Tensor] = {}

    def number(self, data: Any, dtype: torch.dtype) -> Tensor:
        """A 0-d tensor of the trace, whose content stays known."""
        made = torch.full((), data, dtype=dtype, device=self.rng.device)
        with untraced():
            self.numbers[id(made)] = made, torch.tensor(data, dtype=dtype)
        return made

    def place(self, tensor: Tensor) -> Tensor:
        """The tensor of the trace with this content. Raises UsageError beyond the limit."""
        known = self.stand_ins.of(tensor)
        if known is not None:
            return known
        refuse_computed(tensor)
        if tensor.requires_grad:
            self.beyond.add(tensor.untyped_storage()._cdata)
            raise UsageError(
                f"The model uses a tensor {tuple(tensor.shape)} that requires a gradient but is "
                f"not a registered parameter{here()}. A program would not train it.",
                "Assign it to an attribute of a module, as a torch.nn.Parameter.",
            )
        key = id(tensor), 0 if tensor.is_inference() else tensor._version
        if key not in self.placed:
            if tensor.numel() > MOST_ELEMENTS:
                self.beyond.add(tensor.untyped_storage()._cdata)
                raise UsageError(
                    f"The model uses a tensor of {tensor.numel()} elements that is not a "
                    f"buffer{here()}. Constants in a program have at most {MOST_ELEMENTS}.",
                    _BUFFER,
                )
            if tensor.device.type != "cpu" or tensor.dtype not in (*_EXACT, *_BITS):
                raise UsageError(
                    f"The model uses a constant tensor of {str(tensor.dtype)[6:]} on "
                    f"{tensor.device.type}{here()}.",
                    "Constants are float32, int64 or bool, on the CPU.",
                )
            with untraced():
                bits = bits_of(tensor)
            with torch._C.DisableTorchFunction(), torch.no_grad():
                made = custom_ops.constant(self.rng, bits, list(tensor.shape), tensor.dtype)
            self.placed[key] = tensor, made
            self.lines[id(made)] = here()
        return self.placed[key][1]

    def changed(self) -> Iterator[tuple[Tensor, Tensor, bool, str]]:
        """The tensors that the model changes in place: with the trace's own tensor, whether their
        content was read too, and where they were placed."""
        for tensor, made in self.placed.values():
            if made._version:
                yield tensor, made, id(tensor) in self.read, self.lines[id(made)]

    def call(self, func: Any, run: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """`run(*args, **kwargs)`, computed at once where that is exact, else on stand-ins."""
        leaves = list(each((*args, *kwargs.values())))
        if self.left and self.stale is None:
            self._notice_stale(func, leaves)
        real = [v for v in leaves if has_content(v)]
        for value in real:
            refuse_computed(value)
        known = [v for v in leaves if self.stand_ins.of(v) is not None]
        if self.numbers and func in _READS | INDEXES:
            leaves, args = self._with_numbers(leaves, args)
            real = [v for v in leaves if has_content(v)]
        if not real and not known:
            return run(*args, **kwargs)
        versions = [(v, v._version) for v in real if not v.is_inference()]
        try:
            return self._called(func, run, args, kwargs, leaves, real, known)
        finally:
            for value, version in versions:
                self._notice_written(value, version)

    def _called(
        self,
        func: Any,
        run: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        leaves: list[Any],
        real: list[Tensor],
        known: list[Any],
    ) -> Any:
        if func in INDEXES:
            args = (args[0], *(self._positions(a) for a in args[1:2]), *args[2:])
        tensors = sum(isinstance(v, Tensor) for v in leaves)
        if len(real) == tensors and not known and not any(t.requires_grad for t in real):
            done, result = self._at_once(func, run, args, kwargs, real)
            if done:
                return result
        elif func not in _READS_CONTENT and (
            func in _READS or (getattr(func, "__name__", "") == "__get__" and func not in _MOVES)
        ):
            return run(*args, **kwargs)

        def change(value: Any) -> Any:
            if has_content(value) or self.stand_ins.of(value) is not None:
                return self.place(value)
            return value

        args = tuple(replaced(a, change) for a in args)
        return run(*args, **{k: replaced(v, change) for k, v in kwargs.items()})

    def _notice_stale(self, func: Any, leaves: list[Any]) -> None:
        if func in _READS or getattr(func, "__name__", "") == "__get__":
            return
        for value in leaves:
            found = self.left.get(id(value)) if isinstance(value, Tensor) else None
            if found is not None:
                self.stale = found[1], here()

    def _notice_written(self, value: Tensor, version: int) -> None:
        """Whether a call has changed `value`, or the constant in its place."""
        placed = self.placed.get((id(value), version))
        memory = value.untyped_storage()._cdata
        changed = value._version != version or (placed is not None and placed[1]._version > 0)
        if changed and memory not in self.fresh:
            self.written.setdefault(memory, here())

    def write(self, value: Tensor) -> None:
        """`value` is changed in place here."""
        if self.stand_ins.of(value) is None:
            self.written.setdefault(value.untyped_storage()._cdata, here())

    def _with_numbers(self, leaves: list[Any], args: Any) -> Any:
        def change(value: Any) -> Any:
            found = self.numbers.get(id(value)) if isinstance(value, Tensor) else None
            # After a change in place the content is no more what it was.
            return value if found is None or value._version else found[1]

        return [change(v) for v in leaves], tuple(replaced(a, change) for a in args)

    def _positions(self, index: Any) -> Any:
        """An index with Python's integers for 0-d ones, and for those that bound its slices: torch
        would read them too. Those of the state stay."""

        def number(value: Any, axes: int = 0) -> Any:
            whole = has_content(value) and value.dtype in _EXACT[1:] and value.dim() <= axes
            if not whole or value.numel() != 1 or self.stand_ins.of(value) is not None:
                return value
            with untraced():
                return int(value)

        if isinstance(index, tuple) and not isinstance(index, torch.Size):
            return tuple(self._positions(part) for part in index)
        if isinstance(index, slice):
            return slice(*(number(v, 8) for v in (index.start, index.stop, index.step)))
        return replaced(index, number)

    def _at_once(
        self, func: Any, run: Callable[..., Any], args: Any, kwargs: Any, real: list[Tensor]
    ) -> tuple[bool, Any]:
        """Reads, moves, and what has integers on both sides: the same on every machine."""
        reads = func in _READS or (
            getattr(func, "__name__", "") in ("__get__", "__set__") and func not in _MOVES
        )
        if reads:
            if func in _READS:
                self.read.update((id(t), t) for t in real)
            with untraced():
                return True, func(*args, **kwargs)
        exact = all(t.dtype in _EXACT for t in real)
        if (func not in _MOVES and not exact) or run is not func:
            return False, None
        args, kwargs = _no_device(args, kwargs)
        with untraced():
            result = func(*args, **kwargs)
        found = [v for v in each((result,)) if isinstance(v, Tensor)]
        before = {t.untyped_storage()._cdata for t in real}
        for made in found:
            memory = made.untyped_storage()._cdata
            if memory not in before:
                self.fresh[memory] = made
        if func in _MOVES:
            return True, result
        return all(t.dtype in _EXACT for t in found), result

    def from_data(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`torch.tensor(data)` and its like: a tensor with content."""
        args, kwargs = _no_device(args, kwargs)
        grad = bool(kwargs.pop("requires_grad", False))
        inside = [v for v in each((*args, *kwargs.values())) if isinstance(v, Tensor)]
        if any(v.is_meta for v in inside):
            raise UsageError(
                f"The model makes a tensor from a list of tensors{here()}, which reads their "
                "values.",
                "Use torch.stack or torch.cat, which keep them as tensors.",
            )
        with untraced():
            made = func(*args, **kwargs)
        shares = func is not torch.tensor and any(isinstance(v, np.ndarray) for v in args)
        if not inside and not shares:
            self.fresh[made.untyped_storage()._cdata] = made
        return self.place(made).requires_grad_() if grad else made
