"""Numbers, modes and objects of Python that the losses reach, their code, and the environment that
this reads, before and after foreign code.

The look is that of PROGRAM 5.19. A change is no fault by itself: with what is there now the losses
are traced again, and only another program is refused. What passes for every value is remembered by
its place, so that a counter costs no trace in each step (PROGRAM 5.22 f).
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from tallystick.errors import TallystickError
from tallystick.program.capture.between import LossCalls
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.explore import Exploration
from tallystick.program.capture.looks import shape_of as look_of_shape
from tallystick.program.capture.merged import difference
from tallystick.program.capture.moments import Live
from tallystick.program.capture.places import KeptPlace, names_in, reached_from
from tallystick.program.capture.python_state import PythonState, is_flag, structure_of
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.source import code_line, is_installed
from tallystick.program.capture.trace import trace

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


_CLOSURE = " in the closure of "


class PythonName(str):
    """The name of a place that Python code reaches."""

    __slots__ = ()


class PythonWatch:
    """Looks at what `runs` and the module reach.

    `calls` are the calls of the losses once they are captured; None where no trace of one step can
    be compared with that of another (PROGRAM 5.25). `past` are objects that are left out, and
    `skips(place)` says which places are. With `trains` the loop sets the modes of the module itself
    before each step. `live` puts what moves from step to step into its places.
    """

    def __init__(
        self,
        module: nn.Module,
        runs: Sequence[Any],
        calls: Callable[[], Sequence[LossCalls] | None],
        past: Callable[[], Sequence[Any]] = tuple,
        skips: Callable[[KeptPlace], bool] = lambda place: False,
        trains: bool = False,
        live: Callable[[], Live | None] = lambda: None,
    ) -> None:
        self._live, self._code = live, CodeWatch()
        self._module, self._runs, self._calls = module, runs, calls
        self._past, self._skips, self._trains = past, skips, trains
        self._harmless: set[str] = set()

    def at(self, step: int) -> None:
        """Training step `step` comes next: places that the steps themselves change are as they are
        there, so that foreign code which sets them back changes them."""
        live = self._live()
        if live is not None:
            live.put(step)

    def look(self) -> dict[str, Any]:
        """By the name of a place: what Python sees there now."""
        one_by_one = self._live() is not None
        roots = {"module": self._module}
        roots |= {f"step{i or ''}": run for i, run in enumerate(self._runs)}
        found = reached_from(roots, self._past())
        own = {id(child) for child in self._module.modules()} if self._trains else set()
        seen: dict[str, Any] = {}
        for place, value in found.places:
            if place.key == "training" and id(place.holder) in own:
                continue
            if not self._skips(place):
                if not isinstance(value, Tensor):
                    look = look_of_shape(value)
                else:  # the content is looked at beside this
                    look = ("tensor", *(mark_of(value) if one_by_one else ()))
                seen.setdefault(PythonName(place.name), []).append(look)
        for name, look in structure_of(found):
            if not is_flag(look):  # the trainer looks at those
                seen.setdefault(PythonName(name), []).append(look)
        for name, look in self._code.look(found.functions):
            seen.setdefault(PythonName(name), []).append(look)
        return seen

    # -- whether a change matters ------------------------------------------------------------------
    def decides(self, names: Sequence[str]) -> str | None:
        """Why the change of these places makes a loss another one; None where it does not."""
        new = [name for name in names if not self._is_known(name)]
        if not new:
            return None
        calls = self._calls()
        if calls is None:
            return "The steps were traced one by one, by what Python keeps between them."
        with self._state() as state:
            for each in calls:
                reason = self._other(each)
                if reason is not None:
                    return reason
            self._remember(new, calls, state)
        return None

    @contextmanager
    def _state(self) -> Iterator[PythonState]:
        """What Python keeps, put back after the block; the module as a step has it."""
        modes = [(child, child.training) for child in self._module.modules()]
        state = PythonState(self._module, *self._runs)
        try:
            if self._trains:
                self._module.train()
            with quiet():
                yield state
        finally:
            state.restore()
            state.release()
            for child, mode in modes:
                child.training = mode

    def _other(self, calls: LossCalls) -> str | None:
        """Why calls are others than those of the job."""
        earlier = Earlier()
        with calls.mode():
            for request, first in calls.ways:
                outside = request.outside.outside
                try:
                    again = trace(request, calls.collect, first, earlier)
                except TallystickError as error:
                    return f"With that {calls.name} fails: {error.message}"
                finally:
                    outside.put_back()
                pair = difference(first, again)
                if pair is not None:
                    line = first.lines.get(pair[0].name)
                    return f"With that {calls.name} is another one{f' ({line})' if line else ''}."
        return None

    def _remember(
        self, names: Sequence[str], calls: Sequence[LossCalls], state: PythonState
    ) -> None:
        """Those of `names` that reach no program, whatever is there, are not traced again."""
        found = state.reached()
        followed = {p.name for p, _ in found.places if not _is_torchs(p)}
        moving = {str(name) for name in names} & followed
        if not moving:
            return
        try:
            for each in calls:
                for request, first in each.ways:
                    with each.mode():
                        now = state.look()
                        Exploration(
                            request, each.collect, state, first, Earlier(), now, now
                        ).follow(moving)
        except TallystickError:
            return  # it matters for another value
        finally:
            for each in calls:
                for request, _ in each.ways:
                    request.outside.outside.put_back()
        self._harmless |= moving

    def _is_known(self, name: str) -> bool:
        """Whether the place, or what it is a part of, is harmless."""
        variable, _, function = name.partition(_CLOSURE)
        for known in self._harmless:
            whole, _, inside = known.partition(_CLOSURE)
            if inside == function and (variable == whole or variable.startswith(
                (whole + ".", whole + "[")
            )):  # fmt: skip
                return True
        return False


def mark_of(tensor: Tensor) -> tuple[int, int | None]:
    """Which object it is, and how often it was changed in place: zeros that become zeros again are
    another tensor where a step has left others."""
    return id(tensor), None if tensor.is_inference() else tensor._version


def _is_torchs(place: KeptPlace) -> bool:
    """Whether torch's own code reads the place, which is not followed."""
    kind = type(place.holder)
    return place.key == "training" or kind.__module__.partition(".")[0] == "torch"
