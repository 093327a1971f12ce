"""Looks into one step of a run: its node tree, and the operands of one node at a time.

The prover executes the step once for the digests of all nodes, which are small. It executes the
step once more, up to the node in question, for the operands of that node. Of a step with
micro-batches it executes only the one that the node belongs to. It keeps nothing else of a step in
memory: of a fold over micro-batches one operand at a time, or the elements asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tallystick.commit import merkle
from tallystick.commit.state import node_tree
from tallystick.commit.tensor import (
    LEAF_BYTES,
    Array,
    header_of,
    leaf_hashes,
    open_tensor,
    tensor_digest,
)
from tallystick.devices.device import Tensor
from tallystick.errors import CannotCheckError, MachineFaultError, TallystickError, UsageError
from tallystick.opening.quantity import Index, Quantity, Source, opening_rule, rules
from tallystick.opening.values import Gathered, NotedReads, WholeSource
from tallystick.opening.views import Path, View, locate, view_dtypes, view_values
from tallystick.program.folded_tail import first_fold
from tallystick.program.ir import COMMIT, Node, Value
from tallystick.program.runner import Tap
from tallystick.protocol.facts import Facts
from tallystick.protocol.queries import DEPTH, INPUT, OUTPUT
from tallystick.prover.states import RunStates
from tallystick.run.execute.nodes import NodeDigests, NodeTracer

# (side, number) of an operand of a node.
Place = tuple[int, int]

_RULE_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, TallystickError)


@dataclass(frozen=True)
class StepTree:
    """The records of all nodes of a step, and their tree."""

    records: tuple[NodeDigests, ...]
    tree: merkle.Tree


class _DoneError(Exception):
    """Ends a step at the node in question: the rest need not be executed."""


@dataclass
class ProvableTensor:
    """One tensor of a node, with the hashes and bytes for its proofs."""

    array: Array

    @cached_property
    def hashes(self) -> bytes:
        return leaf_hashes(self.array)

    @cached_property
    def tree(self) -> merkle.Tree:
        return merkle.Tree(self.hashes)

    def parts(self, first: int, count: int) -> tuple[bytes, ...]:
        """The hashes of the parts of a range of leaves (PROTOCOL 2.4)."""
        return tuple(self.tree.parts(first, count, DEPTH))

    def leaf(self, index: int) -> bytes:
        """The bytes of a leaf."""
        flat = self.array.reshape(-1).view(np.uint8)
        return flat[index * LEAF_BYTES : (index + 1) * LEAF_BYTES].tobytes()

    def opening(self, leaves: Sequence[int]) -> bytes:
        """The opening of these leaves (COMMITMENTS 3.6)."""
        header = header_of(self.array)
        per = LEAF_BYTES // header.itemsize
        ranges = [(n * per, min(header.elements, (n + 1) * per)) for n in leaves]
        return open_tensor(self.array, ranges, self.hashes).to_bytes()


@dataclass
class NodeTensors:
    """The operands of one node of one step by (side, number), as executed."""

    step: int
    node: int
    tensors: dict[Place, ProvableTensor] = field(default_factory=dict)


class Steps:
    """Looks into steps. It keeps its last result, since the queries of a dispute concern one
    place."""

    def __init__(self, states: RunStates, facts: Facts) -> None:
        self.states, self._facts = states, facts
        self._tree: tuple[int, StepTree] | None = None
        self._capture: NodeTensors | None = None

    # -- phase 2 -----------------------------------------------------------------------------------

    def tree(self, step: int) -> StepTree:
        """All node records of a step. Raises NodeError where the step cannot be executed."""
        if self._tree is None or self._tree[0] != step:
            done = self._traced(step)
            made = StepTree(tuple(done.records), node_tree(done.trace().digests))
            self._tree = step, made
        return self._tree[1]

    def _traced(self, step: int) -> NodeTracer:
        """The nodes of a step as this run states them."""
        done = self._executed(step)
        self._confirm(step, done)
        return done

    def _executed(self, step: int) -> NodeTracer:
        engine = self.states.at(step)
        tracer = engine.tracer()
        losses = self.states.look(step, tracer.tap)
        return tracer.finish(*losses, engine.state, engine.chained_log)

    def _confirm(self, step: int, done: NodeTracer) -> None:
        """Where the nodes do not give the committed state after the step, execute the step again.

        If the second execution gives the same nodes, the commitment is false. If it gives others,
        this machine is at fault: the function raises MachineFaultError.
        """
        if done.records[-1].outputs[2] == self.states.root(step + 1):
            return
        if not self.states.commits(step + 1) or self._executed(step).records != done.records:
            raise MachineFaultError(
                f"Two executions of step {step} on this machine gave two states.",
                "Nothing was signed. Try again with --threads 1, or on another machine.",
            )

    # -- phase 3 -----------------------------------------------------------------------------------

    def operand(self, step: int, node: int, side: int, number: int) -> ProvableTensor:
        """One operand of a node as executed; `Facts.type_at` gives its type."""
        return self._captured(step, node, {(side, number)}).tensors[side, number]

    def _captured(self, step: int, node: int, wanted: set[Place]) -> NodeTensors:
        capture = self._capture
        if capture is not None and (capture.step, capture.node) == (step, node):
            if wanted <= set(capture.tensors):
                return capture
        else:
            capture = NodeTensors(step, node)
        known = set(capture.tensors)
        if self._facts.at(step).program.nodes[node].op == COMMIT:
            self._capture_commit(capture, wanted)
        elif not self._shows(step, node):
            self.capture_fold(capture, wanted)
        else:
            self._capture_node(capture)
        new = capture.tensors.keys() - known
        found = {place: tensor_digest(capture.tensors[place].array) for place in new}
        self._confirm_operands(step, node, found)
        self._capture = capture
        return capture

    def _confirm_operands(self, step: int, node: int, found: Mapping[Place, bytes]) -> None:
        """The operands are those of the node's record, which another execution has given: `found`
        are the digests of some of them. Raises MachineFaultError."""
        record = self.tree(step).records[node]
        present = (number for number, _, _ in self._facts.at(step).operands(node))
        stated = {(INPUT, n): digest for n, digest in zip(present, record.inputs, strict=True)}
        stated |= {(OUTPUT, n): digest for n, digest in enumerate(record.outputs)}
        if any(digest != stated[place] for place, digest in found.items()):
            raise MachineFaultError(
                f"Two executions of step {step} on this machine gave node {node} two operands.",
                "Nothing was signed. Try again with --threads 1, or on another machine.",
            )

    def capture_fold(self, capture: NodeTensors, wanted: set[Place]) -> None:
        """Capture the wanted operands of a fold over micro-batches. One of those that it reads is
        kept: all of them together may be more than there is memory for."""
        inputs = self._facts.at(capture.step).program.nodes[capture.node].inputs
        for place in [place for place in capture.tensors if place[0] == INPUT]:
            del capture.tensors[place]
        for side, number in sorted(wanted - capture.tensors.keys()):
            value = inputs[number] if side == INPUT else Value(capture.node, number)
            assert value is not None
            self._look_at(
                capture.step, value.node, _keep_output(value, self._host, capture, side, number)
            )

    def _shows(self, step: int, node: int) -> bool:
        """True if a look into the step shows the operands of this node."""
        if first_fold(self._facts.at(step).program, node) is None:
            return True
        return self.states.shows_folded(step)

    def _gathered(self, step: int, node: int, wanted: Mapping[int, list[Index]]) -> Gathered:
        """The elements of a fold's operands, by operand and place: one micro-batch after the other
        is executed, and no other node."""
        inputs = self._facts.at(step).program.nodes[node].inputs
        made = {value: number for number, value in enumerate(inputs) if value is not None}
        left, found, digests = set(wanted), Gathered(), {}

        def tap(
            index: int, node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            for out, tensor in enumerate(outputs):
                number = made.get(Value(index, out))
                if number in left:
                    array = np.array(self._host(tensor), order="C")
                    digests[INPUT, number] = tensor_digest(array)
                    for flat in wanted[number]:
                        found.put(number, flat, array.reshape(-1)[flat])
                    left.remove(number)
            if not left:
                raise _DoneError

        if len(wanted) == 1:
            (only,) = wanted
            value = inputs[only]
            assert value is not None
            self._look_at(step, value.node, tap)
        else:
            self._look(step, tap)
        self._confirm_operands(step, node, digests)
        return found

    def _capture_node(self, capture: NodeTensors) -> None:
        """Capture all operands at once: a referee that asks for one asks for the others too."""

        def tap(
            index: int, node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            if index == capture.node:
                for side, tensors in ((INPUT, inputs), (OUTPUT, outputs)):
                    for number, tensor in enumerate(tensors):
                        if tensor is not None:
                            own = np.array(self._host(tensor), order="C")
                            capture.tensors[side, number] = ProvableTensor(own)
                raise _DoneError

        self._look_at(capture.step, capture.node, tap)

    def _capture_commit(self, capture: NodeTensors, wanted: set[Place]) -> None:
        """Capture only the wanted operands: all of them together are the whole state."""
        program = self._facts.at(capture.step).program
        count = len(program.nodes[capture.node].inputs)
        loss = program.output_values["loss"]

        def keep(number: int, array: Array) -> None:
            if (INPUT, number) in wanted:
                capture.tensors[INPUT, number] = ProvableTensor(np.array(array, order="C"))

        def tap(
            index: int, node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
        ) -> None:
            if index == loss.node:
                keep(count, self._host(outputs[loss.out]))
            if index == capture.node:
                for number, tensor in enumerate(inputs):
                    if tensor is not None and (INPUT, number) in wanted:
                        keep(number, self._host(tensor))
                raise _DoneError

        state = self.states.at(capture.step).state
        for at, chain in enumerate((state.loss_chain, state.log_chain)):
            keep(count + 1 + at, np.frombuffer(chain, dtype=np.uint8))
        if not wanted <= set(capture.tensors):
            self._look(capture.step, tap)

    def _host(self, tensor: Tensor) -> Array:
        """A tensor of the run's device, on the host."""
        return self.states.context.device.host(tensor)

    def _look(self, step: int, tap: Tap) -> None:
        with suppress(_DoneError):
            self.states.look(step, tap)

    def _look_at(self, step: int, node: int, tap: Tap) -> None:
        with suppress(_DoneError):
            self.states.look_at(step, node, tap)

    # -- below an element (PROTOCOL 6) -------------------------------------------------------------

    def quantity(self, step: int, node: int, output: int, element: int, path: Path) -> Quantity:
        """The quantity of an output element or of a part of it. Raises UsageError where there is
        none."""
        facts = self._facts.at(step)
        if element >= facts.type_at(node, OUTPUT, output).numel:
            raise UsageError(f"Output {output} of node {node} has no element {element}.")
        site = facts.site(node, output, element)
        if site.op not in rules():
            raise CannotCheckError(
                f"This build has no opening rule for {site.op}.", "Use a newer build."
            )
        try:
            return locate(opening_rule(site), path)
        except LookupError as error:
            raise UsageError(
                f"Element {element} of node {node}: {error}.", "Ask the rule."
            ) from None

    def values(self, step: int, node: int, quantity: Quantity, view: View) -> bytes:
        """The values of a view of a quantity of this node, each in its dtype's bytes (6.4)."""
        try:
            view_dtypes(quantity, view)
        except LookupError as error:
            raise UsageError(f"Node {node}: {error}.", "Ask the rule.") from None
        source = self._source(step, node, quantity, view)
        try:
            values = view_values(quantity, view, source)
        except CannotCheckError:
            raise
        except _RULE_FAULTS as error:
            # The prover never signs this as "unable": a fault of this program is no fault of the
            # run (PROTOCOL 2.8).
            raise CannotCheckError(
                f"The opening rule of node {node} fails: {error}.", "Report it."
            ) from error
        return b"".join(np.asarray(value).tobytes() for value in values)

    def _source(self, step: int, node: int, quantity: Quantity, view: View) -> Source:
        """The operands of a node, as far as a view reads them."""
        inputs = self._facts.at(step).program.nodes[node].inputs
        if not self._shows(step, node):
            asked = NotedReads(self._facts.at(step).type_at(node, OUTPUT, 0).dtype)
            view_values(quantity, view, asked)
            return self._gathered(step, node, asked.places)
        there = {(INPUT, n) for n, value in enumerate(inputs) if value is not None}
        tensors = self._captured(step, node, there).tensors
        return WholeSource(
            [tensors[INPUT, n].array if v is not None else None for n, v in enumerate(inputs)]
        )


def _keep_output(
    value: Value, host: Callable[[Tensor], Array], capture: NodeTensors, side: int, number: int
) -> Tap:
    """A tap that captures an output of a node, and then ends the step."""

    def tap(
        index: int, node: Node, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor]
    ) -> None:
        if index == value.node:
            own = np.array(host(outputs[value.out]), order="C")
            capture.tensors[side, number] = ProvableTensor(own)
            raise _DoneError

    return tap
