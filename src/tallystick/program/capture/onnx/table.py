"""The table of operators: which versions a rule covers, and how it takes its inputs.

    @rule("Add 7-14", "Sub 7-14", folds=True)
    def _add(c: Call) -> Tensor: ...

"7-14" are the operator's own versions, as the standard's changelog numbers them. A file's operator
of another version is refused by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tallystick.numerics.attachments import Attachments

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rule:
    """What an operator means, and which of its inputs are more than tensors (by position).

    `static`: they fix shapes or the form of the program, so they are known before any data.
    `settings`: an initializer that only serves there is a constant of the file and no weight.
    `statistics`: an initializer there is a buffer. `folds`: of known inputs it makes known outputs,
    once. `of_shape`: its outputs depend on its inputs' shapes alone.
    """

    run: Callable[..., Any]
    first: int
    last: int
    static: tuple[int, ...] = ()
    settings: tuple[int, ...] = ()
    statistics: tuple[int, ...] = ()
    folds: bool = False
    of_shape: bool = False

    def covers(self, version: int) -> bool:
        return self.first <= version <= self.last


def _entry(name: str, run: Callable[..., Any], first: int, last: int, **marks: Any) -> Rule:
    return Rule(run, first, last, **marks)


rules: Attachments[Rule] = Attachments("ONNX rule", "tallystick.program.capture.onnx.ops_*", _entry)


def rule(*operators: str, named: bool = False, **marks: Any) -> Callable[[F], F]:
    """Attach a function to operators, each written as "Name FIRST-LAST".

    A `named` function serves several operators and gets the name as its first argument.
    """

    def attach(function: F) -> F:
        for operator in operators:
            name, versions = operator.split()
            first, _, last = versions.partition("-")
            covered = {"first": int(first), "last": int(last or first)}
            rules(name, named=named, **covered, **marks)(function)
        return function

    return attach
