"""A step with micro-batches shown node by node, in the memory of one micro-batch (PROGRAM 6).

A tap sees every node of the expanded program. A fold over V micro-batches reads V values, which
are never in memory together. So its operands are not shown: the tap gets None in their places. It
saw each of them before, as the output of a node of its micro-batch. The fold's result is summed
while the micro-batches are executed. A fold of more than 256 values has lower folds (PROGRAM 6.7
c): those are summed so, and the fold over their results is executed and shown as any node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.devices.kernel import Run
from tallystick.numerics.operators.fold import FOLD
from tallystick.numerics.types import Attrs
from tallystick.program.executor import Executor, KernelHook, Tap
from tallystick.program.expand import Expanded
from tallystick.program.ir import Input, Node, Program, Value
from tallystick.program.layout import new_tensor
from tallystick.program.partial_sums import PartialSums
from tallystick.program.pieces import given, piece, value_name


@dataclass(frozen=True)
class FirstFold:
    """A fold of the expanded program, node `number`, over `value` of the micro-batches first to
    last - 1. `value` is the text's."""

    number: int
    node: Node
    value: Value
    first: int
    last: int

    @property
    def attrs(self) -> Attrs:
        """The attributes with which the sum of the operands gives the result."""
        attrs = self.node.attrs
        return {"count": self.last - self.first, **attrs} if attrs["mean"] else attrs


def first_fold(program: Program, number: int) -> FirstFold | None:
    """Node `number` of an expanded program, if it is a fold of what micro-batches make."""
    if not isinstance(program, Expanded):
        return None
    node, section = program.nodes[number], program.source.section
    value = node.inputs[0] if node.op == FOLD else None
    if value is None or value.node >= program.micro_batches * section:
        return None
    first, at = divmod(value.node, section)
    return FirstFold(number, node, Value(at, value.out), first, first + len(node.inputs))


class ShownTail:
    """The tail of `program`, whose first folds are given. One step is shown by it."""

    def __init__(
        self, program: Expanded, context: ExecutionContext, kernels: KernelHook | None, run: Run
    ) -> None:
        self._program, self._run = program, run
        begin = program.micro_batches * program.source.section
        found = {n: first_fold(program, n) for n in range(begin, len(program.nodes))}
        self._folds = {n: fold for n, fold in found.items() if fold is not None}
        kept = [n for n, fold in found.items() if fold is None]
        inside = {number: at for at, number in enumerate(kept)}

        def place(value: Value) -> Value | Input:
            if value.is_input:
                return program.inputs[value.out]
            if value.node in inside:
                return Value(inside[value.node], value.out)
            return given(value_name(value), program.type_of(value))

        state = (spec for spec in program.inputs if spec.kind == "state")
        nodes = [program.nodes[n] for n in kept]
        made = piece(program.contract, nodes, program.outputs, place, always=state)
        self._tail = Executor(made, context, kernels, kept)
        self._results: dict[int, Tensor] = {}
        for number in self._folds:
            there = self._tail.staged.get(value_name(Value(number, 0)))
            if there is None:  # a fold that nothing reads
                there = new_tensor(context.device, program.type_of(Value(number, 0)))
            self._results[number] = there

    @property
    def executor(self) -> Executor:
        """It executes the nodes that are no first folds. Its `staged` are the values they read."""
        return self._tail

    def _reading(self, part: int) -> list[FirstFold]:
        """The first folds that read micro-batch `part`."""
        return [fold for fold in self._folds.values() if fold.first <= part < fold.last]

    def summed(self, part: int) -> list[Value]:
        """The values of micro-batch `part` that first folds read."""
        return list(dict.fromkeys(fold.value for fold in self._reading(part)))

    def add(self, part: int, value: Value, sums: PartialSums, result: Tensor) -> None:
        """Take in what micro-batch `part` made of `value`; the parts come in order."""
        folds = [fold for fold in self._reading(part) if fold.value == value]
        sums.add(part - folds[-1].first, result)
        ends = [fold for fold in folds if part == fold.last - 1]
        if ends:
            total = sums.total()
            for fold in ends:
                self._run(fold.attrs, [total], [self._results[fold.number]])

    def tap(self, tap: Tap) -> Tap:
        """A tap for the executor, which shows `tap` the folds too, each at its number."""
        waiting: Iterator[FirstFold] = iter(self._folds.values())
        ahead = [next(waiting, None)]

        def both(
            number: int, _: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            while (fold := ahead[0]) is not None and fold.number < number:
                tap(
                    fold.number,
                    fold.node,
                    [None] * len(fold.node.inputs),
                    [self._results[fold.number]],
                )
                ahead[0] = next(waiting, None)
            tap(number, self._program.nodes[number], inputs, outputs)

        return both
