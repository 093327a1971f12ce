"""Methods whose results the object keeps: what is dear to make is made once for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def made_once(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Decorates a method: the object keeps the result for each set of arguments, which can be
    hashed.

    functools.cache around a bound method would hold the object that holds it: a cycle, which keeps
    the memory of all results until Python looks for cycles. Several threads may each compute a
    result that is not there yet; all of them get the first one that is kept.
    """
    kept_as = f"_made_once_by_{method.__qualname__}"  # a base class's method keeps its own results

    @wraps(method)
    def kept(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        made: dict[object, R] = self.__dict__.setdefault(kept_as, {})
        key = args, tuple(sorted(kwargs.items()))
        if key not in made:
            made.setdefault(key, method(self, *args, **kwargs))
        return made[key]

    return kept
