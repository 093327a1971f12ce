"""What the first difference of two traces comes from.

A trace has no job that says what was meant. The cause follows from what the first differing
operator is, where its inputs come from, what the values look like, and what stands beside: the
optimizers' settings, the generators of random operators, and what torch ran on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tallystick.commit.tensor import Array
from tallystick.comparing.causes import cause_of_values, is_dropout, relative, shorter
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import INPUT, ExecutedOperator, OperandRecord, StepApart
from tallystick.comparing.trace_arguments import arguments_said, of_arguments
from tallystick.comparing.trace_structure import (
    beyond,
    gap_of_draw,
    gap_of_dropout,
    of_absent,
    other_modules,
    other_updates,
    rounding_of,
)
from tallystick.comparing.traced_pair import (
    TracedPair,
    cause_of_batches,
    precisions,
    rates,
    seeds,
    torch_seeds,
)
from tallystick.comparing.values import elements_apart

_FLOATS = ("f64", "f32", "bf16", "f16")


def causes_in_trace(
    pair: TracedPair, found: StepApart, values: tuple[Array | None, Array | None]
) -> list[Cause]:
    """The cause of the first difference, and what else differs in this step."""
    first = _cause(pair, found, values)
    rest = [*rates(pair), *precisions(pair)]
    if first.kind != "seed":
        rest += seeds(pair)
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
        updates = other_updates(pair) if ours.place.startswith("backward") else None
        return updates or of_arguments(pair, pair.steps[0].operators, ours, theirs)
    rate = next(rates(pair), None) if ours.place.startswith("optimizer") else None
    if rate is not None:
        return rate
    if ours.outputs[found.operand].type != theirs.outputs[found.operand].type:
        return _of_types(pair, found, ours.outputs[found.operand], theirs.outputs[found.operand])
    cause = cause_of_values(*values, f"operator {a} ({ours.operator})")
    beside = pair.environment()
    return Cause(cause.kind, f"{cause.sentence} {beside}." if beside else cause.sentence)


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
        return Cause("dropout", arguments_said(ours, theirs))
    (owner, seed, _), (_, other, _) = (f"{draw}   ".split(" ")[:3] for draw in draws)
    structure = other_modules(pair) or gap_of_dropout(pair, found) or gap_of_draw(pair, found)
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
    flipped = _flipped(values, where) if mine.name or _is_of_floats(mine) else None
    if flipped is not None:
        return flipped
    if mine.type != other.type:
        return beyond(pair, found, _of_types(pair, found, mine, other))
    if ours.place.startswith("optimizer") and mine.kind == other.kind == "data":
        # A kernel outside of the dispatcher has made it, from inputs that were equal.
        return next(rates(pair), None) or cause_of_values(*values, where)
    if mine.source is not None and ours.place.startswith("optimizer"):
        made = pair.steps[0].operators[mine.source]
        rate = next(rates(pair), None) if made.place.startswith("optimizer") else None
        if rate is not None:
            return rate
    if mine.kind == "data" and other.kind == "data":
        return _of_data(pair, found, ours, mine, other)
    alike = mine.kind == other.kind == "parameter" and mine.name == other.name
    within = _changed_within(pair, found, mine) if alike else None
    if within is not None:
        return within
    if alike and not pair.was_seen(mine):
        seed = next(torch_seeds(pair), None)
        return seed or Cause("weights", f"The loops begin with different values of {mine.name}.")
    absent = of_absent(pair, found)
    if values[0] is not None and values[1] is not None:
        short = shorter(values[0], values[1])
        if short is not None:
            return Cause("precision", f"{short} in {where}.")
        amount = relative(values[0], values[1])
        near = amount is not None and amount < rounding_of(mine.type)
        if near and (absent is not None or _several(values[0], values[1])):
            return Cause("rounding", f"{_spread(values[0], values[1], where)}.")
    if absent is not None:
        return beyond(pair, found, absent)
    if values[0] is not None and values[1] is not None:
        where = _spread(values[0], values[1], where)
    said = f"A tensor was changed in one loop, and no recorded operator has done it: {where}."
    return Cause("outside", said)


def _is_of_floats(operand: OperandRecord) -> bool:
    return operand.type.startswith(_FLOATS)


def _several(first: Array, second: Array) -> bool:
    apart = elements_apart(first, second)
    return apart is not None and apart.different > 1


def _changed_within(pair: TracedPair, found: StepApart, mine: OperandRecord) -> Cause | None:
    """Of a buffer that an operator of this step with other arguments has read before: some, such
    as those of batch norm, change it without saying so."""
    entries = pair.steps[0].operators, pair.steps[1].operators
    for a, b in found.pairs:
        if (a, b) == found.pair:
            break
        if a is None or b is None or (a, b) not in found.changed:
            continue
        if mine.name in {operand.name for operand in entries[0][a].inputs}:
            return of_arguments(pair, entries[0], entries[0][a], entries[1][b])
    return None


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
        return next(torch_seeds(pair), None) or Cause("seed", f"{entry.operator} has another key.")
    seed = next(torch_seeds(pair), None)
    if seed is not None:
        return seed
    rows = [_rows_of(reader.all_rows().values()) for reader in pair.readers]
    if not rows[0] or not rows[1]:
        said = f"Step {step} reads other values; the records of a loop are not known one by one."
        return of_absent(pair, found) or Cause("data", said)
    batches = [
        _rows_of([reader.rows.get(operand.digest, "")])
        for reader, operand in zip(pair.readers, (mine, other), strict=True)
    ]
    return _of_records(step, rows, batches)


def _of_records(step: int, rows: list[list[str]], batches: list[list[str]]) -> Cause:
    """What differs in two batches, by the digests of their records; `rows` are those of the whole
    loops."""
    every = set(rows[0]), set(rows[1])
    share = len(every[0] & every[1]) / min(len(every[0]), len(every[1]))
    same = sum(1 for ours, theirs in zip(*batches, strict=False) if ours == theirs)
    most = max(len(batch) for batch in batches)
    known = most and set(batches[0]) <= every[1] and set(batches[1]) <= every[0]
    if known and Counter(rows[0]) == Counter(rows[1]):
        said = f"Step {step} reads records that the other loop reads at another place."
        return Cause("data order", said)
    if share >= 0.5 and 2 * same <= most:
        said = f"Step {step} reads other records; {share:.0%} of all records are in both loops."
        return Cause("data order", said)
    if 0 < same < most:
        return Cause("data", f"Of the {most:,} records of step {step} {most - same:,} differ.")
    if share < 1:
        return Cause("data", f"Step {step} reads records that the other loop does not read.")
    return Cause("data", f"Step {step} reads other records, or the same in another order.")


def _rows_of(texts: Iterable[str]) -> list[str]:
    """The digests of records, 8 digits each."""
    return [text[n : n + 8] for text in texts for n in range(0, len(text), 8)]


def _lower(names: tuple[str, str]) -> str:
    """Which of two types has fewer bits: A's or B's; empty where neither has."""
    bits = [int(name.lstrip("bf")) for name in names]
    return "" if bits[0] == bits[1] else "that of A" if bits[0] < bits[1] else "that of B"


def _of_types(
    pair: TracedPair, found: StepApart, mine: OperandRecord, other: OperandRecord
) -> Cause:
    names = mine.type.partition("[")[0], other.type.partition("[")[0]
    if names[0] != names[1] and set(names) <= set(_FLOATS):
        lower = _lower(names)
        said = (
            f"The type is {names[0]} in A and {names[1]} in B{lower and f', the lower is {lower}'}."
        )
        return Cause("precision", said)
    return of_absent(pair, found) or Cause(
        "program", f"The type is {mine.type} in A and {other.type} in B."
    )
