"""The tail of a step with micro-batches, which takes in what each of them makes (PROGRAM 6).

A fold over V micro-batches reads V values. A step that is only executed, and a step that is shown,
need not hold them together: their folds are summed while the micro-batches are executed, and the
tail is given the sums. Which folds those are is the difference between the three tails below.

A sum over micro-batches is held as a few partial sums (COMMITMENTS 2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tallystick.commit.streamed import joined
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Device, Run, Tensor
from tallystick.numerics.operators.reduction import FOLD
from tallystick.numerics.types import Attrs, TensorType
from tallystick.program.build import given, piece, value_name
from tallystick.program.executor import Executor
from tallystick.program.expand import Expanded
from tallystick.program.ir import Input, Node, Program, Value
from tallystick.program.layout import new_tensor
from tallystick.program.runner import KernelHook, NodeFaultError, Tap


@dataclass
class PartialSums:
    """The sum of one value over micro-batches by the split of COMMITMENTS 2.3.

    `held` has (level, sum of 2^level aligned micro-batches) in order; where the first micro-batch
    is number 0, the levels are the binary number of those seen so far. `spare` is memory that is
    free.
    """

    device: Device
    run: Run
    type: TensorType
    spare: list[Tensor]
    held: list[tuple[int, Tensor]] = field(default_factory=list)

    def add(self, part: int, x: Tensor) -> None:
        """Add micro-batch `part`'s value, of any strides; the parts come in order."""
        level, one, own = 0, x, None
        while part >> level & 1 and self.held and self.held[-1][0] == level:
            left = self.held.pop()[1]
            self._add(left, one)
            if own is not None:
                self.spare.append(own)
            one = own = left
            level += 1
        if own is None:
            own = self.spare.pop() if self.spare else new_tensor(self.device, self.type)
            self.device.copy(x, own)
        self.held.append((level, own))

    def total(self) -> Tensor:
        """The sum of all, from number 0 on, in memory that is free again for the next step."""
        found: Tensor | None = None
        while self.held:
            left = self.held.pop()[1]
            if found is not None:
                self._add(left, found)
                self.spare.append(found)
            found = left
        self.spare.append(found)
        return found

    def forget(self) -> None:
        """Free the memory of the sums."""
        self.spare += [tensor for _, tensor in self.held]
        self.held.clear()

    def _add(self, left: Tensor, right: Tensor) -> None:
        self.run({"mean": False}, [left, right], [left])


def merge(
    given: Sequence[tuple[tuple[int, int], Tensor]], add: Callable[[Tensor, Tensor], None]
) -> Tensor:
    """The sum over all micro-batches of sums of subtrees: ((level, first micro-batch), sum) in
    order, from micro-batch 0 on. `add(left, right)` adds `right` to `left`, in place."""

    def join(left: Tensor, right: Tensor) -> Tensor:
        add(left, right)
        return left

    total = joined(given, join)
    assert total is not None
    return total


def share(rank: int, workers: int, parts: int) -> range:
    """The micro-batches of worker `rank` of `workers`: consecutive, and as many as any other's or
    one more."""
    size, more = divmod(parts, workers)
    first = rank * size + min(rank, more)
    return range(first, first + size + (rank < more))


@dataclass(frozen=True)
class SummedFold:
    """A fold, node `number` of the expanded program, over `value` of the micro-batches first to
    last - 1. `value` is the text's, and so is `node` where all its micro-batches are summed."""

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


def first_fold(program: Program, number: int) -> SummedFold | None:
    """Node `number` of an expanded program, if it is a fold of what micro-batches make. A fold of
    more than 256 values has several, whose results it folds (PROGRAM 6.7 c)."""
    if not isinstance(program, Expanded):
        return None
    node, section = program.nodes[number], program.source.section
    value = node.inputs[0] if node.op == FOLD else None
    if value is None or value.node >= program.micro_batches * section:
        return None
    first, at = divmod(value.node, section)
    return SummedFold(number, node, Value(at, value.out), first, first + len(node.inputs))


def folded_values(program: Program) -> list[Value]:
    """The values of a micro-batch that folds of `program`, a text 2, read."""
    folds = (node for node in program.nodes if node.op == FOLD)
    return sorted({v for node in folds for v in node.inputs if v is not None})


def _tail(program: Expanded) -> range:
    return range(program.micro_batches * program.source.section, len(program.nodes))


class FoldedTail:
    """The nodes of `program` after its micro-batches. `folds` are summed from what `take` is given;
    the other nodes, which are `kept`, are executed by `executor`.

    `sums` are the partial sums of another tail, to use their memory.
    """

    def __init__(
        self,
        program: Expanded,
        folds: Iterable[SummedFold],
        kept: Sequence[int],
        context: ExecutionContext,
        kernels: KernelHook | None,
        sums: Mapping[Value, PartialSums] | None = None,
    ) -> None:
        self.program, self._device = program, context.device
        self.folds = {fold.number: fold for fold in folds}
        self.executor = Executor(self._piece(kept), context, kernels, kept)
        self._results = {number: self._place(number) for number in self.folds}
        self._run = self._device.kernels(self.executor.contract)[FOLD].run
        self.sums = dict(sums) if sums is not None else self._new_sums()
        # The values that are kept for every micro-batch: none, where their folds are summed.
        self._whole = [] if self.folds else folded_values(program.source)
        self._by_value: dict[Value, list[SummedFold]] = {}
        for fold in self.folds.values():
            self._by_value.setdefault(fold.value, []).append(fold)

    # -- which folds are summed ------------------------------------------------------------------

    @classmethod
    def summed(
        cls, program: Expanded, context: ExecutionContext, kernels: KernelHook | None
    ) -> FoldedTail:
        """Every fold is summed over all micro-batches at once."""
        numbers, source = program.expanded.numbers, program.source
        folds: list[SummedFold] = []
        kept: list[int] = []
        for index in range(source.section, len(source.nodes)):
            node, number = source.nodes[index], numbers.node(index, 0)
            if node.op != FOLD:
                kept.append(number)
                continue
            (value,) = node.inputs
            assert value is not None
            folds.append(SummedFold(number, node, value, 0, program.micro_batches))
        return cls(program, folds, kept, context, kernels)

    @classmethod
    def shown(
        cls,
        program: Expanded,
        context: ExecutionContext,
        kernels: KernelHook | None,
        sums: Mapping[Value, PartialSums],
    ) -> FoldedTail:
        """Every fold of what micro-batches make is summed. The folds over their results are
        executed, and shown, as any node."""
        found = {number: first_fold(program, number) for number in _tail(program)}
        folds = [fold for fold in found.values() if fold is not None]
        kept = [number for number, fold in found.items() if fold is None]
        return cls(program, folds, kept, context, kernels, sums)

    @classmethod
    def whole(
        cls, program: Expanded, context: ExecutionContext, kernels: KernelHook | None
    ) -> FoldedTail:
        """No fold is summed: all are executed as nodes, on the values of all micro-batches."""
        return cls(program, [], _tail(program), context, kernels)

    # -- preparation -----------------------------------------------------------------------------

    def _piece(self, kept: Sequence[int]) -> Program:
        program, inside = self.program, {number: at for at, number in enumerate(kept)}

        def place(value: Value) -> Value | Input:
            if value.is_input:
                return program.inputs[value.out]
            if value.node in inside:
                return Value(inside[value.node], value.out)
            return given(value_name(value), program.type_of(value))

        state = (spec for spec in program.inputs if spec.kind == "state")
        nodes = [program.nodes[number] for number in kept]
        return piece(program.contract, nodes, program.outputs, place, always=state)

    def _place(self, number: int) -> Tensor:
        """The memory of a fold's result: where the nodes that are kept read it."""
        value = Value(number, 0)
        there = self.executor.staged.get(value_name(value))
        if there is None:  # a fold that nothing reads
            there = new_tensor(self._device, self.program.type_of(value))
        return there

    def _new_sums(self) -> dict[Value, PartialSums]:
        """One for each value; the last result of its folds may lie in a sum's own memory."""
        last = {fold.value: self._results[number] for number, fold in self.folds.items()}
        type_of = self.program.source.type_of
        return {
            value: PartialSums(self._device, self._run, type_of(value), [result])
            for value, result in last.items()
        }

    # -- a step ----------------------------------------------------------------------------------

    def take(self, part: int, results: Mapping[str, Tensor]) -> None:
        """Take in what micro-batch `part` has made; the parts come in order.

        Raises NodeFaultError where this machine fails."""
        for value, all_folds in self._by_value.items():
            folds = [fold for fold in all_folds if fold.first <= part < fold.last]
            try:
                self._add(part, folds, results[value_name(value)])
            except Exception as error:
                raise NodeFaultError(
                    f"Node {folds[0].number} ({FOLD}) could not be executed on this machine: "
                    f"{str(error) or type(error).__name__}",
                    "Free memory, then try again.",
                    folds[0].number,
                    False,
                ) from error
        for value in self._whole:  # to where its folds read it
            name = value_name(self.program.expanded.numbers.value(value, part))
            place = self.executor.staged.get(name)
            if place is not None:
                self._device.copy(results[value_name(value)], place)

    def _add(self, part: int, folds: Sequence[SummedFold], result: Tensor) -> None:
        sums = self.sums[folds[0].value]
        sums.add(part - folds[0].first, result)
        ends = [fold for fold in folds if part == fold.last - 1]
        if ends:
            total = sums.total()
            for fold in ends:
                self._run(fold.attrs, [total], [self._results[fold.number]])

    def forget(self) -> None:
        """Drop the sums of a step that was broken off."""
        for sums in self.sums.values():
            sums.forget()

    def given(self, kept: Mapping[str, Tensor]) -> dict[str, Any]:
        """What the executor is given for a step: the folds' results, or operands, and the carried
        slots, which the last micro-batch has made, from the memory `kept`."""
        numbers, last = self.program.expanded.numbers, self.program.micro_batches - 1
        carried = {
            value_name(numbers.value(value, last)): kept[slot]
            for slot, value in self.program.source.carried
        }
        return {**self.executor.staged, **carried}

    def tap(self, tap: Tap) -> Tap:
        """A tap for the executor, which shows `tap` the summed folds too, each at its number, with
        None for its operands."""
        waiting: Iterator[SummedFold] = iter(self.folds.values())
        ahead = [next(waiting, None)]

        def both(
            number: int, _: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            while (fold := ahead[0]) is not None and fold.number < number:
                none = [None] * len(fold.node.inputs)
                tap(fold.number, fold.node, none, [self._results[fold.number]])
                ahead[0] = next(waiting, None)
            tap(number, self.program.nodes[number], inputs, outputs)

        return both
