"""Causes that follow from values, and from what the jobs of two runs say."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.commit.tensor import DTYPES
from tallystick.comparing.causes import cause_of_stored, cause_of_values, causes_in_run
from tallystick.comparing.found import Cause
from tallystick.comparing.steps import INPUT, ExecutedOperator, OperandRecord, StepApart

WORDS = {"bf16": "<u2", "f16": "<u2", "f32": "<u4", "f64": "<u8"}
ONE = {"bf16": 0x3F80, "f16": 0x3C00, "f32": 0x3F800000, "f64": 0x3FF0000000000000}


def numbers(name: str, *places: int) -> np.ndarray:
    """Numbers of a type, each so many places behind 1 in the line of all of them."""
    return np.array([ONE[name] + place for place in places], WORDS[name]).view(DTYPES[name])


@pytest.mark.parametrize("name", WORDS)
def test_a_few_units_in_the_last_place_are_a_rounding(name: str) -> None:
    """In a short type even one unit is a large share of the value, and no sign of TF32."""
    ours, theirs = numbers(name, 3, 7, 11, 21, 9), numbers(name, 4, 6, 11, 22, 9)
    assert cause_of_values(ours, theirs, "node 1").kind == "rounding"
    assert cause_of_values(theirs, ours, "node 1").kind == "rounding"


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_a_short_type_has_no_lower_precision_by_its_distances(name: str) -> None:
    ours, theirs = numbers(name, 3, 7, 11, 21, 9), numbers(name, 8, 2, 11, 22, 9)
    assert cause_of_values(ours, theirs, "node 1").kind == "rounding"


def test_a_flipped_bit_of_a_short_type() -> None:
    ours, theirs = numbers("bf16", 3, 7, 11, 21), numbers("bf16", 3, 7, 11, 21 + 32)
    assert cause_of_values(ours, theirs, "node 1").kind == "flipped bit"


def test_values_that_were_rounded_to_a_shorter_type() -> None:
    ours = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    theirs = (ours.view("<u4") & np.uint32(0xFFFF0000)).view("<f4")
    cause = cause_of_values(ours, theirs, "node 1")
    assert cause.kind == "precision"
    assert cause.sentence == "Every value of B fits in 8 significant bits (bfloat16) in node 1."
    other = (theirs.astype(np.float64) * (1 + 2.0**-9)).astype(np.float32)
    wide = (ours.astype(np.float64) * (1 + 2.0**-12)).astype(np.float32)
    assert cause_of_values(other, wide, "node 1").kind == "precision"


def test_a_flipped_bit_is_one_bit_of_one_float() -> None:
    ours = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    other = ours.copy()
    other[3] *= 3  # one element, and many bits
    assert cause_of_values(ours, other, "node 1").kind == "result"
    one = np.array([ONE["f64"] + 5], "<u8").view("<f8")
    assert cause_of_values(one, one * 0.9, "node 1").kind != "flipped bit"
    labels = np.array([1, 2, 3, 0])
    cause = cause_of_values(labels, labels ^ [0, 1, 0, 0], "node 1")
    assert (cause.kind, cause.sentence) == (
        "result",
        "From equal inputs 1 of 4 elements of node 1 differs.",
    )


def test_a_stored_state_shows_a_flip_and_a_rounding_and_nothing_else() -> None:
    ours = np.linspace(0.1, 0.9, 12, dtype=np.float32)
    flipped = (ours.view("<u4") ^ (np.arange(12) == 3) * np.uint32(1 << 20)).astype("<u4")
    near = (ours.view("<u4") + np.uint32(3)).view("<f4")
    cause = cause_of_stored([("w", ours, flipped.view("<f4"))], "the state")
    assert cause is not None and cause.kind == "flipped bit" and "bit 20 alone" in cause.sentence
    two = [("w", ours, flipped.view("<f4")), ("v", ours, near)]
    assert cause_of_stored(two, "the state") is None
    cause = cause_of_stored([("w", ours, near), ("v", ours, near)], "the state")
    assert cause is not None and cause.kind == "rounding"
    assert cause.sentence == "The slots of the state differ by at most 3 units in the last place."
    assert cause_of_stored([("w", ours, ours * np.float32(1.001))], "the state") is None
    assert cause_of_stored([("n", np.array([2]), np.array([3]))], "the state") is None


def of_input(kind: str, name: str, of_jobs: list[Cause]) -> list[Cause]:
    """The causes where the input of the only operator of a step differs."""
    entries = [
        ExecutedOperator("aten.mul", "", (OperandRecord(digest, "f32[]", kind, name),), ())
        for digest in "ab"
    ]
    found = StepApart((0, 0), INPUT, 0, (0,), ((0, 0),), (), ())
    return causes_in_run(found, ([entries[0]], [entries[1]]), 4, of_jobs, (None, None))


def test_a_scalar_is_named_by_its_own_cause() -> None:
    """Two schedules differ: the step that reads one of them does not differ by the other."""
    rates = [Cause("rate", "The scalar lr …", "lr"), Cause("rate", "The scalar warm …", "warm")]
    assert of_input("scalar", "scalar.lr", rates)[0] is rates[0]
    assert of_input("scalar", "scalar.warm", rates) == [rates[1], rates[0]]
    assert of_input("scalar", "scalar.decay", rates)[0].sentence == (
        "Step 4 reads another value of scalar.decay."
    )


def test_the_first_cause_of_a_kind_counts() -> None:
    data = [Cause("data", "The records of x differ."), Cause("data", "The records of y differ.")]
    assert of_input("batch", "batch.x", data)[0] is data[0]


def test_other_records_are_no_other_seed() -> None:
    """A seed explains another order, and never other records: the roots of the data say so."""
    seed, data = (
        Cause("seed", "The seed is 3 in A and 4 in B."),
        Cause("data", "The records differ."),
    )
    assert [c.kind for c in of_input("batch", "batch.x", [seed, data])] == ["data", "seed"]
    order = Cause("data order", "The order of the records differs.")
    assert of_input("batch", "batch.x", [seed, order])[0] is seed
    assert of_input("batch", "batch.x", [seed])[0] is seed


def test_a_state_that_differs_later_was_not_other_at_the_start() -> None:
    assert [c.kind for c in of_input("state", "fc.weight", [])] == ["outside"]
