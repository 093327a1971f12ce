"""The optimizer of a job, by the operators that make its next parameters (NUMERICS 11, PROGRAM 8).

A rule has its name only where the program's nodes are that rule, number for number. Of another one
these words say the last operator. That the gradient which it reads is the loss's is not looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tallystick.commit.timetable import Timetable
from tallystick.job.words.layers import (
    AVERAGE,
    OPTIMIZER,
    PARAMETER,
    Options,
    ParameterRule,
    StepGraph,
)
from tallystick.job.words.parts import UpdateWords
from tallystick.program.ir import SCALAR_PREFIX, Node, Program, Value

STEPS = {
    "tallystick.adam_step": "Adam",
    "tallystick.adamw_step": "AdamW",
    "tallystick.sgd_step": "SGD",
}
_CLAMP = "aten.clamp"


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
        graph.input(value) == f"{OPTIMIZER}{k}.{name}"
        and graph.next(f"{OPTIMIZER}{k}.{name}") == Value(made.node, out)
        for k, value, out in places
    )
    scalar = graph.input(rate)
    if kind != "SGD":
        betas = node.attrs["beta1"], node.attrs["beta2"]
        is_whole &= all(map(graph.is_power, inputs[5:7], betas))
    is_whole &= graph.clips(coefficient, inputs[1])
    if made.out or not is_whole or not scalar.startswith(SCALAR_PREFIX):
        return None
    scalars = (scalar[len(SCALAR_PREFIX) :],)
    return ParameterRule(kind, _options(node), scalars, inputs[1], coefficient)


def _options(node: Node) -> Options:
    return tuple((k, v) for k, v in node.attrs.items() if isinstance(v, (bool, float)))


# -- any rule --------------------------------------------------------------------------------------
def _unknown(graph: StepGraph, name: str, node: Node | None) -> ParameterRule:
    """A rule without a name: the operator that makes the parameter, and the scalars it reads."""
    read = [] if node is None else [graph.input(value) for value in node.inputs]
    scalars = (r[len(SCALAR_PREFIX) :] for r in read if r.startswith(SCALAR_PREFIX))
    operator = None if node is None else node.op
    return ParameterRule(None, (), tuple(scalars), operator=operator, slots=graph.kinds(name))


def rule_of(graph: StepGraph, name: str) -> ParameterRule:
    """The rule by which a program makes the next value of a parameter."""
    value = graph.next(f"{PARAMETER}{name}")
    node = graph.node(value)
    found = _one_node(graph, name, node) if node is not None else None
    if found is None:
        # Loaded for such rules only, since it brings all optimizers with it.
        from tallystick.job.words.families import several_nodes

        found = several_nodes(graph, name)
    return found or _unknown(graph, name, node)


def _clipping(graph: StepGraph, rule: ParameterRule) -> tuple[float | None, float | None]:
    """The bounds of the gradients' norm, and of their elements (NUMERICS 11.6)."""
    norm = value = None
    by_norm = graph.node(rule.coefficient)
    if by_norm is not None:
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
    return tuple(replace(update, programs=tuple(names)) for update, names in merged.items())


def _updates(program: Program, changed: set[str]) -> Iterator[UpdateWords]:
    graph, members = StepGraph(program), dict[UpdateWords, list[str]]()
    for slot in sorted(changed):
        if not slot.startswith(PARAMETER) or graph.input(graph.next(slot)) == slot:
            continue
        rule = rule_of(graph, slot[len(PARAMETER) :])
        norm, value = _clipping(graph, rule)
        said = UpdateWords(
            (), rule.kind, rule.options, rule.scalars, (), norm, value, rule.operator, rule.slots
        )
        members.setdefault(said, []).append(slot[len(PARAMETER) :])
    for said, names in members.items():
        yield replace(said, parameters=tuple(names))


def averaged(programs: Sequence[Program]) -> tuple[str, ...]:
    """The parameters of which a program keeps a moving average in a slot `ema.NAME`, node for node
    (PROGRAM 8.10)."""
    graphs = [StepGraph(program) for program in programs]
    slots = (slot for slot in programs[0].state_types if slot.startswith(AVERAGE))
    names = (slot[len(AVERAGE) :] for slot in slots)
    return tuple(n for n in names if any(_averages(graph, n) for graph in graphs))


def _averages(graph: StepGraph, name: str) -> bool:
    parameter, slot = f"{PARAMETER}{name}", f"{AVERAGE}{name}"
    if parameter not in graph.program.state_types:
        return False
    # Loaded for a job with averages only, as the families of optimizers are.
    from tallystick.program.update import WEIGHT

    step = graph.node(graph.next(slot))
    if step is None or step.op != "tallystick.sgd_step" or step.attrs["momentum"]:
        return False
    apart = graph.node(step.inputs[1])
    return (
        graph.input(step.inputs[0]) == slot
        and graph.input(step.inputs[3]) == f"{SCALAR_PREFIX}{WEIGHT}"
        and step.inputs[4] is None
        and not step.attrs["weight_decay"]
        and apart is not None
        and (apart.op, apart.attrs) == ("aten.sub.Tensor", {"alpha": 1.0})
        and graph.input(apart.inputs[0]) == slot
        and apart.inputs[1] == graph.next(parameter)
    )
