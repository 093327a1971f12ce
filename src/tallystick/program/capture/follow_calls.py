"""Calls of followed code (PROGRAM 5.19): a function of the person's is followed into; any other
gets bare values, and its result depends on what it was given, and on what it holds."""

from __future__ import annotations

import functools
import inspect
import io
import pathlib
import sys
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from os import _Environ
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.program.capture.follow_marks import MarkedAnswers, MovingMarks
from tallystick.program.capture.looks import look_of
from tallystick.program.capture.places import names_in
from tallystick.program.capture.recorded import Expression, is_recorded, plain
from tallystick.program.capture.rewriting import Rewriting, raised_by_handlers
from tallystick.program.capture.source import is_installed, is_model

# Of these None is an answer; of others it says that there is none.
_ANSWERS = frozenset(
    {"get", "next", "pop", "popleft", "popitem", "getattr", "setdefault", "match", "fullmatch",
     "search", "send", "getenv", "getitem", "__getitem__", "__next__"}
)  # fmt: skip
_CHANGING = {
    "time": "the clock", "datetime": "the clock", "random": "Python's random",
    "secrets": "random numbers", "uuid": "random numbers", "resource": "the process",
    "psutil": "the process", "gc": "the process", "genericpath": "a file", "posix": "a file",
    "subprocess": "another process", "socket": "a network", "os": "the process",
    "numpy.random": "numpy.random", "numpy.random.mtrand": "numpy.random",
    "numpy.random._generator": "numpy.random", "shutil": "a file", "glob": "a file",
}  # fmt: skip
_CONSTANT = frozenset({
    "sleep", "timedelta", "strptime", "fspath", "isdir", "makedirs", "mkdir", "getpid", "date",
})  # fmt: skip
_FILE_READS = frozenset({"read", "readline", "readlines", "read1", "tell", "seek", "__next__"})
_PATH_READS = frozenset({"read_text", "read_bytes", "exists", "stat", "is_file", "iterdir", "glob"})
# Torch's code that only tells.
_TELLS = ("torch.utils.tensorboard", "torch.profiler", "torch.autograd.profiler", "torch.cuda.nvtx")
_MOST_HELD = 500
_WHOLE = (Tensor, nn.Module, types.ModuleType, type, str, bytes, int, float, types.FunctionType)
_PASSED = (types.SimpleNamespace,)


def changing(function: Any) -> str | None:
    """What outside of Python's objects `function` reads, if it reads something that changes."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if isinstance(owner, io.IOBase) and not isinstance(owner, (io.StringIO, io.BytesIO)):
        return "a file" if name in _FILE_READS else None
    if isinstance(owner, pathlib.PurePath):
        return "a file" if name in _PATH_READS else None
    module = getattr(function, "__module__", None)
    if module is None and owner is not None:
        kind = owner if isinstance(owner, (type, types.ModuleType)) else type(owner)
        module = getattr(kind, "__module__", None) or getattr(kind, "__name__", "")
    if name in _CONSTANT or isinstance(function, type) or not isinstance(module, str):
        return None
    if module in ("random", "datetime") and isinstance(owner, type) is (module == "random"):
        return None
    return _CHANGING.get(module)


OUTER_SOURCES = frozenset(_CHANGING.values()) - {"Python's random", "numpy.random"}


def changing_code(frame: types.FrameType) -> str | None:
    """`changing` of the function of Python's whose call `frame` is."""
    name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
    if name in _CONSTANT:
        return None
    if module == "os" and (name == "getenv" or isinstance(frame.f_locals.get("self"), _Environ)):
        return None  # the environment is put back
    if module.partition(".")[0] == "pathlib":
        return "a file" if name in _PATH_READS else None
    return None if module == "random" else _CHANGING.get(module)


class FollowedCalls(MovingMarks):
    """The calls of followed code. `count` gives the number of nodes of the trace so far."""

    def __init__(
        self, record: MarkedAnswers, count: Callable[[], int], rewriting: Rewriting
    ) -> None:
        super().__init__(record)
        self.count = count
        self.rewriting = rewriting
        self.touched: set[str] = set()
        # Generators whose state each call leaves as the one before did: their draws are the same.
        self.still: frozenset[str] = frozenset()
        self.raised: list[Exception] = []
        # What methods have returned from which Python takes no recorded value.
        self.given_up: list[Expression] = []

    def lost(self) -> Expression | None:
        """What a call of Python's has lost on its way, to be put on its result."""
        if not self.given_up:
            return None
        found = self.mix(self.given_up)
        self.given_up.clear()
        return found

    def outside_or_plain(self, function: Callable[..., Any], /, *operands: Any) -> Any:
        """`function` of operands that depend on nothing; a method of theirs may know better."""
        made = function(*operands)
        return self.recorded(made, self.lost()) if self.given_up else made

    def reach(self, expression: Expression, what: str, start: int | None = None) -> None:
        """A moving value goes into the trace, by the nodes from `start` where there are any."""
        end = self.count()
        begin = end if start is None else start
        self.record.reach(expression, what, begin, end)

    # -- into followed code ------------------------------------------------------------------------
    def call(self, function: Any, /, *arguments: Any, **named: Any) -> Any:
        chosen = self.of(function) if is_recorded(function) else None
        function = plain(function)
        while isinstance(function, functools.partial):
            held = {k: self.item(function.keywords, k) for k in function.keywords}  # type: ignore[attr-defined]
            arguments, named = (*function.args, *arguments), {**held, **named}
            function = function.func
        for argument in (*arguments, *named.values()):
            if isinstance(argument, (types.FunctionType, types.MethodType)):
                self._followed(argument)
        if isinstance(function, nn.Module) or self._followed(function):
            if isinstance(function, nn.Module):
                read = self._read_by_torch(function, type(function).forward)
                if read is not None:
                    return self.outside(function, read, *arguments, **named)
            if chosen is None:
                return function(*arguments, **named)
            start = self.count()
            made = function(*arguments, **named)
            if self.count() > start:
                self.reach(chosen, "chooses what is called", start)
            return made if isinstance(made, Tensor) else self.recorded(made, chosen)
        return self._outside_call(function, chosen, arguments, named)

    def _followed(self, function: Any) -> bool:
        """Whether the call of `function` may get recorded values."""
        if isinstance(function, types.MethodType):
            return self._followed(function.__func__)
        if isinstance(function, types.FunctionType):
            if function.__code__.co_filename == "<string>":
                return True  # of a dataclass: it stores what it gets
            wrapped = getattr(function, "__wrapped__", None)
            if not is_model(function.__code__.co_filename):
                return isinstance(wrapped, types.FunctionType) and self._followed(wrapped)
            return self.rewriting.follow(function)
        if isinstance(function, type):
            if function in _PASSED or hasattr(function, "_fields"):
                return True
            own = is_model(
                getattr(sys.modules.get(function.__module__), "__file__", "<string>") or "<string>"
            )
            return own and not issubclass(function, (Tensor, BaseException))
        call = inspect.getattr_static(type(function), "__call__", None)
        return isinstance(call, types.FunctionType) and self._followed(call)

    def _read_by_torch(self, owner: Any, function: Any) -> Expression | None:
        """What torch's own code `function` reads of `owner` that moves."""
        code = getattr(function, "__code__", None)
        if id(owner) not in self.holders or code is None or is_model(code.co_filename):
            return None
        return self.mix(self.at(owner, name) for name in code.co_names)

    # -- outside -----------------------------------------------------------------------------------
    def _outside_call(
        self, function: Any, chosen: Expression | None, arguments: tuple[Any, ...], named: Any
    ) -> Any:
        name = getattr(function, "__name__", "")
        owner = getattr(function, "__self__", None)
        if function in (getattr, setattr, hasattr, delattr):
            return self._attribute_call(name, *arguments)
        source = changing(function)
        if source in self.still:
            source = None
        if source is not None:
            self.touched.add(source)
            chosen = self.mix((chosen, Expression.source(source)))
        if isinstance(owner, Mapping) and name in ("get", "pop", "setdefault", "__getitem__"):
            key, rest = arguments[0], arguments[1:]
            held = self.mix((self.of(owner), None if is_recorded(key) else self.at(owner, key)))
            given = self.mix((self.inside(key), *map(self.inside, rest)))
        else:
            held = self._holds(owner)
            given = self.mix((*map(self.inside, arguments), *map(self.inside, named.values())))
            if isinstance(owner, nn.Module):
                held = self._read_by_torch(owner, getattr(function, "__func__", None))
        noted: list[Expression] = []
        arguments = tuple(
            self._pulled(a, noted) if isinstance(a, types.GeneratorType) else a for a in arguments
        )
        expression = self.mix((chosen, held, given))
        if expression is None:
            made = function(*arguments, **named)
            return self._result(made, self.mix((*noted, self.lost())), name)
        made = self.outside(
            function, expression, *arguments, changes=given or chosen, raises=True, **named
        )
        return self._result(made, self.mix((*noted, self.lost())), name)

    def _holds(self, owner: Any) -> Expression | None:
        """What the object of a method depends on, with what lies in it."""
        if owner is None or isinstance(owner, (types.ModuleType, type, Tensor, nn.Module)):
            return None
        found: list[Expression | None] = []
        queue, seen = deque([(owner, 0)]), {id(owner)}
        while queue and len(seen) < _MOST_HELD:
            value, depth = queue.popleft()
            found += [self.of(value), self.holders.get(id(value))]
            inner = getattr(value, "__dict__", None)
            parts = list(inner.values()) if isinstance(inner, dict) else []
            if isinstance(value, (list, tuple, deque, set)):
                parts += list(value)
            elif isinstance(value, dict):
                parts += list(dict.values(value))
            for part in parts if depth < 3 else ():
                if id(part) not in seen and not isinstance(part, _WHOLE):
                    seen.add(id(part))
                    queue.append((part, depth + 1))
        return self.mix(found)

    def _pulled(self, generator: Any, noted: list[Expression]) -> Iterator[Any]:
        for value in generator:
            expression = self.inside(value)
            if expression is not None:
                noted.append(expression)
            # Numbers add up as they are.
            yield value if isinstance(value, Tensor) else self.bare(value)

    def _attribute_call(self, what: str, owner: Any, name: Any, *rest: Any) -> Any:
        chosen = self.mix((self.of(owner) if is_recorded(owner) else None, self.of(name)))
        bare, name = plain(owner), plain(name)
        if what == "setattr":
            value = rest[0] if chosen is None else self.recorded(rest[0], chosen)
            return self.set_attribute(value, owner, name)  # type: ignore[attr-defined]
        if what == "delattr":
            return delattr(bare, name)
        if what == "hasattr":
            return self.recorded(hasattr(bare, name), self.mix((chosen, self.at(bare, name))))
        if chosen is None and (not rest or hasattr(bare, name)):
            return self.attribute(bare, name)  # type: ignore[attr-defined]
        found = getattr(bare, name, *rest)
        return self.recorded(found, chosen or self.at(bare, name))

    def outside(
        self,
        function: Any,
        expression: Expression,
        /,
        *arguments: Any,
        changes: Expression | None = None,
        raises: bool = False,
        **named: Any,
    ) -> Any:
        """`function` of bare values, one of which depends on `expression`."""
        start = self.count()
        bare = [self.bare(a) for a in arguments]
        kept = {k: self.bare(v) for k, v in named.items()}
        owner = getattr(function, "__self__", None)
        before = [(v, self._print_of(v)) for v in (owner, *bare) if self.mutable(v)]
        if raises:
            self._may_raise(expression)
        try:
            made = function(*bare, **kept)
        except Exception:
            if raises and raised_by_handlers(sys._getframe(1)) is not None:
                self.reach(expression, "decides whether a call raises what a handler takes")
            raise
        if self.count() > start:
            self.reach(expression, "goes into the program", start)
        elif self._is_torchs(function, owner, made):
            self.reach(expression, f"goes into torch's {getattr(function, '__name__', 'code')}")
        for value, print_of in before if changes is not None else ():
            if self._print_of(value) != print_of and changes is not None:
                self.mark_object(value, changes)
        own = getattr(owner, "__dict__", None)
        if (
            changes is not None
            and isinstance(own, dict)
            and not isinstance(owner, (type, types.ModuleType, nn.Module))
        ):
            self.mark_object(owner, changes)
        return self._result(made, expression, getattr(function, "__name__", ""))

    def _result(self, made: Any, expression: Expression | None, name: str) -> Any:
        if expression is None or (made is None and name not in _ANSWERS):
            return made
        if isinstance(made, (list, dict, set, deque, np.ndarray)):
            self.mark_object(made, expression)
            return made
        if isinstance(made, Tensor) and made.is_meta and name not in _ANSWERS:
            return made  # its nodes are known
        return self.recorded(made, expression)

    @staticmethod
    def _print_of(value: Any) -> Any:
        """What tells whether a container was changed in place."""
        if isinstance(value, dict):
            return [(id(k), id(v)) for k, v in dict.items(value)]
        if isinstance(value, (list, deque)):
            return [id(v) for v in value]
        return len(value) if isinstance(value, set) else look_of(value)

    @staticmethod
    def _is_torchs(function: Any, owner: Any, made: Any) -> bool:
        """Whether `function` is torch's, and gives nothing that would carry its effect."""
        module = getattr(function, "__module__", None) or ""
        if owner is not None and not isinstance(owner, types.ModuleType):
            kind = owner if isinstance(owner, type) else type(owner)
            module = module or kind.__module__
            if isinstance(owner, (Tensor, nn.Module)):
                module = "torch"
        if not str(module).startswith("torch") or str(module).startswith(_TELLS):
            return False
        if isinstance(made, Tensor) and not made.is_meta and not made.requires_grad:
            return getattr(function, "__name__", "") == "requires_grad_"  # numbers beside the trace
        return not isinstance(made, (bool, int, float, str, torch.dtype, torch.Size))

    def _may_raise(self, expression: Expression) -> None:
        """A call that depends on moving state may raise later what a handler around it takes."""
        kind = raised_by_handlers(sys._getframe(1))
        if kind is not None and self.record.decided(False, expression, "raise"):
            self.raised.append(kind())
            raise self.raised[-1]


def reads_outside(function: types.FunctionType) -> set[str]:
    """What a function of the person's names that changes outside of Python's objects."""
    code = function.__code__
    if not is_model(code.co_filename) or is_installed(code.co_filename):
        return set()
    names, found = names_in(code), set[str]()
    if "open" in names:
        found.add("a file")
    for name in names & set(function.__globals__):
        value = function.__globals__[name]
        owners = [value] if isinstance(value, (types.ModuleType, type)) else []
        parts = [getattr(owner, n, None) for owner in owners for n in names]
        for part in (value, *parts):
            source = changing(part) if callable(part) else None
            if source is not None:
                found.add(source)
    return found
