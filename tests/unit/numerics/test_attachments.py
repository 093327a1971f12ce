"""The one mechanism by which a layer attaches something to an operator's name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tallystick.numerics.attachments import Attachments

FIRST = """
from room_of_rules import rule

@rule("op.a", "op.b", named=True)
def named(name, x):
    return name, x
"""


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose modules attach; `other` is in no pattern."""
    package = tmp_path / "room_of_rules"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from tallystick.numerics.attachments import Attachments\n"
        'rule = Attachments("rule", "room_of_rules.rules_*")\n'
    )
    (package / "rules_first.py").write_text(FIRST)
    (package / "other.py").write_text("raise RuntimeError('not asked for')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    for name in [n for n in sys.modules if n.startswith("room_of_rules")]:
        del sys.modules[name]


def test_a_table_is_filled_when_somebody_asks(room: Path) -> None:
    from room_of_rules import rule  # type: ignore[import-not-found]

    assert "room_of_rules.rules_first" not in sys.modules and rule.table == {}
    assert set(rule) == {"op.a", "op.b"} and len(rule) == 2
    assert rule["op.b"](7) == ("op.b", 7) and rule.get("op.c") is None


def test_a_module_that_cannot_be_loaded_is_tried_again(room: Path) -> None:
    """An extra that is not installed is missed each time, and not once only."""
    (room / "rules_later.py").write_text("import room_of_nothing\n")
    from room_of_rules import rule

    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="room_of_nothing"):
            rule.load()
    (room / "rules_later.py").write_text("")
    assert "op.a" in rule


def test_an_operator_has_one_of_a_kind() -> None:
    made: Attachments[Callable[..., Any]] = Attachments("rule", "tallystick.numerics.none_*")
    made("op.a")(len)
    with pytest.raises(ValueError, match=r"operator op\.a has a second rule"):
        made("op.b", "op.a")(len)


def test_marks_make_an_entry() -> None:
    made: Attachments[Any] = Attachments(
        "rule", "tallystick.numerics.none_*", lambda name, f, wide=False: (name, f(), wide)
    )
    made("op.a", wide=True)(lambda: 3)
    assert made["op.a"] == ("op.a", 3, True)
    plain: Attachments[Any] = Attachments("rule", "tallystick.numerics.none_*")
    with pytest.raises(TypeError, match="a rule takes no wide"):
        plain("op.a", wide=True)(len)


def test_a_module_that_is_imported_again_attaches_again() -> None:
    """Its first import ran out of memory: the next answer must not fail for that."""
    kind: Attachments[Any] = Attachments("kernel", "tallystick.kernels.*")

    def made() -> Any:
        def function() -> None:
            return None

        return function

    first, again = made(), made()
    kind("aten.mm")(first)
    kind("aten.mm")(again)
    assert kind.table["aten.mm"] is again

    def other() -> None:
        return None

    with pytest.raises(ValueError, match="a second kernel"):
        kind("aten.mm")(other)
