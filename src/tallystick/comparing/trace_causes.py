"""What the first difference of two traces comes from.

A trace has no job that says what was meant. The cause follows from what the first differing
operator is, where its inputs come from, what the values look like, and what stands beside: the
optimizers' settings, the generators of random operators, and what torch ran on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tallystick.commit.tensor import Array
from tallystick.comparing.causes import cause_of_values, is_dropout, relative, shorter
from tallystick.comparing.found import Cause
from tallystick.comparing.programs import passes_through
from tallystick.comparing.steps import (
    ABSENT,
    ATTRIBUTES,
    INPUT,
    ExecutedOperator,
    OperandRecord,
    StepApart,
)
from tallystick.comparing.tracefile import TracedStep, TraceReader
from tallystick.comparing.values import elements_apart

Absent = tuple[int, StepApart, tuple[list[ExecutedOperator], list[ExecutedOperator]]]

# Relative to the greatest value: below it a difference is of rounding. Two types round more.
_ROUNDING = 2.0**-14
_ROUNDING_OF_SHORT = {"f16": 2.0**-7, "bf16": 2.0**-4}
_SHORT_TYPES = ("bf16", "f16")
_FLOATS = ("f64", "f32", *_SHORT_TYPES)
_INDEXING = re.compile(r"aten\.(select|slice|index|index_select|gather|narrow|take|split|unbind)\b")
_ARITHMETIC = re.compile(r"aten\.(mul|add|sub|addcmul|addcdiv|lerp|div|_foreach_\w+)_?\.")
_PHASE = re.compile(r"(backward|optimizer), ")
_GENERATORS = ("torch seed", "torch generator", "numpy generator", "python generator")


class TracedPair:
    """Two traces as far as they have been read: the steps at hand, and what earlier ones showed."""

    def __init__(self, readers: tuple[TraceReader, TraceReader]) -> None:
        self.readers = readers
        self.steps = (TracedStep(0), TracedStep(0))
        self.absent: Absent | None = None
        self.usual: int | None = None  # the records of a batch in the first step
        self._seen: set[str] = set()
        self._before: set[str] = set()

    def enter(self, ours: TracedStep, theirs: TracedStep, found: StepApart | None) -> None:
        """Go on to the next step of both."""
        self.steps = (ours, theirs)
        self._before = set(self._seen)
        if self.usual is None:
            self.usual = batch_size(ours)
        self._seen |= {i.name for e in ours.operators for i in e.inputs if i.name}
        if found is not None and found.side in (ABSENT, ATTRIBUTES) and self.absent is None:
            self.absent = ours.number, found, (ours.operators, theirs.operators)

    def was_seen(self, operand: OperandRecord) -> bool:
        """True if an earlier step has read a tensor of this name, so that it was equal then."""
        return operand.name in self._before

    def values(self, operands: Sequence[OperandRecord]) -> tuple[Array | None, Array | None]:
        if operands[0].type != operands[1].type:
            return None, None
        found = [r.value(o) for r, o in zip(self.readers, operands, strict=True)]
        return found[0], found[1]

    def settings(self) -> list[tuple[str, str, str, str]]:
        """Settings that differ in this step: the optimizer, the name, and both values."""
        theirs = dict(self.steps[1].settings)
        return [
            (name, key, own.get(key, "nothing"), theirs[name].get(key, "nothing"))
            for name, own in self.steps[0].settings
            if name in theirs
            for key in own | theirs[name]
            if own.get(key) != theirs[name].get(key)
        ]

    def other_optimizers(self) -> bool:
        names = [[name for name, _ in step.settings] for step in self.steps]
        return bool(names[0] and names[1]) and names[0] != names[1]

    def about(self, name: str) -> tuple[str, str]:
        ours, theirs = (reader.about.get(name, "nothing") for reader in self.readers)
        return ours, theirs

    def environment(self) -> str:
        """What differs in what the loops ran on, as a clause; empty where nothing does."""
        known = self.readers[0].about | self.readers[1].about
        names = [n for n in known if n not in _GENERATORS]
        apart = [(n, *self.about(n)) for n in names if self.about(n)[0] != self.about(n)[1]]
        return "; ".join(f"{n}: {a} in A, {b} in B" for n, a, b in apart)


def causes_in_trace(
    pair: TracedPair, found: StepApart, values: tuple[Array | None, Array | None]
) -> list[Cause]:
    """The cause of the first difference, and what else differs in this step."""
    first = _cause(pair, found, values)
    rest = [*_rates(pair), *_precisions(pair)]
    if first.kind != "seed":
        rest += _seeds(pair)
    kinds, more = {first.kind}, []
    for cause in rest:
        if cause.kind not in kinds:
            more.append(cause)
            kinds.add(cause.kind)
    return [first, *more]


def _cause(pair: TracedPair, found: StepApart, values: tuple[Array | None, Array | None]) -> Cause:
    a, b = found.pair
    assert a is not None and b is not None
    ours, theirs = pair.steps[0].operators[a], pair.steps[1].operators[b]
    batch = cause_of_batches(pair)
    if batch is not None:
        return batch
    if found.side == INPUT:
        return _of_input(pair, found, ours, theirs, values)
    draws = pair.steps[0].draws.get(a, ""), pair.steps[1].draws.get(b, "")
    if draws[0].split(" ")[1:] != draws[1].split(" ")[1:]:  # the seed and the state
        return _of_draw(pair, found, ours, theirs, draws)
    if found.pair in found.changed:
        return _of_arguments(pair, pair.steps[0].operators, ours, theirs)
    rate = next(_rates(pair), None) if ours.place.startswith("optimizer") else None
    if rate is not None:
        return rate
    if ours.outputs[found.operand].type != theirs.outputs[found.operand].type:
        return _of_types(pair, found, ours.outputs[found.operand], theirs.outputs[found.operand])
    cause = cause_of_values(*values, f"operator {a} ({ours.operator})")
    beside = pair.environment()
    return Cause(cause.kind, f"{cause.sentence} {beside}." if beside else cause.sentence)


def cause_of_batches(pair: TracedPair) -> Cause | None:
    """Batches of two sizes in one step."""
    sizes = batch_size(pair.steps[0]), batch_size(pair.steps[1])
    if sizes[0] is None or sizes[1] is None or sizes[0] == sizes[1]:
        return None
    step = pair.steps[0].number
    said = f"The batch of step {step} has {sizes[0]:,} records in A and {sizes[1]:,} in B."
    return Cause("last batch" if step and pair.usual in sizes else "batch size", said)


# -- an operator that differs from equal inputs ----------------------------------------------------
def _of_draw(
    pair: TracedPair,
    found: StepApart,
    ours: ExecutedOperator,
    theirs: ExecutedOperator,
    draws: tuple[str, str],
) -> Cause:
    """Of a random operator whose generator stands elsewhere in the other loop."""
    if found.pair in found.changed and is_dropout(ours.operator):
        return Cause("dropout", _arguments(ours, theirs))
    (owner, seed, _), (_, other, _) = (f"{draw}   ".split(" ")[:3] for draw in draws)
    structure = _other_modules(pair) or _gap_of_dropout(pair, found)
    if seed == other and structure is not None:
        return structure
    if owner == "own" and _is_shuffle(ours):
        said = f"{ours.operator} shuffles by a generator of the seed {seed} in A and {other} in B."
        return Cause("data order", said)
    if seed != other:
        said = f"{ours.operator} draws by the seed {seed} in A and {other} in B."
        return Cause("seed", said)
    said = f"{ours.operator} draws from another position of the generator with the seed {seed}."
    return Cause("seed", said)


def _is_shuffle(entry: ExecutedOperator) -> bool:
    """A permutation, or one whole number that seeds one."""
    whole = all(made.type == "i64[]" for made in entry.outputs)
    return "randperm" in entry.operator or (entry.operator.startswith("aten.random_") and whole)


def _of_arguments(
    pair: TracedPair,
    step: Sequence[ExecutedOperator],
    ours: ExecutedOperator,
    theirs: ExecutedOperator,
) -> Cause:
    """Of an operator with other arguments in the other loop; `step` are the operators around
    A's."""
    said = _arguments(ours, theirs)
    if is_dropout(ours.operator) or "Dropout" in ours.place:
        return Cause("dropout", said)
    if ours.place.startswith("optimizer"):
        return next(_rates(pair), None) or Cause("setting", said)
    if ours.place:
        return Cause("program", said)
    if _INDEXING.match(ours.operator) and any(i.kind == "data" for i in ours.inputs):
        return Cause("data order", f"The loop takes other records: {said}")
    if _is_update(step, ours):
        return Cause("rate", f"The update of the weights has another number: {said}")
    return Cause("program", said)


def _is_update(step: Sequence[ExecutedOperator], entry: ExecutedOperator) -> bool:
    """True for a product or a sum with a parameter or a gradient."""
    if _ARITHMETIC.match(entry.operator) is None:
        return False
    made_by = [step[i.source].place for i in entry.inputs if i.source is not None]
    gradient = any(place.startswith("backward") for place in made_by)
    return gradient or any(i.kind == "parameter" for i in entry.inputs)


def _arguments(ours: ExecutedOperator, theirs: ExecutedOperator) -> str:
    place = f" in {ours.place}" if ours.place else ""
    pair = f"({ours.attributes[:200]}) in A and ({theirs.attributes[:200]}) in B"
    return f"{ours.operator}{place} has the arguments {pair}."


# -- an input that differs -------------------------------------------------------------------------
def _of_input(
    pair: TracedPair,
    found: StepApart,
    ours: ExecutedOperator,
    theirs: ExecutedOperator,
    values: tuple[Array | None, Array | None],
) -> Cause:
    mine, other = ours.inputs[found.operand], theirs.inputs[found.operand]
    where = f"{mine.name or 'an input'} of {ours.operator}"
    flipped = _flipped(values, where)
    if flipped is not None:
        return flipped
    if mine.type != other.type:
        return _beyond(pair, found, _of_types(pair, found, mine, other))
    if ours.place.startswith("optimizer") and mine.kind == other.kind == "data":
        # A kernel outside of the dispatcher has made it, from inputs that were equal.
        return next(_rates(pair), None) or cause_of_values(*values, where)
    if mine.kind == "data" and other.kind == "data":
        return _of_data(pair, found, ours, mine, other)
    alike = mine.kind == other.kind == "parameter" and mine.name == other.name
    if alike and not pair.was_seen(mine):
        seed = next(_seeds(pair), None)
        return seed or Cause("weights", f"The loops begin with different values of {mine.name}.")
    absent = _of_absent(pair, found)
    if values[0] is not None and values[1] is not None:
        short = shorter(values[0], values[1])
        if short is not None:
            return Cause("precision", f"{short} in {where}.")
        amount = relative(values[0], values[1])
        if amount is not None and amount < _rounding_of(mine.type):
            return Cause("rounding", f"{_spread(values[0], values[1], where)}.")
        if absent is None and amount is not None and amount < 2.0**-5:
            return cause_of_values(*values, where)
    if absent is not None:
        return _beyond(pair, found, absent)
    said = f"A tensor was changed in one loop, and no operator has done it: {where}."
    return Cause("outside", said)


def _rounding_of(form: str) -> float:
    return _ROUNDING_OF_SHORT.get(form.partition("[")[0], _ROUNDING)


def _spread(first: Array, second: Array, where: str) -> str:
    """How many elements of two arrays differ, and how far."""
    apart = elements_apart(first, second)
    assert apart is not None  # their digests differ
    most = "" if apart.most is None else f" by at most {apart.most:,} units in the last place"
    return f"{apart.different:,} of {apart.total:,} elements of {where} differ{most}"


def _flipped(values: tuple[Array | None, Array | None], where: str) -> Cause | None:
    if values[0] is None or values[1] is None:
        return None
    cause = cause_of_values(values[0], values[1], where)
    apart = elements_apart(values[0], values[1])
    alone = apart is not None and apart.flipped is not None and apart.total > 1
    return cause if alone and cause.kind == "flipped bit" else None


def _of_data(
    pair: TracedPair,
    found: StepApart,
    entry: ExecutedOperator,
    mine: OperandRecord,
    other: OperandRecord,
) -> Cause:
    step = pair.steps[0].number
    if entry.operator.startswith("tallystick."):
        return next(_seeds(pair), None) or Cause("seed", f"{entry.operator} has another key.")
    if pair.about("torch seed")[0] != pair.about("torch seed")[1]:
        return next(_seeds(pair))
    share = _shared_rows(pair)
    if share is not None and share >= 0.5 and not _in_place(pair, mine, other):
        said = f"Step {step} reads other records; {share:.0%} of all records are in both loops."
        return Cause("data order", said)
    absent = _of_absent(pair, found) if share is None else None
    if absent is not None:
        return absent
    seed = next(_seeds(pair), None)
    if seed is not None:
        return seed
    return Cause("data", f"Step {step} reads records that the other loop does not have.")


def _in_place(pair: TracedPair, mine: OperandRecord, other: OperandRecord) -> bool:
    """True if most records of a batch stand at the same place in both loops."""
    texts = pair.readers[0].rows.get(mine.digest, ""), pair.readers[1].rows.get(other.digest, "")
    both = [[text[n : n + 8] for n in range(0, len(text), 8)] for text in texts]
    same = sum(1 for ours, theirs in zip(both[0], both[1], strict=False) if ours == theirs)
    return 2 * same > max(len(rows) for rows in both)


def _shared_rows(pair: TracedPair) -> float | None:
    """The share of the smaller set of records that both loops have read, in all their steps."""
    rows = [
        {text[n : n + 8] for text in reader.all_rows().values() for n in range(0, len(text), 8)}
        for reader in pair.readers
    ]
    least = min(len(rows[0]), len(rows[1]))
    return len(rows[0] & rows[1]) / least if least else None


def _of_types(
    pair: TracedPair, found: StepApart, mine: OperandRecord, other: OperandRecord
) -> Cause:
    names = mine.type.partition("[")[0], other.type.partition("[")[0]
    if names[0] != names[1] and set(names) <= set(_FLOATS):
        return Cause("precision", f"The type is {names[0]} in A and {names[1]} in B.")
    return _of_absent(pair, found) or Cause(
        "program", f"The type is {mine.type} in A and {other.type} in B."
    )


# -- operators that only one loop has --------------------------------------------------------------
def _of_absent(pair: TracedPair, found: StepApart) -> Cause | None:
    """The cause in an operator that only one of the loops has, in this step up to the difference,
    or in an earlier one."""
    structure = _other_modules(pair) or _gap_of_dropout(pair, found)
    if structure is not None:
        return structure
    places = [entry.place for entry, _ in _alone(pair, found)]
    if pair.other_optimizers():
        names = [", ".join(name for name, _ in step.settings) for step in pair.steps]
        return Cause("setting", f"The optimizers are {names[0]} in A and {names[1]} in B.")
    if places and all(place.startswith("optimizer") for place in places):
        rate = next(_rates(pair), None)
        return rate or Cause("setting", f"The update has other operators in {places[0]}.")
    for entry, name in _alone(pair, found):
        if _lowers(entry):
            said = f"{name} computes in a shorter type: {entry.operator}({entry.attributes[:80]})."
            return Cause("precision", said)
    for entry, name in _alone(pair, found):
        place = f" in {entry.place}" if entry.place else ""
        return Cause("program", f"Only {name} calls {entry.operator}{place}.")
    changed = found.changed or (pair.absent[1].changed if pair.absent else ())
    if changed and changed[0][0] is not None and changed[0][1] is not None:
        steps = pair.absent[2] if pair.absent and not found.changed else None
        entries = steps or (pair.steps[0].operators, pair.steps[1].operators)
        return _of_arguments(pair, entries[0], entries[0][changed[0][0]], entries[1][changed[0][1]])
    return None


def _beyond(pair: TracedPair, found: StepApart, cause: Cause) -> Cause:
    """The cause `cause`, but where other operators have computed the same up to rounding: the
    first tensor of one type behind them says so."""
    if cause.kind != "program":
        return cause
    alone = {entry.place for entry, _ in _alone(pair, found)}
    behind = found.pairs[found.pairs.index(found.pair) + 1 :]
    for a, b in behind:
        if a is None or b is None:
            continue
        ours, theirs = pair.steps[0].operators[a], pair.steps[1].operators[b]
        if ours.place in alone or theirs.place in alone:
            continue
        for mine, other in zip(ours.inputs, theirs.inputs, strict=False):
            if mine.digest == other.digest or mine.type != other.type:
                continue
            values = pair.values((mine, other))
            if values[0] is None or values[1] is None or values[0].size < 2:
                return cause
            amount = relative(values[0], values[1])
            if amount is None or amount >= _rounding_of(mine.type):
                return cause
            said = f"Other operators give the same up to rounding. {cause.sentence}"
            return Cause("rounding", said)
    return cause


def _lowers(entry: ExecutedOperator) -> bool:
    return entry.operator.startswith("aten._to_copy") and any(
        made.type.startswith(_SHORT_TYPES) for made in entry.outputs
    )


def _other_modules(pair: TracedPair) -> Cause | None:
    """A module that computes in one of the loops only. Modules that drop have a cause of their
    own."""
    ours, theirs = (
        {
            entry.place: entry
            for entry in step.operators
            if entry.place and "Dropout" not in entry.place and not _PHASE.match(entry.place)
        }
        for step in pair.steps
    )
    for name, own, other in (("A", ours, theirs), ("B", theirs, ours)):
        for place in own:
            if place not in other:
                return Cause("program", f"Only {name} has the module {place}.")
    return None


def _gap_of_dropout(pair: TracedPair, found: StepApart) -> Cause | None:
    """An operator that drops, without a partner: anywhere in the step, since a kernel may be
    another one without dropout."""
    entries = (pair.steps[0].operators, pair.steps[1].operators)
    gaps = [*_alone(pair, found), *(_gap(gap, entries) for gap in found.gaps)]
    drawn = [gap for gap in gaps if is_dropout(gap[0].operator)]
    for entry, name in drawn or [gap for gap in gaps if "Dropout" in gap[0].place]:
        place = f" in {entry.place}" if entry.place else ""
        return Cause("dropout", f"Only {name} applies dropout: {entry.operator}{place}.")
    return None


def _alone(pair: TracedPair, found: StepApart) -> Iterator[tuple[ExecutedOperator, str]]:
    """Operators without a partner: before the difference in this step, or in an earlier step."""
    entries = (pair.steps[0].operators, pair.steps[1].operators)
    gaps = []
    for gap in found.pairs:
        if gap == found.pair:
            break
        if None in gap:
            gaps.append(_gap(gap, entries))
    if pair.absent is not None:
        _, before, known = pair.absent
        gaps += [_gap(gap, known) for gap in before.gaps]
    yield from (gap for gap in gaps if not passes_through(gap[0]))


def _gap(
    gap: tuple[int | None, int | None],
    entries: Sequence[Sequence[ExecutedOperator]],
) -> tuple[ExecutedOperator, str]:
    a, b = gap
    return (entries[0][a], "A") if a is not None else (entries[1][b or 0], "B")


# -- what stands beside ----------------------------------------------------------------------------
def _rates(pair: TracedPair) -> Iterator[Cause]:
    """Settings of the optimizers, the learning rate first."""
    apart = pair.settings()
    for name, key, ours, theirs in sorted(apart, key=lambda row: row[1] != "lr"):
        kind = "rate" if key == "lr" else "setting"
        yield Cause(kind, f"{key} of {name} is {ours} in A and {theirs} in B.")


def _seeds(pair: TracedPair) -> Iterator[Cause]:
    """Generators that stood elsewhere as the loops began."""
    ours, theirs = pair.about("torch seed")
    if ours != theirs:
        yield Cause("seed", f"Torch's seed is {ours} in A and {theirs} in B.")
    for name in ("torch generator", "numpy generator", "python generator"):
        ours, theirs = pair.about(name)
        if ours != theirs:
            said = f"{name.split()[0].capitalize()}'s generator started in a different state."
            yield Cause("seed", said)


def _precisions(pair: TracedPair) -> Iterator[Cause]:
    beside = pair.environment()
    if beside:
        yield Cause("rounding", f"The loops ran on other settings: {beside}.")


def causes_of_end(pair: TracedPair, longer: TracedStep, name: str) -> list[Cause]:
    """Why one loop goes on: its last batch is a short one, or it has more steps."""
    size = batch_size(longer)
    if size is not None and pair.usual is not None and size < pair.usual:
        said = f"{name} has another step, of {size:,} records; a whole batch has {pair.usual:,}."
        return [Cause("last batch", said)]
    return [Cause("steps", f"{name} goes on where the other loop ends.")]


def batch_size(step: TracedStep) -> int | None:
    """The records of a step's batch: what the first module was given, else the first data."""
    given = step.calls[0] if step.calls else next((o.type for o in _data(step)), None)
    return None if given is None else _size(given)


def _data(step: TracedStep) -> Iterator[OperandRecord]:
    for entry in step.operators:
        for operand in entry.inputs:
            if operand.kind == "data" and operand.source is None and "[" in operand.type:
                yield operand


def _size(form: str) -> int:
    """The first size of a type such as f32[8,6]."""
    inner = form.partition("[")[2].rstrip("]")
    first = inner.partition(",")[0]
    return int(first) if first.isdecimal() else 1
