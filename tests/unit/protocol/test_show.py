"""How a value reads in a verdict's sentence."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.opening.quantity import ACCUMULATOR, REAL
from tallystick.protocol.game import show


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
