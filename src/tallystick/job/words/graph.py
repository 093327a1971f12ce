"""A program's nodes by the values that they make, and what is read from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tallystick.job.words.layers import PARAMETER as PARAMETER
from tallystick.numerics.types import AttrValue
from tallystick.program.ir import Node, Program, Value

OPTIMIZER = "opt."
CLIP, SQUARES = "tallystick.clip_coef", "tallystick.sum_squares"
POWER = "tallystick.beta_power"
Options = tuple[tuple[str, float | bool], ...]


class StepGraph:
    """A program's nodes by the values that they make."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._norms: dict[Value, set[Value | None]] = {}

    def node(self, value: Value | None) -> Node | None:
        """The node that makes a value; None for an input."""
        if value is None or value.is_input:
            return None
        return self.program.nodes[value.node]

    def input(self, value: Value | None) -> str:
        """The name of the input that a value is, "" for another value."""
        return self.program.inputs[value.out].name if value is not None and value.is_input else ""

    def next(self, slot: str) -> Value:
        return self.program.next_state[slot]

    def kinds(self, name: str) -> tuple[str, ...]:
        """The slots `opt.KIND.NAME` of a parameter, by their kinds."""
        return tuple(self._kinds.get(name, ()))

    @cached_property
    def _kinds(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for slot in self.program.state_types:
            if slot.startswith(OPTIMIZER):
                kind, _, name = slot[len(OPTIMIZER) :].partition(".")
                found.setdefault(name, []).append(kind)
        return found

    def _normed(self, coefficient: Value) -> set[Value | None]:
        """The gradients whose norm a coefficient bounds."""
        if coefficient not in self._norms:
            node = self.node(coefficient)
            is_clip = node is not None and node.op == CLIP and not coefficient.out
            squares = [self.node(v) for v in node.inputs] if node is not None and is_clip else []
            self._norms[coefficient] = {
                s.inputs[0] for s in squares if s is not None and s.op == SQUARES
            }
        return self._norms[coefficient]

    def clips(self, coefficient: Value | None, gradient: Value | None) -> bool:
        """Whether a coefficient is absent, or bounds a norm to which the gradient belongs
        (NUMERICS 11.6)."""
        return coefficient is None or gradient in self._normed(coefficient)

    def is_power(self, value: Value | None, beta: AttrValue) -> bool:
        """Whether a value is a power of `beta`, kept in a slot from step to step (PROGRAM 8)."""
        node = self.node(value)
        if node is None or node.op != POWER or node.attrs["beta"] != beta:
            return False
        slot = self.input(node.inputs[0])
        return slot.startswith(OPTIMIZER) and self.next(slot) == value


@dataclass(frozen=True)
class ParameterRule:
    """What an update is, for one parameter: parameters of one rule are said together."""

    kind: str | None
    options: Options
    scalars: tuple[str, ...]
    gradient: Value | None = None
    coefficient: Value | None = None
    operator: str | None = None
    slots: tuple[str, ...] = ()
