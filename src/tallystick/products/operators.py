"""What is multiplied with what: the operators of the dot class taken apart (NUMERICS 2.4 to 2.7).

Every contract multiplies and decides in its own way, on every device; the operands and where the
results go are the same. T is the tensor of a device.

A `Window` reads a 4-D tensor [n,C,H,W] through taps. Tap (c,i,j) of place (y,x) is the element of
channel c at row y·step + i·tap − edge, and at the column that is computed likewise. Outside of the
tensor, and between elements where the tensor is spread, a tap is +0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar, cast

from tallystick.devices.device import operand, optional
from tallystick.numerics.operators.common import number, output_mask
from tallystick.numerics.operators.dot import geometry
from tallystick.numerics.types import Attrs

MATRIX_OPERATORS = ("aten.mm", "aten.bmm", "aten.addmm")
CONVOLUTION_OPERATORS = ("aten.convolution", "aten.convolution_backward")


class _Tensor(Protocol):
    @property
    def shape(self) -> tuple[int, ...]: ...


T = TypeVar("T", bound=_Tensor)


# --- matrix products ------------------------------------------------------------------------------
@dataclass(frozen=True)
class Matrices(Generic[T]):
    """out = alpha·(a·b) + beta·c of matrices, or a·b of batches of them. c is broadcast to `out`;
    None where nothing follows the products."""

    a: T
    b: T
    out: T
    c: T | None = None
    alpha: float = 1.0
    beta: float = 1.0

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """(G, M, N, K): G products of [M,K] and [K,N]."""
        *batch, m, k = self.a.shape
        return batch[0] if batch else 1, m, self.b.shape[-1], k

    @property
    def adds_term(self) -> bool:
        """True if c is a sum's last term where sums are rounded once (13.3)."""
        return self.c is not None and self.alpha == 1 and self.beta == 1


def matrices(
    op: str, attrs: Attrs, inputs: Sequence[T | None], outputs: Sequence[T]
) -> Matrices[T]:
    """The product of mm, bmm or addmm."""
    if op != "aten.addmm":
        return Matrices(operand(inputs, 0), operand(inputs, 1), outputs[0])
    c, a, b = (operand(inputs, i) for i in range(3))
    return Matrices(a, b, outputs[0], c, number(attrs, "alpha"), number(attrs, "beta"))


# --- convolutions ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Side:
    """One spatial axis: `size` elements, `spread` apart; `places` that read them, `step` apart;
    `taps` of each place, `tap` apart (negative: backwards). The first place's first tap is at
    −`edge`."""

    size: int
    spread: int
    places: int
    step: int
    taps: int
    tap: int
    edge: int

    @property
    def low(self) -> int:
        """The least coordinate that a tap reads."""
        return -self.edge + min(0, (self.taps - 1) * self.tap)

    @property
    def reach(self) -> int:
        """The number of coordinates, from `low`, that taps read."""
        return (self.places - 1) * self.step + (self.taps - 1) * abs(self.tap) + 1

    def cut(self, first: int, places: int) -> Side:
        """The same axis with `places` places from `first`."""
        return replace(self, places=places, edge=self.edge - first * self.step)


@dataclass(frozen=True)
class Window(Generic[T]):
    """x [n,C,H,W] seen through taps, by `groups` groups of channels."""

    x: T
    groups: int
    rows: Side
    columns: Side

    @property
    def channels(self) -> int:
        """Channels of a group."""
        return self.x.shape[1] // self.groups

    @property
    def kernel(self) -> int:
        """Taps of one channel."""
        return self.rows.taps * self.columns.taps

    @property
    def taps(self) -> int:
        """Taps of a place, in one group."""
        return self.channels * self.kernel

    @property
    def plane(self) -> int:
        """Places of one image."""
        return self.rows.places * self.columns.places

    @property
    def places(self) -> int:
        """Places of all images."""
        return self.x.shape[0] * self.plane

    @property
    def is_plain(self) -> bool:
        """True if there is one tap, and the places are the elements."""
        return all(side == _plain(side.size) for side in (self.rows, self.columns))


def _plain(size: int) -> Side:
    return Side(size, spread=1, places=size, step=1, taps=1, tap=1, edge=0)


def plain(x: T) -> Window[T]:
    """One tap: the elements themselves."""
    return Window(x, 1, _plain(x.shape[2]), _plain(x.shape[3]))


@dataclass(frozen=True)
class Convolution(Generic[T]):
    """y is x convolved with `weight`, plus `bias`. One of them, `makes`, is computed, as itself for
    y and as a gradient for the others; then y is a gradient too.

    form: stride, padding, dilation and groups.
    """

    makes: str
    x: T
    weight: T
    bias: T | None
    y: T
    form: tuple[tuple[int, int], tuple[int, int], tuple[int, int], int]

    @property
    def out(self) -> T:
        """What is computed."""
        return cast(T, getattr(self, self.makes))

    def into(self, makes: str, out: T) -> Convolution[T]:
        """The same tensors, but `out` is computed in place of the one named `makes`."""
        changes: dict[str, Any] = {"makes": makes, makes: out}
        return replace(self, **changes)

    @property
    def rows(self) -> int:
        """Rows of a group's product: channels of y, or of x where that is computed."""
        return (self.x if self.makes == "x" else self.y).shape[1] // self.form[3]

    @property
    def window(self) -> Window[T]:
        """The window through which the product reads: x to compute y or `weight` (2.6), at row
        y·stride + i·dil − pad; y to compute x (2.7), at row (h + pad − i·dil)/stride."""
        stride, padding, dilation, groups = self.form
        x, y, taps = (t.shape[2:] for t in (self.x, self.y, self.weight))
        if self.makes == "x":
            sides = [
                Side(y[a], stride[a], x[a], 1, taps[a], -dilation[a], -padding[a]) for a in range(2)
            ]
            return Window(self.y, groups, *sides)
        sides = [Side(x[a], 1, y[a], stride[a], taps[a], dilation[a], padding[a]) for a in range(2)]
        return Window(self.x, groups, *sides)


def convolutions(
    op: str, attrs: Attrs, inputs: Sequence[T | None], outputs: Sequence[T]
) -> Iterator[Convolution[T]]:
    """What a convolution, or its gradient, computes for each output."""
    form = geometry(op, attrs)
    if op == "aten.convolution":
        x, weight, bias = operand(inputs, 0), operand(inputs, 1), optional(inputs, 2)
        yield Convolution("y", x, weight, bias, outputs[0], form)
        return
    grad, x, weight = (operand(inputs, i) for i in range(3))
    wanted = zip(("x", "weight", "bias"), output_mask(op, attrs), strict=True)
    whole = Convolution("y", x, weight, None, grad, form)
    for name, out in zip((name for name, on in wanted if on), outputs, strict=True):
        yield whole.into(name, out)
