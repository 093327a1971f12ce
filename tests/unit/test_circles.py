"""Circles of modules that import one another, in functions too: small, and each in one room."""

from __future__ import annotations

import ast

from test_layers import PACKAGE, SOURCE, imports, modules

LARGEST = 3


def graph() -> dict[str, set[str]]:
    """By module the modules of the package that it imports, wherever in it."""
    names = {name_of(path.relative_to(SOURCE).with_suffix("").parts): path for path in modules()}
    found = {
        name: {other for other, _ in imports(path, ast.parse(path.read_text())) if other in names}
        for name, path in names.items()
    }
    return {name: {o for o in others if not is_above(o, name)} for name, others in found.items()}


def is_above(package: str, name: str) -> bool:
    """Whether `name` lies in `package`, which is then there before it; the root re-exports lazily,
    and no module waits for it."""
    return f"{name}.".startswith(f"{package}.") or package == PACKAGE


def name_of(parts: tuple[str, ...]) -> str:
    return ".".join((PACKAGE, *(part for part in parts if part != "__init__")))


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan), sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        path.append(name)
        for other in edges.get(name, ()):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in path:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = path.index(name)
            circle, path[at:] = sorted(path[at:]), []
            found.extend([circle] if len(circle) > 1 else [])

    for name in edges:
        if name not in index:
            visit(name)
    return sorted(found)


def test_the_search_finds_circles() -> None:
    edges = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert circles(edges) == [["a", "b", "c"], ["d", "e"]]


def test_no_circle_is_large_or_crosses_rooms() -> None:
    for circle in circles(graph()):
        assert len(circle) <= LARGEST, circle
        assert len({tuple(name.split(".")[:2]) for name in circle}) == 1, circle
