"""The program: one training step (or inference) as a topologically sorted list of operators.

A program is data. Its meaning is its nodes' meaning under `contract`. Its identity is the digest of
its canonical text (`text.py`). PROGRAM 1 defines the parts named here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tallystick.numerics.registry import InTypes, OpSpec, lookup
from tallystick.numerics.types import Attrs, TensorType

INPUT_KINDS = ("state", "batch", "scalar", "rng")
COMMIT = "tallystick.commit"
RNG_INPUT = "rng"
BATCH_PREFIX = "batch."
SCALAR_PREFIX = "scalar."
RNG_TYPE = TensorType("i64", (2,))


# Between a batch input's name and the number of its micro-batch (PROGRAM 6): no name has it.
MICRO_BATCH = "#"


def split_batch(name: str) -> tuple[str, int]:
    """The field of a batch input, and its micro-batch: of `batch.x#3` ("x", 3), of `batch.x` ("x",
    0)."""
    label, _, number = name[len(BATCH_PREFIX) :].partition(MICRO_BATCH)
    return label, int(number or 0)


class Value(NamedTuple):
    """Output `out` of node `node`; `node == -1` means program input number `out`."""

    node: int
    out: int

    @property
    def is_input(self) -> bool:
        return self.node < 0


def input_value(index: int) -> Value:
    """The value of program input `index`."""
    return Value(-1, index)


@dataclass(frozen=True)
class Input:
    """A program input (PROGRAM 1.2): kind is one of `INPUT_KINDS`."""

    kind: str
    name: str
    type: TensorType


@dataclass(frozen=True)
class Node:
    """One operator application; an absent optional input is None (PROGRAM 1.3)."""

    op: str
    inputs: tuple[Value | None, ...]
    attrs: Attrs
    out_types: tuple[TensorType, ...]


@dataclass(frozen=True)
class Program:
    """Inputs and outputs are in bytewise name order; nodes are in topological order.

    A *text 2* (PROGRAM 6) has a `section`: its first `section` nodes compute one micro-batch, and
    are repeated. `carried` are slots with the section's value that the next micro-batch reads in
    their place. Its nodes are not the steps that a run executes: those are `expand(program, V)`'s.
    """

    contract: str
    inputs: tuple[Input, ...]
    nodes: Sequence[Node]
    outputs: tuple[tuple[str, Value], ...]
    section: int = 0
    carried: tuple[tuple[str, Value], ...] = ()

    @cached_property
    def input_index(self) -> dict[str, int]:
        """Position of each program input by name."""
        return {spec.name: i for i, spec in enumerate(self.inputs)}

    @cached_property
    def output_values(self) -> dict[str, Value]:
        """Value of each program output by name."""
        return dict(self.outputs)

    @cached_property
    def state_types(self) -> dict[str, TensorType]:
        """Type of every state slot by name, in bytewise name order."""
        return {spec.name: spec.type for spec in self.inputs if spec.kind == "state"}

    @cached_property
    def batch_types(self) -> dict[str, TensorType]:
        """Type of every batch tensor by its name without the `batch.` prefix."""
        return {
            spec.name[len(BATCH_PREFIX) :]: spec.type
            for spec in self.inputs
            if spec.kind == "batch"
        }

    @cached_property
    def scalar_names(self) -> tuple[str, ...]:
        """Names of the per-step scalars, without the `scalar.` prefix."""
        return tuple(
            spec.name[len(SCALAR_PREFIX) :] for spec in self.inputs if spec.kind == "scalar"
        )

    @property
    def uses_rng(self) -> bool:
        return RNG_INPUT in self.input_index

    @cached_property
    def next_state(self) -> dict[str, Value]:
        """Value of every next-state slot by slot name; empty for a program without a step."""
        return {name: value for name, value in self.outputs if name in self.state_types}

    @cached_property
    def passed_through(self) -> frozenset[str]:
        """The state slots whose next state is the slot itself."""
        index = self.input_index
        return frozenset(n for n, v in self.next_state.items() if v == input_value(index[n]))

    def type_of(self, value: Value) -> TensorType:
        """The type of `value`; IndexError if there is no such value."""
        if value.is_input:
            return self.inputs[value.out].type
        return self.nodes[value.node].out_types[value.out]

    def text(self) -> str:
        """The canonical text (PROGRAM 2)."""
        from tallystick.program.text import to_text

        return to_text(self)

    def digest(self) -> bytes:
        """32 bytes that name the program (PROGRAM 4.1)."""
        from tallystick.program.text import program_digest

        return program_digest(self)


def _commit_types(_op: str, _attrs: Attrs, _types: InTypes) -> tuple[TensorType, ...]:
    return ()


# The commit node computes nothing (NUMERICS 12.1), so no contract declares it as an operator.
COMMIT_SPEC = OpSpec(COMMIT, _commit_types, "12.1", operands=("slot*",), op_class="move")


def op_spec(name: str, contract: str = "ordered/1") -> OpSpec:
    """The specification of operator `name`, the commit node included.

    Raises UnsupportedOperatorError when the contract does not define it.
    """
    return COMMIT_SPEC if name == COMMIT else lookup(name, contract)
