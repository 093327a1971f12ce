"""Numbers that record what is done with them while a trace runs (PROGRAM 5.19).

A recorded number stands in a place that Python code reads: the number of the step, or a counter in
a closure. Arithmetic on it gives a recorded number again, and leaves no mark. Three uses do leave
one, in the `Record`: a truth that is asked for (`if`, `while`, `and`), a number that goes into a
tensor, and a number that is *pinned*: code that cannot be followed gets it as it is (an index, a
hash, a function in C).

The classes derive from torch's symbolic numbers, since torch's argument parser takes no others in
the place of numbers; a `TorchFunctionMode` then sees them before torch reads them. They call
themselves `int`, `float` and `bool`, for the `isinstance` of the traced code. They are no
subclasses of those: C code would read a subclass without a word.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from tallystick.program.capture.source import here

Number = bool | int | float


@dataclass(frozen=True, eq=False)
class Expression:
    """How a number came about: a source by its name, or a function of numbers and expressions."""

    function: Callable[..., Any] | None
    arguments: tuple[Any, ...]

    @classmethod
    def source(cls, name: str) -> Expression:
        return cls(None, (name,))

    def value(self, sources: Mapping[str, Number]) -> Any:
        """The number where the sources have these values. Raises what its functions raise."""
        found: dict[int, Any] = {}

        def known(argument: Any) -> Any:
            return found[id(argument)] if isinstance(argument, Expression) else argument

        # A counter is a chain as long as its calls: no recursion.
        stack = [self]
        while stack:
            at = stack[-1]
            if id(at) in found:
                stack.pop()
                continue
            inside = [a for a in at.arguments if isinstance(a, Expression) and id(a) not in found]
            if at.function is not None and inside:
                stack.extend(inside)
                continue
            stack.pop()
            found[id(at)] = (
                sources[at.arguments[0]]
                if at.function is None
                else _pythons(at.function(*(known(a) for a in at.arguments)))
            )
        return found[id(self)]

    def sources(self) -> frozenset[str]:
        """The names of the sources that the number depends on."""
        names, seen, stack = set(), set(), [self]
        while stack:
            at = stack.pop()
            if id(at) in seen:
                continue
            seen.add(id(at))
            if at.function is None:
                names.add(at.arguments[0])
            else:
                stack.extend(a for a in at.arguments if isinstance(a, Expression))
        return frozenset(names)


@dataclass(frozen=True)
class Use:
    """One use of a recorded number that the trace depends on.

    `kind` is "truth", "pin" or "tensor"; `value` what the code got (of a tensor: the number at the
    time of the trace); `place` is ` (file:line)` of the model, or nothing.
    """

    kind: str
    expression: Expression
    value: Any
    place: str


@dataclass
class NumberRecord:
    """The uses of recorded numbers in one trace, in order.

    `answer`, if given, decides what a truth is in the trace: it gets the use with the true value.
    """

    answer: Callable[[Use], bool] | None = None
    uses: list[Use] = field(default_factory=list)

    def truth(self, number: Recorded) -> bool:
        use = Use("truth", number.expression, bool(number.number), here())
        found = use.value if self.answer is None else self.answer(use)
        self.uses.append(Use("truth", use.expression, found, use.place))
        return found

    def pin(self, number: Recorded) -> Any:
        self.uses.append(Use("pin", number.expression, number.number, here()))
        return number.number

    def tensor(self, number: Recorded) -> Use:
        use = Use("tensor", number.expression, number.number, here())
        self.uses.append(use)
        return use

    def number(self, value: Number, expression: Expression) -> Any:
        """`value` as a recorded number."""
        if isinstance(value, bool):
            return RecordedBool(value, expression, self)
        kind = RecordedInt if isinstance(value, int) else RecordedFloat
        return kind(value, expression, self)

    def value(self, value: Any, expression: Expression) -> Any:
        """`value`, a number or any other object, as a recorded one."""
        if isinstance(value, (bool, int, float)) and type(value).__module__ in (
            "builtins",
            "numpy",
        ):
            return self.number(value, expression)
        return RecordedObject(value, expression, self)

    def source(self, name: str, value: Number) -> Any:
        """The recorded number that stands for the source `name`, whose value is `value`."""
        return self.number(value, Expression.source(name))


def is_recorded(value: Any) -> bool:
    """Whether `value` is a recorded number; `isinstance` of int says yes to both."""
    return isinstance(value, Recorded)


def plain(value: Any) -> Any:
    """The number itself, without a mark."""
    return value.number if isinstance(value, Recorded) else value


def _pythons(result: Any) -> Any:
    """A scalar of numpy as Python's number."""
    if isinstance(result, (np.number, np.bool_)):
        return result.item()
    return result


def computed(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` of numbers, recorded where one of them is.

    A result that is no number of Python is given as it is, and its recorded arguments are pinned.
    """
    records = [a.record for a in arguments if isinstance(a, Recorded)]
    if not records:
        return function(*arguments)
    result = function(*(plain(a) for a in arguments))
    if result is NotImplemented:
        return result
    result = _pythons(result)
    if not isinstance(result, (bool, int, float)):
        for argument in arguments:
            if isinstance(argument, Recorded):
                argument.record.pin(argument)
        return result
    forms = tuple(a.expression if isinstance(a, Recorded) else a for a in arguments)
    return records[0].number(result, Expression(function, forms))


def _is_number(value: Any) -> bool:
    return isinstance(value, (Recorded, bool, int, float, np.number, np.bool_))


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def forward(self: Recorded, other: Any) -> Any:
        return computed(function, self, other) if _is_number(other) else NotImplemented

    return forward


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def backward(self: Recorded, other: Any) -> Any:
        return computed(function, other, self) if _is_number(other) else NotImplemented

    return backward


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: computed(function, self)


class Recorded:
    """A number with its expression, whose uses go into `record`."""

    number: Any
    expression: Expression
    record: NumberRecord

    def __init__(self, number: Number, expression: Expression, record: NumberRecord) -> None:
        self.number, self.expression, self.record = number, expression, record

    # -- uses --------------------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return self.record.truth(self)

    def __index__(self) -> int:
        return operator.index(self.record.pin(self))

    def __int__(self) -> int:
        return int(self.record.pin(self))

    def __float__(self) -> float:
        return float(self.record.pin(self))

    def __complex__(self) -> complex:
        return complex(self.record.pin(self))

    def __hash__(self) -> int:
        return hash(self.record.pin(self))

    # -- told, not used: text for people -----------------------------------------------------------
    def __repr__(self) -> str:
        return repr(self.number)

    def __str__(self) -> str:
        return str(self.number)

    def __format__(self, spec: str) -> str:
        return format(self.number, spec)

    # -- the same number ---------------------------------------------------------------------------
    def __copy__(self) -> Recorded:
        return self

    def __deepcopy__(self, memo: Any) -> Recorded:
        return self

    def __reduce__(self) -> Any:
        return type(self.number), (self.record.pin(self),)

    def __round__(self, digits: int | None = None) -> Any:
        return computed(round, self) if digits is None else computed(round, self, digits)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        if not _is_number(other):
            return NotImplemented
        return computed(operator.pow, self, other) if modulus is None else computed(
            pow, self, other, modulus
        )  # fmt: skip

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    # -- numbers of numpy --------------------------------------------------------------------------
    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self.record.pin(self), dtype=dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        if method == "__call__" and not named and all(map(_is_number, inputs)):
            return computed(ufunc, *inputs)
        given = [i.record.pin(i) if isinstance(i, Recorded) else i for i in inputs]
        return getattr(ufunc, method)(*given, **named)


_OPERATORS = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
    "floordiv": operator.floordiv, "mod": operator.mod, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "lshift": operator.lshift, "rshift": operator.rshift,
}  # fmt: skip
for _name, _function in _OPERATORS.items():
    setattr(Recorded, f"__{_name}__", _binary(_function))
    setattr(Recorded, f"__r{_name}__", _reflected(_function))
Recorded.__rpow__ = _reflected(operator.pow)  # type: ignore[attr-defined]
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Recorded, f"__{_name}__", _binary(getattr(operator, _name)))
for _name in ("neg", "pos", "abs", "invert"):
    setattr(Recorded, f"__{_name}__", _unary(getattr(operator, _name)))
for _name in ("floor", "ceil", "trunc"):
    setattr(Recorded, f"__{_name}__", _unary(getattr(math, _name)))


def _calls_itself(kind: type) -> property:
    return property(lambda self: kind)


class Conversion:
    """In the place of `int`, `float` or `bool` in code that calls it: conversion is arithmetic."""

    def __init__(self, kind: type) -> None:
        self.kind, self.dtype = kind, np.dtype(kind)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1 and not named and is_recorded(arguments[0]):
            return computed(self.kind, arguments[0])
        return self.kind(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.kind, name)

    def __instancecheck__(self, value: Any) -> bool:
        return isinstance(value, self.kind)

    def __subclasscheck__(self, kind: type) -> bool:
        return issubclass(kind, self.kind)

    def __eq__(self, other: Any) -> bool:
        return other is self.kind or other is self

    def __hash__(self) -> int:
        return hash(self.kind)

    def __or__(self, other: Any) -> Any:
        return self.kind | other

    def __ror__(self, other: Any) -> Any:
        return other | self.kind


class Indexed(list):  # type: ignore[type-arg]
    """In the place of a list of numbers: what a recorded index finds is recorded.

    What changes it changes the list too.
    """

    def __init__(self, content: list[Any]) -> None:
        super().__init__(content)
        self.content = content

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, RecordedInt):
            return computed(operator.getitem, tuple(self.content), index)
        return super().__getitem__(index)


def _both(name: str) -> Callable[..., Any]:
    def changed(self: Indexed, *arguments: Any, **named: Any) -> Any:
        getattr(self.content, name)(*arguments, **named)
        found = getattr(list, name)(self, *arguments, **named)
        return self if found is self else found

    return changed


for _name in (
    "append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "__setitem__",
    "__delitem__", "__iadd__", "__imul__",
):  # fmt: skip
    setattr(Indexed, _name, _both(_name))


class IndexedArray(np.ndarray):
    """As `Indexed`, of a numpy array of one axis; a view of it."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, RecordedInt) and self.ndim == 1:
            return computed(operator.getitem, tuple(self.tolist()), index)
        return super().__getitem__(index)


class RecordedInt(Recorded, torch.SymInt):
    """In the place of an `int`."""

    __class__ = _calls_itself(int)
    __hash__ = Recorded.__hash__

    @property
    def real(self) -> Any:
        return self

    def bit_length(self) -> Any:
        return computed(int.bit_length, self)

    def is_integer(self) -> bool:
        return True


class RecordedFloat(Recorded, torch.SymFloat):
    """In the place of a `float`."""

    __class__ = _calls_itself(float)
    __hash__ = Recorded.__hash__

    @property
    def real(self) -> Any:
        return self

    def is_integer(self) -> Any:
        return computed(float.is_integer, self)


class RecordedBool(Recorded, torch.SymBool):
    """In the place of a `bool`: what a comparison gives."""

    __class__ = _calls_itself(bool)
    __hash__ = Recorded.__hash__


class RecordedObject(Recorded):
    """In the place of any other object: a string, a tuple, a member of an enumeration."""

    __class__ = property(lambda self: type(self.number))
    __hash__ = Recorded.__hash__

    def __iter__(self) -> Iterator[Any]:
        return iter([self.record.value(part, self.expression) for part in self.number])

    def __len__(self) -> int:
        return len(self.record.pin(self))

    def __contains__(self, part: Any) -> bool:
        return plain(part) in self.record.pin(self)

    def __getitem__(self, key: Any) -> Any:
        return self.record.value(self.number[plain(key)], self.expression)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.record.pin(self)(*arguments, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.record.pin(self), name)


def _is_constant(value: Any) -> bool:
    """Whether `value` is a number, or a list or array of plain ones."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(v, (bool, int, float)) and not is_recorded(v) for v in value)
    return _is_number(value) or isinstance(value, np.ndarray)


def following(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of `FOLLOWED`, recorded where it gets recorded numbers."""

    def followed(*arguments: Any, **named: Any) -> Any:
        if len(arguments) == 1 and not named and isinstance(arguments[0], (list, tuple)):
            arguments = tuple(arguments[0]) if any(map(is_recorded, arguments[0])) else arguments
        if named or not any(map(is_recorded, arguments)) or not all(map(_is_constant, arguments)):
            return function(*arguments, **named)
        return computed(function, *arguments)

    return followed
