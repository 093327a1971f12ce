"""Whether Python state that changes between calls reaches the program (PROGRAM 5.19).

The step is traced with followed code. Where a moving value decides a branch, the branch is turned
around in a trace of its own, and one more trace begins with what that left behind. All must give
the same program. What a turned branch changes moves too, so that it is followed in its turn.
"""

from __future__ import annotations

import builtins
import contextlib
import random
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import numpy as np
from torch import Tensor

from tallystick.errors import MovingStateError, TallystickError, UsageError
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.follow import Following
from tallystick.program.capture.follow_calls import OUTER_SOURCES
from tallystick.program.capture.follow_marks import MarkedAnswers, MovingReach, Site
from tallystick.program.capture.looks import PLAIN, moved
from tallystick.program.capture.merged import difference, reaches_results
from tallystick.program.capture.outside_calls import watched_by
from tallystick.program.capture.places import reached_from
from tallystick.program.capture.python_state import HOOKS, PythonState, changed
from tallystick.program.capture.recorded import Expression, Use
from tallystick.program.capture.recorder import Recorder
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.rewriting import Rewriting
from tallystick.program.capture.rewritten import NAME
from tallystick.program.capture.source import code_line, is_installed, is_model, package_of
from tallystick.program.capture.trace import Trace, TraceRequest, trace

Collect = Callable[[Any], dict[str, Tensor]]
MOST_TRACES = 400
_ROUNDS = 8
_TIMES = 16  # how often a branch in a loop is turned around at once
_NEXT = (
    "Keep what changes in a buffer (register_buffer) that tensor operators change: buffers are "
    "state. Or pass it in the batch, or take it out of the step."
)
Turned = dict[tuple[Site, bool], int]


class _Operations:
    """The operations of followed code by their names; in other threads Python's own.

    It stays among the builtins: another thread may be in the midst of such code.
    """

    def __init__(self) -> None:
        self.usual = Following(MarkedAnswers(), lambda: 0, Rewriting())
        self.active, self.thread = self.usual, 0

    def __getattr__(self, name: str) -> Any:
        mine = threading.get_ident() == self.thread
        return getattr(self.active if mine else self.usual, name)


OPERATIONS = _Operations()


def shown(name: str) -> str:
    """A place, for a message: what belongs to the module by its own path."""
    if name in PythonState.GENERATORS:
        return name
    if name.startswith(HOOKS):
        path = name.removeprefix(HOOKS)
        return HOOKS + ("the module" if path == "module" else path.removeprefix("module."))
    head, _, rest = name.partition(".")
    if head in ("module", "step", "self"):
        return f"the attribute {rest}" if rest else "the step"
    closed = re.match(r"(\w+) in the closure of (.*?\))(.*)", name)
    if closed:
        return f"{closed[1]}{closed[3]} in the closure of {closed[2]}"
    return name


def begun(text: str) -> str:
    return text[:1].upper() + text[1:] if text.startswith(("the ", "default ", "a ")) else text


def told(name: str, one: dict[str, Any], two: dict[str, Any]) -> str:
    """`NAME changes at every forward, from 1 to 2`, by the looks `one` and `two`."""
    if name in PythonState.GENERATORS:
        return f"The model draws from {name} while it runs"
    if one.get(name) == two.get(name):
        return f"{begun(shown(name))} changes between calls"
    return f"{begun(shown(name))} changes at every forward{moved(name, one, two)}"


@dataclass
class _Run:
    trace: Trace
    answers: MarkedAnswers
    look: dict[str, Any]
    touched: set[str]


@dataclass
class Exploration:
    """The state after two traces, and what moves in it. `between` and `after` are looks around the
    second trace, `first` the program."""

    request: TraceRequest
    collect: Collect
    state: PythonState
    first: Trace
    earlier: Earlier
    between: dict[str, Any]
    after: dict[str, Any]
    rewriting: Rewriting = field(default_factory=Rewriting)
    traces: int = 0
    # How a place changes, for people, where not at every forward.
    said: Callable[[str], str] | None = None

    def follow(self, moving: set[str]) -> None:
        """Raises MovingStateError where one of `moving` reaches the program, by name and line."""
        self.kept = self.state.keep()
        self.moving = set(moving)
        try:
            for _ in range(_ROUNDS):
                known = len(self.moving)
                self._round()
                if len(self.moving) == known:
                    return
        finally:
            self.rewriting.restore()
        raise MovingStateError(
            f"More and more Python state depends on {self._named(sorted(self.moving)[:1])}, which "
            "changes between calls.",
            _NEXT,
        )

    def _round(self) -> None:
        usual = self._run({})
        self.usual = usual.look
        self._compare(usual, None)
        for name in PythonState.GENERATORS:
            if name in self.moving and name not in usual.touched:
                raise MovingStateError(
                    f"{self._told([name])}, in code that is not followed.", _NEXT
                )
        self.moving |= set(changed(self.after, usual.look))
        self._refuse_unread()
        again = self._run({}, restored=False)
        self._compare(again, None, usual)
        pending: list[tuple[Turned, Use]] = []
        seen: set[Any] = set()

        def add(run: _Run, turned: Turned) -> None:
            for key, (use, times) in run.answers.truths.items():
                if key in seen or (key[0], not key[1]) in turned:
                    continue
                seen.add(key)
                pending.append(({**turned, key: 1}, use))
                if times > 1:
                    pending.append(({**turned, key: _TIMES}, use))

        add(usual, {})
        add(again, {})
        while pending:
            turned, use = pending.pop()
            run = self._run(turned, use)
            self._compare(run, use)
            add(run, turned)
            self.moving |= set(changed(usual.look, run.look))
            then = self._run({}, use, restored=False)
            self._compare(then, use)
            add(then, {})

    # -- one trace ---------------------------------------------------------------------------------
    def _run(self, turned: Turned, use: Use | None = None, restored: bool = True) -> _Run:
        """A trace of followed code, once more as long as it runs into code that is not yet."""
        for _ in range(_ROUNDS):
            if restored:
                self.kept.restore()
            plain_codes: set[CodeType] = set()
            answers = MarkedAnswers(turned=turned)
            self.traces += 1
            if self.traces > MOST_TRACES:
                raise MovingStateError(
                    f"{MOST_TRACES} traces do not tell whether state that changes between calls "
                    f"reaches the program: {self._named(sorted(self.moving)[:3])}.",
                    _NEXT,
                )
            following = self._following(answers)
            try:
                found = self._traced(following, plain_codes)
            except Exception as error:
                if restored and self.rewriting.follow_codes(plain_codes):
                    continue
                self._ended(following)
                if error.__cause__ in following.raised:  # it ends the training, and is seen
                    return _Run(self.first, answers, self.usual, following.touched)
                raise self._failed(error, use) from error
            if restored and self.rewriting.follow_codes(plain_codes):
                continue
            return _Run(found, answers, self._ended(following), following.touched)
        raise MovingStateError("The step creates new functions at every call.", _NEXT)

    def _traced(self, following: Following, plain_codes: set[CodeType]) -> Trace:
        @contextlib.contextmanager
        def around(recorder: Recorder) -> Iterator[None]:
            following.count = recorder.count
            begun: dict[FrameType, int] = {}

            def called(frame: FrameType, event: str, _argument: Any) -> None:
                code = frame.f_code
                if event == "call":
                    # Python hashes a code anew each time: most are torch's, and asked for no hash.
                    if is_model(code.co_filename) and code not in self.rewriting.own:
                        plain_codes.add(code)
                        if is_installed(code.co_filename):
                            begun[frame] = recorder.count()
                elif event == "return" and frame in begun and recorder.count() > begun.pop(frame):
                    self.rewriting.packages.add(package_of(code.co_filename))

            with watched_by(called):
                yield

        OPERATIONS.active, OPERATIONS.thread = following, threading.get_ident()
        setattr(builtins, NAME, OPERATIONS)
        try:
            with quiet():
                return trace(self.request, self.collect, self.first, self.earlier, around)
        finally:
            OPERATIONS.active = OPERATIONS.usual

    def _following(self, answers: MarkedAnswers) -> Following:
        following = Following(answers, lambda: 0, self.rewriting)
        following.still = frozenset({"Python's random"}) - self.moving
        for place, value in self.state.reached().places:
            if place.name not in self.moving:
                continue
            source = Expression.source(place.name)
            bare = isinstance(value, (*PLAIN, tuple, frozenset)) or not following.holds(value)
            if not bare:
                following.mark_object(value, source)
            elif place.kind == "cell" or _is_global(place):
                place.set(answers.value(value, source))
            else:
                following.mark_place(place.holder, place.key, source)
        for name, generator in (
            ("Python's random", getattr(random, "_inst", None)),
            ("numpy.random", getattr(np.random.mtrand, "_rand", None)),
        ):
            if name in self.moving:
                following.mark_object(generator, Expression.source(name))
        return following

    def _ended(self, following: Following) -> dict[str, Any]:
        """What depends on moving state after a trace moves in the next; a look at the state."""
        found = self.state.reached()
        self.moving |= self.state.strip(found)
        for place, value in found.places:
            if following.at(place.holder, place.key) is not None or following.of(value) is not None:
                self.moving.add(place.name)
        return self.state.look(found)

    def _refuse_unread(self) -> None:
        """Raises MovingStateError where a function without source reaches moving state."""
        moving = {
            (id(place.holder), place.key if isinstance(place.key, (str, int)) else None): place.name
            for place, _ in self.state.reached().places
            if place.name in self.moving
        }
        for function in self.rewriting.unread():
            for place, _ in reached_from({"function": function}).places:
                key = place.key if isinstance(place.key, (str, int)) else None
                name = moving.get((id(place.holder), key))
                if name is not None:
                    raise MovingStateError(
                        f"{self._told([name])}, and {function.__name__}, whose source cannot be "
                        f"read, may read it ({code_line(function.__code__)}).",
                        "Define the function in a file, or keep what changes away from it.",
                    )

    # -- refusals ----------------------------------------------------------------------------------
    def _compare(self, run: _Run, use: Use | None, usual: _Run | None = None) -> None:
        graph = (run.trace.run or self.first.run).graph  # type: ignore[union-attr]
        for reach in run.answers.reaches:
            if reach.start == reach.end or reaches_results(graph, reach.start, reach.end):
                raise self._reached(reach)
        same = difference(self.first, run.trace) is None
        same = same and self.first.outputs == run.trace.outputs
        if same and self.first.updates == run.trace.updates:
            return
        known = usual.answers.truths if usual else {}
        others = [u for key, (u, _) in run.answers.truths.items() if key not in known]
        for found in (use, *others):
            if found is not None:
                raise self._decides(found)
        pair = difference(self.first, run.trace)
        line = self.first.lines.get(pair[0].name) if pair else None
        raise MovingStateError(
            f"{self._told(sorted(self.moving))}, and a later forward is another program"
            f"{f' ({line})' if line else ''}.",
            _NEXT,
        )

    def _failed(self, error: Exception, use: Use | None) -> MovingStateError:
        text = error.message if isinstance(error, TallystickError) else repr(error)
        if use is None:
            return MovingStateError(
                f"{self._told(sorted(self.moving))}, and the step cannot be followed: {text}", _NEXT
            )
        return MovingStateError(
            f"{self._told(sorted(use.expression.sources()))}, and decides a branch{use.place}; the "
            f"other way fails: {text}",
            _NEXT,
        )

    def _decides(self, use: Use) -> UsageError:
        names = sorted(use.expression.sources())
        return _refusal(names)(
            f"{self._told(names)}, and decides about the program{use.place}.", _NEXT
        )

    def _reached(self, reach: MovingReach) -> UsageError:
        names = sorted(reach.expression.sources())
        return _refusal(names)(f"{self._told(names)}, and {reach.what}{reach.place}.", _NEXT)

    def _named(self, names: list[str]) -> str:
        return ", ".join(shown(name) for name in names)

    def _told(self, names: list[str]) -> str:
        """That of `names` changes which was first seen to."""
        seen = [n for n in names if self.between.get(n) != self.after.get(n)]
        if self.said is not None and names:
            return self.said(names[0])
        return told((seen or names or ["Python state"])[0], self.between, self.after)


def _refusal(names: list[str]) -> type[UsageError]:
    """What a clock or a file gives is no function of the calls: then no walk helps (5.25)."""
    return UsageError if OUTER_SOURCES & set(names) else MovingStateError


def _is_global(place: Any) -> bool:
    return place.kind == "item" and isinstance(place.holder, dict) and "__name__" in place.holder
