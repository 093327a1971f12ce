"""Drawing a token: temperature, the likeliest K, and the likeliest whose probabilities reach P."""

from __future__ import annotations

import numpy as np
import pytest

from tallystick.run.execute.evaluation import Draw, pick

_PROBABILITIES = np.array([0.1, 0.4, 0.2, 0.25, 0.05])
_LOGITS = np.log(_PROBABILITIES).astype(np.float32)


def _share(draw: Draw) -> np.ndarray:
    words = range(0, 1 << 32, (1 << 32) // 2000)
    drawn = [pick(_LOGITS, draw, word) for word in words]
    return np.bincount(drawn, minlength=5) / len(drawn)


@pytest.mark.parametrize(
    ("draw", "kept"),
    [
        (Draw(0.0), [1]),
        (Draw(1.0), [0, 1, 2, 3, 4]),
        (Draw(1.0, top_k=1), [1]),
        (Draw(1.0, top_k=3), [1, 2, 3]),
        (Draw(1.0, top_k=99), [0, 1, 2, 3, 4]),
        (Draw(1.0, top_p=0.3), [1]),
        (Draw(1.0, top_p=0.5), [1, 3]),
        (Draw(1.0, top_p=0.84), [1, 2, 3]),
        (Draw(1.0, top_p=1.0), [0, 1, 2, 3, 4]),
        (Draw(1.0, top_k=2, top_p=0.99), [1, 3]),
    ],
)
def test_the_kept_tokens_have_their_share(draw: Draw, kept: list[int]) -> None:
    expected = np.zeros(5)
    expected[kept] = _PROBABILITIES[kept] / _PROBABILITIES[kept].sum()
    np.testing.assert_allclose(_share(draw), expected, atol=2e-3)


def test_temperature_sharpens() -> None:
    assert _share(Draw(0.5))[1] > _share(Draw(1.0))[1] > _share(Draw(2.0))[1]


def test_the_first_of_equals_and_the_ends() -> None:
    row = np.array([0.0, 3.0, 3.0, -1.0], dtype=np.float32)
    assert pick(row, Draw(0.0), 0) == 1
    assert pick(row, Draw(1.0), 0) == 0
    assert pick(row, Draw(1.0), (1 << 32) - 1) == 3
