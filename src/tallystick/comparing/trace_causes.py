"""What the first difference of two traces comes from.

A trace has no job that says what was meant. The cause follows from what the first differing
operator is, where its inputs come from, what the values look like, and what stands beside: the
optimizers' settings, the generators of random operators, and what torch ran on.
"""

from __future__ import annotations

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.comparing.causes import cause_of_values, differing, is_dropout, relative, shorter
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import INPUT, ExecutedOperator, OperandRecord, StepApart
from tallystick.comparing.trace_arguments import arguments_said, of_arguments
from tallystick.comparing.trace_batches import (
    cause_of_batches,
    cause_of_records,
    is_handed_over,
)
from tallystick.comparing.trace_loading import is_shuffle
from tallystick.comparing.trace_modules import of_smoothing, replaced
from tallystick.comparing.trace_structure import (
    beyond,
    gap_of_draw,
    gap_of_dropout,
    of_absent,
    other_modules,
    rounding_of,
)
from tallystick.comparing.trace_updates import of_fresh_state, other_updates, part_of_update, rates
from tallystick.comparing.traced_pair import TracedPair, precisions, seeds, torch_seeds
from tallystick.comparing.values import elements_apart, signs_said, units
from tallystick.protocol.verdict import PARTIES

# Different values of a tensor below which its type is not told by them.
_FEW = 8
# Types of floating-point numbers, with the names that torch gives them.
_FLOATS = {"f64": "float64", "f32": "float32", "bf16": "bfloat16", "f16": "float16"}


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
    smoothing = of_smoothing(pair, found)
    if smoothing is not None:
        return smoothing
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
        return Cause("dropout", arguments_said(pair, ours, theirs))
    (owner, seed, _), (_, other, _) = (f"{draw}   ".split(" ")[:3] for draw in draws)
    structure = other_modules(pair) or gap_of_dropout(pair, found) or gap_of_draw(pair, found)
    if seed == other and structure is not None:
        return structure
    if owner == "own" and is_shuffle(ours):
        said = f"{ours.operator} shuffles by a generator of the seed {seed} in A and {other} in B."
        return Cause("data order", said)
    if seed != other:
        said = f"{ours.operator} draws with the seed {seed} in A and {other} in B."
        return Cause("seed", said)
    said = f"{ours.operator} draws from another position of the generator with the seed {seed}."
    return Cause("seed", said)


# -- an input that differs -------------------------------------------------------------------------
def _of_input(
    pair: TracedPair,
    found: StepApart,
    ours: ExecutedOperator,
    theirs: ExecutedOperator,
    values: tuple[Array | None, Array | None],
) -> Cause:
    mine, other = ours.inputs[found.operand], theirs.inputs[found.operand]
    where = _where(pair, ours, mine)
    flipped = _flipped(values, where) if mine.name or _is_of_floats(mine) else None
    if flipped is not None:
        return flipped
    if mine.type != other.type:
        return beyond(pair, found, _of_types(pair, found, mine, other))
    if ours.place.startswith("optimizer"):
        fresh = None if any(rates(pair)) else other_updates(pair)
        fresh = fresh or (None if any(rates(pair)) else of_fresh_state(pair, found))
        if fresh is not None:
            return fresh
    if ours.place.startswith("optimizer") and mine.kind == other.kind == "data":
        # A kernel outside of the dispatcher has made it, from inputs that were equal.
        return next(rates(pair), None) or cause_of_values(*values, where)
    if mine.source is not None and ours.place.startswith("optimizer"):
        made = pair.steps[0].operators[mine.source]
        rate = next(rates(pair), None) if made.place.startswith("optimizer") else None
        if rate is not None:
            return rate
    if mine.kind == other.kind == "data" or is_handed_over(pair, (mine, other)):
        return _of_data(pair, found, ours, (mine, other), values, where)
    alike = mine.kind == other.kind in ("parameter", "state") and mine.name == other.name
    within = _changed_within(pair, found, mine) if alike else None
    if within is not None:
        return within
    if alike and not pair.was_seen(mine):
        seed = next(torch_seeds(pair), None)
        short = _shorter(values)
        said = f"The loops begin with different values of {mine.name}.{short and f' {short}.'}"
        return seed or Cause("weights", said)
    absent = of_absent(pair, found)
    if values[0] is not None and values[1] is not None:
        short = _shorter(values)
        if short:
            return Cause("precision", f"{short} in {where}.")
        amount = relative(values[0], values[1])
        near = amount is not None and amount < rounding_of(mine.type)
        signs = signs_said(values[0], values[1])
        if near and not signs and (absent is not None or _several(values[0], values[1])):
            return _of_rounding(pair, found, _spread(values[0], values[1], where))
    if absent is not None:
        return beyond(pair, found, absent)
    if values[0] is not None and values[1] is not None:
        where = _spread(values[0], values[1], where)
    said = f"A tensor was changed in one loop, and no recorded operator has done it: {where}."
    return Cause("outside", said)


def _is_of_floats(operand: OperandRecord) -> bool:
    return operand.type.startswith(tuple(_FLOATS))


def _several(first: Array, second: Array) -> bool:
    apart = elements_apart(first, second)
    return apart is not None and apart.different > 1


def _shorter(values: tuple[Array | None, Array | None]) -> str:
    """Says that the values of one loop are those of a shorter type, such as those of a rounded
    checkpoint. A few different values, such as zeros and ones, say nothing of their type."""
    if values[0] is None or values[1] is None:
        return ""
    if min(np.unique(values[0]).size, np.unique(values[1]).size) < _FEW:
        return ""
    return shorter(values[0], values[1]) or ""


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
    signs = signs_said(first, second)
    if signs:
        verb = "is" if apart.different == 1 else "are"
        return f"{apart.different:,} of {apart.total:,} elements of {where} {verb} {signs}"
    most = "" if apart.most is None else f" by at most {units(apart.most)}"
    return f"{differing(apart, where)}{most}"


def _of_rounding(pair: TracedPair, found: StepApart, spread: str) -> Cause:
    """Of other operators that compute the same up to rounding: they are named."""
    other = replaced(pair, found)
    return Cause("rounding", f"{other}. {spread}." if other else f"{spread}.")


def _where(pair: TracedPair, entry: ExecutedOperator, operand: OperandRecord) -> str:
    """An input of A, in words."""
    name = part_of_update(pair.steps[0].operators, entry, operand)
    if operand.kind == "state" or (name and not operand.name):
        return f"{name}, which {entry.operator} reads,"
    return f"{operand.name or 'an input'} of {entry.operator}"


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
    operands: tuple[OperandRecord, OperandRecord],
    values: tuple[Array | None, Array | None],
    where: str,
) -> Cause:
    seed = next(torch_seeds(pair), None)
    if entry.operator.startswith("tallystick."):
        return seed or Cause("seed", f"{entry.operator} has another key.")
    if seed is not None:
        return seed
    cause = cause_of_records(pair, operands, values, where)
    if cause is not None:
        return cause
    step = pair.steps[0].number
    said = f"Step {step} reads other values; the records of a loop are not known one by one."
    return of_absent(pair, found) or Cause("data", said)


def _of_types(
    pair: TracedPair, found: StepApart, mine: OperandRecord, other: OperandRecord
) -> Cause:
    names = mine.type.partition("[")[0], other.type.partition("[")[0]
    if names[0] != names[1] and set(names) <= set(_FLOATS):
        bits = [int(name.lstrip("bf")) for name in names]
        short = 0 if bits[0] < bits[1] else 1
        said = (
            f"{PARTIES[short]} computes in {_FLOATS[names[short]]} where {PARTIES[1 - short]} "
            f"computes in {_FLOATS[names[1 - short]]}"
        )
        return Cause("precision", f"{said}{_from(pair, found)}.")
    return of_absent(pair, found) or Cause(
        "program", f"The type is {mine.type} in A and {other.type} in B."
    )


def _from(pair: TracedPair, found: StepApart) -> str:
    """The module in which the first tensor of another type is read."""
    place = pair.steps[0].operators[found.pair[0] or 0].place
    return f", first in {place}" if place else ""
