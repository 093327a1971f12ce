"""What is known of each training step before it is made: its number, its epoch (PROGRAM 5.21)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from tallystick.errors import UsageError
from tallystick.program.capture.functions_followed import Functions
from tallystick.program.capture.recorded import Expression, Number, NumberRecord, Recorded, Use
from tallystick.program.capture.source import here


@dataclass(frozen=True)
class KnownSteps:
    """The numbers of `count` training steps.

    `columns` has, by source, a number for each step. `constants` are the same in all of them, and
    are plain numbers for the traced code. `refused` says, by source, why a program cannot read it.
    The loss gets them as its last argument, if `told`.
    """

    count: int
    columns: Mapping[str, Sequence[Number]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    told: bool = True

    def sources(self, step: int) -> dict[str, Number]:
        """The sources' numbers in training step `step`."""
        return {name: column[step] for name, column in self.columns.items()}

    def each(self, expression: Expression, steps: Iterable[int]) -> list[Any]:
        """The expression's number in each of `steps`; a `Failed` where it raises."""
        names = sorted(expression.sources())
        columns = [self.columns[name] for name in names]
        known: dict[tuple[Any, ...], Any] = {}
        found = []
        for step in steps:
            key = tuple(column[step] for column in columns)
            if key not in known:
                try:
                    known[key] = expression.value(dict(zip(names, key, strict=True)))
                except (ArithmeticError, ValueError, LookupError, TypeError) as error:
                    known[key] = Failed(error)
            found.append(known[key])
        return found


@dataclass(frozen=True)
class Failed:
    """In the place of a number: what its arithmetic raises."""

    error: Exception


class _StepRecord(NumberRecord):
    """Uses of the numbers of a step; a source that no program can read is refused at its use."""

    def __init__(self, refused: Mapping[str, str]) -> None:
        super().__init__()
        self.refused = refused

    def _check(self, number: Recorded) -> None:
        for name in sorted(number.expression.sources() & set(self.refused)):
            raise UsageError(
                f"The loss reads the number of the {name}{here()}, and {self.refused[name]}.",
                "Compute without it there.",
            )

    def truth(self, number: Recorded) -> bool:
        self._check(number)
        return super().truth(number)

    def pin(self, number: Recorded) -> Any:
        self._check(number)
        return super().pin(number)

    def tensor(self, number: Recorded) -> Use:
        self._check(number)
        return super().tensor(number)


class Names:
    """The names of numbers that programs read, by how they come about: `at.0`, `at.1`, …."""

    def __init__(self) -> None:
        self._kinds: dict[Any, int] = {}
        self._known: dict[int, tuple[int, Expression]] = {}  # keeps the expression
        self.expressions: dict[str, Expression] = {}
        self._names: dict[int, str] = {}

    def kind(self, expression: Expression) -> int:
        """A number that two expressions have in common if they are the same arithmetic."""
        stack = [expression]
        while stack:
            at = stack[-1]
            if id(at) in self._known:
                stack.pop()
                continue
            inside = [
                a for a in at.arguments if isinstance(a, Expression) and id(a) not in self._known
            ]
            if inside:
                stack.extend(inside)
                continue
            stack.pop()
            parts = tuple(
                self._known[id(a)][0] if isinstance(a, Expression) else (type(a).__name__, repr(a))
                for a in at.arguments
            )
            number = self._kinds.setdefault((at.function, parts), len(self._kinds))
            self._known[id(at)] = number, at
        return self._known[id(expression)][0]

    def name(self, expression: Expression) -> str:
        """The expression's name, given at its first use."""
        kind = self.kind(expression)
        if kind not in self._names:
            self._names[kind] = f"at.{len(self._names)}"
            self.expressions[self._names[kind]] = expression
        return self._names[kind]


@dataclass(frozen=True)
class At:
    """Training step `step` of `steps`, as the traced code gets it: a namespace of its numbers."""

    steps: KnownSteps
    step: int
    names: Names
    functions: Functions | None
    fixed: bool = False  # a trace has the plain numbers

    def plain(self) -> SimpleNamespace:
        """The numbers themselves: for a step by torch."""
        return SimpleNamespace(**self.steps.sources(self.step), **self.steps.constants)

    def recorded(self) -> tuple[SimpleNamespace, NumberRecord]:
        """Recorded numbers, and the record of their uses: for a trace."""
        record = _StepRecord(self.steps.refused)
        found = self.steps.sources(self.step)
        # Of the plain ones too, what no program can read is refused at its use.
        seen = set(self.steps.refused) if self.fixed else set(found)
        numbers = {k: record.source(k, v) if k in seen else v for k, v in found.items()}
        return SimpleNamespace(**numbers, **self.steps.constants), record
