"""Many texts by one encoder in one pass, each with the bits that it has alone (ANSWERS 11.5).

A pass computes the places of all its texts as rows of one program. Places after the end of a text
are not computed. Only attention and pooling mix the rows of a text; every other operator works on
each row alone. So no bit depends on the other texts of a pass, or on a bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tallystick.answers.encoding_programs import pooling_program, rows_program
from tallystick.answers.layout import EMBEDDING
from tallystick.answers.model import Model
from tallystick.closing import made_once
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Arrays, Outputs, Run, operand
from tallystick.errors import UsageError
from tallystick.generation.cut import LOGITS
from tallystick.generation.forward import rows_of_program
from tallystick.generation.network import RowPrograms
from tallystick.generation.panels import Panels, prepared
from tallystick.numerics.contracts import find_contract, parse_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.executor import Executor
from tallystick.program.fused import SCORES, VALUES, WEIGHTS, made_by
from tallystick.program.ir import Node, Program
from tallystick.program.runner import StepInputs

MOST_ROWS = 512
_MASK = "aten.where"


class EncoderNetwork(Protocol):
    """An encoder under a contract.

    `rows(count)` has the batch inputs `token` and `place`, i64[count, 1], the weights as state, and
    the output `logits`, f32[count, width]. `pooling(places)` has `rows`, f32[places, width], and
    `length`, i64[1], and the output `logits`: what is made of the rows of one text. Without pooling
    the values of a text are those of its first row.
    """

    contract: str
    pools: bool

    def rows(self, count: int) -> Program: ...

    def pooling(self, places: int) -> Program: ...


class ModelEncoder:
    """An opened model under a contract."""

    def __init__(self, model: Model, contract: str) -> None:
        assert model.encoding is not None
        self.contract, self.pools = find_contract(contract).text, model.encoding.set == EMBEDDING
        self._model = model
        self._rows = RowPrograms(lambda count: rows_program(model, count, self.contract))

    def rows(self, count: int) -> Program:
        return self._rows.program(count)

    def pooling(self, places: int) -> Program:
        return pooling_program(self._model, places, self.contract)


@dataclass(frozen=True)
class SameLength:
    """Texts of the same number of places, one after the other, from row `first` on."""

    first: int
    texts: int
    places: int

    @property
    def rows(self) -> slice:
        return slice(self.first, self.first + self.texts * self.places)


@dataclass
class _Pass:
    """The texts of a pass, by their numbers, and their rows."""

    numbers: list[int] = field(default_factory=list)
    runs: list[SameLength] = field(default_factory=list)
    count: int = 0

    def add(self, number: int, places: int) -> None:
        last = self.runs[-1] if self.runs else SameLength(0, 0, 0)
        if last.places == places:
            self.runs[-1] = SameLength(last.first, last.texts + 1, places)
        else:
            self.runs.append(SameLength(self.count, 1, places))
        self.numbers.append(number)
        self.count += places

    def texts(self) -> Iterator[tuple[int, slice]]:
        """Each text's number, and its rows."""
        places = (run.places for run in self.runs for _ in range(run.texts))
        first = 0
        for number, length in zip(self.numbers, places, strict=True):
            yield number, slice(first, first + length)
            first += length


class EncoderEngine:
    """Encodes texts of at most `longest` places. Not thread-safe: one thread calls it.

    `held` are the weights by their slots. `longest` is also the most rows of a pass. Raises
    UsageError for a program that has more in common between its rows than attention.
    """

    def __init__(
        self,
        network: EncoderNetwork,
        held: dict[str, Any],
        context: ExecutionContext,
        longest: int = MOST_ROWS,
    ) -> None:
        self.longest = longest
        self._network, self._held, self._context = network, held, context
        self._panels = Panels()

    def values(self, texts: Sequence[Sequence[int]]) -> list[Array]:
        """The values of each text, of 1 to `longest` tokens of the vocabulary."""
        found: dict[int, Array] = {}
        for one in self._passes([len(text) for text in texts]):
            made = self._rows(one, [texts[number] for number in one.numbers])
            for number, rows in one.texts():
                found[number] = self._of_text(made[rows])
        return [found[number] for number in range(len(texts))]

    def _passes(self, lengths: Sequence[int]) -> Iterator[_Pass]:
        """Texts of the same length stand together, so that their attention is one call."""
        found = _Pass()
        for number in sorted(range(len(lengths)), key=lambda n: lengths[n], reverse=True):
            if not 1 <= lengths[number] <= self.longest:
                raise UsageError(
                    f"A pass has 1 to {self.longest} rows, and a text {lengths[number]} tokens.",
                    "Execute the program of its bucket.",
                )
            if found.count + lengths[number] > self.longest:
                yield found
                found = _Pass()
            found.add(number, lengths[number])
        if found.numbers:
            yield found

    def _rows(self, one: _Pass, texts: Sequence[Sequence[int]]) -> Array:
        size = rows_of_program(one.count)
        executor, layers = self._bound(size)
        batch = {name: np.zeros((size, 1), np.int64) for name in ("token", "place")}
        batch["token"][: one.count, 0] = np.concatenate([np.asarray(t, np.int64) for t in texts])
        batch["place"][: one.count, 0] = np.concatenate([np.arange(len(t)) for t in texts])
        for layer in layers:
            layer.given = one
        return executor.execute(self._held, StepInputs(batch)).outputs[LOGITS]

    def _of_text(self, rows: Array) -> Array:
        if not self._network.pools:
            return np.array(rows[0])
        size = rows_of_program(len(rows))
        given = np.zeros((size, rows.shape[1]), np.float32)
        given[: len(rows)] = rows
        batch = {"rows": given, "length": np.array([len(rows)], np.int64)}
        executor = self._pooling(size)
        read = {name: batch[name] for name in executor.program.batch_types}
        return np.array(executor.execute({}, StepInputs(read)).outputs[LOGITS])

    @made_once
    def _pooling(self, places: int) -> Executor:
        return Executor(self._network.pooling(places), self._context)

    @made_once
    def _bound(self, rows: int) -> tuple[Executor, list[_TextAttention]]:
        program = self._network.rows(rows)
        contract = parse_contract(program.contract)
        layers = [
            _TextAttention(program, index)
            for index, node in enumerate(program.nodes)
            if node.op == VALUES
        ]
        own = {index: run for layer in layers for index, run in layer.by_node().items()}
        panels = self._panels  # the executor holds the hook, which must not hold this object

        def hook(index: int, _node: Node, _spec: OpSpec) -> Run | None:
            return (
                own.get(index)
                or panels.product(program, index, contract)
                or prepared(program, index, contract)
            )

        return Executor(program, self._context, hook, narrow=True), layers


class _TextAttention:
    """The kernels of one layer's three nodes, in a program whose rows are texts of one place.

    The first keeps queries and keys, since others may take their memory before the third runs, and
    the third computes over the texts of the pass. `given` is that pass; the caller sets it.
    """

    given: _Pass

    def __init__(self, program: Program, values: int) -> None:
        made = [values]
        # The mask says which keys are present: all are, since no row of a pass is absent.
        for operand_number, op in ((0, WEIGHTS), (0, _MASK), (1, SCORES)):
            node = made_by(program, program.nodes[made[-1]].inputs[operand_number], op)
            if node is None:
                raise UsageError(f"A node of this encoder's program takes no {op} where it should.")
            made.append(node)
        _, weights, _, scores = made
        kernels = CPU.kernels(parse_contract(program.contract))
        nodes = scores, weights, values
        self._calls = [(kernels[program.nodes[n].op].run, program.nodes[n].attrs) for n in nodes]
        self._queries, self._keys = np.empty(0), np.empty(0)
        self._nodes = nodes

    def by_node(self) -> dict[int, Run]:
        """The kernel of each of the three nodes, by its number."""
        scores, weights, values = self._nodes
        return {scores: self._keep, weights: self._nothing, values: self._compute}

    def _keep(self, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        self._queries = operand(inputs, 0)[:, :, 0].copy()
        self._keys = operand(inputs, 1)[:, :, 0].copy()
        outputs[0][...] = 0  # the mask reads it

    def _nothing(self, _attrs: Attrs, _inputs: Arrays, _outputs: Outputs) -> None:
        pass

    def _compute(self, _attrs: Attrs, inputs: Arrays, outputs: Outputs) -> None:
        values, out = operand(inputs, 1)[:, :, 0], outputs[0][:, :, 0]
        (scores, of_scores), (weights, of_weights), (sums, of_sums) = self._calls
        for run in self.given.runs:
            q, k, v = (batch_of_texts(x, run) for x in (self._queries, self._keys, values))
            s = np.empty((*q.shape[:3], run.places), np.float32)
            made = np.empty((*q.shape[:3], v.shape[3]), np.float32)
            scores(of_scores, [q, k, None], [s])
            weights(of_weights, [s, None], [s])
            sums(of_sums, [s, v], [made])
            out[run.rows] = made.transpose(0, 2, 1, 3).reshape(-1, *out.shape[1:])
        out[self.given.count :] = 0


def batch_of_texts(rows: Array, run: SameLength) -> Array:
    """[texts, heads, places, elements] of [rows, heads, elements]."""
    found = rows[run.rows].reshape(run.texts, run.places, *rows.shape[1:])
    return np.ascontiguousarray(found.transpose(0, 2, 1, 3))
