"""How a value reads in a verdict's sentence, and a verdict in a few words."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.opening.quantity import ACCUMULATOR, REAL
from tallystick.protocol.game import show
from tallystick.protocol.verdict import Conviction, Place, Verdict


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.float32(0.1), "0.1 (0x3dcccccd)"),
        (np.float64(-0.0), "-0.0 (0x8000000000000000)"),
        (np.int64(-3), "-3"),
        (np.bool_(True), "True"),
        (np.array((0.25, 2.0**-30), REAL)[()], "0.25 within 9.31e-10"),
        (np.zeros((), ACCUMULATOR)[()], "the exact sum 0.0 (0x0 * 2^-298, flags 0)"),
    ],
)
def test_show(value: np.generic, words: str) -> None:
    assert show(value) == words


def test_a_verdict_in_a_few_words() -> None:
    lie = Conviction(1, "6.5", "it stated another sum")
    same = Verdict(True, (), None, 0, "", Place())
    open_ = Verdict(False, (), None, 3, "2b", Place(step=4), undecided=True)
    shown = Verdict(False, (lie,), 0, 3, "2b", Place(step=4))
    titles = [verdict.facts_for_people() for verdict in (same, open_, shown)]
    assert titles == [
        ("Verdict: both runs are the same", {"phase": 0}),
        ("Verdict: undecided", {"phase": 3, "case": "2b"}),
        (
            "Verdict: B convicted",
            {"accepted": "A", "phase": 3, "case": "2b", "step": 4, "why B": lie.sentence},
        ),
    ]
