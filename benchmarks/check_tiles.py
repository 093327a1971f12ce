"""One training step on one instruction set, every node checked against the scalar path.

    python benchmarks/check_tiles.py [--isa avx2] [--threads 2] [--set n_layer=12 ...]

The default is GPT-2 124M (batch 8, sequence 64, dropout 0.1, AdamW, clipping). The step runs node
by node. After each node, the scalar kernels compute sampled tiles of its outputs again (tiles.py),
and small outputs whole; the bits must be the same. Views are checked against numpy's. The script
prints the root of the whole next state, to compare runs on several instruction sets. The exit code
is 1 at a difference. No node is left out: an operator without a rule fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from tallystick import _core
from tallystick.contracts.ordered.cpu import run_of
from tallystick.devices.context import ExecutionContext
from tallystick.kernels.evaluate import view
from tallystick.program.executor import Executor
from tallystick.program.ir import COMMIT, Node, Program
from tallystick.program.state import State
from tiles import Array, Sampler, tiles

SCALAR = ExecutionContext(isa="scalar")


@dataclass
class Count:
    """The counts of one operator's checks. Elements are of outputs; a tile may overlap another."""

    nodes: int = 0
    whole: int = 0
    tiles: int = 0
    checked: int = 0
    elements: int = 0
    wrong: list[str] = field(default_factory=list)


def same_bits(a: Array, b: Array) -> bool:
    """True if dtype, shape and every byte agree."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    x, y = np.ascontiguousarray(a).reshape(-1), np.ascontiguousarray(b).reshape(-1)
    return bool(np.array_equal(x.view(np.uint8), y.view(np.uint8)))


@dataclass
class Checker:
    """A tap that recomputes each node on the scalar path and compares."""

    isa: str
    sampler: Sampler
    counts: dict[str, Count] = field(default_factory=lambda: defaultdict(Count))
    committed: list[Array] = field(default_factory=list)

    def tap(
        self, index: int, node: Node, inputs: Sequence[Array | None], outputs: Sequence[Array]
    ) -> None:
        """Check one node; differences are collected in `counts`."""
        if _core.isa() != self.isa:
            raise RuntimeError(f"node {index} ran on {_core.isa()}, not on {self.isa}")
        count = self.counts[node.op]
        count.nodes += 1
        count.elements += sum(out.size for out in outputs)
        if node.op == COMMIT:
            self.committed = [np.array(x) for x in inputs if x is not None]
            return
        if node.op in view:
            assert inputs[0] is not None
            self._compare(count, index, node, [view[node.op](node.attrs, inputs[0])], outputs)
            count.whole += 1
            return
        with SCALAR.entered():
            self._recompute(count, index, node, inputs, outputs)

    def _recompute(
        self,
        count: Count,
        index: int,
        node: Node,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> None:
        run = run_of(node.op)
        assert _core.isa() == "scalar"
        total, largest = sum(out.size for out in outputs), 0
        for tile in tiles(node.op, node.attrs, inputs, outputs, self.sampler):
            # numpy makes a 0-d array's dense copy 1-d, so that its shape is given back.
            operands = [
                None if x is None else np.ascontiguousarray(x).reshape(x.shape) for x in tile.inputs
            ]
            again = [np.empty(part.shape, part.dtype) for part in tile.expected]
            run(tile.attrs, operands, again)
            self._compare(count, index, node, again, tile.expected)
            largest = max(largest, sum(out.size for out in again))
            count.tiles += 1
        count.whole += largest == total

    def _compare(
        self,
        count: Count,
        index: int,
        node: Node,
        again: Sequence[Array],
        found: Sequence[Array],
    ) -> None:
        count.checked += sum(out.size for out in again)
        if not all(same_bits(a, b) for a, b in zip(again, found, strict=True)):
            count.wrong.append(f"node {index} ({node.op})")


@dataclass(frozen=True)
class Report:
    """The outcome of one checked step."""

    isa: str
    threads: int
    nodes: int
    counts: dict[str, Count]
    loss: float
    state_root: str
    state_wrong: list[str]
    seconds: float

    @property
    def wrong(self) -> list[str]:
        """Every node or slot that differs."""
        return [w for c in self.counts.values() for w in c.wrong] + self.state_wrong


def check_step(
    program: Program,
    state: dict[str, Array],
    batch: dict[str, Array],
    scalars: dict[str, float],
    isa: str,
    threads: int,
    sampler: Sampler,
) -> Report:
    """Run one step on `isa`, all its nodes checked against scalar; `state` becomes the next."""
    began = time.perf_counter()
    checker, executor = Checker(isa, sampler), Executor(program, ExecutionContext(threads, isa))
    result = executor.run_step(state, batch, scalars, (0, 0), checker.tap)
    # The commit node's operands are the whole next state in slot order.
    state_wrong = [
        f"next state {slot}"
        for slot, seen in zip(program.state_types, checker.committed, strict=True)
        if not same_bits(state[slot], seen)
    ]
    checker.counts[COMMIT].checked = sum(a.size for a in checker.committed)
    nodes = sum(c.nodes for c in checker.counts.values())
    if nodes != len(program.nodes):
        raise RuntimeError(f"{nodes} of {len(program.nodes)} nodes were checked")
    return Report(
        isa,
        threads,
        nodes,
        dict(checker.counts),
        float(result.loss if result.loss is not None else np.nan),
        State(state).root().hex(),
        state_wrong,
        time.perf_counter() - began,
    )


def table(report: Report) -> str:
    """The report as a Markdown table, an operator a line."""
    lines = [
        "| operator | nodes | of these whole | tiles | elements compared | of |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for op, c in sorted(report.counts.items(), key=lambda item: -item[1].nodes):
        cells = (c.nodes, c.whole, c.tiles, c.checked, c.elements)
        lines.append(f"| {op} | " + " | ".join(f"{cell:,}" for cell in cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--isa", default="avx2", choices=list(_core.supported_isas()))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="of the sampled tiles")
    parser.add_argument("--tiles", type=int, default=8, help="per node")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="gpt2 settings")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()

    from tallystick.job.recipes.gpt2 import Gpt2Settings, build

    settings: dict[str, Any] = {
        "n_layer": 12, "n_head": 12, "n_embd": 768, "vocab_size": 50257, "block_size": 64,
        "batch_size": 8,
    }  # fmt: skip
    for item in given.set:
        key, _, value = item.partition("=")
        settings[key] = type(getattr(Gpt2Settings(), key))(float(value))
    s = Gpt2Settings(**settings)
    built = build(s, {}, 1, 0)
    shape = (s.batch_size, s.block_size + 1)
    batch = {"tokens": np.random.default_rng(0).integers(0, s.vocab_size, shape)}
    report = check_step(
        built.captured.program,
        built.initial_state,
        batch,
        {"lr": s.lr},
        given.isa,
        given.threads,
        Sampler(np.random.default_rng(given.seed), given.tiles),
    )
    if given.json:
        counts = {op: {**vars(c)} for op, c in report.counts.items()}
        print(json.dumps({**vars(report), "counts": counts, "compiler": _core.compiler()}))
    else:
        print(f"{report.isa}, {report.threads} threads, compiler {_core.compiler()}")
        print(f"program {built.captured.program.digest().hex()}, loss {report.loss!r}")
        print(f"root of the next state {report.state_root}")
        print(table(report))
        wrong = len(report.wrong)
        print(f"{report.nodes} nodes checked in {report.seconds:.1f} s, {wrong} differ")
    for what in report.wrong[:20]:
        print(f"DIFFERS: {what}", file=sys.stderr)
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
