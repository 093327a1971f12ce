"""Two executions of one step, operator by operator, and the first of them that differs.

An execution is a list of entries: a program's nodes, or the calls that a trace has recorded. The
two lists need not be alike. `align` pairs operators by their structure: by everything they were
computed from first, so that an operator that moved keeps its partner, and then by their sequence,
so that one inserted operator costs no other its partner.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from difflib import Match, SequenceMatcher
from itertools import accumulate

from tallystick.errors import CannotCheckError
from tallystick.program.ir import INPUT_KINDS
from tallystick.protocol.verdict import PARTIES

OPERATOR = "operator"
CARRIED = "carried"  # the kind of a tensor that an operator of an earlier step made
INPUT, OUTPUT, ATTRIBUTES, ABSENT = "input", "output", "attributes", "absent"
# Comparisons of two operators that an alignment by sequence may take: some ten seconds of them.
_MOST_WORK = 100_000_000


@dataclass(frozen=True)
class OperandRecord:
    """A tensor that an operator has read or made.

    `kind` says where it comes from: OPERATOR, with the entry `source` that made it, or a word of
    whoever recorded it ("state", "batch"). `name` says that to a person.
    """

    digest: str
    type: str
    kind: str = OPERATOR
    name: str = ""
    source: int | None = None
    out: int = 0

    @property
    def said(self) -> str:
        """What a tensor from outside of the step is: its kind with its name, or with its type."""
        if self.kind in INPUT_KINDS or "parameter " in self.name:
            return self.name  # which says what it is
        if self.kind == CARRIED:
            return f"{self.type} of an earlier step"
        return f"{self.kind} {self.name or self.type}"


@dataclass(frozen=True)
class ExecutedOperator:
    """One operator as executed. `attributes` are its arguments that are no tensors, as text."""

    operator: str
    attributes: str
    inputs: tuple[OperandRecord, ...]
    outputs: tuple[OperandRecord, ...]
    place: str = ""
    number: int = 0


Pair = tuple[int | None, int | None]


@dataclass(frozen=True)
class StepApart:
    """The first difference of two executions of one step.

    `pair` are the entries of A and of B, `side` and `operand` what of them differs; one of the two
    may have no such operand. `inputs` are the operator's inputs that differ. `gaps` are the
    entries without a partner, `changed` the pairs with other attributes; both are of the whole
    step, in its order. `pairs` are all.
    """

    pair: Pair
    side: str
    operand: int
    inputs: tuple[int, ...]
    pairs: tuple[Pair, ...]
    gaps: tuple[Pair, ...]
    changed: tuple[Pair, ...]


def operand_at(entry: ExecutedOperator, side: str, number: int) -> OperandRecord | None:
    """An operand of an operator by its side and number; None where the operator has fewer."""
    operands = entry.inputs if side == INPUT else entry.outputs
    return operands[number] if number < len(operands) else None


def inputs_said(ours: OperandRecord | None, theirs: OperandRecord | None) -> str:
    """Where an input of two operators comes from; None where one of them has no such input. The
    numbers of operators are those of A and of B: they shift where one has an operator more."""
    if ours is not None and theirs is not None:
        if _origin(ours) == _origin(theirs):
            return _origin(ours, " of the step")
        if ours.source is not None and theirs.source is not None:
            both = [_origin(one).removeprefix("made by ") for one in (ours, theirs)]
            return f"made by {both[0]} in A and by {both[1]} in B"
    pair = zip((ours, theirs), PARTIES, strict=True)
    return ", ".join(f"{_origin(one)} in {name}" for one, name in pair if one is not None)


def _origin(operand: OperandRecord, of: str = "") -> str:
    """What a tensor is, or which operator `of` the step has made it."""
    if operand.source is None:
        return operand.said
    which = f" (output {operand.out})" if operand.out else ""
    return f"made by operator {operand.source}{of}{which}"


def only_one(
    gap: Pair, first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> tuple[ExecutedOperator, int, str]:
    """The entry of a pair without a partner, its number, and the name of the one that has it."""
    a, b = gap
    if a is not None:
        return first[a], a, PARTIES[0]
    assert b is not None
    return second[b], b, PARTIES[1]


# -- which operators belong together ---------------------------------------------------------------
def align(first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]) -> list[Pair]:
    """All entries of both, in the order of the first; a pair with None has no partner. Raises
    CannotCheckError where too many operators are alike to find their partners."""
    partners = _by_structure(first, second)
    taken = set(partners.values())
    rest = (
        [n for n in range(len(first)) if n not in partners],
        [n for n in range(len(second)) if n not in taken],
    )
    for one, other in _by_sequence(first, second, *rest, _LOOSER, _Alignments()):
        partners[one] = other
    return _merged(partners, len(first), len(second))


def _by_structure(
    first: Sequence[ExecutedOperator], second: Sequence[ExecutedOperator]
) -> dict[int, int]:
    """Entries that were computed in one way from the same inputs of the step, each occasion with
    its own."""
    ours, theirs = _structures(first), _structures(second)
    if ours == theirs:
        return {n: n for n in range(len(ours))}
    there = defaultdict[bytes, list[int]](list)
    for number, key in enumerate(theirs):
        there[key].append(number)
    met = defaultdict[bytes, int](int)
    found = {}
    for number, key in enumerate(ours):
        if met[key] < len(there[key]):
            found[number] = there[key][met[key]]
            met[key] += 1
    return found


def _structures(entries: Sequence[ExecutedOperator]) -> list[bytes]:
    """A digest of each entry: its operator, and those of all that it was computed from."""
    found: list[bytes] = []
    for entry in entries:
        own = hashlib.sha256(f"{entry.operator}\0{entry.attributes}\0".encode())
        for operand in entry.inputs:
            if operand.source is not None:
                own.update(found[operand.source] + bytes([operand.out % 256]))
            else:
                own.update(f"{operand.kind}\0{operand.name}\0{operand.type}\0".encode())
        found.append(own.digest())
    return found


def _types(entry: ExecutedOperator) -> tuple[str, ...]:
    return tuple(operand.type for operand in entry.outputs)


# The keys by which sequences are aligned, each looser than the one before.
_LOOSER: tuple[Callable[[ExecutedOperator], Hashable], ...] = (
    lambda e: (e.operator, e.place, e.attributes, _types(e)),
    lambda e: (e.operator, e.place, _types(e)),
    lambda e: (e.operator, e.place),
    lambda e: e.operator,
)


class _Alignments:
    """The comparisons of one alignment, which grow with the square of the operators alike."""

    def __init__(self) -> None:
        self._left = _MOST_WORK

    def spend(self, comparisons: int) -> None:
        self._left -= comparisons
        if self._left < 0:
            raise CannotCheckError(
                "A step has too many similar operators to match.",
                "Record both loops again, and call `.next_step()` more often on the object that "
                "`tallystick.trace` yields.",
            )


class _Matcher(SequenceMatcher[Hashable]):
    """A SequenceMatcher that spends its comparisons before it makes them."""

    def __init__(self, left: list[Hashable], right: list[Hashable], work: _Alignments) -> None:
        alike = Counter(right)
        self._costs = [0, *accumulate(1 + alike[key] for key in left)]
        self._work = work
        super().__init__(None, left, right, autojunk=False)

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> Match:
        last = len(self._costs) - 1 if ahi is None else ahi
        self._work.spend(self._costs[last] - self._costs[alo])
        return super().find_longest_match(alo, ahi, blo, bhi)


def _by_sequence(
    first: Sequence[ExecutedOperator],
    second: Sequence[ExecutedOperator],
    ours: list[int],
    theirs: list[int],
    keys: Sequence[Callable[[ExecutedOperator], Hashable]],
    work: _Alignments,
) -> list[tuple[int, int]]:
    """Pairs of two sequences in their order, by the first key; what lies between the pairs is
    aligned by the next ones."""
    if not ours or not theirs or not keys:
        return []
    left = [keys[0](first[n]) for n in ours]
    right = [keys[0](second[n]) for n in theirs]
    found, at, to = [], 0, 0
    for block in _Matcher(left, right, work).get_matching_blocks():
        between = ours[at : block.a], theirs[to : block.b]
        found += _by_sequence(first, second, *between, keys[1:], work)
        found += [(ours[block.a + n], theirs[block.b + n]) for n in range(block.size)]
        at, to = block.a + block.size, block.b + block.size
    return found


def _merged(partners: dict[int, int], ours: int, theirs: int) -> list[Pair]:
    """All pairs in the order of A; an entry of B alone stands behind the one before it in B."""
    alone = deque(sorted(set(range(theirs)) - set(partners.values())))
    found: list[Pair] = []
    for number in range(ours):
        partner = partners.get(number)
        while alone and partner is not None and alone[0] < partner:
            found.append((None, alone.popleft()))
        found.append((number, partner))
    return [*found, *((None, number) for number in alone)]


# -- the first that differs ------------------------------------------------------------------------
def compare_step(
    first: Sequence[ExecutedOperator],
    second: Sequence[ExecutedOperator],
    pairs: tuple[Pair, ...] | None = None,
    ignored: Callable[[Pair], bool] = lambda _: False,
) -> StepApart | None:
    """The first difference of two executions; None where they are equal.

    An operator that only one of them has counts as the first difference only where no tensor
    differs: otherwise it is named beside the first tensor that does. `pairs` are those of an
    alignment that was made before; the tensors of `ignored` pairs are not compared.
    """
    pairs = tuple(align(first, second)) if pairs is None else pairs
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    gaps = tuple((a, b) for a, b in pairs if a is None or b is None)
    changed = tuple((a, b) for a, b in both if first[a].attributes != second[b].attributes)
    for a, b in both:
        if ignored((a, b)):
            continue
        inputs = _apart(first[a].inputs, second[b].inputs)
        outputs = _apart(first[a].outputs, second[b].outputs)
        if inputs or outputs:
            side, operand = (INPUT, inputs[0]) if inputs else (OUTPUT, outputs[0])
            return StepApart((a, b), side, operand, inputs, pairs, gaps, changed)
    if changed:
        return StepApart(changed[0], ATTRIBUTES, 0, (), pairs, gaps, changed)
    if gaps:
        return StepApart(gaps[0], ABSENT, 0, (), pairs, gaps, changed)
    return None


def _apart(ours: Sequence[OperandRecord], theirs: Sequence[OperandRecord]) -> tuple[int, ...]:
    """The places at which two lists of operands differ, such as those that only one list has."""
    pairs = enumerate(zip(ours, theirs, strict=False))
    apart = [n for n, (a, b) in pairs if (a.digest, a.type) != (b.digest, b.type)]
    lengths = len(ours), len(theirs)
    return (*apart, *range(min(lengths), max(lengths)))
