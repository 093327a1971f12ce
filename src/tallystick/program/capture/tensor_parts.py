"""Tensors in tuples, lists and dicts, each by the positions and keys that lead to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

from tallystick.program.capture.batch import Batch

_DEPTH = 4
DICTS: tuple[type, ...] = (dict, Batch)
Path = tuple[Any, ...]


def parts(value: Any, path: Path = (), tuples_only: bool = False) -> Iterator[tuple[Path, Tensor]]:
    """The tensors of a value: itself, or those in its tuples, and in its lists and dicts."""
    inside: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Tensor):
        yield path, value
    elif isinstance(value, tuple) or (type(value) is list and not tuples_only):
        inside = enumerate(value)
    elif type(value) in DICTS and not tuples_only:
        inside = ((key, part) for key, part in value.items() if isinstance(key, str))
    if len(path) < _DEPTH:
        for key, part in inside:
            yield from parts(part, (*path, key), tuples_only)


def with_part(held: Any, path: Path, tensor: Tensor) -> Any:
    """`held` with `tensor` in it: a list or dict is changed in place, as others may hold it too."""
    if not path:
        return tensor
    part = with_part(held[path[0]], path[1:], tensor)
    if isinstance(held, tuple):
        return _tuple_as(held, [*held[: path[0]], part, *held[path[0] + 1 :]])
    held[path[0]] = part
    return held


def copied(held: Any) -> Any:
    """Containers of their own around the same tensors."""
    if isinstance(held, tuple):
        return _tuple_as(held, list(map(copied, held)))
    if type(held) is list:
        return list(map(copied, held))
    if type(held) in DICTS:
        return type(held)({k: copied(v) for k, v in held.items()})
    return held


def _tuple_as(like: Any, items: list[Any]) -> Any:
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)
