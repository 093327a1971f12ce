"""What an object holds: until its user closes it, or the end of a `with` block; and as long as it
lives, what its methods have made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

T = TypeVar("T", bound="Closing")
P = ParamSpec("P")
R = TypeVar("R")


class Closing(ABC):
    """Something that holds files, memory or a connection until it is closed. Its class says how."""

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds. The caller must not use it afterwards."""

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def made_once(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """Decorates a method: the object keeps its result for each tuple of positional arguments.

    functools.cache around a bound method would hold the object that holds it. The memory of what
    was made would then stay until Python looks for cycles.
    """
    kept_as = f"_made_once_by_{method.__name__}"

    @wraps(method)
    def kept(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> R:
        assert not kwargs, "by position"
        made: dict[tuple[object, ...], R] = self.__dict__.setdefault(kept_as, {})
        if args not in made:
            made[args] = method(self, *args, **kwargs)
        return made[args]

    return kept
