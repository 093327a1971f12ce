"""The golden runs that take long beside others of their kind: with --exhaustive only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

LONG = {
    ("gpt2", "exact/1;b=8"),
    ("gpt2", "exact/1;b=15"),
    ("validated", "rounded/1"),
    ("micro", "exact/1;b=15"),
}


T = TypeVar("T")


def some(ways: Sequence[T], is_exhaustive: bool) -> list[T]:
    """The ways in which a golden run is executed: all, or the first and the last of them."""
    return list(ways) if is_exhaustive or len(ways) < 3 else [ways[0], ways[-1]]


def in_turn(ways: Sequence[T], is_exhaustive: bool, turn: int) -> list[tuple[int, T]]:
    """The ways, with their numbers, in which the golden run number `turn` is executed: all, or one.
    So each of at most as many ways as there are runs executes one of them, and each golden run is
    held against its stored roots."""
    every = list(enumerate(ways))
    return every if is_exhaustive else [every[turn % len(every)]]


def place(golden: Sequence[tuple[str, str]], run: tuple[str, str]) -> int:
    """The number of a golden run among those of its kind: the short ones first, so that by default
    as many ways are taken as there are short runs."""
    return sorted(golden, key=LONG.__contains__).index(run)


def cases(golden: Sequence[tuple[str, str]]) -> list[Any]:
    """The golden runs as parameters of a test; the long ones are marked."""
    return [pytest.param(*each, marks=[pytest.mark.long] * (each in LONG)) for each in golden]
