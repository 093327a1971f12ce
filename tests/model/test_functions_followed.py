"""Functions get followed code while a trace runs, and their own again after it (PROGRAM 5.19)."""

from __future__ import annotations

import builtins
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tallystick.program.capture.explore import OPERATIONS
from tallystick.program.capture.rewriting import SET_ASIDE, Rewriting
from tallystick.program.capture.rewritten import NAME

KEPT: list[Callable[[int], int]] = []


def keeps() -> None:
    KEPT.append(lambda x: x + 1)


def other() -> int:
    return len(KEPT)


@pytest.fixture(autouse=True)
def _operations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(builtins, NAME, OPERATIONS, raising=False)
    monkeypatch.setattr(OPERATIONS, "thread", threading.get_ident())
    KEPT.clear()
    yield
    KEPT.clear()
    assert gc.get_freeze_count() == 0


def follows(function: Any) -> bool:
    return NAME in function.__code__.co_names


def test_a_function_and_what_it_makes_have_their_own_code_again() -> None:
    rewriting, own = Rewriting(), keeps.__code__
    assert rewriting.follow_codes([own])
    keeps()
    assert follows(KEPT[0])
    assert KEPT[0](1) == 2
    rewriting.restore()
    assert keeps.__code__ is own
    assert not follows(KEPT[0])
    assert KEPT[0](1) == 2


def test_what_was_made_before_another_function_was_followed_has_its_own_code_again() -> None:
    """The look for the second function sets aside what is there by then."""
    rewriting = Rewriting()
    rewriting.follow_codes([keeps.__code__])
    keeps()
    rewriting.follow_codes([other.__code__])
    assert follows(KEPT[0])
    rewriting.restore()
    assert not follows(KEPT[0])


def test_a_function_that_is_set_aside_meanwhile_is_found() -> None:
    """The first look sets aside what is there, and with it the function of the second."""
    rewriting = Rewriting()
    rewriting.follow_codes([keeps.__code__])
    assert gc.get_freeze_count() > 0
    own = other.__code__
    assert rewriting.follow_codes([own])
    assert other.__code__ is not own
    rewriting.restore()
    assert other.__code__ is own


def test_within_one_capture_a_second_pass_finds_what_the_first_has_made() -> None:
    """What is set aside by then is known, also what had followed code at that look."""
    with SET_ASIDE:
        first = Rewriting()
        first.follow_codes([keeps.__code__])
        keeps()
        first.follow_codes([other.__code__])
        first.restore()
        assert gc.get_freeze_count() > 0
        keeps()
        second, own = Rewriting(), keeps.__code__
        assert second.follow_codes([own])
        assert follows(keeps)
        codes = {made.__code__ for made in KEPT}
        assert second.follow_codes(codes)
        assert all(follows(made) for made in KEPT)
        second.restore()
    assert keeps.__code__ is own
    assert not any(follows(made) for made in KEPT)


def test_one_source_that_was_compiled_twice_is_followed_twice(tmp_path: Path) -> None:
    """Their codes are equal; a module that is loaded under two names has such."""
    path = tmp_path / "twice.py"
    path.write_text("def step():\n    return [1]\n")
    first, second = ({}, {})  # type: tuple[dict[str, Any], dict[str, Any]]
    for names in (first, second):
        exec(compile(path.read_text(), str(path), "exec"), names)
    one, two = first["step"].__code__, second["step"].__code__
    assert one == two
    assert one is not two
    with SET_ASIDE:
        found = [SET_ASIDE.find([one]), SET_ASIDE.find([two]), SET_ASIDE.find([one])]
    assert found == [[first["step"]], [second["step"]], [first["step"]]]


def test_a_step_that_sets_things_aside_hides_no_function() -> None:
    rewriting, own = Rewriting(), keeps.__code__
    rewriting.follow_codes([own])
    keeps()
    gc.freeze()  # as the step itself may
    assert follows(KEPT[0])
    rewriting.restore()
    assert not follows(KEPT[0])
    assert keeps.__code__ is own
