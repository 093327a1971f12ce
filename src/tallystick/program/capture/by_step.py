"""The programs of a job whose loss reads the number of the step (PROGRAM 5.21).

A trace follows what the loss does with the numbers of one step. Its truths and pins are the path
that the code took. Steps whose numbers give all of them the same values take the same path; the
first step that takes none of the known ones is traced next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tallystick.errors import MovingStateError, UsageError
from tallystick.program.capture.between import LossCalls
from tallystick.program.capture.counted import check_trained
from tallystick.program.capture.earlier import Earlier
from tallystick.program.capture.known import At, Failed, Functions, KnownSteps, Names
from tallystick.program.capture.merged import (
    Source,
    TraceShape,
    are_whole,
    difference,
    shape_of,
    with_names,
)
from tallystick.program.capture.plain import uncompiled
from tallystick.program.capture.python_state import PythonState
from tallystick.program.capture.recorded import Expression, Use
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.trace import Trace, TraceRequest, trace
from tallystick.program.tables import Told

if TYPE_CHECKING:
    from tallystick.program.capture.api import CapturedStep, Preparation
    from tallystick.program.capture.moments import Moments

_CROSSED = 16  # paths that are traced again after each other
MOST_PATHS = 256  # each is a trace
_MOST_WHOLE = 1 << 24  # integers go through binary32


@dataclass(frozen=True)
class StepPrograms:
    """The captured steps, in the order of their first training steps, and which step is whose.

    The comparison of each with its module (PROGRAM 5.9) is of its first training step. `decides`
    says that the loss asked for a number of the step: then a later step may have another program.
    """

    programs: tuple[CapturedStep, ...]
    of_steps: tuple[int, ...]
    decides: bool
    # What Python keeps, where each step was traced after those before it (PROGRAM 5.25).
    moments: Moments | None = None

    def first(self, program: int) -> int:
        """The first training step of a program."""
        return self.of_steps.index(program)


@dataclass
class StepPath:
    """One way through the code: where it was traced, and the trace."""

    form: int
    step: int
    request: TraceRequest
    traced: Trace
    shape: TraceShape


@dataclass
class _PathGroup:
    """Paths that are one program."""

    form: int
    digest: bytes
    paths: list[StepPath] = field(default_factory=list)


def _agrees(use: Use, value: Any) -> bool:
    """Whether the code would get there what it got in the trace."""
    if isinstance(value, Failed):
        return False
    if use.kind == "truth":
        return bool(value) is bool(use.value)
    return type(value) is type(use.value) and repr(value) == repr(use.value)


class PathExploration:
    """The paths of `forms` over `steps`, found by as few traces as there are; and their groups."""

    def __init__(
        self,
        forms: Sequence[Any],
        form_of: Callable[[int], int],
        steps: KnownSteps,
        most: int,
    ) -> None:
        self.forms, self.form_of, self.steps, self.most = forms, form_of, steps, most
        self.names = Names()
        self.functions = [Functions({"loss": f.loss, "module": f.module}) for f in forms]
        self.columns: dict[int, list[Any]] = {}
        self.groups: list[_PathGroup] = []
        self.path_of: list[StepPath | None] = [None] * steps.count
        self.group_of_path: dict[int, int] = {}

    def column(self, expression: Expression) -> list[Any]:
        """The expression's number in every step."""
        kind = self.names.kind(expression)
        if kind not in self.columns:
            self.columns[kind] = self.steps.each(expression, range(self.steps.count))
        return self.columns[kind]

    # -- paths -------------------------------------------------------------------------------------
    def explore(self) -> None:
        left = list(range(self.steps.count))
        paths: list[StepPath] = []
        while left:
            path = self._traced(left[0])
            paths.append(path)
            mine = self._of(path, left)
            assert mine[:1] == left[:1]  # a path is that of its own step
            self._joined(path)
            for step in mine:
                self.path_of[step] = path
            taken = set(mine)
            left = [step for step in left if step not in taken]
            if len(self.groups) > self.most or (left and len(paths) == MOST_PATHS):
                raise self._too_many(paths)

    def crossed(self) -> None:
        """Raises UsageError where a path is another one after what a call of another path has left:
        each was traced from the state before the training (PROGRAM 5.21 h)."""
        paths = [path for group in self.groups for path in group.paths]
        setting = [path for path in paths if path.traced.sets]
        if len(paths) < 2 or not setting:
            return
        for one in setting[:_CROSSED]:
            form = self.forms[one.form]
            state, earlier = PythonState(form.module, form.loss), Earlier()
            try:
                with uncompiled(form.module), quiet():
                    trace(one.request, form.collect, earlier=earlier)
                    for other in paths[:_CROSSED]:
                        self._same_after(one, other, earlier)
            finally:
                state.restore()
                state.release()
                one.request.outside.outside.put_back()

    def _same_after(self, one: StepPath, other: StepPath, earlier: Earlier) -> None:
        again = trace(other.request, self.forms[other.form].collect, other.traced, earlier)
        if again is other.traced or (
            difference(other.traced, again) is None
            and shape_of(again).sources == other.shape.sources
        ):
            return
        raise MovingStateError(
            f"What the loss keeps in step {one.step} ({', '.join(one.traced.sets[:3])}) makes step "
            f"{other.step} another one.",
            "Keep it in a buffer (register_buffer) that tensor operators change, or decide by the "
            "number of the step alone.",
        )

    def _traced(self, step: int) -> StepPath:
        form = self.form_of(step)
        at = At(self.steps, step, self.names, self.functions[form])
        request = self.forms[form].request(at)
        request, traced = self.forms[form].traced(request)
        return StepPath(form, step, request, traced, shape_of(traced))

    def _of(self, path: StepPath, left: Sequence[int]) -> list[int]:
        """The steps among `left` that take this path."""
        found = [step for step in left if self.form_of(step) == path.form]
        for use in _conditions(path.traced):
            column = self.column(use.expression)
            found = [step for step in found if _agrees(use, column[step])]
        return found

    def _joined(self, path: StepPath) -> None:
        for number, group in enumerate(self.groups):
            if (group.form, group.digest) == (path.form, path.shape.digest):
                group.paths.append(path)
                self.group_of_path[id(path)] = number
                return
        self.group_of_path[id(path)] = len(self.groups)
        self.groups.append(_PathGroup(path.form, path.shape.digest, [path]))

    def decision(self, path: StepPath) -> str:
        """` (file:line)` of the last condition of a path, or nothing."""
        return next((use.place for use in reversed(_conditions(path.traced))), "")

    def origin(self, path: StepPath, number: int) -> str:
        """` (file:line)` of what makes a number of a path, by its place in `Shape.sources`."""
        source = path.shape.sources[number]
        for use in path.traced.uses:
            if use.kind == "tensor" and self.names.name(use.expression) == source:
                return use.place
        return self.decision(path)

    def _too_many(self, paths: Sequence[StepPath]) -> UsageError:
        """Names the use that most of the paths come from."""
        values: dict[tuple[str, str], set[str]] = {}
        for path in paths:
            for use in _conditions(path.traced):
                values.setdefault((use.kind, use.place), set()).add(repr(use.value))
        (kind, place), _ = max(values.items(), key=lambda item: len(item[1]))
        what = "a plain number" if kind == "pin" else "the answer to a question"
        programs = (
            f"has more than {self.most} programs in the job's {self.steps.count} steps, and a job "
            "has no more"
            if len(self.groups) > self.most
            else f"takes more than {MOST_PATHS} ways through its code in the job's "
            f"{self.steps.count} steps"
        )
        where = f" the line{place}" if place.startswith(" (") else place or " its code"
        made = UsageError(
            f"The loss {programs}. Most of them come from{where}, which makes {what} of a number "
            "of the step.",
            "Where it is a number of the loss, compute it by arithmetic, min, max and functions of "
            "math, or index a list or a torch tensor with it. Where it is a shape or a branch, let "
            "it have fewer values.",
        )
        if len(self.groups) > self.most:
            return made
        # Ways that are few programs are few when each step is traced by itself, too.
        return MovingStateError(made.message, made.next_action)

    # -- programs ----------------------------------------------------------------------------------
    def programs(self) -> StepPrograms:
        of_steps = [self.group_of_path[id(path)] for path in self.path_of]
        named: dict[Any, str] = {}
        sources: dict[str, dict[int, Source]] = {}  # by name: by path, what the number comes from
        made: list[tuple[_PathGroup, Trace]] = []
        for number, group in enumerate(self.groups):
            names: dict[int, str] = {}
            for i, each in enumerate(zip(*(p.shape.sources for p in group.paths), strict=True)):
                kinds = [self._kind(source) for source in each]
                if len(set(kinds)) == 1 and not isinstance(each[0], str):
                    continue
                # A number that comes about in one way is one scalar in all programs.
                key = kinds[0] if len(set(kinds)) == 1 else (number, tuple(kinds))
                name = names[i] = named.setdefault(key, f"at.{len(named)}")
                for path, source in zip(group.paths, each, strict=True):
                    sources.setdefault(name, {})[id(path)] = source
            first = group.paths[0]
            made.append((group, with_names(first.traced, names)))
        tables = {name: self._table(name, by_path, made) for name, by_path in sources.items()}
        captured = []
        for group, traced in made:
            form = self.forms[group.form]
            step = form.step(group.paths[0].request, traced)
            read = {n: tables[n] for n in step.program.scalar_names if n in tables}
            ways = tuple((path.request, path.traced) for path in group.paths)
            calls = LossCalls(form.module, form.collect, ways)
            captured.append(replace(step, scalars=step.scalars | read, calls=calls))
        decides = any(_conditions(p.traced) for group in self.groups for p in group.paths)
        found = StepPrograms(tuple(captured), tuple(of_steps), decides)
        check_trained(found)
        return found

    def _kind(self, source: Source) -> Any:
        if isinstance(source, str):
            return "expression", self.names.kind(self.names.expressions[source])
        return "number", repr(source)

    def _table(
        self, name: str, by_path: dict[int, Source], made: Sequence[tuple[_PathGroup, Trace]]
    ) -> Told:
        """The number of each step; 0 where the step's program does not read it."""
        whole = any(are_whole(traced, name) for _, traced in made)
        found = []
        for step, path in enumerate(self.path_of):
            source = by_path.get(id(path), 0.0)
            value: Any = source
            if isinstance(source, str):
                value = self.column(self.names.expressions[source])[step]
            found.append(self._number(step, value, whole))
        return Told(0.0, tuple(found))

    @staticmethod
    def _number(step: int, value: Any, whole: bool) -> float:
        if isinstance(value, Failed):
            raise UsageError(
                f"A number of the loss cannot be computed in step {step}: {value.error}.",
                "Guard it with a condition, or with max and min.",
            ) from value.error
        limit = _MOST_WHOLE if whole else 1 << 53
        is_whole = not isinstance(value, float)
        if (whole and not is_whole) or (is_whole and abs(value) > limit):
            raise UsageError(
                f"A number of the loss is {value} in step {step}, and goes into a tensor of "
                "integers." if whole else f"A number of the loss is {value} in step {step}.",
                f"Keep integers to {limit}, or convert to float first.",
            )  # fmt: skip
        if not math.isfinite(value):
            raise UsageError(
                f"A number of the loss is {value} in step {step}.", "Give finite numbers."
            )
        return float(value)


def _conditions(traced: Trace) -> list[Use]:
    """The truths and pins of a trace, in order."""
    return [use for use in traced.uses if use.kind != "tensor"]


def captured_by_step(
    forms: Sequence[Preparation],
    steps: KnownSteps,
    *,
    form_of: Callable[[int], int] = lambda step: 0,
    most: int,
) -> StepPrograms:
    """The programs of the training steps of a job, at most `most`.

    `forms` are the ways in which a step may be captured (batches of two sizes), of which step t has
    `form_of(t)`. Raises the errors of `capture`, and UsageError where there are more programs, or
    where a number of a step cannot be computed.
    """
    exploration = PathExploration(forms, form_of, steps, most)
    exploration.explore()
    exploration.crossed()
    return exploration.programs()


def at_every_pass(
    evaluated: Any, passes: KnownSteps
) -> tuple[At, tuple[tuple[TraceRequest, Trace], ...]]:
    """The numbers of the first pass, where the loss computes the same in each of `passes`; and the
    other ways that the code takes in them.

    `evaluated` has `loss` and `module`, and gives a `request(at)` and what is `traced(request)`.
    Raises UsageError, with the line, for a loss that passes would have apart.
    """
    exploration = PathExploration([evaluated], lambda _: 0, passes, MOST_PATHS)
    exploration.explore()
    first, *others = exploration.groups
    for group in others:
        raise _refused(exploration.decision(group.paths[0]))
    for number in range(len(first.paths[0].shape.sources)):
        values = set()
        for step, path in enumerate(exploration.path_of):
            assert path is not None
            source: Any = path.shape.sources[number]
            if isinstance(source, str):
                source = exploration.column(exploration.names.expressions[source])[step]
            values.add(repr(float(source) if isinstance(source, int) else source))
        if len(values) > 1:
            raise _refused(exploration.origin(first.paths[-1], number))
    ways = tuple((path.request, path.traced) for path in first.paths[1:])
    return At(passes, 0, Names(), None, fixed=True), ways


def _refused(place: str) -> UsageError:
    return UsageError(
        f"The validation loss uses the number of the step{place}, and is another one in each pass: "
        "a pass of validation is not a step of the training, and has no table.",
        "Use the number only where module.training is true, or give a validation loss without it.",
    )
