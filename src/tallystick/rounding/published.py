"""Recording and following published rounding logs (NUMERICS 14.9, 14.10).

Both compute every logged output by stock kernels in binary64 and round it. A recorder writes down
the side on which each value lay; a follower takes the recorder's side. The kernels are torch's. A
session loads torch, and no earlier step does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tallystick import _core
from tallystick.commit.log import ENTRIES_PER_BYTE
from tallystick.errors import CannotCheckError, UnsupportedOperatorError
from tallystick.kernels.table import Run
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node, Program
from tallystick.rounding.codec import FIVE_NO_CHANGE, LARGEST_BYTE, pack, unpack
from tallystick.rounding.faults import LogCorruptError
from tallystick.rounding.published_reach import Call, entries_at, true_values
from tallystick.rounding.session import LogSource, MakeSink, Session

if TYPE_CHECKING:
    from tallystick.kernels.stock.stock import Stock

Array = np.ndarray
# Elements of a per-element operator that are computed at once: their binary64 stays in cache.
_AT_ONCE = ENTRIES_PER_BYTE << 15
# The corrections of an output that two kernels may well need, beside one in a hundred.
_PLAUSIBLE = 4


@dataclass
class Corrections:
    """Elements whose value an entry changed, at the steps followed so far, in order.

    A node up to the loss counts as forward, a later one as backward.
    """

    forward: list[int] = field(default_factory=list)
    backward: list[int] = field(default_factory=list)

    def begin(self) -> None:
        self.forward.append(0)
        self.backward.append(0)

    def add(self, is_forward: bool, count: int) -> None:
        (self.forward if is_forward else self.backward)[-1] += count


def round_unlogged(x: Array, bits: int, out: Array) -> None:
    """out = R(x), f32 of f64, C-contiguous and of one size; signed zeros are kept (14.9)."""
    entries = np.full(-(-x.size // ENTRIES_PER_BYTE), FIVE_NO_CHANGE, np.uint8)
    _core.published_follow(x, entries, bits, False, out)


def load_stock() -> Stock:
    """torch's kernels on this machine's CPU. Raises CannotCheckError without torch."""
    try:
        from tallystick.kernels.stock.stock import Stock
    except ImportError:
        raise CannotCheckError(
            "The published form runs on PyTorch's kernels, and PyTorch is not installed.",
            "Install it: pip install 'tallystick[train]'; or choose form=bounded.",
        ) from None
    return Stock()


def check_program(program: Program) -> None:
    """Check that every logged node of `program` can run under the published form.

    Raises UnsupportedOperatorError, naming the operator, and CannotCheckError without torch.
    """
    load_stock()
    from tallystick.kernels.stock.stock import form_of, has_form

    session = Session(program)
    for section, operator in zip(session.sections, session.operators, strict=True):
        if not has_form(operator):
            try:
                form_of(operator)
            except UnsupportedOperatorError as error:
                raise UnsupportedOperatorError(
                    f"Node {section.node}: {error.message}", error.next_action
                ) from None


class _Published(Session):
    """Shared by recorder and follower: x of every logged output, cut where that saves memory."""

    def __init__(
        self,
        program: Program,
        sink: MakeSink | None,
        source: LogSource | None,
        stock: Stock | None,
    ) -> None:
        super().__init__(program, sink, source)
        check_program(program)
        self.stock = stock or load_stock()
        loss = program.output_values.get("loss")
        self._last_forward = len(program.nodes) if loss is None else loss.node
        self._decimal = self.contract.scale == "decimal"

    def begin(self, step: int) -> None:
        super().begin(step)
        self.stock.prepare()

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        numbers = {out: self.number_of(index, out) for out in range(len(node.out_types))}
        sections = {out: number for out, number in numbers.items() if number is not None}
        if not sections:
            return None

        def run(attrs: Attrs, inputs: Sequence[Array | None], given: Sequence[Array]) -> None:
            packed = {out: self._begin_section(number) for out, number in sections.items()}
            for part in self._parts(spec, inputs, given):
                kept = self._kept(part)
                found = self.stock.compute(spec, attrs, part.inputs, part.outputs)
                for out, x in enumerate(found):
                    if x is not None:
                        entries = packed[out][part.first : part.last]
                        offset = part.first * ENTRIES_PER_BYTE
                        call = Call(spec, out, sections[out], attrs, kept, part.outputs, offset)
                        self._settle(call, x, part.outputs[out], entries)
            for out, entries in packed.items():
                self.sink.published(sections[out], entries.tobytes())

        return run

    def _parts(
        self, spec: OpSpec, inputs: Sequence[Array | None], given: Sequence[Array]
    ) -> list[_Part]:
        count = given[0].size
        if not self.stock.is_per_element(spec) or count <= _AT_ONCE:
            return [_Part(0, None, inputs, given)]
        if not all(_can_be_cut(x, count) for x in (*inputs, *given)):
            return [_Part(0, None, inputs, given)]
        parts = []
        flat_inputs = [None if x is None else _flat(x) for x in inputs]
        flat = [out.reshape(-1) for out in given]
        for at in range(0, count, _AT_ONCE):
            here = slice(at, min(at + _AT_ONCE, count))
            cut = [x if x is None or x.size != count else x[here] for x in flat_inputs]
            first = at // ENTRIES_PER_BYTE
            last = first + -(-(here.stop - at) // ENTRIES_PER_BYTE)
            parts.append(_Part(first, last, cut, [out[here] for out in flat]))
        return parts

    def _kept(self, part: _Part) -> Sequence[Array | None]:
        """A part's operands, as they are when its values are settled."""
        return part.inputs

    def _begin_section(self, number: int) -> Array:
        """u8: the packed entries of section `number`, to be read or written."""
        raise NotImplementedError

    def _settle(self, call: Call, x: Array, out: Array, packed: Array) -> None:
        """Give `out` its value, and `packed` the entries of this session's log.

        x (f64) is the stock kernel's result.
        """
        raise NotImplementedError

    def _log(self, call: Call, x: Array, out: Array, packed: Array) -> None:
        """A trainer's value and entries (14.9)."""
        threshold = self.contract.threshold_of(call.spec.name)
        _core.published_log(
            x, threshold, self._decimal, self.contract.bits, self._plus(call), out, packed
        )

    def _plus(self, call: Call) -> bool:
        """True if a zero of this output is +0 (13.2)."""
        return call.spec.name in self.contract.rounded_operators


def _can_be_cut(x: Array | None, count: int) -> bool:
    """True if a stretch of a call's elements needs only the same stretch of x, not all of x."""
    return x is None or x.size == 1 or (x.size == count and x.flags.c_contiguous)


def _flat(x: Array) -> Array:
    """x with at most one axis. A 0-d x stays 0-d, because torch treats it differently."""
    return x.reshape(-1) if x.ndim else x


@dataclass(frozen=True)
class _Part:
    """A stretch of a call's elements: bytes first..last-1 of the packed entries of its outputs."""

    first: int
    last: int | None
    inputs: Sequence[Array | None]
    outputs: Sequence[Array]


class PublishedRecorder(_Published):
    """A trainer (Algorithm 2): rounds x, and logs the side of the rounded value on which x lay."""

    def __init__(
        self, program: Program, sink: MakeSink | None = None, stock: Stock | None = None
    ) -> None:
        super().__init__(program, sink, None, stock)

    def _begin_section(self, number: int) -> Array:
        return np.empty(self.sections[number].packed_bytes, np.uint8)

    def _settle(self, call: Call, x: Array, out: Array, packed: Array) -> None:
        self._log(call, x, out, packed)


class PublishedFollower(_Published):
    """An auditor (Algorithm 3): rounds as the followed log says.

    Its own log is the followed one, with its own entries in place of the forged ones (14.10). Where
    it cannot read the followed log, it records. So an honest log gives the same digest. If the log
    is found to be about other values after a forged entry, the auditor records too.
    """

    def __init__(
        self,
        program: Program,
        source: LogSource,
        sink: MakeSink | None = None,
        stock: Stock | None = None,
    ) -> None:
        super().__init__(program, sink, source, stock)
        self.corrections = Corrections()
        self._unread: set[int] = set()
        self._misled = self._lost = False

    def begin(self, step: int) -> None:
        super().begin(step)
        self.corrections.begin()
        self._unread.clear()

    def _begin_section(self, number: int) -> Array:
        data = self._followed(number)
        if data is None:
            self._unread.add(number)
            return np.empty(self.sections[number].packed_bytes, np.uint8)
        return data

    def _followed(self, number: int) -> Array | None:
        if self._reader is None:
            return None
        try:
            data: Array = np.frombuffer(self._reader.published(number), np.uint8).copy()
        except LogCorruptError as error:
            self.report(error)
            return None
        self._clean(number, data)
        return data

    def _clean(self, number: int, data: Array) -> None:
        """Report invalid bytes (COMMITMENTS 10.3) as findings, and read each as five entries 1."""
        bad = np.flatnonzero(data > LARGEST_BYTE)
        keep = self.findings.room_for(len(bad))
        for at in bad[:keep].tolist():
            self.found("malformed block", number, detail=f"byte {at} is {data[at]}, above 242")
        self.findings.count += len(bad) - keep
        data[bad] = FIVE_NO_CHANGE
        spare = -self.sections[number].elements % ENTRIES_PER_BYTE
        if spare and len(data):
            kept = ENTRIES_PER_BYTE - spare
            filled = int(data[-1]) % 3**kept + sum(3**k for k in range(kept, ENTRIES_PER_BYTE))
            if filled != data[-1]:
                self.found("malformed block", number, detail="entries after its last one are not 1")
                data[-1] = filled

    def _kept(self, part: _Part) -> Sequence[Array | None]:
        """Copy operands that an output will overwrite: entries are judged by them afterwards."""
        return [
            x.copy()
            if x is not None and any(np.may_share_memory(x, o) for o in part.outputs)
            else x
            for x in part.inputs
        ]

    def _settle(self, call: Call, x: Array, out: Array, packed: Array) -> None:
        if call.number in self._unread or self._lost:
            self._log(call, x, out, packed)
            return
        bits, plus = self.contract.bits, self._plus(call)
        changed = int(_core.published_follow(x, packed, bits, plus, out))
        if self._misled and changed > _PLAUSIBLE + x.size // 100:
            # After a forged entry the log may be about other values than these, and following it
            # would spoil them. This party's own entries are valid too.
            self._lost = True
            self._log(call, x, out, packed)
            return
        if changed:
            changed -= self._judge(call, x, out, packed)
        section = self.sections[call.number]
        self.corrections.add(section.node <= self._last_forward, changed)

    def _judge(self, call: Call, x: Array, out: Array, packed: Array) -> int:
        """Leave out entries that give an element a value to which no kernel rounds (14.10).

        There `out` and `packed` get this party's own values. Returns the number of such entries.
        """
        own, entries = np.empty(out.size, np.float32), np.empty(len(packed), np.uint8)
        self._log(call, x, own, entries)
        followed = out.reshape(-1)
        changed = np.flatnonzero(own.view(np.uint32) != followed.view(np.uint32))  # equal NaN are
        theirs = entries_at(packed, changed)
        true = true_values(call, changed, followed[changed], theirs, self.program.contract)
        false = np.flatnonzero(~true)
        if not len(false):
            return 0
        self._misled = True
        forged, why = changed[false], "no published kernel's result rounds to the value it gives"
        places = forged + call.offset
        self.found_entries("forged entry", call.number, places, theirs[false], why)
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
