"""What the optimizers' rules are written with: operators of the contract, slots, scalars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Value
from tallystick.program.tables import Scalar

LEARNING_RATE = "lr"


@dataclass(frozen=True)
class SlotRule:
    """A state slot that the optimizer adds: its type, and the first value of all its elements, or
    the slot whose first value it copies."""

    type: TensorType
    initial: float
    copies: str | None = None


@dataclass(frozen=True)
class Given:
    """What an update reads: the state's slots, the scalars by their names without a group, the
    factor by which gradients are clipped, and this step's powers of Adam's betas."""

    b: Builder
    state: Mapping[str, Value]
    scalars: Mapping[str, Value]
    coefficient: Value | None
    powers: Sequence[Value]

    def slot(self, kind: str, name: str) -> Value:
        """The slot `opt.KIND.NAME`."""
        return self.state[f"opt.{kind}.{name}"]

    def parameter(self, name: str) -> Value:
        return self.state[f"param.{name}"]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.b.type_of(self.parameter(name)).shape

    # -- operators -------------------------------------------------------------------------------
    def clipped(self, gradient: Value) -> Value:
        """The gradient times the coefficient, if there is one."""
        return gradient if self.coefficient is None else self.mul(gradient, self.coefficient)

    def add(self, a: Value, b: Value, alpha: float = 1.0) -> Value:
        """a + alpha·b; one rounding, that of a fused multiplication, where alpha is not 1."""
        return self.b.one("aten.add.Tensor", [a, b], alpha=float(alpha))

    def sub(self, a: Value, b: Value) -> Value:
        return self.b.one("aten.sub.Tensor", [a, b], alpha=1.0)

    def mul(self, a: Value, b: Value) -> Value:
        return self.b.one("aten.mul.Tensor", [a, b])

    def div(self, a: Value, b: Value) -> Value:
        return self.b.one("aten.div.Tensor", [a, b])

    def times(self, a: Value, number: float) -> Value:
        return self.b.one("aten.mul.Scalar", [a], other=float(number))

    def over(self, a: Value, number: float) -> Value:
        return self.b.one("aten.div.Scalar", [a], other=float(number))

    def plus(self, a: Value, number: float) -> Value:
        return self.b.one("aten.add.Scalar", [a], other=float(number), alpha=1.0)

    def at_least(self, a: Value, low: float) -> Value:
        return self.b.one("aten.clamp", [a], min=float(low))

    def root(self, a: Value) -> Value:
        return self.b.one("aten.sqrt", [a])

    def inverse_root(self, a: Value) -> Value:
        return self.b.one("aten.rsqrt", [a])

    def mean(self, a: Value, dim: int) -> Value:
        """The mean along one axis, which stays with size 1."""
        return self.b.one("aten.mean.dim", [a], dim=(dim,), keepdim=True)

    def norm(self, a: Value) -> Value:
        """The Euclidean norm of all elements."""
        return self.root(self.b.one("tallystick.sum_squares", [a]))

    def rms(self, a: Value) -> Value:
        """The root of the mean of all elements' squares."""
        count = self.b.type_of(a).numel
        return self.root(self.over(self.b.one("tallystick.sum_squares", [a]), count))

    def constant(self, value: float, dtype: str = "f32", shape: tuple[int, ...] = ()) -> Value:
        return self.b.one("aten.full", [], size=shape, value=float(value), dtype=dtype)

    def stepped(
        self,
        x: Value,
        direction: Value,
        scalar: Value,
        coefficient: Value | None = None,
        buffer: Value | None = None,
        momentum: float = 0.0,
    ) -> list[Value]:
        """NUMERICS 11.4 without decay: x − RN32(scalar)·(direction·coefficient), and with a
        momentum the new buffer."""
        return self.b.emit(
            "tallystick.sgd_step",
            [x, direction, buffer, scalar, coefficient],
            momentum=float(momentum),
            dampening=0.0,
            weight_decay=0.0,
            nesterov=False,
        )

    def towards(self, average: Value, value: Value, scalar: Value) -> Value:
        """An average that moves by a scalar's part towards `value`: a − RN32(s)·(a − v)."""
        return self.stepped(average, self.sub(average, value), scalar)[0]

    def single(self, scalar: Value) -> Value:
        """RN32 of a scalar, as f32[]: 0 − RN32(s)·(−1)."""
        return self.stepped(self.constant(0.0), self.constant(-1.0), scalar)[0]


@dataclass(frozen=True)
class Family:
    """An optimizer's rule: its slots, its scalars and its nodes, for one parameter each.

    `slots(optimizer, name, type)` gives the slots under their full names, `scalars(optimizer)` the
    scalars without a group, `emit(optimizer, name, gradient, given)` the new values of slots. With
    `powers` it has the slots of Adam's beta powers.
    """

    slots: Callable[[Any, str, TensorType], dict[str, SlotRule]]
    emit: Callable[[Any, str, Value, Given], dict[str, Value]]
    scalars: Callable[[Any], dict[str, Scalar]] = lambda o: {LEARNING_RATE: rate_of(o.lr)}
    powers: Callable[[Any], bool] = lambda _: False


def rate_of(lr: float | str) -> float | str:
    """A rate as a job's scalar: a number, or a table's name."""
    return lr if isinstance(lr, str) else float(lr)


def moments(type_: TensorType, name: str, *kinds: str, initial: float = 0.0) -> dict[str, SlotRule]:
    """Slots `opt.KIND.NAME` of the parameter's own type."""
    return {f"opt.{kind}.{name}": SlotRule(type_, initial) for kind in kinds}
