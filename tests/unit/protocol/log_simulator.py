"""Parties whose contract keeps logs: every element's doubt by the opening rules, logs in memory.

Values start as R(v*), as the contract's own kernels give them with an empty log. Where an element
has two values in V, `choose` says which one the party takes and logs; a *follower* takes what
another party's log says, as far as it is not forged; of a `withheld` step it has no log to follow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from unit.protocol.simulator import Party

import tallystick
from tallystick.commit import merkle
from tallystick.commit.log import block_hashes, log_digest
from tallystick.commit.state import LOG_CHAIN_SLOT, extend_log_chain, prove_slot
from tallystick.commit.tensor import Array
from tallystick.contracts.replay.entries import pack
from tallystick.contracts.replay.sections import sections_of
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.numerics.contracts import parse_contract
from tallystick.opening.quantity import Logged, Site, opening_rule
from tallystick.opening.values import WholeSource, needs_of
from tallystick.products.engines import current_engine
from tallystick.program.ir import Node
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import BlockBody, BlocksBody, Body, LogBody
from tallystick.run.cheats.override import Override

Entries = dict[int, int]
# (step, node, output, element) -> a direction, or None to take R(v*) without an entry
Choose = Callable[[int, int, int, int], int | None]
BLOCK = {"bounded": 4096, "published": 2048}


class LogParty(Party):
    """A run with logs. Hooks of `override`, if it has them: `entries(step, node, output, entries)`
    changes the entries and may change what they say; `blocks(step, section, blocks)` the bytes;
    `sections(step, digests)` the section digests; `log_digest(step, digest)` what enters the
    chain."""

    def __init__(
        self,
        job: Job,
        override: Override | None = None,
        choose: Choose | None = None,
        follows: LogParty | None = None,
        withheld: Collection[int] = (),
        **others: Any,
    ) -> None:
        self.withheld = withheld
        self.contract = parse_contract(job.commitment.contract)
        self.sections = sections_of(job.program, self.contract)
        self.choose, self.follows = choose or (lambda *_: None), follows
        self.entries: list[dict[tuple[int, int], Entries]] = []
        self.blocks: list[list[list[bytes]]] = []
        self.log_chains: list[bytes] = []
        self._trees: dict[int, Any] = {}
        self.digests: list[list[bytes]] = []
        super().__init__(job, override, **others)

    def logged(
        self,
        step: int,
        index: int,
        node: Node,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
    ) -> None:
        if len(self.entries) == step:
            self.entries.append({})
        for out in [s.output for s in self.sections if s.node == index]:
            entries: Entries = {}
            if self.contract.form == "bounded":
                entries = self._decided(step, index, node, out, inputs, outputs[out])
            change = getattr(self.lie, "entries", None)
            if change is not None:
                change(step, index, out, entries)
            self.entries[step][index, out] = entries

    def _decided(
        self,
        step: int,
        index: int,
        node: Node,
        out: int,
        inputs: Sequence[Array | None],
        output: Array,
    ) -> Entries:
        """Entries of an output, its values changed to what they make (NUMERICS 14.5)."""
        entries: Entries = {}
        types = tuple(None if v is None else self.job.program.type_of(v) for v in node.inputs)
        source, flat = WholeSource(inputs), output.reshape(-1)
        unread = self.follows is None or step in self.withheld
        given = {} if unread else self.follows.entries[step][index, out]
        # The wide product is exact: only what somebody else's log says of it is looked at.
        some = [e for e in given if e < flat.size] if flat.size > 1000 else range(flat.size)
        for element in some:
            site = Site(
                node.op, node.attrs, types, node.out_types, out, element, self.contract.text
            )
            rule = opening_rule(site)
            assert isinstance(rule, Logged)
            needs = needs_of(rule, source)
            doubt = rule.doubtful(source, needs)
            if self.follows is not None:
                entry = given.get(element)
                if doubt is None or (entry is not None and doubt.forged(entry)):
                    entry = None
            else:
                entry = None
                if doubt is not None and doubt.open:
                    entry = self.choose(step, index, out, element)
            flat[element] = rule.compute(source, needs, entry)
            if entry is not None:
                entries[element] = entry
        return entries

    def log_chain(self, step: int, chain: bytes) -> bytes:
        """The step's log is whole: its blocks, its digest, the chain after it."""
        made = []
        for number, section in enumerate(self.sections):
            blocks = self._blocks(self.entries[step][section.node, section.output], section)
            change = getattr(self.lie, "blocks", None)
            made.append(blocks if change is None else change(step, number, blocks))
        self.blocks.append(made)
        self.digests.append(
            [
                section.digest(merkle.Tree(block_hashes(blocks)).root())
                for section, blocks in zip(self.sections, made, strict=True)
            ]
        )
        change = getattr(self.lie, "sections", None)
        if change is not None:
            self.digests[step] = change(step, self.digests[step])
        self.log_chains.append(chain)
        digest = log_digest(step, self.digests[step])
        change = getattr(self.lie, "log_digest", None)
        return extend_log_chain(chain, step, digest if change is None else change(step, digest))

    def _blocks(self, entries: Entries, section: Any) -> list[bytes]:
        if self.contract.form == "published":
            row = np.ones(section.elements, np.uint8)
            for at, entry in entries.items():
                row[at] = entry
            data = pack(row)
            return [data[at : at + 2048] for at in range(0, len(data), 2048)]
        blocks = [b""] * section.blocks
        for at in sorted(entries):
            word = 2 * (at % 4096) + entries[at]
            blocks[at // 4096] += word.to_bytes(2, "little")
        return blocks

    def _tree(self, step: int) -> Any:
        if step not in self._trees:  # wide tensors are hashed once
            self._trees[step] = super()._tree(step)
        return self._trees[step]

    def log_facts(self, query: q.Log | q.LogHashes | q.LogBlock) -> Body:
        step = query.step
        if isinstance(query, q.Log):
            before = prove_slot(self.states[step], LOG_CHAIN_SLOT).path
            after = prove_slot(self.states[step + 1], LOG_CHAIN_SLOT).path
            return LogBody(self.log_chains[step], before, tuple(self.digests[step]), after)
        blocks = self.blocks[step][query.section]
        tree = merkle.Tree(block_hashes(blocks))
        if isinstance(query, q.LogHashes):
            return BlocksBody(len(blocks), tuple(tree.parts(query.first, query.count, q.DEPTH)))
        return BlockBody(blocks[query.block], tuple(tree.inclusion(query.block)))


# --- a job with doubtful elements -----------------------------------------------------------------
BITS, STEPS, INTERVAL = 20, 5, 2
RECORDS, BATCH, WIDTH = 16, 2, 6
HALF = 2.0 ** -(BITS - 8)  # half the distance from 1 to its upper neighbour on the grid


class Upwards:
    """An admissible engine that errs upwards where the sum is a tie."""

    name = "upwards"

    def __init__(self) -> None:
        self._honest = current_engine()

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        self._honest.mm(a, b, out)
        out[out == 1 + HALF] = np.nextafter(1 + HALF, 2)

    def sums(self, x: np.ndarray) -> np.ndarray:
        return self._honest.sums(x)


class Doubtful(torch.nn.Module):
    """A frozen product that is a tie of the grid in its first column, then a trained layer. The
    product of ones is large enough for several blocks of a log."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.frozen = torch.nn.Parameter(torch.ones(WIDTH, 2), requires_grad=False)
        self.spread = torch.nn.Parameter(torch.ones(2, wide), requires_grad=False)
        self.head = torch.nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        doubtful = x @ self.frozen
        wide = doubtful @ self.spread
        result: torch.Tensor = self.head(doubtful + wide[:, :2] * 0.25)
        return result


def make_log_job(path: Path, form: str = "bounded", wide: int = 4, steps: int = STEPS) -> Job:
    """Committed every 2 steps; the first product of every second record is a tie."""
    torch.manual_seed(3)
    model = Doubtful(wide)
    rng = np.random.default_rng(1)
    x = np.zeros((RECORDS, WIDTH), np.float32)
    x[:, 0], x[:, 1] = 1, HALF  # their sum lies on the boundary above 1
    x[1::2, 2] = rng.integers(1, 4, RECORDS // 2)  # every second record is no tie
    y = rng.integers(0, 2, RECORDS)
    batch = {"x": torch.tensor(x[:BATCH]), "y": torch.tensor(y[:BATCH])}
    captured = tallystick.capture(
        model,
        lambda m, b: functional.cross_entropy(m(b["x"]), b["y"]),
        batch,
        tallystick.SGD(lr=0.125),
        contract=f"replay/1;b={BITS};form={form}",
    )
    captured.save_job(path, {"x": x, "y": y}, steps=steps, checkpoint_interval=INTERVAL)
    return load_job(path)
