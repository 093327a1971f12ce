"""What the first difference of two steps comes from.

`cause_of_values` reads two tensors that one operator made from equal inputs. `cause_in_run` reads
the inputs of a step of a run: each kind of input has its own cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.comparing.found import SIZES, Cause
from tallystick.comparing.programs import arguments_apart
from tallystick.comparing.steps import (
    ATTRIBUTES,
    INPUT,
    OPERATOR,
    OUTPUT,
    ExecutedOperator,
    OperandRecord,
    StepApart,
    only_one,
    operand_at,
)
from tallystick.comparing.values import (
    ElementApart,
    elements_apart,
    float_name,
    is_float,
    kept_bits,
    numbers_of,
    signs_said,
    units,
)
from tallystick.program.ir import SCALAR_PREFIX

# Significands that shorter types keep, by the names that people know them under.
_SHORT = ((7, "bfloat16"), (10, "TF32 or float16"))
NO_SUCH = "only one of the two has such a tensor"
# Up to so many units in the last place a difference is a rounding: a fault that flips one of the
# lowest bits cannot be told from it. A unit of a short type is a large one.
_ROUNDING_ULPS = {"f64": 64, "f32": 64, "f16": 4, "bf16": 4}
# Near zero a rounding of a sum is many units. Up to such a share of the greatest value it is one.
_ROUNDING_SHARE = {"f64": 2.0**-14, "f32": 2.0**-14, "f16": 2.0**-6, "bf16": 2.0**-3}
# The types whose values a kernel may round to TF32, and the greatest share that this changes.
_LONG = ("f64", "f32")
_TF32_SHARE = 2.0**-5
_RANDOM = ("dropout", "bernoulli", "mask_scale")
_UPDATES = ("adam", "sgd", "lamb", "lion", "rmsprop", "adagrad", "adafactor")


def is_dropout(operator: str) -> bool:
    return any(part in operator for part in _RANDOM)


# -- by values -------------------------------------------------------------------------------------
def cause_of_values(first: Array | None, second: Array | None, where: str) -> Cause:
    """Why one operator gave two tensors from equal inputs."""
    if first is None or second is None:
        said = f"From equal inputs {where} gives different results, whose values are not known."
        return Cause("result", said)
    apart = elements_apart(first, second)
    if apart is None:
        return Cause("rounding", f"From equal inputs {where} gives different results.")
    type_name, amount = float_name(first), relative(first, second)
    near = amount is not None and (apart.most or 0) <= _ROUNDING_ULPS.get(type_name, -1)
    count = f"From equal inputs {differing(apart, where)}"
    most = "" if apart.most is None else f", by at most {units(apart.most)}"
    if apart.sign_of_zero:
        signs = signs_said(first, second) or "zeros of other signs"
        verb = "is" if apart.different == 1 else "are"
        said = f"{apart.different:,} of {apart.total:,} elements of {where} {verb} {signs}"
        return Cause("result", f"From equal inputs {said}.")
    if not near:
        if is_flipped(apart, first):
            return Cause("flipped bit", f"One element of {apart.total:,} in {where} {_bit(apart)}.")
        short = shorter(first, second)
        if short is not None:
            return Cause("precision", f"{short} in {where}.")
        if amount is None or amount > _ROUNDING_SHARE[type_name]:
            if type_name not in _LONG or amount is None or amount > _TF32_SHARE:
                return Cause("result", f"{count}{most}.")
            said = (
                f"In {where} the two differ by {amount:.1g} of the greatest value, about the size "
                "of TF32's rounding. The values do not show which of the two is less precise."
            )
            return Cause("precision", said)
    return Cause("rounding", f"{count}{most}: another library, or another order of sums.")


def differing(apart: ElementApart, where: str) -> str:
    """How many elements of a tensor differ, as a clause."""
    verb = "differs" if apart.different == 1 else "differ"
    return f"{apart.different:,} of {apart.total:,} elements of {where} {verb}"


def _bit(apart: ElementApart) -> str:
    """In which bit alone one element differs, as the end of a clause."""
    part = f" of its {apart.flipped_part} part" if apart.flipped_part else ""
    return f"differs in bit {apart.flipped}{part} alone"


def is_flipped(apart: ElementApart, tensor: Array) -> bool:
    """True if one bit of one element of several is all that differs, in a tensor of floats: an
    integer, such as a label, has no bits that a person would call flipped. Nor is the sign of a
    complex number's part one: a conjugate has it."""
    name = float_name(tensor)
    if apart.flipped is None or apart.total <= 1 or not name:
        return False
    return is_float(tensor) or apart.flipped != int(name.removeprefix("f")) - 1


def cause_of_stored(pairs: Sequence[tuple[str, Array, Array]], where: str) -> Cause | None:
    """What the slots that differ show of two stored states; None where no cause fits. A stored
    state is not the result of one operator: nothing is known of what it was made from."""
    found = [(slot, a, elements_apart(a, b)) for slot, a, b in pairs]
    apart = [(slot, a, elements) for slot, a, elements in found if elements is not None]
    bytewise = len(apart) == 1 and apart[0][1].dtype == np.uint8  # a chain's digest
    if len(apart) == 1 and apart[0][2].flipped is not None and (bytewise or is_float(apart[0][1])):
        slot, _, elements = apart[0]
        said = (
            f"One element of {elements.total:,} in the slot {slot} of {where} {_bit(elements)}. No "
            "other slot differs."
        )
        return Cause("flipped bit", said)
    near = [
        elements.most is not None and elements.most <= _ROUNDING_ULPS.get(float_name(a), -1)
        for _, a, elements in apart
    ]
    if not near or not all(near):
        return None
    most = max(elements.most or 0 for _, _, elements in apart)
    said = f"The slots of {where} differ by at most {units(most)}."
    return Cause("rounding", said)


def shorter(first: Array, second: Array) -> str | None:
    """Which of two tensors has values of a shorter type than its own, where only one has."""
    bits = [kept_bits(array) for array in (first, second)]
    if bits[0] is None or bits[1] is None or first.size < 4:
        return None
    for most, name in _SHORT:
        small = [b <= most for b in bits if b is not None]
        if small == [True, False] or small == [False, True]:
            which = "A" if small[0] else "B"
            return f"Every value of {which} fits in {most + 1} significant bits ({name})"
    return None


def relative(first: Array, second: Array) -> float | None:
    """The greatest difference, as a share of the greatest value; None for no finite numbers."""
    if not float_name(first):
        return None
    wide = np.complex128 if first.dtype.kind == "c" else np.float64
    ours, theirs = (numbers_of(array).astype(wide) for array in (first, second))
    finite = np.isfinite(ours) & np.isfinite(theirs)
    if not finite.all() or not ours.size:
        return None
    top = max(float(np.abs(ours).max()), float(np.abs(theirs).max()))
    return float(np.abs(ours - theirs).max()) / top if top else 0.0


def cause_of_missing(
    entry: ExecutedOperator, found: StepApart, mine: OperandRecord | None
) -> Cause:
    """The cause where an operator has an operand in one of the two executions only: `mine` is that
    of A."""
    name = "A" if mine is not None else "B"
    said = f"Only in {name} does {entry.operator} have an {found.side} {found.operand}."
    return Cause("program", said)


# -- by what a step reads --------------------------------------------------------------------------
def causes_in_run(
    found: StepApart,
    entries: tuple[Sequence[ExecutedOperator], Sequence[ExecutedOperator]],
    step: int,
    of_jobs: Sequence[Cause],
    values: tuple[Array | None, Array | None],
) -> list[Cause]:
    """The causes of a step's difference, the first one first; then what else is in the jobs."""
    first = _first_cause(found, entries, step, of_jobs, values)
    seed = next((c for c in of_jobs if c.kind == "seed"), None)
    follows = first.kind in ("weights", "data order", "seed")
    if seed is not None and (follows or (first.kind == "data" and first not in of_jobs)):
        first = seed
    told = first in of_jobs
    rest = [c for c in of_jobs if c != first and (told or c.kind != first.kind)]
    return [first, *rest]


def _first_cause(
    found: StepApart,
    entries: tuple[Sequence[ExecutedOperator], Sequence[ExecutedOperator]],
    step: int,
    of_jobs: Sequence[Cause],
    values: tuple[Array | None, Array | None],
) -> Cause:
    a, b = found.pair
    if a is None or b is None:
        return _absent(found, entries, of_jobs)
    ours = entries[0][a]
    if found.side in (INPUT, OUTPUT):
        mine, other = (operand_at(e, found.side, found.operand) for e in (ours, entries[1][b]))
        if mine is None or other is None:
            known = next((c for c in of_jobs if c.kind in ("dropout", "program")), None)
            return known or cause_of_missing(ours, found, mine)
    if found.side == INPUT:
        for operand in (operand_at(ours, INPUT, number) for number in found.inputs):
            cause = None if operand is None else _of_input(operand, step, of_jobs)
            if cause is not None:
                return cause
        return _absent(found, entries, of_jobs)
    if found.side == ATTRIBUTES or found.pair in found.changed:
        return _of_attributes(ours, entries[1][b], of_jobs)
    if found.side == OUTPUT and found.gaps:
        known = next((c for c in of_jobs if c.kind in ("dropout", "program")), None)
        if known is not None:
            return known
    rounded = next((c for c in of_jobs if c.kind == "rounding"), None)
    return rounded or cause_of_values(*values, f"operator {a} ({ours.operator})")


def _of_input(operand: OperandRecord, step: int, of_jobs: Sequence[Cause]) -> Cause | None:
    known: dict[str, Cause] = {}
    for cause in of_jobs:
        known.setdefault(cause.kind, cause)
    if operand.kind == OPERATOR:
        return None
    if operand.kind == "scalar":
        name = operand.name.removeprefix(SCALAR_PREFIX)
        rate = next((c for c in of_jobs if c.kind == "rate" and c.about == name), None)
        return rate or Cause("rate", f"Step {step} reads another value of {operand.name}.")
    if operand.kind == "rng":
        return known.get(
            "seed", Cause("seed", f"Step {step} draws its random numbers by another key.")
        )
    if operand.kind == "batch":
        # The jobs say which; a batch of other records from the same order is an epoch's end.
        kinds = (*SIZES, "last batch", "data", "data order")
        found = next((known[kind] for kind in kinds if kind in known), None)
        said = f"Step {step} reads other records, or the same ones in another order."
        return found or Cause("data", said)
    if step == 0:
        said = f"The slot {operand.name} differs before the first step."
        return known.get("weights", Cause("weights", said))
    said = (
        f"The slot {operand.name} differs before step {step}, and no operator of an earlier step "
        "has another result."
    )
    return Cause("outside", said)


def _of_attributes(
    ours: ExecutedOperator, theirs: ExecutedOperator, of_jobs: Sequence[Cause]
) -> Cause:
    said = f"In {ours.operator}, {arguments_apart(ours, theirs)}."
    if is_dropout(ours.operator):
        return Cause("dropout", said)
    if any(part in ours.operator for part in _UPDATES):
        return Cause("setting", said)
    known = next((c for c in of_jobs if c.kind in ("dropout", "setting", *SIZES)), None)
    return known or Cause("program", said)


def _absent(
    found: StepApart,
    entries: tuple[Sequence[ExecutedOperator], Sequence[ExecutedOperator]],
    of_jobs: Sequence[Cause],
) -> Cause:
    """An operator without a partner, or another source of a tensor: the programs differ."""
    alone = list(_alone(found, entries))
    dropped = [said for said, entry in alone if is_dropout(entry.operator)]
    if dropped:
        return Cause("dropout", dropped[0])
    kinds = ("dropout", "setting", *SIZES, "program")
    known = next((c for kind in kinds for c in of_jobs if c.kind == kind), None)
    if known is not None:
        return known
    return Cause("program", alone[0][0] if alone else "An operator reads another tensor.")


def _alone(
    found: StepApart, entries: tuple[Sequence[ExecutedOperator], Sequence[ExecutedOperator]]
) -> Iterator[tuple[str, ExecutedOperator]]:
    for gap in found.gaps:
        entry, node, name = only_one(gap, *entries)
        yield f"Only {name} has {entry.operator} (operator {node}).", entry
