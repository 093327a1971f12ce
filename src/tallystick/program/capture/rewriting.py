"""Functions in memory, found by their code, with their followed code while a trace runs; and the
source files that this code is made from (PROGRAM 5.19).
"""

from __future__ import annotations

import ast
import gc
import linecache
import types
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from types import FrameType
from typing import Any

from tallystick.program.capture.rewritten import Rewriter
from tallystick.program.capture.source import code_line, is_installed, is_model, package_of


def functions_of(codes: Iterable[types.CodeType]) -> list[types.FunctionType]:
    """The functions that have one of these codes, but for those that are set aside. Codes are told
    apart by identity: one source that was compiled twice has equal ones."""
    every = list(codes)
    known = {id(code) for code in every}
    referrers = gc.get_referrers(*every)
    return [f for f in referrers if isinstance(f, types.FunctionType) and id(f.__code__) in known]


class _SetAside:
    """What is in memory, set aside while followed code runs (`gc.freeze`).

    A look at every object in memory takes as long as a trace. What is there before followed code
    runs has no such code, so that what that code makes is found among the few objects that are
    new. Within `with`, all of memory is looked through once for each code.

    What the person has set aside is given back to the garbage collector: it costs time, and a
    function that is not found would be traced as it is. Where the step itself sets things aside,
    all of memory is looked through again.

    `at_end` is called when nothing is set aside any more.
    """

    def __init__(self) -> None:
        self.depth = 0
        # By the identity of a code that was looked for: itself, and its functions.
        self.known: dict[int, tuple[types.CodeType, dict[int, types.FunctionType]]] = {}
        self.at_end: list[Callable[[], None]] = []
        self._sign: list[object] = []  # made after the last look, so not set aside

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if self.depth == 0:
            if self.known:
                self.known = {}
                gc.unfreeze()
            for end in self.at_end:
                end()

    def find(self, codes: Collection[types.CodeType]) -> list[types.FunctionType]:
        """The functions in memory that have one of these codes, however old they are."""
        new = [code for code in codes if id(code) not in self.known]
        if new or self.is_more():
            gc.unfreeze()
            self.known |= {id(code): (code, {}) for code in new}
            self.note(functions_of(code for code, _ in self.known.values()))
            gc.freeze()
            self._sign = []
        else:
            self.note(functions_of(codes))
        wanted = {id(code) for code in codes}
        of_codes = [f for code in codes for f in self.known[id(code)][1].values()]
        return [f for f in of_codes if id(f.__code__) in wanted]

    def is_more(self) -> bool:
        """Whether somebody else has set things aside since the last look."""
        return bool(self.known) and all(o is not self._sign for o in gc.get_objects())

    def note(self, functions: Iterable[types.FunctionType]) -> None:
        """Keep those whose code was looked for: a later look may set them aside."""
        for function in functions:
            if id(function.__code__) in self.known:
                self.known[id(function.__code__)][1][id(function)] = function


SET_ASIDE = _SetAside()


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


_TRACE = "tallystick.program.capture.trace"  # what calls the step


class Rewriting:
    """Which functions have their followed code now. `restore` gives them their own again.

    `missing` names functions whose source cannot be read.
    """

    def __init__(self) -> None:
        self.own: dict[types.CodeType, types.CodeType] = {}  # by the followed code
        self._followed: list[types.CodeType] = []  # equal ones too, of a source compiled twice
        self.functions: list[tuple[types.FunctionType, types.CodeType]] = []
        self.missing: dict[types.CodeType, str] = {}
        self._made: list[types.FunctionType] = []  # by followed code, while it ran
        self._looked = False  # whether what is in memory is set aside
        # Installed packages are followed if they compute tensors; others only keep books.
        self.packages: set[str] = set()

    def _follows(self, code: types.CodeType) -> bool:
        file = code.co_filename
        if not is_installed(file):
            return True
        # A library's reads any attribute, also for what follows it, and would call itself.
        return code.co_name != "__getattribute__" and package_of(file) in self.packages

    def follow(self, function: types.FunctionType) -> bool:
        """Whether `function` runs followed code from now on."""
        code = function.__code__
        if code in self.own:
            return True
        if code in self.missing or not self._follows(code):
            return False
        known = file_of(code.co_filename)
        found = known.code_for(code) if known is not None else None
        if found is None:
            self.missing[code] = f"{code.co_name} ({code_line(code)})"
            return False
        self.own[found] = code
        self._followed.append(found)
        self._inner(code, found)
        self.functions.append((function, code))
        function.__code__ = found
        return True

    def _inner(self, old: types.CodeType, new: types.CodeType) -> None:
        """The functions that a followed function makes are followed too."""
        olds = [c for c in old.co_consts if isinstance(c, types.CodeType)]
        news = [c for c in new.co_consts if isinstance(c, types.CodeType)]
        for a, b in zip(olds, news, strict=True):
            self.own[b] = a
            self._followed.append(b)
            self._inner(a, b)

    def follow_codes(self, codes: Iterable[types.CodeType]) -> bool:
        """Follow every function in memory that has one of these codes; whether any was new."""
        wanted = {
            c for c in codes if c not in self.own and c not in self.missing and self._follows(c)
        }
        if not wanted:
            return False
        followed = [self.follow(f) for f in self._everywhere(wanted)]
        return any(followed)

    def unread(self) -> list[types.FunctionType]:
        """The functions whose source cannot be read."""
        return self._everywhere(self.missing) if self.missing else []

    def restore(self) -> None:
        try:
            for function, code in self.functions:
                function.__code__ = code
            if self.own:
                if SET_ASIDE.is_more():
                    gc.unfreeze()  # the step has set aside what its followed code made
                self._made += functions_of(self._followed)
                for made in self._made:
                    made.__code__ = self.own.get(made.__code__, made.__code__)
            SET_ASIDE.note(f for f, _ in self.functions)
            SET_ASIDE.note(self._made)
        finally:
            if self._looked:
                SET_ASIDE.__exit__()
                self._looked = False
            self.functions.clear()
            self._made.clear()

    def _everywhere(self, codes: Collection[types.CodeType]) -> list[types.FunctionType]:
        """The functions in memory that have one of these codes."""
        if not self._looked:
            SET_ASIDE.__enter__()
            self._looked = True
        if self.own:  # the look sets aside what followed code has made, too
            self._made += functions_of(self._followed)
        return SET_ASIDE.find(codes)


def raised_by_handlers(frame: FrameType | None) -> type[Exception] | None:
    """The first class that a handler of the person's code around this call would take."""
    while frame is not None and frame.f_globals.get("__name__") != _TRACE:
        if is_model(frame.f_code.co_filename):
            for kind in handlers_at(frame.f_code.co_filename, frame.f_lineno):
                found = _class(kind, frame)
                if found is not None:
                    return found
        frame = frame.f_back
    return None


def _class(expression: Any, frame: FrameType) -> type[Exception] | None:
    """The exception of a handler's expression: a name, an attribute of one, or a tuple of these."""
    elements = getattr(expression, "elts", None)
    if elements is not None:
        found = (_class(e, frame) for e in elements)
        return next((kind for kind in found if kind is not None), None)
    value = getattr(expression, "value", None)
    made: Any
    if value is not None:
        owner = _named(getattr(value, "id", ""), frame)
        made = getattr(owner, expression.attr, None)
    else:
        made = _named(getattr(expression, "id", ""), frame)
    if not (isinstance(made, type) and issubclass(made, Exception)):
        return None
    return made if _is_made_of_nothing(made) else None


def _named(name: str, frame: FrameType) -> Any:
    for names in (frame.f_locals, frame.f_globals, frame.f_builtins):
        if name in names:
            return names[name]
    return None


def _is_made_of_nothing(kind: type[Exception]) -> bool:
    try:
        kind()
    except Exception:
        return False
    return True
