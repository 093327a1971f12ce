"""Optimizers that are several nodes: recognised, number for number (PROGRAM 8.3 to 8.9).

Their numbers are read from where the rule has them. Then the rule is written again with these
numbers, by the code that writes it into jobs, and compared node by node. So a program that merely
looks like one of them does not get its name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import fields

from tallystick.errors import UsageError
from tallystick.job.words.layers import OPTIMIZER, PARAMETER, Options, ParameterRule, StepGraph
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import SCALAR_PREFIX, Node, Value
from tallystick.program.optimizers import (
    LAMB,
    Adafactor,
    Adagrad,
    Lion,
    Muon,
    Optimizer,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.update import family_of
from tallystick.program.update_base import Given

_RATE = "lr"
# What the program does not have: rates are scalars, and these words say the decay as it is.
_UNSAID = ("lr", "no_decay", "decay_min_ndim")


class _Reading:
    """The nodes of one parameter's update, by which a rule's numbers are read."""

    def __init__(self, graph: StepGraph, name: str) -> None:
        self.graph, self.name = graph, name

    def slot(self, kind: str) -> Node | None:
        """The node that makes the next value of a slot."""
        return self.graph.node(self.graph.next(f"{OPTIMIZER}{kind}.{self.name}"))

    @property
    def last(self) -> Node | None:
        """The node that makes the next parameter."""
        return self.graph.node(self.graph.next(f"{PARAMETER}{self.name}"))

    def behind(self, node: Node | None, *places: int) -> Node | None:
        """The node behind an operand, and so on."""
        for place in places:
            if node is None or place >= len(node.inputs):
                return None
            node = self.graph.node(node.inputs[place])
        return node

    def number(self, node: Node | None, name: str, default: float = math.nan) -> float:
        value = None if node is None else node.attrs.get(name)
        return value if isinstance(value, float) else default

    def decay(self, node: Node | None) -> float:
        """The weight of the parameter in a sum with it, 0 where the node is no such sum."""
        is_sum = node is not None and node.op == "aten.add.Tensor"
        if not is_sum or self.graph.input(node.inputs[1]) != f"{PARAMETER}{self.name}":  # type: ignore[union-attr]
            return 0.0
        return self.number(node, "alpha")


# -- the numbers of each rule ----------------------------------------------------------------------
def _rmsprop(r: _Reading, kinds: tuple[str, ...]) -> Iterator[Optimizer]:
    yield RMSprop(
        0.0,
        alpha=r.number(r.slot("v"), "alpha"),
        eps=r.number(r.behind(r.last, 1, 1), "other"),
        weight_decay=r.decay(r.behind(r.last, 1, 0)),
        momentum=r.number(r.last, "momentum"),
        centered="avg" in kinds,
    )


def _adagrad(r: _Reading, _: tuple[str, ...]) -> Iterator[Optimizer]:
    eps, decay = r.number(r.behind(r.last, 1, 1), "other"), r.decay(r.behind(r.last, 1, 0))
    yield Adagrad(0.0, eps=eps, weight_decay=decay)


def _lion(r: _Reading, _: tuple[str, ...]) -> Iterator[Optimizer]:
    step = r.behind(r.last, 1)
    decay = r.decay(step)
    step = r.behind(step, 0) if decay else step
    betas = r.number(r.behind(step, 0, 0, 0), "alpha"), r.number(r.slot("m"), "alpha")
    yield Lion(0.0, betas=betas, weight_decay=decay)


def _lamb(r: _Reading, _: tuple[str, ...]) -> Iterator[Optimizer]:
    adam = r.slot("m")
    decay, trust = r.decay(r.behind(r.last, 1)), r.behind(r.last, 4)
    numbers = [r.number(adam, name) for name in ("beta1", "beta2", "eps")]
    most = r.number(trust, "max") if trust is not None and trust.op == "aten.clamp" else None
    for corrected in (True, False):
        yield LAMB(
            0.0,
            betas=(numbers[0], numbers[1]),
            eps=numbers[2],
            weight_decay=decay,
            bias_correction=corrected,
            max_trust=most,
            always_adapt=trust is not None,
        )


def _muon(r: _Reading, _: tuple[str, ...]) -> Iterator[Optimizer]:
    step = r.behind(r.last, 1)
    decay = r.decay(step)
    orthogonal = r.behind(r.behind(step, 0) if decay else step, 0)
    rows, columns = r.graph.program.state_types[f"{PARAMETER}{r.name}"].shape
    at = r.behind(orthogonal, 0) if rows > columns else orthogonal
    outer, mixed, steps = at, r.behind(at, 1), 0
    while at is not None and at.op == "aten.addmm" and steps < 100:
        at, steps = r.behind(at, 0), steps + 1
    start = r.behind(at, 0) if rows > columns else at
    coefficients = (
        r.number(outer, "beta"), r.number(mixed, "beta"), r.number(mixed, "alpha"),
    )  # fmt: skip
    eps, nesterov = r.number(r.behind(start, 1), "min"), r.behind(start, 0)
    part = r.number(r.slot("buf"), "alpha")
    for momentum, is_nesterov in ((r.number(nesterov, "alpha"), True), (1.0 - part, False)):
        for adjusted in ("original", "match_rms_adamw"):
            if 0.0 <= momentum < 1.0:
                yield Muon(
                    0.0, decay, momentum, is_nesterov, coefficients, eps, steps, adjusted
                )  # fmt: skip


def _decayed(r: _Reading) -> float:
    """The decay that a step before the last one takes from the parameter (PROGRAM 8.7, 8.8)."""
    return r.number(r.behind(r.last, 0, 1), "other", 0.0)


def _adafactor(r: _Reading, kinds: tuple[str, ...]) -> Iterator[Optimizer]:
    factor, root = r.behind(r.last, 4), r.behind(r.last, 1, 0, 0)
    least = r.number(root, "min")
    eps = math.sqrt(least) if least >= 0 else math.nan
    if "row" in kinds:
        eps = r.number(r.behind(root, 0, 1), "min")
    yield Adafactor(
        0.0,
        eps=(eps, r.number(r.behind(factor, 0), "min")),
        d=r.number(r.behind(factor, 1, 0), "other"),
        weight_decay=_decayed(r),
    )


def _transformers(r: _Reading, kinds: tuple[str, ...]) -> Iterator[Optimizer]:
    beta1 = None
    factor, decay, last = r.behind(r.last, 4), _decayed(r), r.last
    if "m" in kinds:
        m = r.slot("m")
        beta1, factor = r.number(m, "alpha"), r.behind(m, 0, 0, 1, 0)
        decay = r.number(r.behind(last, 0, 1), "other", 0.0)
    averages = r.slot("row" if "row" in kinds else "v")
    squares = r.behind(averages, 1, 1, 0) if "row" in kinds else r.behind(averages, 1, 1)
    scale = r.behind(factor, 0)
    scaled = scale is not None and scale.op == "aten.clamp"
    yield TransformersAdafactor(
        0.0,
        eps=(r.number(squares, "other"), r.number(scale, "min") if scaled else 1e-3),
        clip_threshold=r.number(r.behind(factor, 1, 0), "other"),
        beta1=beta1,
        weight_decay=decay,
        scale_parameter=scaled,
        relative_step=False,
    )


_Guess = Callable[[_Reading, tuple[str, ...]], Iterator[Optimizer]]
# By the slots of a parameter: the rules that have such ones.
_GUESSES: dict[tuple[str, ...], tuple[_Guess, ...]] = {
    ("v",): (_rmsprop, _adafactor, _transformers),
    ("buf", "v"): (_rmsprop,),
    ("avg", "v"): (_rmsprop,),
    ("avg", "buf", "v"): (_rmsprop,),
    ("sum",): (_adagrad,),
    ("m",): (_lion,),
    ("m", "v"): (_lamb, _transformers),
    ("buf",): (_muon,),
    ("col", "row"): (_adafactor, _transformers),
    ("col", "m", "row"): (_transformers,),
}
_NAMES: dict[type, str] = {
    Adafactor: "Adafactor (torch's)",
    TransformersAdafactor: "Adafactor (transformers')",
}


# -- the comparison --------------------------------------------------------------------------------
def several_nodes(graph: StepGraph, name: str) -> ParameterRule | None:
    """The rule of a parameter among those of several nodes; None for another rule."""
    kinds = tuple(sorted(graph.kinds(name)))
    for guess in _GUESSES.get(kinds, ()):
        try:
            for optimizer in guess(_Reading(graph, name), kinds):
                for clipped in (True, False):
                    found = _Comparison(graph, name, optimizer, clipped).rule()
                    if found is not None:
                        return found
        except (UsageError, ValueError):
            continue  # no number of such a rule: the program is another one
    return None


class _Comparison:
    """A rule written for one parameter, and held against the nodes of the program.

    The gradient, its coefficient, the powers of betas and the scalars stand for whatever the
    program has in their place, each for one value throughout.
    """

    def __init__(self, graph: StepGraph, name: str, optimizer: Optimizer, clipped: bool) -> None:
        self.graph, self.name, self.optimizer = graph, name, optimizer
        family, types = family_of(optimizer), graph.program.state_types
        type_ = types[f"{PARAMETER}{name}"]
        b = self.builder = Builder(graph.program.contract)
        slots = {f"{PARAMETER}{name}": type_}
        slots |= {s: rule.type for s, rule in family.slots(optimizer, name, type_).items()}
        state = {slot: b.state(slot, type_) for slot, type_ in slots.items()}
        self.gradient = b.batch("gradient", type_)
        self.coefficient = b.batch("coefficient", TensorType("f32", ())) if clipped else None
        powers = []
        if family.powers(optimizer):
            powers = [b.batch(f"power{n}", TensorType("f64", ())) for n in (1, 2)]
        self.powers = powers
        scalars = {scalar: b.scalar(scalar) for scalar in family.scalars(optimizer)}
        self.slots = {value: slot for slot, value in state.items()}
        self.scalars = {value: scalar for scalar, value in scalars.items()}
        self.stands: dict[Value, Value] = {}
        self.written = family.emit(
            optimizer, name, self.gradient, Given(b, state, scalars, self.coefficient, powers)
        )

    def rule(self) -> ParameterRule | None:
        """The rule with its numbers, None where the program's nodes are others."""
        pairs = ((new, self.graph.next(slot)) for slot, new in self.written.items())
        if not all(self._is(new, theirs) for new, theirs in pairs) or not self._fits():
            return None
        scalars = [
            self.graph.input(self.stands[value])[len(SCALAR_PREFIX) :]
            for value in sorted(self.scalars, key=lambda v: self.scalars[v] != _RATE)
            if value in self.stands
        ]
        kind = _NAMES.get(type(self.optimizer), type(self.optimizer).__name__)
        return ParameterRule(
            kind,
            self._options(),
            tuple(scalars),
            self.stands.get(self.gradient),
            None if self.coefficient is None else self.stands.get(self.coefficient),
        )

    def _fits(self) -> bool:
        """Whether the coefficient and the powers of betas are what the rule takes them for."""
        betas = getattr(self.optimizer, "betas", ())
        powers = (self.stands.get(power) for power in self.powers)
        if self.coefficient is not None and self.coefficient not in self.stands:
            return False
        coefficient = None if self.coefficient is None else self.stands[self.coefficient]
        return self.graph.clips(coefficient, self.stands.get(self.gradient)) and all(
            map(self.graph.is_power, powers, betas)
        )

    def _options(self) -> Options:
        """The numbers of the rule, decay included: pairs and triples get numbers of their own."""
        found: list[tuple[str, float | bool]] = []
        for field in fields(self.optimizer):
            value = getattr(self.optimizer, field.name)
            if field.name in _UNSAID or field.name in _IN_TABLES or value is None:
                continue
            if isinstance(value, tuple):
                one = _ONE.get(field.name, field.name)
                found += [(f"{one}{n}", float(v)) for n, v in enumerate(value, 1)]
            elif isinstance(value, (bool, float)):
                found.append((field.name, value))
            elif isinstance(value, int):
                found.append((field.name, float(value)))
        return tuple(found)

    def _is(self, ours: Value, theirs: Value) -> bool:
        """Whether a value of the rule is a value of the program."""
        if ours in self.stands:
            return self.stands[ours] == theirs
        if ours.is_input:
            if ours in self.slots:
                fits = self.graph.input(theirs) == self.slots[ours]
            elif ours in self.scalars:
                fits = self.graph.input(theirs).startswith(SCALAR_PREFIX)
            else:
                fits = self.builder.type_of(ours) == self.graph.program.type_of(theirs)
        else:
            made, node = self.builder.node_of(ours), self.graph.node(theirs)
            fits = (
                made is not None
                and node is not None
                and (made.op, made.attrs, ours.out) == (node.op, node.attrs, theirs.out)
                and len(made.inputs) == len(node.inputs)
                and all(map(self._pair, made.inputs, node.inputs))
            )
        if fits:
            self.stands[ours] = theirs
        return fits

    def _pair(self, ours: Value | None, theirs: Value | None) -> bool:
        if ours is None or theirs is None:
            return ours is theirs
        return self._is(ours, theirs)


_ONE = {"betas": "beta", "ns_coefficients": "ns_coefficient"}
# Options whose numbers stand in the job's tables, or nowhere in its program.
_IN_TABLES = (
    "lr_decay", "initial_accumulator_value", "beta2_decay", "decay_rate", "relative_step",
    "warmup_init",
)  # fmt: skip
