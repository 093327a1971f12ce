"""What the first difference of two traces comes from.

A trace has no job that says what was meant. The cause follows from what the first differing
operator is, where its inputs come from, what the values look like, and what stands beside: the
optimizers' settings, the generators of random operators, and what torch ran on.
"""

from __future__ import annotations

from tallystick.commit.tensor import Array
from tallystick.comparing.causes import cause_of_values, is_dropout, relative, shorter
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import INPUT, ExecutedOperator, OperandRecord, StepApart
from tallystick.comparing.trace_arguments import arguments_said, of_arguments
from tallystick.comparing.trace_structure import (
    beyond,
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
    structure = other_modules(pair) or gap_of_dropout(pair, found)
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
    flipped = _flipped(values, where)
    if flipped is not None:
        return flipped
    if mine.type != other.type:
        return beyond(pair, found, _of_types(pair, found, mine, other))
    if ours.place.startswith("optimizer") and mine.kind == other.kind == "data":
        # A kernel outside of the dispatcher has made it, from inputs that were equal.
        return next(rates(pair), None) or cause_of_values(*values, where)
    if mine.kind == "data" and other.kind == "data":
        return _of_data(pair, found, ours, mine, other)
    alike = mine.kind == other.kind == "parameter" and mine.name == other.name
    if alike and not pair.was_seen(mine):
        seed = next(torch_seeds(pair), None)
        return seed or Cause("weights", f"The loops begin with different values of {mine.name}.")
    absent = of_absent(pair, found)
    if values[0] is not None and values[1] is not None:
        short = shorter(values[0], values[1])
        if short is not None:
            return Cause("precision", f"{short} in {where}.")
        amount = relative(values[0], values[1])
        if amount is not None and amount < rounding_of(mine.type):
            return Cause("rounding", f"{_spread(values[0], values[1], where)}.")
        if absent is None and amount is not None and amount < 2.0**-5:
            return cause_of_values(*values, where)
    if absent is not None:
        return beyond(pair, found, absent)
    said = f"A tensor was changed in one loop, and no operator has done it: {where}."
    return Cause("outside", said)


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
    share = _shared_rows(pair)
    if share is not None and share >= 0.5 and not _in_place(pair, mine, other):
        said = f"Step {step} reads other records; {share:.0%} of all records are in both loops."
        return Cause("data order", said)
    absent = of_absent(pair, found) if share is None else None
    if absent is not None:
        return absent
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
