"""One pass over the weights, for rows of many sequences at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from typing import Any

import numpy as np

from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Run
from tallystick.errors import UsageError
from tallystick.generation.attention import PagedAttention, Rows, layer_shape
from tallystick.generation.cut import LOGITS, ProgramParts, attentions, cut
from tallystick.generation.experts import chosen_only
from tallystick.generation.network import Network
from tallystick.generation.panels import Panels
from tallystick.generation.prepared import prepared
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.registry import OpSpec
from tallystick.program.executor import Executor
from tallystick.program.ir import Node, Program
from tallystick.program.runner import StepInputs


def rows_of_program(rows: int) -> int:
    """The number of rows of the program that computes `rows`: a power of two, or three quarters of
    one that is no small one. More numbers would take more programs."""
    size = 1 << max(0, rows - 1).bit_length()
    return size * 3 // 4 if size >= 32 and rows <= size * 3 // 4 else size


class Forward:
    """Computes rows, with keys and values in as many pages as `memory` bytes have room for.

    A program is made for a number of rows when it is first needed, its memory is planned once, and
    all of them are bound to the same weights. Raises UsageError where there is no room for a page.
    """

    def __init__(self, network: Network, context: ExecutionContext, memory: int) -> None:
        self._network, self._context = network, context
        self._cut = cache(self._made_cut)
        self._head = cache(self._made_head)
        self._body = cache(self._made_body)
        self._state = cache(self._made_state)
        self._weights, self._panels = network.weights(), Panels()
        first = self._cut(1)
        shapes = [layer_shape(first.body, layer) for layer in attentions(first.body)]
        each = sum(4 * shape.page_floats for shape in shapes)
        self.pages = memory // each
        if self.pages < 1:
            raise UsageError(
                f"{memory} bytes have no room for a page of keys and values, which has {each}.",
                f"Give the engine more memory, at least {each} bytes.",
            )
        self._pools = [shape.pool(self.pages) for shape in shapes]
        windows = [shape.window for shape in shapes]
        # The most places that a row of any layer reads, 0 if it may read all.
        self.window = max(windows) if all(windows) else 0

    # -- programs ----------------------------------------------------------------------------------

    def _made_cut(self, rows: int) -> ProgramParts:
        return cut(self._network.program(rows))

    def _made_state(self, rows: int) -> dict[str, Any]:
        """The weights, and what they alone decide."""
        fixed = self._cut(rows).fixed
        if not fixed.outputs:
            return dict(self._weights)
        read = {name: self._weights[name] for name in fixed.state_types}
        found = Executor(fixed, self._context).execute(read, StepInputs({})).outputs
        return {**self._weights, **found}

    def _made_head(self, rows: int) -> Executor:
        return self._executor(self._cut(rows).head, {})

    def _made_body(self, rows: int) -> tuple[Executor, list[PagedAttention]]:
        program = self._cut(rows).body
        layers = [
            PagedAttention(program, layer, pool)
            for layer, pool in zip(attentions(program), self._pools, strict=True)
        ]
        own = {index: run for layer in layers for index, run in layer.by_node.items()}
        return self._executor(program, own), layers

    def _executor(self, program: Program, own: Mapping[int, Run]) -> Executor:
        contract = parse_contract(program.contract)
        own = {**chosen_only(program), **own}

        def hook(index: int, _node: Node, _spec: OpSpec) -> Run | None:
            return (
                own.get(index)
                or self._panels.product(program, index, contract)
                or prepared(program, index, contract)
            )

        return Executor(program, self._context, hook, narrow=True)

    # -- a pass ------------------------------------------------------------------------------------

    def logits(self, tokens: Sequence[int], rows: Rows, wanted: Sequence[int]) -> np.ndarray:
        """The logits of the rows `wanted`, f32[len(wanted), vocabulary], after the keys and values
        of all rows have gone to their pages. Rows that fill up a program are thrown away."""
        size = rows_of_program(rows.count)
        executor, layers = self._body(size)
        batch = {"token": np.zeros((size, 1), np.int64), "place": np.zeros((size, 1), np.int64)}
        batch["token"][: rows.count, 0] = tokens
        batch["place"][: rows.count, 0] = rows.places
        for layer in layers:
            layer.rows = rows
        body = executor.execute(self._state(size), StepInputs(_read(executor, batch))).outputs
        if not wanted:
            return np.empty((0, self._network.vocabulary), np.float32)
        chosen = np.zeros(rows_of_program(len(wanted)), np.int64)
        chosen[: len(wanted)] = wanted
        head = self._head(len(chosen))
        given = {name: array[chosen] for name, array in batch.items()}
        for name, value in body.items():
            if name in self._by_row:
                value = value.reshape(size, -1)[chosen]
            given[name] = value.reshape(head.program.batch_types[name].shape)
        found = head.execute(self._state(len(chosen)), StepInputs(_read(head, given))).outputs[
            LOGITS
        ]
        return found[: len(wanted)]

    @cached_property
    def _by_row(self) -> frozenset[str]:
        """The values from the body to the head that have a part for each row, in the order of the
        rows. Raises UsageError where the parts are not one after the other."""
        found = set()
        one, two = (self._cut(rows).body for rows in (1, 2))
        for name, value in one.outputs:
            shapes = one.type_of(value).shape, two.type_of(two.output_values[name]).shape
            axis = next((i for i, (a, b) in enumerate(zip(*shapes, strict=True)) if a != b), None)
            if axis is None:
                continue
            if math.prod(shapes[0][:axis]) != 1:
                raise UsageError("The rows of this program's last layer do not lie apart.")
            found.add(name)
        return frozenset(found)


def _read(executor: Executor, batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of `batch` that the executor's program reads."""
    return {name: batch[name] for name in executor.program.batch_types}
