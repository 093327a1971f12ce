"""The operator registry: the one table of what each operator means to the layers above.

An operator is a name (ATen's, with the overload unless it is `default`), typed attributes, a
shape rule, and either a kernel that fills preallocated outputs or a view that moves no data.
Each family registers its operators from `numerics/ops/<family>.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.numerics.types import Attrs, TensorType

InTypes = tuple[TensorType | None, ...]
Infer = Callable[[Attrs, InTypes], tuple[TensorType, ...]]
# Inputs (None where an optional one is absent) and preallocated C-contiguous outputs.
Run = Callable[[Attrs, Sequence[np.ndarray | None], Sequence[np.ndarray]], None]
View = Callable[[Attrs, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class AttrSpec:
    """kind: int, float, bool, str, ints, bools, dtype. A missing attribute without a default
    is an error; defaults are written out in canonical text, so none is implicit."""

    kind: str
    required: bool = True


@dataclass(frozen=True)
class OpSpec:
    """One operator of a contract.

    `run` fills the outputs; `view` (instead of `run`) returns a view or, where numpy cannot
    give one, a copy. `strided_inputs` are the input positions a kernel accepts with any
    strides; all others are made C-contiguous by the executor. `inplace` lists
    (input, output) pairs that may share storage. `clause` names the clause, or clauses, of
    spec/NUMERICS.md that define it, as "6.7, 6.9".
    """

    name: str
    clause: str
    attrs: dict[str, AttrSpec]
    infer: Infer
    run: Run | None = None
    view: View | None = None
    strided_inputs: frozenset[int] = frozenset()
    all_inputs_strided: bool = False
    inplace: tuple[tuple[int, int], ...] = ()
    is_random: bool = False
    # "dot", "reduction", "scatter", "elementwise", "move", "composite", "random", "optimizer"
    op_class: str = "elementwise"


_REGISTRY: dict[str, OpSpec] = {}


def register(spec: OpSpec) -> OpSpec:
    """Add an operator; a second registration of one name is a programming error."""
    if spec.name in _REGISTRY:
        raise ValueError(f"operator {spec.name} registered twice")
    if (spec.run is None) == (spec.view is None):
        raise ValueError(f"operator {spec.name} needs exactly one of run and view")
    _REGISTRY[spec.name] = spec
    return spec


def _load_families() -> None:
    # Imported here, not at the top: the families import this module to register themselves.
    from tallystick.numerics import ops  # noqa: F401


def lookup(name: str, contract: str = "ordered/1") -> OpSpec:
    """The operator called `name`; `contract` is for the message where there is none.

    All contracts of this build have the same operators. Raises UnsupportedOperatorError.
    """
    _load_families()
    spec = _REGISTRY.get(name)
    if spec is None:
        raise UnsupportedOperatorError(
            f"Operator {name!r} is not defined by contract {contract}.",
            "See spec/NUMERICS.md for the operators there are.",
        )
    return spec


def all_ops() -> dict[str, OpSpec]:
    """Every registered operator by name."""
    _load_families()
    return dict(_REGISTRY)


def check_attrs(spec: OpSpec, attrs: Attrs) -> None:
    """Every required attribute present, of its kind, and none unknown. Raises UsageError."""
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
