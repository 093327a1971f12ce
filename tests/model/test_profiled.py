"""Watchers of a trace are told of calls, but for those inside of torch's kernels."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

pytest.importorskip("torch")

from tallystick.program.capture.outside_calls import unwatched, watched_by


def inner() -> int:
    return 7


def outer() -> int:
    return inner()


def names_of(function: Any) -> list[str]:
    """The names of the functions that a watcher is told of while `function` runs."""
    told: list[str] = []

    def watcher(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            told.append(frame.f_code.co_name)

    before = sys.getprofile()
    with watched_by(watcher):
        assert function() == 7
        assert sys.getprofile() is watcher
    assert sys.getprofile() is before
    return told


def test_all_calls_are_told_but_those_that_are_unwatched() -> None:
    assert names_of(outer)[:2] == ["outer", "inner"]
    assert not {"outer", "inner"} & {*names_of(lambda: unwatched(outer))}


def test_an_error_in_an_unwatched_call_leaves_the_watcher() -> None:
    def fails() -> int:
        with pytest.raises(ZeroDivisionError):
            unwatched(lambda: 1 // 0)
        return inner()

    assert "inner" in names_of(fails)


def test_a_profiler_that_is_no_watcher_is_told_of_all() -> None:
    told: list[str] = []

    def profiler(frame: FrameType, event: str, _argument: Any) -> None:
        told.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(profiler)
    try:
        unwatched(outer)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(before)
    assert "inner" in told
