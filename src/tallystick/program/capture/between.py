"""Whether passes of validation and training steps share Python state (PROGRAM 5.19 f).

Each of the two is traced from the state before the training. In the loop they take turns over one
state. So they are traced in turns here: both must stay the programs that they were. What moves in
either is followed in both, by the rules of `explore`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from tallystick.errors import TallystickError, UsageError
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.explore import Exploration, begun, shown
from tallystick.program.capture.looks import moved
from tallystick.program.capture.merged import difference
from tallystick.program.capture.outside import KeptTensor, storage_of
from tallystick.program.capture.places import KeptPlace, reached_from
from tallystick.program.capture.plain import uncompiled
from tallystick.program.capture.python_state import PythonState, changed, is_flag, seen_at
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.settled_outside import refuse_written
from tallystick.program.capture.source import Blame
from tallystick.program.capture.trace import Trace, TraceRequest, trace

STEP, PASS = "the training step", "the pass of validation"
_ROUNDS = 8
_NEXT = (
    "Let the training and the validation each read what it changes itself, or decide by the number "
    "of the step (`at`)."
)
_NEXT_PROGRAM = (
    "Let each program's loss read only what it changes itself, or keep it in a buffer "
    "(register_buffer): buffers are state of all programs."
)


@dataclass(frozen=True)
class LossCalls:
    """The calls of a loss: each way through it with its trace, which keeps what that found."""

    module: nn.Module
    collect: Callable[[Any], dict[str, Tensor]]
    ways: tuple[tuple[TraceRequest, Trace], ...]
    evaluates: bool = False
    # Of the modules, when a step was captured: by now its owner may have called module.eval().
    modes: tuple[tuple[nn.Module, bool], ...] = ()
    program: str = ""  # which of several programs of a job it is

    @property
    def changes(self) -> bool:
        """Whether a call changes anything that Python keeps."""
        return any(traced.changes for _, traced in self.ways)

    @property
    def name(self) -> str:
        if self.program:
            return f"the step of the program {self.program}"
        return PASS if self.evaluates else STEP

    @property
    def runs(self) -> list[Any]:
        return list({id(request.run): request.run for request, _ in self.ways}.values())

    @contextmanager
    def mode(self) -> Iterator[None]:
        """The module as the calls have it."""
        with uncompiled(self.module), ExitStack() as stack:
            if self.evaluates or self.modes:
                stack.enter_context(evaluation_mode(self.module))
            for child, training in self.modes:
                child.training = training
            yield


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    before = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, training in before:
            child.training = training


def joined(calls: Sequence[LossCalls]) -> LossCalls:
    """Those of several programs of one loss."""
    return replace(calls[0], ways=tuple(way for each in calls for way in each.ways))


def refuse_shared(training: LossCalls, evaluation: LossCalls, in_loop: bool = False) -> None:
    """Raises UsageError where what one of them changes reaches the program of the other. `in_loop`
    where a pass would leave its buffers to the next step, and no program does."""
    if in_loop:
        refuse_written(training.ways, evaluation.ways)
    if training.changes or evaluation.changes:
        _Turns(training, evaluation).check()


def refuse_shared_programs(programs: Mapping[str, LossCalls]) -> None:
    """Raises UsageError where what a step of one program changes reaches the program of another."""
    named = [replace(calls, program=name) for name, calls in programs.items()]
    for one, two in itertools.combinations(named, 2):
        if one.changes or two.changes:
            _Turns(one, two).check()


@dataclass
class _Looks:
    """What Python sees before and after the calls of a side."""

    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def names(self) -> list[str]:
        return changed(self.before, self.after)


@dataclass
class _Turns:
    training: LossCalls
    evaluation: LossCalls
    earlier: Earlier = field(default_factory=Earlier)
    looks: dict[str, _Looks] = field(default_factory=dict)  # the last ones, by side
    firsts: dict[str, _Looks] = field(default_factory=dict)

    @property
    def _next(self) -> str:
        return _NEXT_PROGRAM if self.training.program else _NEXT

    def check(self) -> None:
        sides = self.training, self.evaluation
        roots = [*self.training.runs, *self.evaluation.runs]
        if self.evaluation.module is not self.training.module:
            roots.append(self.evaluation.module)
        self.state = PythonState(self.training.module, *roots)
        try:
            with quiet():
                self._turn(self.training, None)
                self._turn(self.training, self.training)
                for before, now in ((*sides,), (*sides[::-1],), (*sides,)):
                    self._turn(now, before)
                self._refuse_tensors()
                self._follow()
        finally:
            self.state.restore()
            self.state.release()
            for side in sides:
                for request, _ in side.ways:
                    request.outside.outside.put_back()

    # -- trace after trace -------------------------------------------------------------------------
    def _turn(self, side: LossCalls, before: LossCalls | None) -> None:
        """The calls of a side after those of another. Raises UsageError where they differ."""
        with side.mode():
            seen = self.state.look()
            for request, first in side.ways:
                error: TallystickError | None = None
                try:
                    again = trace(request, side.collect, first, self.earlier)
                except TallystickError as found:
                    error, again = found, first
                if error is None and difference(first, again) is None:
                    continue
                raise self._other(side, before, error) from error
            self.looks[side.name] = _Looks(seen, self.state.look())
            self.firsts.setdefault(side.name, self.looks[side.name])
            for name in self.looks[side.name].names:
                if any(map(is_flag, self.looks[side.name].after.get(name, ()))):
                    raise UsageError(
                        f"{self._said(name, side, self.looks[side.name])}, and after that {STEP} "
                        "trains other parameters.",
                        _NEXT,
                    )

    def _other(
        self, side: LossCalls, before: LossCalls | None, error: TallystickError | None
    ) -> UsageError:
        """`side` is another program after `before`."""
        what = "is another program." if error is None else f"fails: {error.message}"
        said = "" if before is None else self._changes(before)
        if not said:
            other = before or next(s for s in (self.evaluation, self.training) if s is not side)
            return UsageError(f"After {other.name}, {side.name} {what}", self._next)
        return UsageError(f"{said}, and after that {side.name} {what}", self._next)

    def _changes(self, side: LossCalls) -> str:
        """What the calls of a side change, with the line; "" where nothing."""
        both = self.looks[side.name], self.firsts[side.name]
        names_read = self._read_by(self.evaluation if side is self.training else self.training)
        for looks, read in (
            (both[0], names_read),
            (both[1], names_read),
            *((b, None) for b in both),
        ):
            names = [name for name in looks.names if read is None or name in read]
            if names:
                name = min(names, key=lambda name: _rank(name, looks))
                return self._said(name, side, looks) + self._line(side, name)
        return ""

    def _read_by(self, side: LossCalls) -> set[str]:
        """The names of what the loss of a side reaches by itself, without the module."""
        roots = {f"run{i}": run for i, run in enumerate(side.runs)}
        reached = {_place(place) for place, _ in reached_from(roots).places}
        return {p.name for p, _ in self.state.reached().places if _place(p) in reached}

    def _line(self, side: LossCalls, name: str) -> str:
        """Where a side changes a place: ` (file:line)`, or nothing."""
        self.state.restore()
        places = [place for place, _ in self.state.reached().places if place.name == name]
        blame = Blame(lambda: [seen_at(place) for place in places])
        with side.mode(), blame.watching():
            for request, _ in side.ways:
                try:
                    trace(request, side.collect)
                except TallystickError:
                    break
        return f" ({blame.line})" if blame.line else ""

    def _said(self, name: str, side: LossCalls, looks: _Looks) -> str:
        values = moved(name, looks.before, looks.after)
        return f"{begun(shown(name))} is changed by {side.name}{values}"

    # -- tensors beside the model ------------------------------------------------------------------
    def _refuse_tensors(self) -> None:
        """Raises UsageError for a tensor that passes change and the steps have as a constant."""
        read = {s for request, _ in self.training.ways for s in request.outside.outside.constants}
        for request, _ in self.evaluation.ways:
            for kept in request.outside.outside.unread:
                if storage_of(kept.tensor) in read:
                    raise _refused(kept)

    # -- what moves --------------------------------------------------------------------------------
    def _follow(self) -> None:
        moving = {name for looks in self.looks.values() for name in looks.names}
        for _ in range(_ROUNDS):
            known = len(moving)
            if not moving:
                return
            for side in (self.evaluation, self.training):
                for request, first in side.ways:
                    moving |= self._moves(side, request, first, moving)
            if len(moving) == known:
                return
        raise UsageError("More and more Python state moves in turns of the two losses.", self._next)

    def _moves(
        self, side: LossCalls, request: TraceRequest, first: Trace, moving: set[str]
    ) -> set[str]:
        """What moves beside `moving` in a call. Raises UsageError where it reaches the program."""
        with side.mode():
            now = self.state.look()
            found = Exploration(
                request, side.collect, self.state, first, self.earlier, now, now, said=self._tells
            )
            try:
                found.follow(moving)
            except UsageError as error:
                raise UsageError(f"{error.message} That is {side.name}.", self._next) from error
            finally:
                found.kept.restore()
        return found.moving

    def _tells(self, name: str) -> str:
        for side in (self.evaluation, self.training):
            if name in self.looks[side.name].names:
                return self._said(name, side, self.looks[side.name])
        return f"{begun(shown(name))} changes between calls"


def _refused(kept: KeptTensor) -> UsageError:
    return kept.refusal("changes in a pass of validation, and the training step reads it", _NEXT)


def _place(place: KeptPlace) -> tuple[int, str, str]:
    return id(place.holder), str(place.key), place.kind


def _rank(name: str, looks: _Looks) -> int:
    """How little a name says: what holds an attribute that changes may look another one, too."""
    seen = [look for look in looks.after.get(name) or () if isinstance(look, tuple) and look]
    if any(look[0] in ("tensor", "bool", "int", "float", "str", "hooks") for look in seen):
        return 0 if name in looks.before else 2
    return 1 if any(look[0] in ("list", "deque", "map") for look in seen) else 3
