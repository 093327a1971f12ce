"""A rehearsal's surroundings: foreign code is called, nobody hears of it, and nothing remains."""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import os
import sys
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from tallystick.program.capture.content import items_of
from tallystick.program.capture.places import KeptPlace, reached_from
from tallystick.trainer.records import seeded

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
_EFFECTS = frozenset(
    """os.remove os.rename os.mkdir os.rmdir os.truncate os.link os.symlink os.system os.exec
os.fork os.posix_spawn subprocess.Popen socket.connect socket.sendto shutil.rmtree shutil.move
sqlite3.connect""".split()
)
_rehearsing: set[int] = set()  # threads
_heard: list[str] = []
_installed = False


class EffectError(PermissionError):
    """Foreign code wants to write or to send while it is rehearsed."""


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if not _rehearsing or threading.get_ident() not in _rehearsing:
        return
    writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES
    if not writes and event not in _EFFECTS:
        return
    _heard.append("it writes a file" if writes else f"it calls {event}")
    raise EffectError(f"A rehearsal may not do this: {event}.")


def effect() -> str | None:
    """What foreign code wanted to do outside of this process since the last question."""
    found = _heard[0] if _heard else None
    _heard.clear()
    return found


@contextlib.contextmanager
def rehearsing() -> Iterator[None]:
    """Within the block nothing is printed, logged or warned of, and what would write a file, start
    a process or open a connection raises EffectError. The generators are as before after it."""
    global _installed
    if not _installed:  # it can never be removed
        sys.addaudithook(_hook)
        _installed = True
    level, bytecode = logging.root.manager.disable, sys.dont_write_bytecode
    sink = io.StringIO()
    with (
        contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink),
        warnings.catch_warnings(), seeded(0),
    ):  # fmt: skip
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        sys.dont_write_bytecode = True
        _rehearsing.add(threading.get_ident())
        try:
            yield
        finally:
            _rehearsing.discard(threading.get_ident())
            sys.dont_write_bytecode = bytecode
            logging.disable(level)


@contextlib.contextmanager
def put_back(roots: Mapping[str, Any]) -> Iterator[None]:
    """What foreign code keeps in closures, globals, classes and objects is as before afterwards."""
    # A mapping may make what it gives (transformers' ACT2FN): there is nothing to put back.
    found = reached_from(roots)
    places = [(place, value) for place, value in found.places if _has(place, value)]
    attributes = [
        items_of(vars(held))
        for held in found.objects
        if type(getattr(held, "__dict__", None)) is dict and not isinstance(held, ModuleType)
    ]
    inside = [
        (value, copy.copy(value)) for _, value in places if type(value) in (list, dict, set, deque)
    ]
    try:
        yield
    finally:
        for back in attributes:  # an attribute that was not there before is gone
            back()
        for value, content in inside:
            if identities(value) == identities(content):
                continue
            value.clear()
            value.extend(content) if isinstance(value, (list, deque)) else value.update(content)
        for place, value in places:
            if not _has(place, value):
                with contextlib.suppress(LookupError, AttributeError, ValueError, TypeError):
                    place.set(value)


def _has(place: KeptPlace, value: Any) -> bool:
    """Whether the place has this very thing."""
    try:
        return place.get() is value
    except (LookupError, AttributeError, ValueError):
        return False


def identities(value: Any) -> Any:
    """What tells whether a container has the same things."""
    if isinstance(value, dict):
        return [(id(key), id(item)) for key, item in value.items()]
    return {id(item) for item in value} if isinstance(value, set) else [id(item) for item in value]
