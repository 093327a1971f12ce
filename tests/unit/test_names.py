"""A class has a name of its own, and what a test reaches for has a public one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from test_layers import SOURCE, modules


def test_no_two_modules_have_a_class_of_one_name() -> None:
    owners = defaultdict[str, set[str]](set)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                owners[node.name].add(path.relative_to(SOURCE).as_posix())
    assert len(owners) > 800
    assert {name: places for name, places in owners.items() if len(places) > 1} == {}


def _private(path: Path) -> list[str]:
    """The private names of the package that a file imports, names after a module or class of the
    package, or replaces there."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    known: set[str] = set()
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tallystick"):
            names = [alias.name for alias in node.names]
            known.update(alias.asname or alias.name for alias in node.names)
            found += [name for name in names if _is_private(name)]
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if owner in known:
                found += [f"{owner}.{name}"] if _is_private(name) else []
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "object"),
                args=[ast.Name(id=owner), ast.Constant(value=str(name)), *_],
            ) if owner in known:
                found += [f"{owner}.{name}"] if _is_private(name) else []
    return found


def _is_private(name: str) -> bool:
    # `_core` is the native module, which benchmarks measure and tests replace.
    return name.startswith("_") and not name.startswith("__") and name != "_core"


def test_tests_and_benchmarks_reach_into_no_private_name() -> None:
    root = Path(__file__).resolve().parents[2]
    found = {
        str(path.relative_to(root)): names
        for folder in ("tests", "benchmarks", "attacks")
        for path in (root / folder).rglob("*.py")
        if (names := _private(path))
    }
    assert not found


def test_the_check_of_private_names_sees_them(tmp_path: Path) -> None:
    path = tmp_path / "reaching.py"
    path.write_text(
        "from tallystick.commit import signing\n"
        "from tallystick.commit.data import _root\n"
        "signing._check()\n"
        "patch.setattr(signing, '_known', None)\n"
        "signing.check()\n"
    )
    assert sorted(_private(path)) == ["_root", "signing._check", "signing._known"]
