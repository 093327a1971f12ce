"""Evidence about single operators: a false element of each output, and false parts of it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import kernel_format as fmt
import numpy as np
from make_exact_vectors import ROOT as EXACT_ROOT
from operator_job import KINDS, golden, operator_job
from unit.protocol.log_simulator import LogParty
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

from tallystick.commit.tensor import Array
from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.job.job import Job
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops, dot_operators, rounded_operators
from tallystick.program.ir import Node
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import BytesBody

CONTRACTS = {"ordered": "ordered/1", "rounded": "rounded/1;b=27", "bounded": "replay/1;b=27",
             "published": "replay/1;b=27;form=published"}  # fmt: skip
LATER = ("aten.cumsum",)
# Operators that came after the bundles above, each with a bundle of its own.
SINCE = {"operators-scatter": ("aten.scatter.src",), "operators-rank": ("tallystick.rank",),
         "operators-whole": ("aten.floor_divide",),
         "operators-whole-bits": ("aten.bitwise_xor.Tensor", "aten.bitwise_left_shift.Tensor",
                                  "aten.bitwise_right_shift.Tensor"),
         "operators-fold": ("tallystick.fold",),
         "operators-attention": ("tallystick.attention_scores", "tallystick.attention_weights",
                                 "tallystick.attention_values"),
         "operators-answer": ("tallystick.gumbel", "tallystick.occurrences"),
         "operators-quantised": ("tallystick.dequantize",)}  # fmt: skip
# Golden calls of each operator of a bundle, where two do not reach every branch.
_MORE = {"tallystick.attention_scores": 13, "tallystick.dequantize": 24}
# Groups of golden calls that came after those bundles, for operators that were there.
SINCE_GROUPS = {"operators-whole-narrow": "whole-narrow"}
_LATER_GROUPS = {"whole-bits", "stored", *SINCE_GROUPS.values()}
# exact/1 came after them too, with two bundles of its own.
EXACT = {f"b-{b}": f"exact/1;b={b}" for b in BLOCK_LENGTHS}
NODES = 6  # of a job: COMMIT's record, which lists every slot, is in each evidence


def frozen_operators() -> set[str]:
    """Those of the bundles about all operators, which stay as they are."""
    return set(all_ops()) - {name for names in SINCE.values() for name in names}


def frozen_groups() -> set[str]:
    """The groups of golden calls that those bundles are made of."""
    return set(fmt.groups()) - _LATER_GROUPS


def another(index: int, out: int) -> Callable[[int, int, Node, Sequence[Array]], None]:
    """A `node` hook: the middle element of an output is another one."""

    def hook(_: int, at: int, node: Node, outputs: Sequence[Array]) -> None:
        if at != index:
            return
        flat = outputs[out].reshape(-1)
        place = flat.size // 2
        old = flat[place]
        if flat.dtype == bool:
            flat[place] = not old
        elif flat.dtype.kind != "f":
            flat[place] = old + 1
        elif np.isfinite(old):
            flat[place] = old * flat.dtype.type(1.5) if abs(old) >= 1 else old + 1
        else:
            flat[place] = 1

    return hook


def party_of(contract: str) -> type[Party]:
    """The party in memory that a contract needs."""
    return LogParty if contract.startswith("replay") else Party


def jobs(
    maker: Any, contract: str, cases: Sequence[fmt.Case], nodes: int = NODES
) -> list[tuple[Job, int, list[fmt.Case]]]:
    """(job, number of its first call, its calls), so many calls in each."""
    text = find_contract(contract).text
    found = []
    for first in range(0, len(cases), nodes):
        some = list(cases[first : first + nodes])
        job = operator_job(Path(tempfile.mkdtemp(dir=maker.scratch)) / "job", text, some)
        found.append((job, first, some))
    return found


# -- a false element -------------------------------------------------------------------------------
def operators(maker: Any, contract: str) -> None:
    """A false element of each output of golden calls: all operators, or those that are treated."""
    every = contract in ("ordered/1", CONTRACTS["published"])
    names = frozen_operators() - set(LATER) if every else rounded_operators()
    false_outputs(maker, contract, golden(2 if every else 4, 1500, names, frozen_groups()))


def false_outputs(maker: Any, contract: str, cases: Sequence[fmt.Case], called: str = "") -> None:
    """Games about a false element of each output, by turns as party 0 and party 1."""
    kind = party_of(contract)
    for job, first, some in jobs(maker, contract, cases):
        honest = kind(job)
        for number, case in enumerate(some):
            for out in range(len(case.outputs)):
                cheat = kind(job, Lie(node=another(number, out)))
                seat = (first + number) % 2
                parties = (cheat, honest) if seat == 0 else (honest, cheat)
                maker.game(job, f"{case.op}, output {out}, call {first + number}{called}", parties)


# -- false parts of an element ---------------------------------------------------------------------
Change = Callable[[bytearray], None]


class Parts:
    """An `answer` hook: `changes[k]` changes the values of the answer number k that states some."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes, self.told = changes, 0

    def __call__(self, query: Any, body: Any) -> Any:
        if not isinstance(query, q.Values) or body is None or not body.data:
            return body
        self.told += 1
        if self.told > len(self.changes):
            return body
        data = bytearray(body.data)
        self.changes[self.told - 1](data)
        return BytesBody(bytes(data))

    def all_told(self) -> bool:
        """Whether every one of its lies was asked for."""
        return self.told >= len(self.changes)


def flip(byte: int) -> Change:
    """A bit of one byte is another one."""

    def change(data: bytearray) -> None:
        data[byte] ^= 1

    return change


def bound(e: float) -> Change:
    """The last bound is this one."""

    def change(data: bytearray) -> None:
        data[-8:] = np.float64(e).tobytes()

    return change


# The lowest byte of an answer's first value (of a pair: x), and the highest of its last one (e).
LIES = {"the first value": flip(0), "the last bound": flip(-1)}


def false_parts(
    maker: Any, contract: str, cases: Sequence[fmt.Case], lies: Mapping[str, Change] = LIES
) -> None:
    """Games about what an element is made of: lies in the first answer, the first two, three, …

    Each lie leads further down, until a lie more is one that nobody asks for.
    """
    kind = party_of(contract)
    for job, first, some in jobs(maker, contract, cases, nodes=1):
        honest = kind(job)
        for number, case in enumerate(some):
            for out in range(len(case.outputs)):
                for what, change in lies.items():
                    for depth in range(1, 9):
                        lie = Parts([change] * depth)
                        cheat = kind(job, Lie(node=another(number, out), answer=lie))
                        seat = (first + number + depth) % 2
                        parties = (cheat, honest) if seat == 0 else (honest, cheat)
                        name = f"{case.op}, output {out}, call {first + number}, {contract}"
                        told = f"{name}: {what} in {depth} of the answers"
                        if not maker.game(job, told, parties, kept=lie.all_told):
                            break


# What party 0 and party 1 both state of a bound, which then counts as infinite (OPENING 9.4.1).
BOUNDS = {"no number": np.nan, "negative": -1.0}
BOTH = ("aten.gelu", "aten._softmax", "aten.native_layer_norm")


def false_bounds(maker: Any) -> None:
    """Games of two liars who agree on a bound that is none: of x, or of what x is made of."""
    for job, first, (case,) in jobs(maker, CONTRACTS["published"], golden(1, 600, BOTH), nodes=1):
        for what, e in BOUNDS.items():
            for below in range(1 if case.op == "aten.gelu" else 2):
                changes = [flip(0)] * below + [bound(e)]
                cheat = LogParty(job, Lie(node=another(0, 0), answer=Parts(changes)))
                other = LogParty(job, Lie(answer=Parts([lambda _: None] * below + [bound(e)])))
                name = f"{case.op}, call {first}: both state a bound that is {what}, {below} down"
                maker.game(job, name, (cheat, other))


def parts(maker: Any) -> None:
    """Statements of pairs that are false (OPENING 9, 10), under the published form."""
    false_parts(maker, CONTRACTS["published"], golden(1, 600, frozen_operators(), frozen_groups()))
    false_bounds(maker)


def later(maker: Any) -> None:
    """Both for operators that came after the bundles of all operators were made."""
    for contract in CONTRACTS.values():
        false_outputs(maker, contract, golden(2, 1500, LATER), f", {contract}")
    for contract in ("ordered/1", CONTRACTS["published"]):
        long = [c for c in golden(99, 5000, LATER) if max(c.outputs[0].shape, default=0) > 256]
        false_parts(maker, contract, long)


def since_group(maker: Any, group: str) -> None:
    """A false element of each output of a later group's calls."""
    for contract in CONTRACTS.values():
        false_outputs(maker, contract, golden(99, 1500, groups=(group,)), f", {contract}")


def under(names: Sequence[str], contract: str) -> list[str]:
    """Those of the operators that a contract has."""
    return [name for name in names if all_ops()[name].is_under(contract)]


def since(maker: Any, names: Sequence[str]) -> None:
    """A false element of each output, and false parts of it, for operators of a later bundle."""
    for contract in CONTRACTS.values():
        calls = golden(_MORE.get(names[0], 2), 1500, under(names, contract))
        false_outputs(maker, contract, calls, f", {contract}")
    for contract in ("ordered/1", CONTRACTS["published"]):
        calls = golden(99, 5000, under(names, contract))
        long = [c for c in calls if max(x.size for x in c.inputs) > 256]  # type: ignore[union-attr]
        false_parts(maker, contract, long)


# -- exact/1 ---------------------------------------------------------------------------------------
# Of an answer of records (OPENING 12.3): the total and the block's sum of the first, the second
# magnitude of the last one (of an element's parts: what `ordered/1` gives).
RECORD_LIES = {"the first total": flip(0), "the first sum": flip(8), "the last magnitude": flip(-4)}
MOST = 1500  # operand elements of a call


def exact_cases(group: str) -> list[fmt.Case]:
    """Calls of the dot class: golden ones of every operator, and those of vectors/exact that are
    not among them (several blocks, ties, infinities)."""
    known = golden(4, MOST, dot_operators(), frozen_groups())
    own = fmt.load(group, KINDS, EXACT_ROOT, find_contract(EXACT[group]).text)
    shapes = {(c.op, *(None if x is None else x.shape for x in c.inputs)) for c in known}
    for case in own:
        shape = (case.op, *(None if x is None else x.shape for x in case.inputs))
        size = sum(x.size for x in case.inputs if x is not None)
        if shape not in shapes and size <= 2 * MOST and all(y.size for y in case.outputs):
            known.append(case)
            shapes.add(shape)
    return known


def exact(maker: Any) -> None:
    """A false element of each output, for every b."""
    for group, contract in EXACT.items():
        false_outputs(maker, contract, exact_cases(group), f", {contract}")


def exact_parts(maker: Any) -> None:
    """False records, one, two and more answers deep: of one call of each operator, and of long
    ones."""
    for group, contract in EXACT.items():
        cases = exact_cases(group)
        first = {case.op: case for case in reversed(cases)}
        long = max(cases, key=lambda c: c.inputs[0].size if c.op == "aten.mm" else 0)  # type: ignore[union-attr]
        false_parts(maker, contract, [*first.values(), long], RECORD_LIES)
