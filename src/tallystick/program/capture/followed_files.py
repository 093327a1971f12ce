"""The source files of the person's functions, with their followed code (PROGRAM 5.19)."""

from __future__ import annotations

import ast
import linecache
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tallystick.program.capture.rewritten import Rewriter


def _taken(node: ast.Try | ast.With) -> list[ast.expr]:
    """The classes that a `try` takes, or a `with suppress(...)`."""
    if isinstance(node, ast.Try):
        return [h.type or ast.Name("Exception", ast.Load()) for h in node.handlers]
    calls = (item.context_expr for item in node.items)
    return [
        kind
        for call in calls
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "suppress"
        for kind in call.args
    ]


def _codes(code: types.CodeType) -> list[types.CodeType]:
    return [c for c in code.co_consts if isinstance(c, types.CodeType)]


@dataclass
class File:
    """The functions of one source file: the old code with the new one that follows it."""

    exact: dict[types.CodeType, types.CodeType] = field(default_factory=dict)
    near: dict[tuple[str, int], types.CodeType | None] = field(default_factory=dict)
    # Bodies of `try`: first and last line, and the classes that its handlers name.
    tries: list[tuple[int, int, list[ast.expr]]] = field(default_factory=list)

    def _pair(self, old: types.CodeType, new: types.CodeType) -> None:
        olds, news = _codes(old), _codes(new)
        if len(olds) != len(news):
            return
        for a, b in zip(olds, news, strict=True):
            same = a.co_firstlineno == b.co_firstlineno and a.co_freevars == b.co_freevars
            if same:
                self.exact[a] = b
                key = (a.co_name, a.co_firstlineno)
                self.near[key] = None if key in self.near else b
            self._pair(a, b)

    def code_for(self, code: types.CodeType) -> types.CodeType | None:
        """The code that follows `code`; None where the file has another text by now."""
        found = self.exact.get(code) or self.near.get((code.co_name, code.co_firstlineno))
        return found if found is not None and found.co_freevars == code.co_freevars else None


@lru_cache(maxsize=256)
def file_of(filename: str) -> File | None:
    """The file's functions; None where there is no source, or Python cannot read it."""
    lines = linecache.getlines(filename)
    if not lines:
        return None
    found = File()
    try:
        tree = ast.parse("".join(lines), filename)
        old = compile(tree, filename, "exec", dont_inherit=True)
        for node in ast.walk(tree):
            if isinstance(node, (ast.Try, ast.With)) and (kinds := _taken(node)):
                last = node.body[-1].end_lineno or node.body[-1].lineno
                found.tries.append((node.body[0].lineno, last, kinds))
        new_tree = ast.fix_missing_locations(Rewriter().visit(ast.parse("".join(lines), filename)))
        new = compile(new_tree, filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None
    found._pair(old, new)
    return found


def handlers_at(filename: str, line: int) -> Iterator[ast.expr]:
    """The classes that the handlers of `try` around this line name."""
    known = file_of(filename)
    for first, last, kinds in known.tries if known else ():
        if first <= line <= last:
            yield from kinds
