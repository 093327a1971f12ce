"""A class has a name of its own, so that a name says which one is meant."""

from __future__ import annotations

import ast
from collections import defaultdict

from test_layers import SOURCE, modules


def test_no_two_modules_have_a_class_of_one_name() -> None:
    owners = defaultdict[str, set[str]](set)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                owners[node.name].add(path.relative_to(SOURCE).as_posix())
    assert len(owners) > 800
    assert {name: places for name, places in owners.items() if len(places) > 1} == {}
