"""Declarations of operators, one each: the operator's meaning to the layers above.

A declaration has a name (ATen's, with the overload unless it is `default`), a clause, operands,
typed attributes with their defaults, a type rule, and the operator's treatment by the contracts. It
decorates its type rule in `numerics/operators/<family>.py` and knows no kernel. Functions that
compute, open or capture the operator are attached to its name (`attachments.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from operator import index
from typing import Any

import numpy as np

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.numerics.attachments import Attachments
from tallystick.numerics.types import DTYPE_NAMES, Attrs, AttrValue, TensorType
from tallystick.numerics.values.forms import Form, form_of
from tallystick.numerics.values.positions import Part

InTypes = tuple[TensorType | None, ...]
# The types of the outputs, by operator name, attributes, and operand types; raises UsageError.
TypeRule = Callable[[str, Attrs, InTypes], tuple[TensorType, ...]]
# A default that depends on operands; None where they have none.
Default = Callable[[Attrs, InTypes], AttrValue | None]

CLASSES = (
    "dot", "reduction", "scatter", "elementwise", "fold", "move", "composite", "random",
    "optimizer",
)  # fmt: skip
# Classes whose results are `ordered/1`'s under every contract, so that no log has them (14.9).
_UNLOGGED = ("move", "fold")
# How R(v*) makes an element of a rounded operator (NUMERICS 13.3): by itself, or by a division.
SUM, DIVIDED = "sum", "divided"


@dataclass(frozen=True)
class AttrSpec:
    """An attribute. kind: int, float, bool, str, ints, bools, dtype.

    A program writes every attribute out, except one that is not `required`: its absence has a
    meaning. `evaluate` fills in `default` for a person (ATen's, or torch.optim's). With None a
    person must choose.
    """

    kind: str
    default: AttrValue | Default | None = None
    required: bool = True


@dataclass(frozen=True)
class OpSpec:
    """The declaration of one operator.

    `clause` names the clause, or clauses, of spec/NUMERICS.md that define it, as "6.7, 6.9".
    `operands` are names in order; "w?" may be absent, and a last "x*" stands for any number.
    `rounded` is SUM or DIVIDED where the rounded contracts make its f32 elements of R(v*) (13.1).
    `is_exact` says that binary32 holds its result exactly, so that no stock kernel rounds it
    (14.9). `uncaptured` says why no module's capture yields it. `only_under` names the contracts
    that define it; without a name all do. `forms` are the values of an
    operator whose output element needs one element of each operand; `terms` those of a term, where
    an operator is a sum. `parts` are the quantities of a composite's outputs, by the first
    operand's dtype; the attribute `masked_by`, if one is named, leaves some of them out.
    """

    name: str
    types: TypeRule = field(repr=False)
    clause: str
    operands: tuple[str, ...]
    op_class: str
    attrs: dict[str, AttrSpec] = field(default_factory=dict)
    rounded: str = ""
    is_exact: bool = False
    is_random: bool = False
    uncaptured: str = ""
    only_under: tuple[str, ...] = ()
    forms: tuple[Form, ...] = field(default=(), repr=False)
    terms: tuple[Form, ...] = field(default=(), repr=False)
    parts: Mapping[str, tuple[Part, ...]] = field(default_factory=dict, repr=False)
    masked_by: str = ""

    def form(self, attrs: Attrs, dtypes: Sequence[str | None]) -> Form | None:
        """The form of a call with operands of `dtypes` (None: absent); None without one."""
        return form_of(self.forms, dtypes, attrs)

    def is_under(self, contract: str) -> bool:
        """True if the contract called so, or with this identifier, has the operator (18.1)."""
        name = contract.partition(";")[0].partition("-draft")[0]
        return not self.only_under or name in self.only_under

    @property
    def is_unlogged(self) -> bool:
        """True if no contract's log covers the f32 results: they have no freedom (14.9)."""
        return self.op_class in _UNLOGGED

    def infer(self, attrs: Attrs, inputs: InTypes) -> tuple[TensorType, ...]:
        """The types of the outputs. Raises UsageError for operands or attributes that do not fit.

        The attributes are complete and of their kinds.
        """
        self._check_operands(inputs)
        return self.types(self.name, attrs, inputs)

    def _check_operands(self, inputs: InTypes) -> None:
        names = self.operands
        needed = [i for i, name in enumerate(names) if name[-1] not in "?*"]
        fits = all(i < len(inputs) and inputs[i] is not None for i in needed)
        if names and names[-1].endswith("*"):
            fits &= None not in inputs[len(names) - 1 :]
        else:
            fits &= len(inputs) <= len(names)
        if not fits:
            given = ", ".join("none" if t is None else str(t) for t in inputs) or "none"
            raise UsageError(
                f"{self.name}: takes operands ({', '.join(names)}), got {given}.",
                "A ? marks one that may be absent, a * any number of them.",
            )


def _declared(name: str, types: TypeRule, **facts: object) -> OpSpec:
    spec = OpSpec(name, types, **facts)  # type: ignore[arg-type]
    if spec.op_class not in CLASSES:
        raise ValueError(f"operator {name} has class {spec.op_class}")
    return spec


# @operator(names, clause=, operands=, op_class=, ...) above a type rule declares operators.
operator: Attachments[OpSpec] = Attachments(
    "declaration", "tallystick.numerics.operators.*", _declared
)


def lookup(name: str, contract: str = "ordered/1") -> OpSpec:
    """The operator called `name` of a contract. Raises UnsupportedOperatorError."""
    spec = operator.get(name)
    if spec is None or not spec.is_under(contract):
        raise UnsupportedOperatorError(
            f"Operator {name!r} is not defined by contract {contract}.",
            f"Use {' or '.join(spec.only_under)}."
            if spec
            else "See spec/NUMERICS.md for the operators there are.",
        )
    return spec


def all_ops() -> dict[str, OpSpec]:
    """Every operator by name."""
    return dict(operator.load())


@cache
def rounded_operators() -> frozenset[str]:
    """The operators whose elements are true values rounded once (NUMERICS 13.1).

    Sums and means are among them on f32 only.
    """
    return frozenset(name for name, spec in operator.items() if spec.rounded)


@cache
def dot_operators() -> frozenset[str]:
    """The operators of the dot class (NUMERICS 2)."""
    return frozenset(name for name, spec in operator.items() if spec.op_class == "dot")


@cache
def summed_operators() -> frozenset[str]:
    """The rounded operators whose published elements are bounded by their exact sum (14.10).

    A mean is not among them: its division makes another number of the sum.
    """
    return frozenset(name for name, spec in operator.items() if spec.rounded == SUM)


def check_attrs(spec: OpSpec, attrs: Attrs) -> None:
    """Raise UsageError unless every required attribute is present and all are known and typed."""
    kinds: dict[str, Callable[[object], bool]] = {
        "int": lambda v: isinstance(v, int) and not isinstance(v, bool),
        "float": lambda v: isinstance(v, float),
        "bool": lambda v: isinstance(v, bool),
        "str": lambda v: isinstance(v, str),
        "dtype": lambda v: isinstance(v, str),
        "ints": lambda v: (
            isinstance(v, tuple) and all(isinstance(x, int) and not isinstance(x, bool) for x in v)
        ),
        "bools": lambda v: isinstance(v, tuple) and all(isinstance(x, bool) for x in v),
    }
    for name, rule in spec.attrs.items():
        if name not in attrs:
            if rule.required:
                raise UsageError(f"{spec.name}: attribute {name!r} is missing.")
            continue
        if not kinds[rule.kind](attrs[name]):
            raise UsageError(
                f"{spec.name}: attribute {name!r} must be {rule.kind}, got {attrs[name]!r}."
            )
    unknown = sorted(set(attrs) - set(spec.attrs))
    if unknown:
        raise UsageError(f"{spec.name}: unknown attribute {unknown[0]!r}.")


# --- attributes, from a person's form to the form in programs (NUMERICS 1.9) ----------------------
def _whole(value: object) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError
    return index(value)  # type: ignore[arg-type]


def _converted(kind: str, value: Any) -> AttrValue:
    """`value` as an attribute of this kind; TypeError or ValueError if it is not one."""
    if kind == "int":
        return _whole(value)
    if kind == "float":
        if isinstance(value, (bool, np.bool_, str)):
            raise TypeError
        number = float(value)
        if isinstance(value, (int, np.integer)) and int(number) != int(value):
            raise ValueError  # 1.9: an integer scalar must survive RN64 to mean what was written
        return number
    if kind == "bool":
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError
        return bool(value)
    if kind == "ints":
        many = value if isinstance(value, (tuple, list, np.ndarray)) else (value,)
        return tuple(_whole(v) for v in many)
    if kind == "bools":
        return tuple(_converted("bool", v) is True for v in value)
    if kind == "dtype" and not isinstance(value, str):
        return DTYPE_NAMES[np.dtype(value)]
    if kind == "dtype" and value not in DTYPE_NAMES.values():
        return DTYPE_NAMES[np.dtype(value)]
    if not isinstance(value, str):
        raise TypeError
    return value


def _attribute(op: str, name: str, rule: AttrSpec, value: object) -> AttrValue:
    try:
        return _converted(rule.kind, value)
    except (TypeError, ValueError, KeyError, OverflowError):
        raise UsageError(f"{op}: attribute {name!r} must be {rule.kind}, got {value!r}.") from None


def complete_attrs(
    spec: OpSpec, given: Mapping[str, object], inputs: tuple[TensorType | None, ...]
) -> Attrs:
    """Every attribute of `spec`: the given ones, converted to their kinds, and defaults.

    Raises UsageError for an attribute that is unknown, missing, or not of its kind. None stands for
    "not given".
    """
    unknown = sorted(set(given) - set(spec.attrs))
    if unknown:
        known = ", ".join(sorted(spec.attrs)) or "none"
        raise UsageError(f"{spec.name}: unknown attribute {unknown[0]!r}; known: {known}.")
    attrs: Attrs = {}
    for name, rule in spec.attrs.items():
        value = given.get(name)
        if value is not None:
            attrs[name] = _attribute(spec.name, name, rule, value)
        else:
            fallback = rule.default(attrs, inputs) if callable(rule.default) else rule.default
            if fallback is not None:
                attrs[name] = fallback
    missing = [name for name, rule in spec.attrs.items() if rule.required and name not in attrs]
    if missing:
        raise UsageError(f"{spec.name}: attribute {missing[0]!r} is missing.")
    return attrs
