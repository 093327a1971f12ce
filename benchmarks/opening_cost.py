"""The bytes that open the worst element of every operator of GPT-2 124M (ADR 0004).

It counts phase 3 of a dispute (DESIGN 7). The parties descend to the first differing leaf of the
disputed output and show that leaf. They state the contract's own partials for the first differing
element. Then they open the terms of one partial, with proofs against input digests on which both
agree. Every opening counts with the exact size of TensorOpening.to_bytes (COMMITMENTS 3.6) and its
real multi-proof.

    python benchmarks/opening_cost.py [--json] [--leaf 1024,2048,4096] [--seq 64,1024]
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

TARGET_BYTES = 2_000_000
CHUNK, BLOCK, LANES, PREFIX = 128, 256, 32, 256  # NUMERICS 2.1, 3.1; PREFIX: scatter claims
HASH, F32, PARTIES = 32, 4, 2
ITEM = {"f32": 4, "f64": 8, "i64": 8, "bool": 1}
OPENING_TAG = len(b"tallystick/tensor-opening/1\0")


@dataclass(frozen=True)
class Tensor:
    shape: tuple[int, ...]
    dtype: str = "f32"

    @property
    def nbytes(self) -> int:
        n = ITEM[self.dtype]
        for d in self.shape:
            n *= d
        return n

    def at(self, *index: int) -> int:
        flat = 0
        for i, d in zip(index, self.shape, strict=True):
            flat = flat * d + i
        return flat


@cache
def proof_hashes(leaves: tuple[int, ...], size: int) -> int:
    """Hashes in the multi-proof of `leaves` among `size`, counted on each leaf's path.

    Each node on an opened leaf's path has one proof hash beside it. Neighbours share all levels
    above the highest one at which their paths part. The result equals merkle.multi_proof_length.
    """
    if size == 1:
        return 0
    total = path_length(leaves[0], 0, size)
    for left, right in pairwise(leaves):
        low, high = 0, size
        while True:  # the subtree in which the two paths part
            middle = low + (1 << (high - low - 1).bit_length() - 1)
            if right < middle:
                high = middle
            elif left >= middle:
                low = middle
            else:
                break
        # `right` counts its own path below the fork; its half needs no proof hash any more.
        total += path_length(right, middle, high) - 1
    return total


def path_length(leaf: int, low: int, high: int) -> int:
    steps = 0
    while high - low > 1:
        middle = low + (1 << (high - low - 1).bit_length() - 1)
        low, high = (low, middle) if leaf < middle else (middle, high)
        steps += 1
    return steps


def opening_bytes(tensor: Tensor, elements: Iterable[int], leaf: int) -> int:
    """Size of TensorOpening.to_bytes for the leaves that hold `elements`."""
    size = -(-tensor.nbytes // leaf)
    item = ITEM[tensor.dtype]
    wanted = tuple(sorted({e * item // leaf for e in elements}))
    data = sum(min(leaf, tensor.nbytes - i * leaf) for i in wanted)
    header = OPENING_TAG + 2 + 8 * len(tensor.shape)
    return header + 8 + 8 * len(wanted) + data + 8 + HASH * proof_hashes(wanted, size)


# A read is one opening: a tensor and its needed elements, by flat index.
Read = tuple[Tensor, list[int]]


@dataclass(frozen=True)
class Branch:
    """One possible end of phase 3 for one element: claimed partials, and reads."""

    claims: int  # binary32 values claimed by each party
    reads: tuple[Read, ...]


@dataclass(frozen=True)
class Product:
    """The call of a DOT; `turned`: its first operand is stored with its axes exchanged."""

    op: str
    operands: tuple[Tensor, ...]
    turned: bool = False


@dataclass(frozen=True)
class Operator:
    name: str
    output: Tensor
    inputs: int
    branches: Callable[[random.Random], Iterator[Branch]]
    product: Product | None = None


def sum_branches(
    n: int, reads: Callable[[list[int]], tuple[Read, ...]], draw: random.Random
) -> Iterator[Branch]:
    """SUM over n terms (NUMERICS 3.1): claimed block values level by level, 32 lanes, one lane."""
    claims, level = 0, n
    while level > BLOCK:
        blocks = -(-level // BLOCK)
        claims += min(blocks, BLOCK) + LANES
        level = blocks
    last = (n - 1) // BLOCK
    for block in sorted({0, last, max(0, last - 1), draw.randrange(last + 1)}):
        lane = draw.randrange(min(LANES, n - block * BLOCK))
        terms = list(range(block * BLOCK + lane, min(n, (block + 1) * BLOCK), LANES))
        yield Branch(claims + LANES, reads(terms))


def dot_branches(
    k: int, reads: Callable[[list[int]], tuple[Read, ...]], draw: random.Random
) -> Iterator[Branch]:
    """DOT over k terms (NUMERICS 2.1): partials and running totals, then one chunk."""
    chunks = -(-k // CHUNK)
    for c in sorted({0, chunks // 2, max(0, chunks - 2), chunks - 1}):
        yield Branch(2 * chunks, reads(list(range(c * CHUNK, min(k, (c + 1) * CHUNK)))))


def pick(draw: random.Random, *sizes: int) -> Iterator[tuple[int, ...]]:
    yield tuple(0 for _ in sizes)
    yield tuple(n - 1 for n in sizes)
    for _ in range(6):
        yield tuple(draw.randrange(n) for n in sizes)


def mm(name: str, m: int, k: int, n: int, strided_a: bool = False, bias: bool = False) -> Operator:
    a = Tensor((k, m) if strided_a else (m, k))
    b, out = Tensor((k, n)), Tensor((m, n))

    def branches(draw: random.Random) -> Iterator[Branch]:
        for i, j in pick(draw, m, n):

            def reads(ks: list[int], i: int = i, j: int = j) -> tuple[Read, ...]:
                left = [a.at(q, i) if strided_a else a.at(i, q) for q in ks]
                extra = ((Tensor((n,)), [j]),) if bias else ()
                return ((a, left), (b, [b.at(q, j) for q in ks]), *extra)

            yield from dot_branches(k, reads, draw)

    first = (Tensor((n,)),) if bias else ()
    call = Product("aten.addmm" if bias else "aten.mm", (*first, Tensor((m, k)), b), strided_a)
    return Operator(name, out, 3 if bias else 2, branches, call)


def bmm(name: str, batch: int, m: int, k: int, n: int) -> Operator:
    a, b, out = Tensor((batch, m, k)), Tensor((batch, k, n)), Tensor((batch, m, n))

    def branches(draw: random.Random) -> Iterator[Branch]:
        for g, i, j in pick(draw, batch, m, n):

            def reads(ks: list[int], g: int = g, i: int = i, j: int = j) -> tuple[Read, ...]:
                return (a, [a.at(g, i, q) for q in ks]), (b, [b.at(g, q, j) for q in ks])

            yield from dot_branches(k, reads, draw)

    return Operator(name, out, 2, branches, Product("aten.bmm", (a, b)))


def elementwise(name: str, output: Tensor, *inputs: Tensor, claims: int = 0) -> Operator:
    """One element of every input (data movement is this too), plus named intermediates."""

    def branches(draw: random.Random) -> Iterator[Branch]:
        for _ in range(8):
            yield Branch(
                claims, tuple((t, [draw.randrange(t.nbytes // ITEM[t.dtype])]) for t in inputs)
            )

    return Operator(name, output, len(inputs), branches)


def row_operator(
    name: str, rows: int, n: int, row_claims: int, tensors: int, output: Tensor | None = None
) -> Operator:
    """Rows with SUM intermediates over `tensors` inputs of shape [rows, n] (NUMERICS 6, 7).

    The maximum of a row is settled within the same blocks and lanes as a SUM.
    """
    x = Tensor((rows, n))

    def branches(draw: random.Random) -> Iterator[Branch]:
        for (r,) in pick(draw, rows):

            def reads(terms: list[int], r: int = r) -> tuple[Read, ...]:
                side = ((Tensor((rows,)), [r]),) * 2
                return (*((x, [x.at(r, q) for q in terms]),) * tensors, *side)

            for b in sum_branches(n, reads, draw):
                yield Branch(b.claims + row_claims, b.reads)

    return Operator(name, output or x, tensors, branches)


def column_sum(name: str, rows: int, n: int, tensors: int, per_row: int) -> Operator:
    """SUM over rows for one column: bias gradients, layer_norm's dw (two inputs, mean, rstd)."""
    x = Tensor((rows, n))

    def branches(draw: random.Random) -> Iterator[Branch]:
        for (j,) in pick(draw, n):

            def reads(terms: list[int], j: int = j) -> tuple[Read, ...]:
                side = ((Tensor((rows,)), terms),) * per_row
                return (*((x, [x.at(r, j) for r in terms]),) * tensors, *side)

            yield from sum_branches(rows, reads, draw)

    return Operator(name, Tensor((n,)), tensors + per_row, branches)


def sum_squares(name: str, n: int) -> Operator:
    x = Tensor((n,))

    def branches(draw: random.Random) -> Iterator[Branch]:
        yield from sum_branches(n, lambda terms: ((x, terms),), draw)

    return Operator(name, Tensor(()), 1, branches)


def embedding_backward(name: str, tokens: int, vocabulary: int, width: int) -> Operator:
    """All tokens are the same: a claimed prefix every 256 contributions, one opened stretch."""
    g, idx = Tensor((tokens, width)), Tensor((tokens,), "i64")

    def branches(draw: random.Random) -> Iterator[Branch]:
        for (j,) in pick(draw, width):
            for first in sorted({0, (tokens - 1) // PREFIX * PREFIX}):
                rows = range(first, min(tokens, first + PREFIX))
                reads = (g, [g.at(r, j) for r in rows]), (idx, list(range(tokens)))
                yield Branch(-(-tokens // PREFIX), reads)

    return Operator(name, Tensor((vocabulary, width)), 2, branches)


def clip_coef(name: str, parameters: int) -> Operator:
    def branches(draw: random.Random) -> Iterator[Branch]:
        yield Branch(LANES + 3, ((Tensor(()), [0]),) * parameters)

    return Operator(name, Tensor(()), parameters, branches)


def commit(name: str, slots: int) -> Operator:
    """The parties open only the loss and the two chains; the digests are the node's own."""
    chain = Tensor((HASH,), "bool")

    def branches(draw: random.Random) -> Iterator[Branch]:
        yield Branch(0, ((Tensor(()), [0]), (chain, [0]), (chain, [0])))

    return Operator(name, Tensor((HASH,), "bool"), slots + 3, branches)


def gpt2_124m(batch: int, seq: int) -> list[Operator]:
    """One operator of every kind and every shape class in the step, named by its place."""
    c, heads, vocab, ctx = 768, 12, 50257, 1024
    rows, d, bh = batch * seq, 64, batch * 12
    x, wide, att = Tensor((rows, c)), Tensor((rows, 4 * c)), Tensor((bh, seq, seq))
    mask, att_mask = Tensor((rows, c), "bool"), Tensor((bh, seq, seq), "bool")
    logits, wte, one = Tensor((rows, vocab)), Tensor((vocab, c)), Tensor(())
    scalar, per_row, index = Tensor((), "f64"), Tensor((rows,)), Tensor((rows,), "i64")
    rng = Tensor((2,), "i64")
    assert heads * d == c
    return [
        elementwise("aten.embedding wte", x, wte, index),
        elementwise("aten.embedding wpe", Tensor((seq, c)), Tensor((ctx, c)), index),
        elementwise("aten.add residual", x, x, x),
        elementwise("tallystick.dropout_mask", mask, rng),
        elementwise("tallystick.dropout_mask attention", att_mask, rng),
        elementwise("tallystick.mask_scale", x, x, mask),
        row_operator("aten.native_layer_norm", rows, c, 3, 1),
        elementwise("aten.native_layer_norm element", x, x, Tensor((c,)), Tensor((c,)), claims=3),
        elementwise("aten.view / permute", x, x),
        elementwise("aten.permute wte", Tensor((c, vocab)), wte),
        elementwise("aten.slice / cat", Tensor((rows, 3 * c)), x),
        mm("aten.addmm qkv", rows, c, 3 * c, bias=True),
        mm("aten.addmm mlp up", rows, c, 4 * c, bias=True),
        mm("aten.addmm mlp down", rows, 4 * c, c, bias=True),
        bmm("aten.bmm q k^T", bh, seq, d, seq),
        bmm("aten.bmm p v", bh, seq, seq, d),
        bmm("aten.bmm p^T dout", bh, seq, seq, d),
        elementwise("aten.where causal mask", att, att_mask, att, one),
        row_operator("aten._softmax", bh * seq, seq, 2, 1),
        row_operator("aten._softmax_backward_data", bh * seq, seq, 1, 2),
        elementwise("aten.gelu", wide, wide),
        elementwise("aten.gelu_backward", wide, wide, wide, claims=4),
        mm("aten.mm logits", rows, c, vocab),
        row_operator("tallystick.cross_entropy row", rows, vocab, 4, 1, Tensor(())),
        sum_squares("tallystick.cross_entropy mean", rows),
        elementwise(
            "tallystick.cross_entropy_backward", logits, logits, index, per_row, per_row, one
        ),
        mm("aten.mm logits dx", rows, vocab, c),
        mm("aten.mm logits dw", c, rows, vocab),
        mm("aten.mm dw, both operands strided", vocab, rows, c, strided_a=True),
        mm("aten.mm mlp dw", c, rows, 4 * c),
        mm("aten.mm mlp dx", rows, 4 * c, c),
        row_operator("aten.native_layer_norm_backward dx", rows, c, 2, 2),
        column_sum("aten.native_layer_norm_backward dw", rows, c, 2, 2),
        column_sum("aten.sum bias gradient", rows, 4 * c, 1, 0),
        embedding_backward("aten.embedding_dense_backward wte", rows, vocab, c),
        sum_squares("tallystick.sum_squares wte", vocab * c),
        sum_squares("sum of squares over all 124M", 124_439_808),
        clip_coef("tallystick.clip_coef", 148),
        elementwise("tallystick.beta_power", scalar, scalar),
        elementwise("tallystick.adamw_step wte", wte, *[wte] * 4, *[scalar] * 3, one, claims=4),
        commit("tallystick.commit", 3 * 148 + 2),
    ]


def before(operator: Operator, leaf: int, nodes: int = 3000) -> int:
    """The bytes before the first query about an element: descent, output leaf, node records."""
    out_leaves = max(1, -(-operator.output.nbytes // leaf))
    levels = (out_leaves - 1).bit_length()
    descent = PARTIES * (levels * 2 * HASH + min(leaf, operator.output.nbytes))
    return descent + PARTIES * HASH * (operator.inputs + 3 + (nodes - 1).bit_length())


def worst_cost(operator: Operator, leaf: int) -> tuple[int, int]:
    """(bytes, opened leaves) of the dearest branch over the elements tried."""
    draw = random.Random(0)
    first = before(operator, leaf)
    worst = (0, 0)
    for branch in operator.branches(draw):
        reads = sum(opening_bytes(t, elements, leaf) for t, elements in branch.reads)
        opened = sum(len({e * ITEM[t.dtype] // leaf for e in es}) for t, es in branch.reads)
        worst = max(worst, (first + PARTIES * F32 * branch.claims + reads, opened))
    return worst


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--leaf", default="1024,2048,4096")
    parser.add_argument("--seq", default="64,1024")
    parser.add_argument("--batch", type=int, default=8)
    options = parser.parse_args(arguments)
    leaves = [int(v) for v in options.leaf.split(",")]
    rows = []
    for seq in (int(v) for v in options.seq.split(",")):
        for operator in gpt2_124m(options.batch, seq):
            costs = {leaf: worst_cost(operator, leaf) for leaf in leaves}
            rows.append((seq, operator.name, costs))
    if options.json:
        found = [
            {
                "name": f"opening/gpt2-124m/seq{seq}/{name}/leaf{leaf}/opening_bytes",
                "value": cost,
                "unit": "bytes",
                "target": TARGET_BYTES,
                "leaves": opened,
            }
            for seq, name, costs in rows
            for leaf, (cost, opened) in costs.items()
        ]
        machine = f"{platform.machine()} {platform.python_implementation()}"
        print(json.dumps({"bench": "opening_cost", "machine": machine, "rows": found}, indent=1))
        return 0
    print("| seq | operator | " + " | ".join(f"leaf {v}: bytes (leaves)" for v in leaves) + " |")
    print("|---|---|" + "---|" * len(leaves))
    for seq, name, costs in rows:
        cells = " | ".join(f"{cost:,} ({opened})" for cost, opened in costs.values())
        print(f"| {seq} | {name} | {cells} |")
    for leaf in leaves:
        cost, where = max((costs[leaf][0], f"{name}, seq {seq}") for seq, name, costs in rows)
        print(f"\nworst at leaf {leaf}: {cost:,} bytes ({where}), target {TARGET_BYTES:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
