"""The optimizer of a job, by the operators that make its next parameters (NUMERICS 11, PROGRAM 8).

A rule has its name only where the program's nodes are that rule, number for number. Of another one
these words say the operators. That the gradient which it reads is the loss's is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tallystick.commit.timetable import Timetable
from tallystick.job.words.layers import AVERAGE, PARAMETER
from tallystick.job.words.parts import UpdateWords
from tallystick.program.ir import BATCH_PREFIX, SCALAR_PREFIX, Node, Program, Value

Options = tuple[tuple[str, float | bool], ...]
STEPS = {
    "tallystick.adam_step": "Adam",
    "tallystick.adamw_step": "AdamW",
    "tallystick.sgd_step": "SGD",
}
_CLIP, _CLAMP = "tallystick.clip_coef", "aten.clamp"
# Of a rule that is not known, the nodes behind a parameter that are looked at.
_MOST = 64


class StepGraph:
    """A program's nodes by the values that they make."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def node(self, value: Value | None) -> Node | None:
        """The node that makes a value; None for an input."""
        if value is None or value.is_input:
            return None
        return self.program.nodes[value.node]

    def input(self, value: Value | None) -> str:
        """The name of the input that a value is, "" for another value."""
        return self.program.inputs[value.out].name if value is not None and value.is_input else ""

    def next(self, slot: str) -> Value:
        return self.program.next_state[slot]

    def kinds(self, name: str) -> tuple[str, ...]:
        """The slots `opt.KIND.NAME` of a parameter, by their kinds."""
        found = (s.removesuffix(f".{name}") for s in self.program.state_types if s.startswith(_OPT))
        kinds = (s[len(_OPT) :] for s in found)
        return tuple(k for k in kinds if f"{_OPT}{k}.{name}" in self.program.state_types)


_OPT = "opt."


@dataclass(frozen=True)
class ParameterRule:
    """What an update is, for one parameter: parameters of one rule are said together."""

    kind: str | None
    options: Options
    scalars: tuple[str, ...]
    gradient: Value | None = None
    coefficient: Value | None = None
    operators: tuple[str, ...] = ()
    slots: tuple[str, ...] = ()


# -- one node (NUMERICS 11.2 to 11.4) --------------------------------------------------------------
def _one_node(graph: StepGraph, name: str, node: Node) -> ParameterRule | None:
    """Adam, AdamW or SGD: the parameter and its moments are the outputs of one node."""
    kind, inputs = STEPS.get(node.op), node.inputs
    if kind is None or graph.input(inputs[0]) != f"{PARAMETER}{name}":
        return None
    made = graph.next(f"{PARAMETER}{name}")
    owned: tuple[str, ...]
    if kind == "SGD":
        owned, rate, coefficient = (("buf",) if inputs[2] else ()), inputs[3], inputs[4]
    else:
        owned, rate, coefficient = ("m", "v"), inputs[4], inputs[7]
    places = zip(owned, inputs[2:], range(1, 3), strict=False)
    is_whole = graph.kinds(name) == owned and all(
        graph.input(value) == f"{_OPT}{k}.{name}"
        and graph.next(f"{_OPT}{k}.{name}") == Value(made.node, out)
        for k, value, out in places
    )
    scalar = graph.input(rate)
    if made.out or not is_whole or not scalar.startswith(SCALAR_PREFIX):
        return None
    scalars = (scalar[len(SCALAR_PREFIX) :],)
    return ParameterRule(kind, _options(node), scalars, inputs[1], coefficient)


def _options(node: Node) -> Options:
    return tuple((k, v) for k, v in node.attrs.items() if isinstance(v, (bool, float)))


# -- any rule --------------------------------------------------------------------------------------
def _unknown(graph: StepGraph, name: str, value: Value) -> ParameterRule:
    """The last operators of a rule without a name, up to those that read the batch."""
    seen, waiting, operators, scalars = set[Value](), [value], set[str](), set[str]()
    while waiting and len(seen) < _MOST:
        at = waiting.pop(0)
        node = graph.node(at)
        if at in seen:
            continue
        seen.add(at)
        if node is None:
            if graph.input(at).startswith(SCALAR_PREFIX):
                scalars.add(graph.input(at)[len(SCALAR_PREFIX) :])
            continue
        if any(graph.input(v).startswith(BATCH_PREFIX) for v in node.inputs):
            continue
        operators.add(node.op)
        waiting += [v for v in node.inputs if v is not None]
    return ParameterRule(
        None,
        (),
        tuple(sorted(scalars)),
        operators=tuple(sorted(operators)),
        slots=graph.kinds(name),
    )


def rule_of(graph: StepGraph, name: str) -> ParameterRule:
    """The rule by which a program makes the next value of a parameter."""
    value = graph.next(f"{PARAMETER}{name}")
    node = graph.node(value)
    found = _one_node(graph, name, node) if node is not None else None
    return found or _unknown(graph, name, value)


def _clipping(graph: StepGraph, rule: ParameterRule) -> tuple[float | None, float | None]:
    """The bounds of the gradients' norm, and of their elements (NUMERICS 11.6)."""
    norm = value = None
    by_norm = graph.node(rule.coefficient)
    if by_norm is not None and by_norm.op == _CLIP:
        norm = float(by_norm.attrs["max_norm"])  # type: ignore[arg-type]
    clamp = graph.node(rule.gradient)
    if clamp is not None and clamp.op == _CLAMP:
        low, high = clamp.attrs.get("min"), clamp.attrs.get("max")
        if isinstance(low, float) and isinstance(high, float) and low == -high:
            value = high
    return norm, value


# -- a whole job -----------------------------------------------------------------------------------
def updates_of(
    programs: Sequence[Program], timetable: Timetable, changed: set[str]
) -> tuple[UpdateWords, ...]:
    """The rules of a job's programs, each with the parameters that follow it."""
    merged: dict[UpdateWords, list[str]] = {}
    for program, entry in zip(programs, timetable.programs, strict=True):
        own = changed & set(program.next_state)
        for update in _updates(program, own):
            merged.setdefault(update, []).append(entry.name)
    return tuple(
        UpdateWords(**{**vars(update), "programs": tuple(names)})
        for update, names in merged.items()
    )


def _updates(program: Program, changed: set[str]) -> Iterator[UpdateWords]:
    graph, members = StepGraph(program), dict[UpdateWords, list[str]]()
    for slot in sorted(changed):
        if not slot.startswith(PARAMETER) or graph.input(graph.next(slot)) == slot:
            continue
        rule = rule_of(graph, slot[len(PARAMETER) :])
        norm, value = _clipping(graph, rule)
        said = UpdateWords(
            (), rule.kind, rule.options, rule.scalars, (), norm, value, rule.operators, rule.slots
        )
        members.setdefault(said, []).append(slot[len(PARAMETER) :])
    for said, names in members.items():
        yield UpdateWords(**{**vars(said), "parameters": tuple(names)})


def averaged(state: Mapping[str, object]) -> tuple[str, ...]:
    """The parameters that have slots `ema.NAME` beside them (PROGRAM 8.10)."""
    names = (slot[len(AVERAGE) :] for slot in state if slot.startswith(AVERAGE))
    return tuple(n for n in names if f"{PARAMETER}{n}" in state)
