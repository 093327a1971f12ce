"""Operators by stock torch kernels in binary64, for the published form (NUMERICS 14.9).

A *form* computes one operator from its operands, binary32 ones widened to binary64, and returns
every f32 output as a binary64 tensor, before any rounding. The families attach theirs by
`stock_form`: products, reductions and scatters; normalisation and losses; pointwise; optimizers.
An operator whose result is one of its operands' elements, or exact in binary32, has no rounding for
a kernel to do otherwise: its declaration says so, and the ordinary kernel computes it.
Torch computes only where its own threads keep subnormals and round to nearest (1.7).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import torch

from tallystick import _core
from tallystick.contracts.ordered.cpu import run_of
from tallystick.contracts.ordered.torch import exact
from tallystick.contracts.replay.stock.order import DrawnOrder
from tallystick.devices.environment import exact_environment
from tallystick.devices.torch import Tensor, Tensors
from tallystick.errors import UnsupportedOperatorError
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.operators.common import rn32
from tallystick.numerics.registry import OpSpec, lookup
from tallystick.numerics.types import Attrs
from tallystick.products.probe import probe_products, refuse_threads

# The elements of a thread's share: torch gives a pass one thread for each 32,768.
_SHARE = 1 << 15
# x, y and x + y, as bits of binary32: as in products/probe.py, a value for each environment.
_KINDS = (
    (0x3F800000, 0x33000000, 0x3F800000),  # 1 + 2^-25: rounded upward?
    (0x3F800000, 0x33C00000, 0x3F800001),  # 1 + 1.5·2^-24: downward, toward zero?
    (0xBF800000, 0xB3000000, 0xBF800000),  # -1 - 2^-25: downward?
    (0x00012345, 0x00012345, 0x0002468A),  # subnormals
)
_ROUNDINGS = 3  # the first kinds


@lru_cache(maxsize=8)
def _operands(threads: int) -> tuple[Tensor, Tensor, np.ndarray]:
    """x and y, f32, and the bits that x + y must have, u32."""
    count = _SHARE * threads // len(_KINDS)
    x, y, total = (np.tile(np.array(c, np.uint32), count) for c in zip(*_KINDS, strict=True))
    first, second = (torch.from_numpy(v.view(np.float32)) for v in (x, y))
    return first, second, total


def _multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
    torch.mm(torch.from_numpy(a), torch.from_numpy(b), out=torch.from_numpy(out))


def check_torch_threads() -> None:
    """Raise EnvironmentRefusedError unless torch computes, in its own passes and in its products,
    on threads with the environment of NUMERICS 1.7. Call it inside of `exact_environment`."""
    threads = torch.get_num_threads()
    if threads == 1:
        return  # the one thread is the calling thread
    x, y, bits = _operands(threads)
    with torch.no_grad():
        total = torch.add(x, y)
        wrong = np.flatnonzero(total.numpy().view(np.uint32) != bits)
        if len(wrong):
            refuse_threads("torch", bool((wrong % len(_KINDS) < _ROUNDINGS).any()))
        probe_products("torch", _multiply, threads)


Array = np.ndarray
# Over a Stock, the attributes and the operands, one parameter each.
Form = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class StockForm:
    """The form of one operator. `per_element`: it treats every element of a tensor alike, so that
    a large one can be cut. `narrow`: it widens its operands itself, a stretch at a time, or in its
    own pass."""

    compute: Form
    per_element: bool = False
    narrow: bool = False


def _stock_form(_name: str, compute: Form, **marks: bool) -> StockForm:
    return StockForm(compute, **marks)


stock_form: Attachments[StockForm] = Attachments(
    "stock form", "tallystick.contracts.replay.stock.*", _stock_form
)
# Elements that a narrow form widens at a time: they stay in a processor's cache.
STRETCH = 1 << 18


@dataclass
class Stock:
    """One kind of hardware to compute on: a torch device, and an order of additions.

    `order` None leaves sums to torch; an Order adds in another one, which is as legal (14.3).
    `opaque` treats the CPU's memory as another device's: no form reads an operand on the host, or
    calls the core, so that a machine without a GPU executes what a GPU would.
    """

    device: str = "cpu"
    order: DrawnOrder | None = None
    opaque: bool = False
    _rooms: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)
    _results: dict[int, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """This kind, for people."""
        order = self.order
        said = "" if order is None else f", permuted by seed {order.seed}, split in {order.parts}"
        precision = str(self.dtype).removeprefix("torch.")
        return f"torch {torch.__version__} {precision} on {self.device}{said}"

    @property
    def dtype(self) -> torch.dtype:
        """What operands become."""
        return torch.float64

    @property
    def is_plain(self) -> bool:
        """Whether the core's own binary64 passes are this kind's as well as torch's."""
        return self.on_host and self.order is None and self.dtype == torch.float64

    @property
    def on_host(self) -> bool:
        """Whether a form may read its operands on the host, and let the core compute on them."""
        return self.device == "cpu" and not self.opaque

    # -- what sums are made of ---------------------------------------------------------------------

    def permutation(self, n: int) -> Tensor | None:
        """The order in which an index of n values is gone through; None for the natural one."""
        return None if self.order is None else self.order.permutation(n).to(self.device)

    def in_order(self, dim: int, *xs: Tensor) -> tuple[list[Tensor], Tensor | None]:
        """Tensors of one length along axis `dim`, with that axis in this kind's order; and the
        order, None for the natural one."""
        order = self.permutation(xs[0].shape[dim]) if xs[0].dim() else None
        if order is None:
            return list(xs), None
        return [x.index_select(dim, order) for x in xs], order

    def sum(self, x: Tensor, dims: Sequence[int], keepdim: bool = False) -> Tensor:
        """Sum over `dims` (none of them: x), in this kind's order."""
        dims = tuple(dims)
        if self.order is None or not dims:
            return x.sum(dims, keepdim=keepdim) if dims else x
        kept = [d for d in range(x.dim()) if d not in dims]
        rows = x.permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
        total = self.order.sum(rows)
        shape = [1 if d in dims else x.shape[d] for d in range(x.dim())]
        return total.reshape(shape) if keepdim else total

    def mm(self, a: Tensor, b: Tensor) -> Tensor:
        """a @ b, both with two axes or both with three."""
        if self.order is not None:
            return self.order.matmul(a, b)
        shape = (*a.shape[:-1], b.shape[-1])
        return torch.matmul(a, b, out=self.result(shape))

    def prepare(self) -> None:
        """Threads as the core has, one algorithm for each shape: called once a step.

        Raises EnvironmentRefusedError where torch's threads flush subnormals or round otherwise
        than to nearest (NUMERICS 1.7).
        """
        if self.device != "cpu":
            torch.backends.cudnn.benchmark = False
            torch.backends.cudnn.deterministic = True
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cuda.matmul.allow_tf32 = False
        threads = int(_core.threads())
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
        if self.device == "cpu":
            with exact_environment():
                check_torch_threads()

    # -- calls -------------------------------------------------------------------------------------

    def operand(self, x: Array | None) -> Tensor | None:
        """An operand on this device as it is: on the CPU, `x` itself where it may be written to."""
        if x is None:
            return None
        return torch.from_numpy(x if x.flags.writeable else x.copy()).to(self.device)

    def widened(self, tensor: Tensor | None, position: int = 0) -> Tensor | None:
        """Operand number `position`; binary32 becomes binary64, its axes in memory ordered as they
        were. Valid until the next call with this position."""
        if tensor is None or tensor.dtype != torch.float32 or self.dtype == torch.float32:
            return tensor
        if not self.on_host:
            return tensor.to(self.dtype)
        # Fresh memory for each large operand would cost more, in page faults, than converting it.
        strides = torch.empty_like(tensor, device="meta").stride()
        room = _room(self._rooms, position, tensor.numel(), self.dtype)
        return room.as_strided(tensor.shape, strides).copy_(tensor)

    def result(self, shape: Sequence[int], number: int = 0) -> Tensor:
        """Uninitialised room for result `number` of a call; valid until the next call."""
        if not self.on_host:
            return torch.empty(*shape, dtype=self.dtype, device=self.device)
        room = _room(self._results, number, math.prod(shape), self.dtype)
        return room[: math.prod(shape)].view(*shape)

    @staticmethod
    def is_per_element(spec: OpSpec) -> bool:
        """Whether element i of every output depends on elements i, and scalars, alone."""
        form = stock_form.get(spec.name)
        return form is not None and form.per_element

    def compute(
        self, spec: OpSpec, attrs: Attrs, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> list[Array | None]:
        """x of 14.9 for every output: f64, C-contiguous, of the output's shape; None for an output
        that is not f32, which is then written to `outputs` as always. Valid until the next call.
        Operands and results are numpy's; `compute_there` is for tensors that lie on the device.

        Nothing else is written: an output may be the storage of an operand until its value is
        known. Raises UnsupportedOperatorError for an operator without a form.
        """
        if is_exact(spec, inputs):
            return _exact(spec, attrs, inputs, outputs)
        form = form_of(spec.name)
        with torch.no_grad():
            found = self._formed(form, attrs, [self.operand(x) for x in inputs])
        if len(found) != len(outputs):
            raise AssertionError(f"{spec.name}: {len(found)} results for {len(outputs)} outputs")
        return [
            _plain(x, out.shape) if out.dtype == np.float32 else None
            for x, out in zip(found, outputs, strict=True)
        ]

    def compute_there(
        self, spec: OpSpec, attrs: Attrs, inputs: Tensors, outputs: Sequence[Tensor]
    ) -> list[Tensor | None]:
        """`compute` for tensors of this device, none of which is copied to the host or from it.

        Raises as `compute`, and RefusedOperandsError for operands that an operator refuses.
        """
        with torch.no_grad():
            if is_exact_there(spec, outputs):
                return _exact_there(spec, attrs, inputs, outputs)
            if any(x is not None and not x.numel() for x in inputs):
                return _ordinary(spec, attrs, inputs, outputs)
            found = self._formed(form_of(spec.name), attrs, inputs)
        if [tuple(x.shape) for x in found] != [tuple(out.shape) for out in outputs]:
            raise AssertionError(f"{spec.name}: a stock kernel gave other shapes than the outputs'")
        return [x.to(torch.float64).contiguous() for x in found]

    def _formed(self, form: StockForm, attrs: Attrs, xs: Tensors) -> Sequence[Tensor]:
        if not form.narrow:
            xs = [self.widened(x, i) for i, x in enumerate(xs)]
        return form.compute(self, attrs, *xs)


def _room(rooms: dict[int, Tensor], number: int, count: int, dtype: torch.dtype) -> Tensor:
    """A flat tensor of at least `count` elements, kept in `rooms`."""
    room = rooms.get(number)
    if room is None or room.numel() < count:
        rooms.pop(number, None)
        room = rooms[number] = torch.empty(count, dtype=dtype)
    return room


def _plain(x: Tensor, shape: tuple[int, ...]) -> Array:
    array: Array = x.to(torch.float64).cpu().contiguous().numpy()
    if array.shape != shape:
        raise AssertionError(f"a stock kernel gave {array.shape} for {shape}")
    return array


def is_exact(spec: OpSpec, inputs: Sequence[Array | None]) -> bool:
    """Whether the ordinary kernel computes this call without rounding.

    With an empty operand there is nothing to add up, and several stock kernels refuse it.
    """
    if any(x is not None and x.size == 0 for x in inputs):
        return True
    if spec.name == "aten._to_copy":  # bool to f32; an i64 may need rounding
        return inputs[0] is not None and inputs[0].dtype != np.int64
    return spec.is_exact


def _exact(
    spec: OpSpec, attrs: Attrs, inputs: Sequence[Array | None], outputs: Sequence[Array]
) -> list[Array | None]:
    made = [np.empty(o.shape, o.dtype) if o.dtype == np.float32 else o for o in outputs]
    run_of(spec.name)(attrs, inputs, made)
    return [m.astype(np.float64) if m.dtype == np.float32 else None for m in made]


def is_exact_there(spec: OpSpec, outputs: Sequence[Tensor]) -> bool:
    """Whether an exact kernel computes this call on a device: that of an operator without a stock
    form, or of integer operands of one that has it."""
    made = any(out.dtype == torch.float32 for out in outputs)
    return spec.name in exact and not (made and spec.name in stock_form)


def _exact_there(
    spec: OpSpec, attrs: Attrs, inputs: Tensors, outputs: Sequence[Tensor]
) -> list[Tensor | None]:
    made = [torch.empty_like(o) if o.dtype == torch.float32 else o for o in outputs]
    exact[spec.name].run(attrs, inputs, made)
    return [m.to(torch.float64) if m.dtype == torch.float32 else None for m in made]


def _ordinary(
    spec: OpSpec, attrs: Attrs, inputs: Tensors, outputs: Sequence[Tensor]
) -> list[Tensor | None]:
    """The ordinary kernel on the host, for a call with an empty operand: there is next to nothing
    to copy, and several of torch's kernels refuse it."""
    operands = [None if x is None else np.array(x.cpu().numpy(), order="C") for x in inputs]
    made = [np.empty(tuple(out.shape), np.float32) for out in outputs]
    run_of(spec.name)(attrs, operands, made)
    return [torch.from_numpy(m).to(outputs[0].device, torch.float64) for m in made]


def form_of(name: str) -> StockForm:
    """The stock form of operator `name`. Raises UnsupportedOperatorError if it has none."""
    found = stock_form.get(name)
    if found is None:
        raise UnsupportedOperatorError(
            f"Operator {name!r} has no stock form, which replay/1;form=published needs.",
            "Choose form=bounded, rounded/1 or ordered/1, or a model without it.",
        )
    return found


def has_form(name: str) -> bool:
    """Whether operator `name` can run under the published form."""
    return name in stock_form or lookup(name).is_exact


def placed(x: Tensor, dim: int, order: Tensor | None) -> Tensor:
    """x, whose axis `dim` is in `order`, in the natural order again."""
    return x if order is None else torch.empty_like(x).index_copy_(dim, order, x)


# -- what forms read -------------------------------------------------------------------------------


def rounded_number(attrs: Attrs, name: str) -> float:
    """A float attribute, RN32 before use (NUMERICS 1.9, 14.9.1)."""
    value = attrs[name]
    assert isinstance(value, float)
    return float(rn32(value))
