"""`bench ovt`, escalation: the share of `rounded/1`'s elements summed exactly, and its cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.contracts.ordered.cpu import run_of
from tallystick.contracts.rounded.cpu import rounded_kernel, run_rounded
from tallystick.contracts.rounded.cpu.pieces import Piece
from tallystick.devices.context import ExecutionContext
from tallystick.devices.device import Run
from tallystick.job.job import Job
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.executor import Executor
from tallystick.program.ir import Node
from tallystick.run.execute.engine import Engine
from tallystick_bench.ovt.classes import class_of
from tallystick_bench.ovt.context import Context
from tallystick_bench.ovt.models import under
from tallystick_bench.ovt.results.store import PartFile

BITS, QUICK_BITS = (32, 28, 24), (32,)


def about(quick: bool) -> dict[str, Any]:
    """The settings of the entries, beside the model."""
    return {"step": "the second"}


@dataclass
class Count:
    """Elements of one operator class, those summed exactly, and the seconds that took."""

    elements: int = 0
    escalated: int = 0
    seconds: float = 0.0


@dataclass
class Counting:
    """`rounded/1`'s kernels, counting: the values are those of `pieces.exactly`."""

    bits: int
    counts: dict[str, Count] = field(default_factory=dict)

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The executor's hook: rounded operators here, the others by their own kernels."""
        if node.op not in find_contract("rounded/1").own_operators:
            return None
        ordinary = run_of(node.op)

        def run(
            attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
        ) -> None:
            floats = all(x is None or x.dtype == np.float32 for x in inputs)
            if floats and node.op in rounded_kernel:
                count = self.counts.setdefault(class_of(node.op), Count())
                run_rounded(
                    node.op, lambda piece: self._decide(piece, count), attrs, inputs, outputs
                )
            else:
                ordinary(attrs, inputs, outputs)

        return run

    def _decide(self, piece: Piece, count: Count) -> None:
        values = piece.room()
        at = piece.doubtful(piece.share, self.bits, values)
        count.elements += piece.w.size
        count.escalated += len(at)
        if len(at):
            start = time.perf_counter()
            values.reshape(-1)[at] = piece.rounded(at, self.bits)
            count.seconds += time.perf_counter() - start
        piece.store(values)


def measure(part: PartFile, context: Context) -> None:
    """One entry for each number of bits: counts by operator class, seconds of the step."""
    for bits in QUICK_BITS if context.quick else BITS:

        def run(bits: int = bits) -> dict[str, Any]:
            return count_step(context.job(part.model), bits, context.threads)

        part.get(f"b{bits}", run)


def count_step(job: Job, bits: int, threads: int) -> dict[str, Any]:
    """The job's second step under `rounded/1` with `bits`, counted."""
    counting = Counting(bits)
    executor = Executor(
        under(job, f"rounded/1;b={bits}"), ExecutionContext(threads), kernels=counting.kernels
    )
    engine, seconds = Engine(job, job.genesis()), 0.0
    for step in range(2):
        counting.counts.clear()
        start = time.perf_counter()
        executor.run_step(
            engine.state.slots,
            engine.batch(step),
            engine.scalars(step),
            (job.commitment.rng_seed, step),
        )
        seconds = time.perf_counter() - start
    return {
        "classes": {
            name: {"elements": c.elements, "escalated": c.escalated, "seconds": c.seconds}
            for name, c in counting.counts.items()
        },
        "seconds": seconds,
        "exact_seconds": sum(c.seconds for c in counting.counts.values()),
    }
