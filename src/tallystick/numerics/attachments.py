"""The one mechanism by which a layer attaches a function to an operator's name.

A declaration (`registry.py`) says what an operator means. A kernel, an opening rule, a stock
kernel or a lowering is a function that a layer attaches to the operator's name:

    @opening("aten.mm", "aten.bmm")
    def _product(site: Site) -> Quantity: ...

Every kind of attachment has one table. The first request for an entry fills the table: it imports
the modules of the table's own layer. So imports point downwards, and a layer that needs torch loads
it only where a program asks for that layer.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatch
from functools import partial
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _made_again(before: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """True if a module is imported again after its import failed, for want of memory say."""
    same = (before.__module__, before.__qualname__) == (function.__module__, function.__qualname__)
    return same and before is not function


class Attachments(Mapping[str, T], Generic[T]):
    """One kind of attachment, by operator name.

    `what` names the kind in messages. `modules` is a pattern, such as "package.rules_*", of the
    modules that attach while they are imported. `make(name, function, **marks)` builds an entry
    from a decorated function and the decorator's marks. Without `make` the function is the entry.
    """

    def __init__(self, what: str, modules: str, make: Callable[..., T] | None = None) -> None:
        self.what = what
        self.table: dict[str, T] = {}
        self._attached: dict[str, Callable[..., Any]] = {}
        self._modules = modules
        self._make = make
        self._is_loaded = False

    def __call__(self, *names: str, named: bool = False, **marks: Any) -> Callable[[F], F]:
        """A decorator that attaches its function to the operators `names`.

        A `named` function serves several operators and gets the name as its first argument.
        """

        def attach(function: F) -> F:
            for name in names:
                before = self._attached.get(name)
                if before is not None and not _made_again(before, function):
                    raise ValueError(f"operator {name} has a second {self.what}")
                self._attached[name] = function
                own: Any = partial(function, name) if named else function
                self.table[name] = self._entry(name, own, marks)
            return function

        return attach

    def _entry(self, name: str, function: Any, marks: dict[str, Any]) -> T:
        if self._make is not None:
            return self._make(name, function, **marks)
        if marks:
            raise TypeError(f"a {self.what} takes no {next(iter(marks))}")
        return cast(T, function)

    def load(self) -> dict[str, T]:
        """The filled table. Raises ImportError where a package that a module needs is missing."""
        if not self._is_loaded:
            package, _, pattern = self._modules.rpartition(".")
            for found in pkgutil.iter_modules(import_module(package).__path__):
                if fnmatch(found.name, pattern):
                    import_module(f"{package}.{found.name}")
            # Last, so that another thread waits for the imports too.
            self._is_loaded = True
        return self.table

    def __getitem__(self, name: str) -> T:
        return self.load()[name]

    def __contains__(self, name: object) -> bool:
        # Asked for every node of a program: without the exception of a missing key.
        return name in self.load()

    def __iter__(self) -> Iterator[str]:
        return iter(self.load())

    def __len__(self) -> int:
        return len(self.load())
