"""Which shares are computed again, and by whom (docs/adr/0024)."""

from __future__ import annotations

from collections import Counter

import pytest

from tallystick.run.distributed.checks import ShareDraws

SECRET = bytes(range(32))


@pytest.mark.parametrize("fraction", [0.1, 0.5])
def test_each_share_is_drawn_with_the_probability_that_is_asked(fraction: float) -> None:
    draws, found = ShareDraws(fraction, 4, SECRET), Counter[int | None]()
    for step in range(2000):
        for number in range(3):
            found[draws.checker(step, number, 1)] += 1
    drawn = 6000 - found[None]
    spread = (6000 * fraction * (1 - fraction)) ** 0.5
    assert abs(drawn - 6000 * fraction) < 4 * spread
    assert found[1] == 0
    for rank in (0, 2, 3):
        assert abs(found[rank] - drawn / 3) < 4 * (drawn * 2 / 9) ** 0.5


def test_all_are_drawn_at_one() -> None:
    draws = ShareDraws(1.0, 2, SECRET)
    assert {draws.checker(step, 0, 0) for step in range(50)} == {1}
    assert {draws.checker(step, 0, 1) for step in range(50)} == {0}


def test_a_repeated_step_has_the_same_draws_and_another_secret_others() -> None:
    a, again, b = ShareDraws(0.5, 3, SECRET), ShareDraws(0.5, 3, SECRET), ShareDraws(0.5, 3)
    places = [(step, number) for step in range(20) for number in range(5)]
    drawn = [a.checker(step, number, 0) for step, number in places]
    assert drawn == [again.checker(step, number, 0) for step, number in places]
    assert drawn != [b.checker(step, number, 0) for step, number in places]
    assert SECRET.hex() not in repr(a) and "secret" not in repr(a)
