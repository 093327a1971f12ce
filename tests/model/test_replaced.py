"""What capture replaces in libraries: every name is there, and is back after each block."""

from __future__ import annotations

import pkgutil
import re
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from tallystick.errors import CannotCheckError
from tallystick.program.capture import replaced
from tallystick.program.capture.replaced import REPLACED, TRIED, Replaced, replacing, usual

ROOT = Path(__file__).resolve().parents[2]
EACH = [(row, name) for row in REPLACED for name in row.names]


@pytest.mark.parametrize(("row", "name"), EACH, ids=[f"{r.owner}.{n}" for r, n in EACH])
def test_a_name_is_there_and_comes_back(row: Replaced, name: str) -> None:
    if row.library != "python":
        pytest.importorskip(row.library)
    holder, value = pkgutil.resolve_name(row.owner), usual(row.owner, name)
    before = vars(holder).get(name)
    with replacing(row.owner, name, stand_in := object()):
        assert getattr(holder, name) is stand_in
    assert vars(holder).get(name) is before and getattr(holder, name) == value


def test_the_table_names_each_once() -> None:
    assert len({(row.owner, name) for row, name in EACH}) == len(EACH)
    assert all(row.why.endswith(".") for row in REPLACED)


@pytest.mark.parametrize("library", sorted(set(TRIED) - {"python"}))
def test_the_versions_of_constraints_have_been_tried(library: str) -> None:
    pinned = re.findall(rf"^{library}==([^;\s]+)", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned and pinned[0] in TRIED[library]


class _Base:
    @staticmethod
    def own() -> str:
        return "own"

    def inherited(self) -> str:
        return "inherited"


class _Heir(_Base):
    @staticmethod
    def own() -> str:
        return "heir"


def _row(monkeypatch: pytest.MonkeyPatch, owner: str, name: str) -> None:
    row = Replaced(owner, (name,), "A test.")
    monkeypatch.setitem(replaced.REPLACED_BY_NAME, (owner, name), row)


@pytest.mark.parametrize("name", ["own", "inherited"])
def test_what_was_there_is_put_back_after_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    owner = f"{__name__}:_Heir"
    _row(monkeypatch, owner, name)
    before = dict(vars(_Heir))
    with pytest.raises(ZeroDivisionError), replacing(owner, name, lambda *_: "other"):
        assert getattr(_Heir(), name)() == "other"
        raise ZeroDivisionError
    assert dict(vars(_Heir)) == before
    assert (_Heir().own(), _Heir().inherited()) == ("heir", "inherited")


@pytest.mark.parametrize("owner", ["torch.nn.functional", "torch.moved_away", "torch.nn:Moved"])
def test_a_name_that_a_library_has_not_is_told_with_the_versions_tried(
    monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    _row(monkeypatch, owner, "moved_too")
    with pytest.raises(CannotCheckError) as told, replacing(owner, "moved_too", None):
        pass
    place = owner.replace(":", ".")
    assert str(told.value) == (
        f"torch {version('torch')} has no {place}.moved_too, which capture replaces. "
        "Install a version that it was tried with: 2.13.0."
    )
    assert not hasattr(torch.nn.functional, "moved_too")
