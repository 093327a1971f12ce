"""The bytes that open the worst element of every operator of GPT-2 124M under `exact/1` (ADR 0015).

opening_cost.py counts the operators that `exact/1` leaves as they are. Here an element of each DOT
is disputed to its end: the package's opening rule, its resolver as the referee, and two parties at
the real shapes, whose operands are numbers made from their positions. Counted are the bytes of all
values that both state, and the exact size of every opening that the referee asks for, with the same
costs before the first query.

    python benchmarks/opening_cost_exact.py [--json] [--leaf 2048] [--seq 64,1024] [--b 8,15,22]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from opening_cost import (
    PARTIES,
    TARGET_BYTES,
    Operator,
    Tensor,
    before,
    gpt2_124m,
    opening_bytes,
    pick,
    worst_cost,
)
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import Attrs, TensorType
from tallystick.opening.quantity import (
    VALUE_DTYPES,
    Array,
    Chain,
    Index,
    Local,
    MissingElements,
    Quantity,
    Scalar,
    Site,
    Source,
    opening_rule,
)
from tallystick.opening.values import value_of
from tallystick.opening.views import Path, locate, view_values
from tallystick.protocol.element import Ask, ElementOutcome, resolve

_MIX = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Made:
    """Operands whose elements are made from their positions; `changed` ones are negated, and
    `largest` ones multiplied by 2^10. `read_at` has every position read."""

    changed: set[tuple[int, int]] = field(default_factory=set)
    largest: set[tuple[int, int]] = field(default_factory=set)
    read_at: list[tuple[int, int]] | None = None

    def read(self, operand: int, flat: Index) -> Array:
        places = np.asarray(flat, np.int64)
        bits = (places.astype(np.uint64) + np.uint64(operand << 40)) * _MIX >> np.uint64(40)
        values = (bits.astype(np.float32) * np.float32(2.0**-24) + np.float32(0.5)) * np.where(
            bits & np.uint64(1), np.float32(-1), np.float32(1)
        )
        for places_of, factor in ((self.changed, -1), (self.largest, 1024)):
            for other, at in places_of:
                if other == operand:
                    values = np.where(places == at, values * np.float32(factor), values)
        if self.read_at is not None:
            self.read_at += [(operand, int(at)) for at in places.reshape(-1)]
        return np.asarray(values, np.float32)


class Opened:
    """What the referee has: elements that were opened."""

    def __init__(self) -> None:
        self.whole, self.have = Made(), dict[int, set[int]]()

    def read(self, operand: int, flat: Index) -> Array:
        missing = sorted({int(k) for k in flat.reshape(-1)} - self.have.get(operand, set()))
        if missing:
            raise MissingElements(operand, np.array(missing, np.int64))
        return self.whole.read(operand, flat)


@dataclass(frozen=True)
class Party:
    """States what `source` gives; of parts that begin with `only`, where there is one, and the
    honest values of all others."""

    root: Quantity
    source: Source
    only: Path = ()

    def state(self, ask: Ask) -> tuple[Scalar, ...]:
        quantity, honest = locate(self.root, ask.path), Made()
        lying = ask.path[: len(self.only)] == self.only
        values = view_values(quantity, ask.view, self.source if lying else honest)
        if ask.path == self.only[:-1] and self.only:
            number = self.only[-1]
            own = value_of(quantity.needs[number], self.source)
            values = (*values[:number], own, *values[number + 1 :])
        return values


def played(
    root: Quantity,
    parties: tuple[Party, Party],
    claims: tuple[Scalar, Scalar],
    stored: list[Tensor],
    turned: int | None,
    leaf: int,
) -> tuple[int, int, ElementOutcome]:
    """(bytes, opened leaves, verdict) of a dispute over one element."""
    source, total, leaves = Opened(), 0, 0
    game, sent = resolve(root, claims, source), None
    while True:
        try:
            step = game.send(sent)
        except StopIteration as end:
            return total, leaves, end.value
        if isinstance(step, Ask):
            sent = tuple(party.state(step) for party in parties)
            total += PARTIES * sum(VALUE_DTYPES[d].itemsize for d in step.dtypes)
            continue
        source.have.setdefault(step.operand, set()).update(step.flat.tolist())
        tensor, places = stored[step.operand], step.flat.tolist()
        if step.operand == turned:  # element (i, k) lies at (k, i)
            k, m = tensor.shape
            places = [at % k * m + at // k for at in places]
        total += opening_bytes(tensor, places, leaf)
        leaves += len({at * 4 // leaf for at in places})
        sent = None


def lies(root: Local, draw: random.Random) -> Iterator[tuple[Path, Made]]:
    """(where the liar lies, its source): a magnitude or a product in some link of the chain; the
    DOT of `ordered/1`, which is stated too; the last step."""
    chain = root.needs[0]
    assert isinstance(chain, Chain)
    links = {0, chain.count // 2, chain.count - 1, *(draw.randrange(chain.count) for _ in range(6))}
    for link in sorted(links):
        seen: list[tuple[int, int]] = []
        chain.advance(Made(read_at=seen), (), chain.start, link, link + 1)
        place = draw.choice(seen)
        for made in (Made(changed={place}), Made(largest={place})):
            yield (), made
    yield (1,), Made(changed={place})


def worst(operator: Operator, contract: str, leaf: int) -> tuple[int, int]:
    """(bytes, opened leaves) of the dearest dispute over the elements and lies tried."""
    call, draw, most = operator.product, random.Random(0), (0, 0)
    assert call is not None
    types = [TensorType("f32", x.shape) for x in call.operands]
    stored = list(call.operands)
    if call.turned:
        stored[0] = Tensor(call.operands[0].shape[::-1])
    attrs: Attrs = {"alpha": 1.0, "beta": 1.0} if call.op == "aten.addmm" else {}
    out = TensorType("f32", operator.output.shape)
    for index in pick(draw, *operator.output.shape):
        element = operator.output.at(*index)
        root = opening_rule(Site(call.op, attrs, tuple(types), (out,), 0, element, contract))
        assert isinstance(root, Local)
        true = value_of(root, Made())
        for only, source in lies(root, draw):
            claim = value_of(root, source) if not only else true + np.float32(1)
            if claim.tobytes() == true.tobytes():
                continue  # rounded away: no dispute
            parties = Party(root, Made()), Party(root, source, only)
            turned = 0 if call.turned else None
            size, leaves, verdict = played(root, parties, (true, claim), stored, turned, leaf)
            assert verdict.convicted == (False, True) and verdict.terms <= 128, verdict
            most = max(most, (before(operator, leaf) + size, leaves))
    return most


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--leaf", type=int, default=2048)
    parser.add_argument("--seq", default="64,1024")
    parser.add_argument("--b", default="8,15,22")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args(arguments)
    rows = []
    widths = [int(v) for v in options.b.split(",")]
    for seq in (int(v) for v in options.seq.split(",")):
        for operator in gpt2_124m(options.batch, seq):
            for b in widths:
                contract = find_contract(f"exact/1;b={b}").text
                dot = operator.product is not None
                cost = (worst(operator, contract, options.leaf) if dot
                        else worst_cost(operator, options.leaf))  # fmt: skip
                rows.append((seq, operator.name, b, dot, *cost))
    if options.json:
        found = [
            {"name": f"opening/gpt2-124m/seq{seq}/{name}/exact-b{b}/opening_bytes", "value": cost,
             "unit": "bytes", "target": TARGET_BYTES, "leaves": leaves, "dot": dot}
            for seq, name, b, dot, cost, leaves in rows
        ]  # fmt: skip
        print(json.dumps({"bench": "opening_cost_exact", "rows": found}, indent=1))
        return 0
    print("| seq | operator | " + " | ".join(f"b = {b}: bytes (leaves)" for b in widths) + " |")
    print("|---|---|" + "---|" * len(widths))
    for at in range(0, len(rows), len(widths)):
        if rows[at][3]:
            cells = " | ".join(f"{r[4]:,} ({r[5]})" for r in rows[at : at + len(widths)])
            print(f"| {rows[at][0]} | {rows[at][1]} | {cells} |")
    for what, is_dot in (("DOT", True), ("other operator", False)):
        top = max((r for r in rows if r[3] is is_dot), key=lambda r: r[4])
        where = f"{top[1]}, seq {top[0]}, b = {top[2]}"
        print(f"\nworst {what}: {top[4]:,} bytes ({where}), target {TARGET_BYTES:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
