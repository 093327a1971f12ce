"""The code that losses run, before and after foreign code: their functions, what these call in
libraries, and the environment that they read."""

from __future__ import annotations

import os
import types
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tallystick.program.capture.places import names_in
from tallystick.program.capture.source import code_line, is_installed

_DEEPEST = 3  # torch.nn.functional
_ENVIRONMENT = frozenset(["environ", "environb", "getenv"])


class CodeWatch:
    """Looks at functions by their code, and at what they name in modules of libraries."""

    def __init__(self) -> None:
        self._first: set[str] | None = None  # a library may load more of itself while it is used

    def look(self, functions: Sequence[types.FunctionType]) -> Iterator[tuple[str, Any]]:
        """By a name for people, what tells that it is another one."""
        libraries = set[str]()
        for function in functions:
            code = function.__code__
            yield f"the code of {code.co_name} ({code_line(code)})", id(code)
            if is_installed(code.co_filename):
                continue
            names = names_in(code)
            for key in sorted(names & function.__globals__.keys()):
                part = function.__globals__[key]
                if isinstance(part, types.ModuleType):
                    for name, look in _within(part, names, key):
                        libraries.add(name)
                        if self._first is None or name in self._first:
                            yield name, look
            if names & _ENVIRONMENT:
                yield "os.environ", dict(os.environ)
        if self._first is None:
            self._first = libraries


def _within(
    module: types.ModuleType, names: Iterable[str], said: str, depth: int = 1
) -> Iterator[tuple[str, Any]]:
    """The functions and classes of a module of a library that code names."""
    for name in sorted(names & vars(module).keys()):
        part = vars(module)[name]
        if isinstance(part, types.ModuleType):
            if depth < _DEEPEST:
                yield from _within(part, names, f"{said}.{name}", depth + 1)
        elif callable(part):
            yield f"{said}.{name}", id(part)
