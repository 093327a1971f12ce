"""What the engine needs of a model: its program for any number of rows, from two captured ones.

Shapes, and the attributes that follow from them, are linear in the number of rows. So two programs
fix all of them, and all have the same nodes at the same numbers. Capture costs seconds for a large
model; this costs none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeGuard

from tallystick.answers.model import Model, weights
from tallystick.answers.programs import engine_program
from tallystick.errors import UsageError
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import Attrs, AttrValue, TensorType
from tallystick.program.check import check_program
from tallystick.program.ir import Input, Node, Program

# Pairs of numbers of rows. No size of a model should be one of them by chance: nodes that look
# equal are one node.
_PAIRS = ((89, 97), (101, 103), (1019, 1021))


class RowPrograms:
    """`capture(rows)` makes the program for a number of rows. Raises UsageError where two of them
    differ in more than sizes that are linear in the rows."""

    def __init__(self, capture: Callable[[int], Program]) -> None:
        for self._few, self._many in _PAIRS:
            self._one, self._other = capture(self._few), capture(self._many)
            if _nodes(self._one) == _nodes(self._other):
                return
        raise UsageError(
            "The nodes of this model's program depend on the number of rows.", "Use another model."
        )

    def program(self, rows: int) -> Program:
        """The program for this many rows, checked."""
        one, other = self._one, self._other

        def number(a: int, b: int) -> int:
            steps, rest = divmod((b - a) * (rows - self._few), self._many - self._few)
            if rest:
                raise UsageError(
                    "A size of this model's program is not linear in the rows.",
                    "Use another model.",
                )
            return a + steps

        def shape(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
            return tuple(number(x, y) for x, y in zip(a, b, strict=True))

        def type_(a: TensorType, b: TensorType) -> TensorType:
            return TensorType(a.dtype, shape(a.shape, b.shape))

        def value(a: AttrValue, b: AttrValue) -> AttrValue:
            if a == b:
                return a
            if type(a) is int and type(b) is int:
                return number(a, b)
            if _are_sizes(a) and _are_sizes(b) and len(a) == len(b):
                return shape(a, b)
            raise UsageError(
                f"An attribute of this model's program is {a} for {self._few} rows and {b} for "
                f"{self._many}, and is not a size.",
                "Use another model.",
            )

        def attrs(a: Attrs, b: Attrs) -> Attrs:
            return {name: value(given, b[name]) for name, given in a.items()}

        inputs = tuple(
            Input(x.kind, x.name, type_(x.type, y.type))
            for x, y in zip(one.inputs, other.inputs, strict=True)
        )
        nodes = tuple(
            Node(
                x.op,
                x.inputs,
                attrs(x.attrs, y.attrs),
                tuple(type_(a, b) for a, b in zip(x.out_types, y.out_types, strict=True)),
            )
            for x, y in zip(one.nodes, other.nodes, strict=True)
        )
        program = Program(one.contract, inputs, nodes, one.outputs)
        check_program(program)
        return program


def _are_sizes(value: AttrValue) -> TypeGuard[tuple[int, ...]]:
    return isinstance(value, tuple) and all(type(item) is int for item in value)


def _nodes(program: Program) -> list[object]:
    """What the programs of two numbers of rows have in common."""
    kinds = [
        (node.op, node.inputs, [(name, type(value)) for name, value in node.attrs.items()])
        for node in program.nodes
    ]
    return [kinds, program.outputs, [(spec.kind, spec.name) for spec in program.inputs]]


class Network(Protocol):
    """A model under a contract.

    `program(rows)` has the batch inputs `token` and `place`, i64[rows, 1], the weights as state,
    and one output: `logits`, f32[rows, vocabulary]. Its attention nodes have queries of the shape
    [rows, heads, 1, elements]. Apart from these, no row's values depend on another row, and the
    programs of two numbers of rows differ in that number alone. `length` is the most places of a
    text.
    """

    contract: str
    vocabulary: int
    length: int

    def program(self, rows: int) -> Program: ...

    def weights(self) -> Mapping[str, Any]: ...


class ModelNetwork:
    """An opened model under a contract. Its weights are `held`, where the caller has them."""

    def __init__(self, model: Model, contract: str, held: Mapping[str, Any] | None = None) -> None:
        self.contract = find_contract(contract).text
        self.vocabulary, self.length = model.vocabulary, model.longest
        self._model, self._held = model, held
        self._sizes = RowPrograms(lambda rows: engine_program(model, rows, self.contract))

    def program(self, rows: int) -> Program:
        return self._sizes.program(rows)

    def weights(self) -> Mapping[str, Any]:
        return weights(self._model) if self._held is None else self._held
