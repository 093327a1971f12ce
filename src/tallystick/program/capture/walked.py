"""Steps traced one by one, in the order in which a loop calls the loss (PROGRAM 5.25).

Where the loop is known, it is known how often the loss is called: once for each micro-batch of each
step. So Python state that the loss keeps (a counter, a generator of its own, a schedule in an
object) has a value in every step: the one that so many calls before have left. Each step is traced
with that value. The steps whose traces are equal are one program, and equal but for numbers are one
program with a table (5.21 d). All of it is traced twice, from one state: what is another number the
second time is a clock, a file, or another thread, and no function of the calls.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any, NoReturn

from tallystick.errors import UsageError
from tallystick.program.capture.by_step import PathExploration, StepPath, StepPrograms
from tallystick.program.capture.earlier import Earlier, EarlierError
from tallystick.program.capture.explore import shown
from tallystick.program.capture.first_calls import refuse_other_calls
from tallystick.program.capture.follow_calls import reads_outside
from tallystick.program.capture.guard import ParametersChangedError
from tallystick.program.capture.kept_after import refuse_shared_between_steps
from tallystick.program.capture.known import At, KnownSteps, Names
from tallystick.program.capture.late import Late, Start, empty_buffers, late_of
from tallystick.program.capture.merged import shape_of
from tallystick.program.capture.moments import Moments
from tallystick.program.capture.outside import OUTSIDE, KeptTensor, Left, OneObject, Outside
from tallystick.program.capture.outside_calls import OutsideCalls, ahead
from tallystick.program.capture.plain import uncompiled
from tallystick.program.capture.python_state import KeptContent, PythonState, left_changed
from tallystick.program.capture.recorder import Recorder
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.rewriting import file_of
from tallystick.program.capture.settled_outside import refuse_unknown, settled_outside
from tallystick.program.capture.source import code_line, is_installed, is_model
from tallystick.program.capture.trace import Trace, TraceRequest, trace

MOST_STEPS = 1 << 16
MOST_SECONDS = 600.0
_ROUNDS = 24
_MOST_LATE = 16  # places, each of which is found by a walk
_MEASURED = 32  # steps after which the time of all is known


class _AgainError(Exception):
    """A later step changes what the first one left alone: it is walked anew, knowing that."""


class Walk(PathExploration):
    """The paths of the steps, each traced with what the calls before it have left."""

    def __init__(
        self, forms: Sequence[Any], form_of: Callable[[int], int], steps: KnownSteps, most: int
    ) -> None:
        super().__init__(forms, form_of, steps, most)
        self.states: dict[int, Left] = {}  # before the first step of a path, by its identity
        self.moments = Moments()
        self._carried: list[KeptTensor] = []
        self._changed: frozenset[str] = frozenset()
        self._began = 0.0
        self._objects = OneObject({"loss": forms[0].loss, "module": forms[0].module})
        self.notes: list[str] = []  # what the walk cannot put back, or not read
        self._watched: OutsideCalls | None = None
        self.traced = 0  # steps traced in this walk

    def explore(self) -> None:
        """Raises UsageError where steps differ at a second walk, and for slow ones."""
        self._began = time.monotonic()
        self._watched = OutsideCalls()
        first = self._settled()
        clock = self._watched.clock
        # Of a clock that nobody moves, it is unknown whether it decides.
        self._watched = None if clock is None else OutsideCalls(clocks=True)
        if self._settled() != first:
            if clock is not None:
                raise UsageError(
                    f"The loss reads the clock{clock}, and its result depends on the clock's "
                    "speed.",
                    "Read the clock outside the loss, and pass the value in the batch or as a "
                    "constant.",
                )
            raise UsageError(
                "The loss gives a different result when all its calls are repeated. It depends on "
                "a clock, a file or another thread.",
                "Pass the value in the batch, or make it a constant.",
            )

    def _settled(self) -> list[Any]:
        for _ in range(_ROUNDS):
            try:
                return self._walked()
            except _AgainError:
                continue
            except ParametersChangedError as error:
                self._changed |= error.names
        raise UsageError(
            "The loss changes other tensors in each step.", "Change the same tensors in each step."
        )

    def _walked(self) -> list[Any]:
        """What each step is, comparable; `path_of` and the groups are made anew."""
        self.groups, self.group_of_path, self.states = [], {}, {}
        self.path_of = [None] * self.steps.count
        self.traced = 0
        form = self.forms[0]
        state = PythonState(form.module, form.loss)
        found = state.reached()
        if found.left:
            raise UsageError(
                "The loss reaches more state of Python than can be looked at, such as "
                f"{found.left[0]}.",
                "Keep what the loss reads nearer to it.",
            )
        self._start = Start.of(found)
        self._filled = empty_buffers(form.module)
        self.notes = _not_followed(found.objects)
        outside = Outside.of(form.module, form.loss)
        before, told = state.look(), list[Any]()
        try:
            moved = self._watched is not None and self._watched.clocks
            clocks = ahead(found.objects) if moved else contextlib.nullcontext()
            with uncompiled(form.module), quiet():
                with clocks:
                    self._walk(state, outside, told)
                state.restore()
                self._check_put_back(before, state.look())
        finally:
            state.restore()
            state.release()
            outside.put_back()
        return told

    def _check_put_back(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        """Raises UsageError where a second walk would begin with what the first has left."""
        if self._watched is not None and self._watched.found is not None:
            source, where = self._watched.found
            raise UsageError(
                f"The loss reads {source}{where}, and keeps state of Python that decides about its "
                "steps. These are traced one by one, and what it reads there is no function of its "
                "calls.",
                "Read it outside of the loss, and pass it in the batch or as a constant.",
            )
        if self._watched is not None and self._watched.numbered is not None and self._carried:
            raise UsageError(
                f"The loss asks for id(...){self._watched.numbered}, and keeps tensors from one "
                "call for the next. A program's step gets others in their places, with other "
                "numbers.",
                "Ask whether two places hold one object by `is`.",
            )
        if left := left_changed(before, after):
            raise UsageError(
                f"{shown(left[0])} changes while the loss is traced, and cannot be put back.",
                "Keep it in a number, a list, a dict or an attribute of Python.",
            )

    def _around(self, recorder: Recorder) -> contextlib.AbstractContextManager[None]:
        return self._watching()

    def _watching(self) -> contextlib.AbstractContextManager[None]:
        watched = self._watched
        return contextlib.nullcontext() if watched is None else watched.watching()

    def _walk(self, state: PythonState, outside: Outside, told: list[Any]) -> None:
        earlier, self.moments = Earlier(), Moments()
        known: dict[int, Trace] = {}  # the last trace by form
        paths: dict[int, StepPath] = {}  # by the identity of the trace, which the path keeps
        carried: TraceRequest | None = None
        for step in range(self.steps.count):
            number = self.form_of(step)
            found = state.reached()
            self.moments.add(found)
            kept = KeptContent(found)
            left = Left(kept, carried.outside.kept if carried else ())
            asked = self._request(number, step, carried)
            if carried is None:
                carried, traced = self._first(asked, outside, state, earlier)
                asked = carried
            else:
                collect, last = self.forms[number].collect, known.get(number)
                try:
                    traced = trace(asked, collect, last, earlier, self._around)
                except EarlierError as error:
                    kept.restore()  # the place that the call began with
                    self._carry(error, asked)
                self._check_kept(asked, outside)
            self.moments.read(value for value, _, _ in earlier.given)
            known[number] = traced
            self._count()
            path = paths.get(id(traced))
            if path is None:
                traced.notes[:] = self.notes
                path = StepPath(number, step, asked, traced, shape_of(traced))
                paths[id(traced)] = path
                self._joined(path)
                self.states[id(path)] = left
                if len(self.groups) > self.most:
                    raise UsageError(
                        f"The loss is more than {self.most} programs in the first {step + 1} of "
                        f"{self.steps.count} steps, by what Python keeps between its calls.",
                        "Let what Python keeps change less often.",
                    )
            self.path_of[step] = path
            told.append((path.shape.digest, repr(path.shape.sources)))
        self.moments.add(state.reached())
        self.moments.end(state.relays)
        assert carried is not None
        refuse_shared_between_steps(carried.outside)
        for one in carried.outside.kept:
            if isinstance(one, Late):
                one.finish()

    def _request(self, number: int, step: int, carried: TraceRequest | None) -> TraceRequest:
        at = At(self.steps, step, Names(), None, fixed=True) if self.steps.told else None
        made: TraceRequest = replace(
            self.forms[number].request(at), changed=self._changed, filled=self._filled
        )
        return made if carried is None else replace(made, outside=carried.outside)

    def _first(
        self, request: TraceRequest, outside: Outside, state: PythonState, earlier: Earlier
    ) -> tuple[TraceRequest, Trace]:
        collect = self.forms[self.form_of(0)].collect
        known = outside.take_over(self._carried)
        for one in known:
            one.left, one.objects = None, self._objects
            if isinstance(one, Late):
                one.graph = False  # the first step reads none
        with self._watching():
            found = settled_outside(request, collect, outside, state.restore, None, earlier, known)
        self._carried = found[0].outside.kept
        for one in self._carried:
            one.objects = self._objects
        return found

    def _carry(self, error: EarlierError, request: TraceRequest) -> NoReturn:
        """Walk anew with a slot for what an earlier call has left in a place (PROGRAM 5.20 g); or
        raises `error` where no such place is known."""
        carried = request.outside
        places = {one.place_path for one in carried.kept if isinstance(one, Late)}
        taken = {one.name for one in carried.outside.kept}
        taken |= {k.removeprefix(OUTSIDE) for k in request.buffers if k.startswith(OUTSIDE)}
        found = late_of(error.tensor, self._objects, self._start, places, taken)
        if not found or len(places) == _MOST_LATE:
            raise error
        self._carried = [*carried.kept, *found]
        raise _AgainError from error

    def _check_kept(self, request: TraceRequest, outside: Outside) -> None:
        more = outside.changes(request.outside.kept)
        if more:
            self._carried = [*request.outside.kept, *more]
            raise _AgainError
        refuse_unknown(outside)
        request.outside.refuse_changed()

    def _count(self) -> None:
        self.traced += 1
        if self.traced == _MEASURED:
            steps = self.steps.count
            needed = 2 * steps * (time.monotonic() - self._began) / self.traced
            if needed > MOST_SECONDS:
                raise UsageError(
                    f"Tracing all {steps} steps one by one would take {needed:.0f} seconds.",
                    "Take the number of the step as an argument (`at`) instead of counting."
                    if self.steps.told
                    else "Make fewer steps; or use tallystick.fit, whose loss gets the number of "
                    "the step.",
                )


def _not_followed(objects: Sequence[Any]) -> list[str]:
    """The person's functions that name what is no state of Python, and those without a source."""
    found = []
    for function in objects:
        if type(function) is not FunctionType or is_installed(function.__code__.co_filename):
            continue
        named, code = sorted(reads_outside(function)), function.__code__
        if named:
            found.append(f"{code.co_name} ({code_line(code)}), which names {', '.join(named)}")
        elif is_model(code.co_filename) and file_of(code.co_filename) is None:
            found.append(f"{code.co_name} ({code_line(code)})")
    return sorted(set(found))


def walked_by_step(
    forms: Sequence[Any],
    steps: KnownSteps,
    *,
    form_of: Callable[[int], int],
    most: int,
    instead_of: UsageError,
    tried: Sequence[Any] = (),
) -> StepPrograms:
    """The programs of the training steps, at most `most`, where the loss keeps state of Python.

    Arguments as of `captured_by_step`; `tried` are the forms of which traces came before. Each form
    is a whole step, and nobody but the loop calls the loss. Raises UsageError where the steps
    cannot be traced one by one: what a later step says, or `instead_of` where the first call says
    no already.
    """
    if steps.count > MOST_STEPS:
        raise UsageError(
            f"{instead_of.message} And {steps.count} steps are too many to trace one by one.",
            "Train for fewer steps. Or: " + instead_of.next_action,
        )
    for form in tried:
        refuse_other_calls(form.firsts, form.collect)
    walk = Walk(forms, form_of, steps, most)
    try:
        walk.explore()
        made = walk.programs()
    except UsageError as error:
        raise (error if walk.traced else instead_of) from None
    captured = []
    for group, step in zip(walk.groups, made.programs, strict=True):
        kept = walk.states[id(group.paths[0])]
        compared = step.first_step and replace(step.first_step, python=kept)
        captured.append(replace(step, first_step=compared))
    return replace(made, programs=tuple(captured), decides=True, moments=walk.moments)
