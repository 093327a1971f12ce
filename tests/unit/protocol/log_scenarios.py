"""One lie per clause about rounding logs, told by the owner of a log (PROTOCOL 6.10 to 6.13)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from unit.protocol.log_simulator import BITS, Entries
from unit.protocol.scenarios import WRONG, Lie, answering, flipped, one_less
from unit.protocol.scenarios import first_wrong as first_hash_wrong

from tallystick.commit.tensor import Array
from tallystick.numerics.grid import Grid
from tallystick.program.ir import Node
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import (
    BlockBody,
    BlocksBody,
    BytesBody,
    HashesBody,
    LogBody,
    NodeBody,
)

STEP = 3  # neither first, last nor committed
PRODUCT, WIDE, SCALED, HEAD, BIAS, COMMIT = (
    0,
    1,
    3,
    6,
    12,
    16,
)  # nodes of the job of log_simulator.py
TIE, PLAIN = 2, 0  # elements of the first product there: one has two values, one is 3 and a bit
UP = np.float32(2.0 ** -(BITS - 9))  # between 1 and the next element of the grid


@dataclass(frozen=True)
class LogScenario:
    """`clause` and `case` convict the liar, None: undecided. `zero_only`: as in scenarios.py."""

    clause: str | None
    case: str = ""
    hooks: dict[str, Callable[..., Any]] = field(default_factory=dict)
    zero_only: bool = False
    choices: tuple[int, int] | None = None
    says: str = ""


def entry(node: int, element: int, direction: int | None, step: int = STEP) -> Callable[..., None]:
    """An `entries` hook: an entry more at `step`, or (None) one less."""

    def hook(at: int, index: int, out: int, entries: Entries) -> None:
        if (at, index, out) == (step, node, 0):
            entries.pop(element, None)
            if direction is not None:
                entries[element] = direction

    return hook


def value(node: int, element: int, by: float, step: int = STEP) -> Callable[..., None]:
    """A `node` hook: an element of an output is larger by so much, at `step`."""

    def hook(at: int, index: int, _: Node, outputs: Sequence[Array]) -> None:
        if (at, index) == (step, node):
            outputs[0].reshape(-1)[element] += np.float32(by)

    return hook


def step_of_the_grid(node: int, element: int, by: int) -> dict[str, Callable[..., None]]:
    """A value is `by` steps of the grid off, and the entry of a published log names it."""

    def hook(at: int, index: int, _: Node, outputs: Sequence[Array]) -> None:
        if (at, index) == (STEP, node):
            flat, grid = outputs[0].reshape(-1), Grid(BITS)
            own = grid.index(flat[element])
            assert own is not None
            flat[element] = grid.value(own + by)

    return {"node": hook, "entries": entry(node, element, 1 + by)}


def in_block(change: Callable[[bytes], bytes], section: int = 0) -> Callable[..., list[bytes]]:
    """A `blocks` hook: the first block of a section has other bytes, at STEP."""

    def hook(step: int, number: int, blocks: list[bytes]) -> list[bytes]:
        if (step, number) != (STEP, section):
            return blocks
        return [change(blocks[0]), *blocks[1:]]

    return hook


def words(*numbers: int) -> Callable[[bytes], bytes]:
    """A bounded block of these words."""
    return lambda _: np.array(numbers, "<u2").tobytes()


def other_chain(step: int, digest: bytes) -> bytes:
    return WRONG if step == STEP else digest


def sections(change: Callable[[LogBody], LogBody]) -> Callable[..., Any]:
    return answering(q.Log, lambda _, body: change(body))


def blocks_of(change: Callable[[BlocksBody], BlocksBody]) -> Callable[..., Any]:
    return answering(q.LogHashes, lambda _, body: change(body))


def first_wrong(body: BlocksBody) -> BlocksBody:
    return BlocksBody(body.blocks, (WRONG, *body.hashes[1:]))


def cut(body: BlocksBody) -> BlocksBody:
    return BlocksBody(body.blocks, body.hashes[1:])


def false_node(query: q.NodeRecord, body: NodeBody) -> NodeBody:
    return replace(body, outputs=(WRONG,)) if query.node in (PRODUCT, WIDE) else body


def quantities(query: q.Values, body: Any) -> Any:
    """Another one of the quantities that the bound is made of."""
    return flipped(query, body) if query.view.kind == "needs" else body


def second_hashes_wrong(query: q.TensorHashes, body: HashesBody) -> HashesBody:
    """The hashes of the whole tensor are true, those of a part of it are false."""
    return first_hash_wrong(query, body) if query.first > 0 else body


def of_the_value(change: Callable[..., Any], kind: type[q.Query] = q.TensorHashes) -> LogScenario:
    """6.13: party 0 opens the element that the entry is about, and answers falsely."""
    hooks = {"entries": entry(WIDE, 9000, 0), "answer": answering(kind, change)}
    return LogScenario("6.13", "", hooks, zero_only=True)


EXTRA = {"entries": entry(PRODUCT, PLAIN, 1)}  # the boundary above is the nearer one
FALSE = {"node": value(PRODUCT, PLAIN, float(2 * UP))}

BOUNDED: dict[str, LogScenario] = {
    "a forged entry, followed": LogScenario(
        "6.11", "3", {**FALSE, "entries": entry(PRODUCT, PLAIN, 1)}, says="is forged"
    ),
    "a value without an entry": LogScenario("6.11", "3", FALSE, says="it has no entry"),
    "an honest entry and another value": LogScenario(
        "6.11",
        "3",
        {"node": value(PRODUCT, TIE, float(UP))},
        choices=(1, 0),
        says="names the other",
    ),
    "a forged entry, not followed": LogScenario("6.13", "3", EXTRA, says="no kernel leads to it"),
    "an entry in one of many blocks": LogScenario("6.13", "3", {"entries": entry(WIDE, 9000, 0)}),
    "an entry of an element that is none": LogScenario(
        "6.13", "3", {"blocks": in_block(lambda b: b + words(2 * 700)(b""))}
    ),
    "an entry that says nothing": LogScenario(
        None, hooks={"entries": entry(PRODUCT, PLAIN, 0)}, choices=(0, 0)
    ),
    "an entry less": LogScenario(
        None, hooks={"entries": entry(PRODUCT, TIE, None)}, choices=(1, 0)
    ),
    "words that do not ascend": LogScenario("6.10", "3", {"blocks": in_block(words(4, 2))}),
    "an entry there twice": LogScenario("6.10", "3", {"blocks": in_block(words(2, 3))}),
    "a word beyond the block": LogScenario("6.10", "3", {"blocks": in_block(words(8192))}),
    "half a word": LogScenario("6.10", "3", {"blocks": in_block(lambda b: b + b"\0")}),
    "half a word, and a wrong value": LogScenario(
        "6.10", "3", {**FALSE, "blocks": in_block(lambda b: b + b"\0")}
    ),
    "a log that is not committed": LogScenario("6.10", "", {"log_digest": other_chain}),
    "a log of fewer sections": LogScenario(
        "6.10", "", {"sections": lambda step, found: found[1:] if step == STEP else found}
    ),
    "a log of more sections": LogScenario(
        "6.10", "", {"sections": lambda step, found: [*found, WRONG] if step == STEP else found}
    ),
    "a wrong value under another log": LogScenario(
        "6.10", "", {**FALSE, "log_digest": other_chain}
    ),
    "a false chain before": LogScenario(
        "6.10", "", {**FALSE, "answer": sections(lambda b: replace(b, chain=WRONG))}
    ),
    "a false proof of it": LogScenario(
        "6.10", "", {**FALSE, "answer": sections(lambda b: replace(b, before=b.before[1:]))}
    ),
    "a false proof of the chain after": LogScenario(
        "6.10", "", {**FALSE, "answer": sections(lambda b: replace(b, after=(WRONG, *b.after[1:])))}
    ),
    "another section": LogScenario(
        "6.10",
        "",
        {**FALSE, "answer": sections(lambda b: replace(b, sections=(WRONG, *b.sections[1:])))},
    ),
    "a section less": LogScenario(
        "6.10", "", {**FALSE, "answer": sections(lambda b: replace(b, sections=b.sections[1:]))}
    ),
    "a false block": LogScenario(
        "6.10",
        "",
        {**FALSE, "answer": answering(q.LogBlock, lambda _, b: BlockBody(b"\0\0", b.proof))},
    ),
    "a proof of another block": LogScenario(
        "6.10",
        "",
        {**FALSE, "answer": answering(q.LogBlock, lambda _, b: BlockBody(b.data, (WRONG,)))},
    ),
    "false hashes of blocks": LogScenario(
        "6.13", "", {"entries": entry(WIDE, 9000, 0), "answer": blocks_of(first_wrong)}
    ),
    "too few hashes of blocks": LogScenario(
        "2.7", "", {"entries": entry(WIDE, 9000, 0), "answer": blocks_of(cut)}
    ),
    "another number of blocks": LogScenario(
        "2.7",
        "",
        {
            "entries": entry(WIDE, 9000, 0),
            "answer": blocks_of(lambda b: BlocksBody(b.blocks + 1, b.hashes)),
        },
    ),
    "a false record of the output's node": LogScenario(
        "6.13",
        "",
        {**EXTRA, "answer": answering(q.NodeRecord, false_node)},
        zero_only=True,
        says="not the one in its tree",
    ),
    "false hashes of the entry's value": of_the_value(first_hash_wrong),
    "false hashes of a part of the entry's value": of_the_value(second_hashes_wrong),
    "too few hashes of the entry's value": replace(of_the_value(one_less), clause="2.7"),
    "a false leaf of the entry's value": of_the_value(flipped, q.Leaf),
    "a false leaf of a value in a tensor of one leaf": LogScenario(
        "6.13", "", {**EXTRA, "answer": answering(q.Leaf, flipped)}, zero_only=True
    ),
    "a leaf of another length of the entry's value": replace(
        of_the_value(lambda _, b: BytesBody(b.data[:-4]), q.Leaf), clause="2.7"
    ),
    "a false exact sum": LogScenario(
        "6.5",
        "3",
        {
            **FALSE,
            "answer": answering(
                q.Values, lambda _, b: BytesBody(bytes([~b.data[0] & 255]) + b.data[1:])
            ),
        },
        says="exact sum",
    ),
    "a false sum of squares": LogScenario(
        "6.5", "3", {**FALSE, "answer": answering(q.Values, quantities)}
    ),
    "a false sum of squares below an entry": LogScenario(
        "6.5", "3", {**EXTRA, "answer": answering(q.Values, quantities)}
    ),
    "too few quantities": LogScenario(
        "2.7",
        "",
        {**EXTRA, "answer": answering(q.Values, lambda k, b: type(b)(b.data[1:]))},
    ),
    "a wrong loss in the chain": LogScenario(
        "5.8", "3", {"loss": lambda step, bits: bits + (step == STEP)}
    ),
    "a wrong loss, and another log": LogScenario(
        "5.8", "3", {**EXTRA, "loss": lambda step, bits: bits + (step == STEP)}
    ),
    "will not open its log": LogScenario(
        "2.8", "", {**FALSE, "answer": answering(q.Log, lambda *_: None)}
    ),
}

PUBLISHED: dict[str, LogScenario] = {
    "a value outside of V": LogScenario("6.11", "3", FALSE, choices=(0, 0)),
    "a value that is not on the grid": LogScenario(
        "6.11", "3", {"node": value(PRODUCT, PLAIN, 0.0101)}
    ),
    "the other value of V": LogScenario(
        None, hooks={"node": value(PRODUCT, TIE, float(UP))}, choices=(1, 1)
    ),
    # Both results are numbers of the grid: kernels on both sides of them round to them.
    "one step down and the entry that names it": LogScenario(
        "6.11", "3", step_of_the_grid(WIDE, 9000, -1), choices=(0, 0)
    ),
    "one step up and the entry that names it": LogScenario(
        "6.11", "3", step_of_the_grid(WIDE, 9000, 1), choices=(0, 0)
    ),
    "another operator's value, one step down and the entry that names it": LogScenario(
        "6.11", "3", step_of_the_grid(SCALED, 0, -1), choices=(0, 0)
    ),
    "another operator's value, one step up and the entry that names it": LogScenario(
        "6.11", "3", step_of_the_grid(SCALED, 0, 1), choices=(0, 0)
    ),
    "another operator's value": LogScenario("6.11", "3", {"node": value(SCALED, 0, 1.0)}),
    "another operator's value, one rounding off": LogScenario(
        "6.11", "3", {"node": value(SCALED, 0, float(2 * UP))}
    ),
    "a product with a last term": LogScenario("6.11", "3", {"node": value(HEAD, 0, 1.0)}),
    "an entry that changes the value": LogScenario(
        "6.13", "3", {"entries": entry(PRODUCT, PLAIN, 2)}, says="no kernel leads to it"
    ),
    "an entry that does not": LogScenario(
        None, hooks={"entries": entry(PRODUCT, PLAIN, 0)}, choices=(0, 0)
    ),
    "an entry at a tie that denies the value": LogScenario(
        "6.13", "3", {"entries": entry(PRODUCT, TIE, 2)}, choices=(1, 0), says="does not follow"
    ),
    "an entry at a tie": LogScenario(
        None, hooks={"entries": entry(PRODUCT, TIE, 0)}, choices=(1, 0)
    ),
    "an entry of another operator": LogScenario(None, hooks={"entries": entry(SCALED, 0, 0)}),
    "a late entry": LogScenario(None, hooks={"entries": entry(WIDE, 23000, 2)}),
    "a byte that is none": LogScenario(
        "6.10", "3", {"blocks": in_block(lambda b: b"\xff" + b[1:])}
    ),
    "a filler that is none": LogScenario(
        "6.10", "3", {"blocks": in_block(lambda b: bytes([b[0] + 81]))}
    ),
    "a block of another length": LogScenario(
        "6.10", "3", {"blocks": in_block(lambda b: b + b"\x79")}
    ),
    "a log that is not committed": LogScenario("6.10", "", {"log_digest": other_chain}),
}


def lie(scenario: LogScenario) -> Lie:
    return Lie(**scenario.hooks)
