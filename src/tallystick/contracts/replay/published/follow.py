"""A published log, recorded and followed (NUMERICS 14.9).

A trainer rounds x and records the side of its value where x lay (Algorithm 2). A follower rounds as
the entries say (Algorithm 3), and judges them (14.10): the values that they may give.

The follower's own log is the followed one, with its own entries in place of the unfit ones, those
that give false values (14.10). Where it cannot read the followed log, it records. So an honest log
gives the same digest, unless values part (14.9.2). If the log is found to be about other values
after an unfit entry, the follower records too.

A follower asks about the few elements whose value an entry changes. Exact sums of terms decide
about sums of products, opening rules about all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tallystick import _core
from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.contracts.replay.contract import Replay
from tallystick.contracts.replay.entries import FIVE_NO_CHANGE, LARGEST_BYTE, pack, unpack
from tallystick.contracts.replay.findings import UNFIT, LogCorruptError
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep
from tallystick.contracts.rounded.cpu import run_rounded
from tallystick.contracts.rounded.cpu.pieces import Piece
from tallystick.contracts.rounded.opening import is_sum, number_and_flags
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.grid import Grid, doubt
from tallystick.numerics.registry import OpSpec, summed_operators
from tallystick.numerics.types import Attrs, type_of
from tallystick.opening.parts import summed
from tallystick.opening.quantity import Logged, Site, opening_rule
from tallystick.opening.values import WholeSource, needs_of
from tallystick.program.expand import is_forward

Array = np.ndarray


@dataclass(frozen=True)
class LoggedCall:
    """One output of one call, or of a part of the call: what is recorded, followed or judged.

    It is output `out` of the node and section `number` of the log. Its first element is element
    `offset` of the output.
    """

    spec: OpSpec
    out: int
    number: int
    attrs: Attrs
    inputs: Sequence[Array | None]
    outputs: Sequence[Array]
    offset: int = 0


def round_unlogged(x: Array, bits: int, out: Array) -> None:
    """out = R(x), f32 of f64, C-contiguous and of one size; signed zeros are kept (14.9)."""
    entries = np.full(-(-x.size // ENTRIES_PER_BYTE), FIVE_NO_CHANGE, np.uint8)
    _core.published_follow(x, entries, bits, False, out)


class PublishedRecord:
    """A trainer: rounds x, and logs the side of the rounded value on which x lay."""

    def __init__(self, contract: Replay) -> None:
        self._contract = contract
        self._decimal = contract.scale == "decimal"

    def section(self, step: LoggedStep, number: int) -> Array:
        """u8: room for the packed entries of section `number`."""
        return np.empty(step.logged.sections[number].packed_bytes, np.uint8)

    def settle(
        self, step: LoggedStep, call: LoggedCall, x: Array, out: Array, packed: Array
    ) -> None:
        """Give `out` its value, and `packed` its entries (14.9); x (f64) is the stock kernel's
        result."""
        contract = self._contract
        threshold, plus = contract.threshold_of(call.spec.name), self.plus(call)
        _core.published_log(x, threshold, self._decimal, contract.bits, plus, out, packed)

    def plus(self, call: LoggedCall) -> bool:
        """True if a zero of this output is +0 (13.2)."""
        return call.spec.name in self._contract.own_operators


# --- judging entries (14.10) ----------------------------------------------------------------------
# Exact sums fetched at a time: 80 bytes each, and the operands of their terms.
_EXACT_AT_ONCE = 4096
# After this number of false values of one output, of an operator that is no sum, the follower does
# not look at the rest: each costs an evaluation of an opening rule, in Python.
_FALSE_LOOKED_AT = 16


def entries_at(packed: Array, positions: Array) -> Array:
    """i64[k]: entries number `positions` i64[k] of packed bytes u8[n], each at most 242."""
    groups, places = np.divmod(positions, ENTRIES_PER_BYTE)
    entries: Array = packed[groups].astype(np.int64) // 3**places % 3
    return entries


def true_values(
    call: LoggedCall, positions: Array, values: Array, entries: Array, contract: str
) -> Array:
    """bool[k]: True where an element may have its value by its entry.

    The elements are at `positions` i64[k], ascending, with values f32[k] and entries i64[k]. An
    element without a bound may have any value. For an operator that is no sum, the check ends at
    the `_FALSE_LOOKED_AT`-th false value.
    """
    if call.spec.name in summed_operators():
        return _true_sums(call, positions, values, entries, contract)
    return _true_by_rules(call, positions, values, entries, contract)


def _true_by_rules(
    call: LoggedCall, positions: Array, values: Array, entries: Array, contract: str
) -> Array:
    """By the opening rule of each element (14.11)."""
    true: list[bool] = []
    source, missed, first = WholeSource(call.inputs), 0, _site(call, contract)
    for at, value, entry in zip(positions.tolist(), values, entries.tolist(), strict=True):
        rule = opening_rule(replace(first, element=at))
        assert isinstance(rule, Logged)  # every logged output of this form is one
        reach = rule.reach(source, needs_of(rule, source))
        true.append(reach is None or reach.true(reach.grid.index(value), entry))
        missed += not true[-1]
        if missed == _FALSE_LOOKED_AT:
            break
    return np.array(true, np.bool_)


def _site(call: LoggedCall, contract: str) -> Site:
    """The first element of the call's output."""
    types = tuple(None if x is None else type_of(x) for x in call.inputs)
    made = tuple(map(type_of, call.outputs))
    return Site(call.spec.name, call.attrs, types, made, call.out, 0, contract)


def _true_sums(
    call: LoggedCall, positions: Array, values: Array, entries: Array, contract: str
) -> Array:
    """By the exact sum of each element's terms and its bound (14.4)."""
    true, grid = np.ones(len(positions), np.bool_), Grid(parse_contract(contract).bits)
    # An element of a summed operator is bounded where it is R of its terms' sum.
    if len(positions) == 0 or not is_sum(summed(_site(call, contract))):
        return true

    def decide(piece: Piece) -> None:
        piece.store(np.zeros(piece.w.shape, np.float32))
        if piece.output != call.out:
            return
        at, which = _inside(piece, positions)
        for begin in range(0, len(at), _EXACT_AT_ONCE):
            some = slice(begin, begin + _EXACT_AT_ONCE)
            records, bounds = piece.accumulators(at[some]), piece.bound(at[some])
            for k, record, bound in zip(which[some], records, bounds, strict=True):
                total, flags = number_and_flags(record.view("V80")[0])
                if flags:  # with a term that is not finite x is no sum: not judged
                    continue
                reach = doubt(grid, total, float(bound)).reach
                true[k] = reach.true(grid.index(values[k]), int(entries[k]))

    scratch = [np.empty(o.shape, o.dtype) for o in call.outputs]
    run_rounded(call.spec.name, decide, call.attrs, call.inputs, scratch)
    return true


def _inside(piece: Piece, positions: Array) -> tuple[Array, Array]:
    """The output positions that lie in the piece, counted there, i64[m]; and their indices."""
    rows, columns = piece.w.shape
    step = piece.row_step if rows > 1 else max(columns, 1)
    row, column = np.divmod(positions - piece.start, max(step, 1))
    inside = np.flatnonzero((row >= 0) & (row < rows) & (column < columns))
    return row[inside] * columns + column[inside], inside


# --- following (14.9) -----------------------------------------------------------------------------
# The corrections of an output that two kernels may well need, beside one in a hundred.
_PLAUSIBLE = 4
_UNFIT = "from the auditor's operands no kernel's result rounds to the value it gives"


@dataclass
class Corrections:
    """Elements whose value an entry changed, at the steps followed so far, in order.

    A node up to the loss, of its micro-batch where there are several, counts as forward, a later
    one as backward.
    """

    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)

    def begin(self) -> None:
        self.forward.append(0)
        self.backward.append(0)

    def add(self, is_forward: bool, count: int) -> None:
        (self.forward if is_forward else self.backward)[-1] += count


class PublishedFollow:
    """An auditor of one run: rounds as the followed log says, and records with `record` where the
    log says nothing."""

    def __init__(self, logged: LoggedProgram, record: PublishedRecord) -> None:
        self._record, self._contract = record, logged.contract
        self.corrections = Corrections()
        self._is_forward = is_forward(logged.program)
        self._unread: set[int] = set()  # sections of the step that cannot be read
        self._misled = self._lost = False

    def begin(self) -> None:
        """A step begins."""
        self.corrections.begin()
        self._unread.clear()

    def section(self, step: LoggedStep, number: int) -> Array:
        """u8: the packed entries of section `number` of the followed log; room for one's own where
        they cannot be read."""
        data = followed_entries(step, number)
        if data is None:
            self._unread.add(number)
            return self._record.section(step, number)
        return data

    def settle(
        self, step: LoggedStep, call: LoggedCall, x: Array, out: Array, packed: Array
    ) -> None:
        """Give `out` the value that x (f64) and its entries `packed` call for; entries that are
        unfit become this party's own."""
        if self.records(call):
            self._record.settle(step, call, x, out, packed)
            return
        bits, plus = self._contract.bits, self._record.plus(call)
        changed = int(_core.published_follow(x, packed, bits, plus, out))
        if self._misled and changed > _PLAUSIBLE + x.size // 100:
            # After an unfit entry the log may be about other values than these, and following it
            # would spoil them. This party's own entries are valid too.
            self._lost = True
            self._record.settle(step, call, x, out, packed)
            return
        if changed:
            changed -= self._without_unfit(step, call, x, out, packed)
        self._count(step, call, changed)

    def records(self, call: LoggedCall) -> bool:
        """True if the followed log says nothing about this output, so that the follower records."""
        return call.number in self._unread or self._lost

    def unchanged(self, step: LoggedStep, call: LoggedCall) -> None:
        """The entries of this output change no value: there is nothing to settle."""
        self._count(step, call, 0)

    def _count(self, step: LoggedStep, call: LoggedCall, changed: int) -> None:
        section = step.logged.sections[call.number]
        self.corrections.add(self._is_forward(section.node), changed)

    def _without_unfit(
        self, step: LoggedStep, call: LoggedCall, x: Array, out: Array, packed: Array
    ) -> int:
        """Leave out entries that give an element a value to which no kernel rounds (14.10).

        There `out` and `packed` get this party's own values. Returns the number of such entries.
        """
        own, entries = np.empty(out.size, np.float32), np.empty(len(packed), np.uint8)
        self._record.settle(step, call, x, own, entries)
        followed = out.reshape(-1)
        changed = np.flatnonzero(own.view(np.uint32) != followed.view(np.uint32))  # equal NaN are
        theirs = entries_at(packed, changed)
        true = true_values(call, changed, followed[changed], theirs, step.logged.program.contract)
        false = np.flatnonzero(~true)
        if not len(false):
            return 0
        self._misled = True
        forged = changed[false]
        places = forged + call.offset
        step.found_entries(UNFIT, call.number, places, theirs[false], _UNFIT)
        if len(true) < len(changed):  # enough of them: the rest was not looked at
            out[...] = own.reshape(out.shape)
            packed[:] = entries
            return len(changed)
        followed[forged] = own[forged]
        mixed = unpack(packed.tobytes(), out.size)
        mixed[forged] = entries_at(entries, forged)
        packed[:] = np.frombuffer(pack(mixed), np.uint8)
        count: int = len(forged)
        return count


def followed_entries(step: LoggedStep, number: int) -> Array | None:
    """u8: the followed log's packed entries of section `number`; None where they cannot be read."""
    if step.source is None:
        return None
    try:
        data: Array = np.frombuffer(step.source.published(number), np.uint8).copy()
    except LogCorruptError as error:
        step.report(error)
        return None
    clean(step, number, data)
    return data


def clean(step: LoggedStep, number: int, data: Array) -> None:
    """Report invalid bytes (COMMITMENTS 10.3) as findings, and make each five entries 1."""
    bad = np.flatnonzero(data > LARGEST_BYTE)
    keep = step.findings.room_for(len(bad))
    for at in bad[:keep].tolist():
        step.found("malformed block", number, detail=f"byte {at} is {data[at]}, above 242")
    step.findings.count += len(bad) - keep
    data[bad] = FIVE_NO_CHANGE
    spare = -step.logged.sections[number].elements % ENTRIES_PER_BYTE
    if spare and len(data):
        kept = ENTRIES_PER_BYTE - spare
        filled = int(data[-1]) % 3**kept + sum(3**k for k in range(kept, ENTRIES_PER_BYTE))
        if filled != data[-1]:
            step.found("malformed block", number, detail="entries after its last one are not 1")
            data[-1] = filled
