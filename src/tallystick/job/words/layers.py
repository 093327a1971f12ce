"""The model of a job: its layers, by the names of the state's slots; and the nodes of its program,
by the values that they make and what is read from them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from tallystick.job.numbers import listed, shape_of
from tallystick.job.words.parts import LayerWords, ParameterWords
from tallystick.numerics.types import AttrValue
from tallystick.program.ir import Node, Program, Value

PARAMETER, BUFFER, AVERAGE = "param.", "buffer.", "ema."
_NUMBER = re.compile(r"(?<![^.])(?:0|[1-9][0-9]{0,8})(?![^.])", re.ASCII)


def changed_slots(programs: Sequence[Program]) -> set[str]:
    """The slots that a program of the job does not pass through."""
    return {
        name
        for program in programs
        for name, value in program.next_state.items()
        if not (value.is_input and program.inputs[value.out].name == name)
    }


def tensors_of(
    program: Program, prefix: str, changed: Collection[str]
) -> Iterator[tuple[str, ParameterWords]]:
    """The slots with a prefix: the paths of their modules, and themselves."""
    for slot, type_ in program.state_types.items():
        if slot.startswith(prefix):
            module, _, name = slot[len(prefix) :].rpartition(".")
            yield module, ParameterWords(name, type_.dtype, type_.shape, slot in changed)


def _place(path: str) -> list[tuple[int, int, str]]:
    """A key by which people order paths: the number 10 after the number 9."""
    return [(0, int(p), "") if p.isdecimal() else (1, 0, p) for p in path.split(".")]


def layers_of(program: Program, changed: Collection[str]) -> tuple[LayerWords, ...]:
    """The layers of a model, whose modules with numbers stand in the order of these."""
    found: dict[str, list[ParameterWords]] = {}
    for module, parameter in tensors_of(program, PARAMETER, changed):
        found.setdefault(module, []).append(parameter)
    return tuple(LayerWords(module, tuple(found[module])) for module in sorted(found, key=_place))


# -- in words --------------------------------------------------------------------------------------
def _parameter(p: ParameterWords) -> str:
    return f"{p.name} {shape_of(p.dtype, p.shape)}{'' if p.trained else ' (frozen)'}"


def _alike(layer: LayerWords, other: LayerWords | None) -> Hashable:
    """Layers with one such key differ in their numbers only, and so do those of another model
    that have their paths."""
    theirs = None if other is None else other.parameters
    return _NUMBER.sub("*", layer.module), layer.parameters, theirs


def layer_lines(
    layers: Sequence[LayerWords], others: Sequence[LayerWords] = ()
) -> list[tuple[str, str]]:
    """The path and the parameters of each layer; layers that differ only in the numbers of their
    paths share a line. Where `others` are the layers of another model, the same paths share a line
    in the lines of both."""
    lines: list[tuple[str, str]] = []
    there = {layer.module: layer for layer in others}
    numbered: dict[Hashable, list[LayerWords]] = {}
    for layer in layers:
        numbered.setdefault(_alike(layer, there.get(layer.module)), []).append(layer)
    for members in numbered.values():
        pattern, parameters = _NUMBER.sub("*", members[0].module), members[0].parameters
        paths = [layer.module for layer in members]
        own = ", ".join(_parameter(p) for p in parameters)
        name = (paths[0] or "(the model itself)") if len(paths) == 1 else _shared(pattern, paths)
        lines.append((name, own))
    return lines


def _shared(pattern: str, paths: Sequence[str]) -> str:
    """Paths of one pattern: "h.0-11.attn", or all of them where more than one number moves."""
    columns = list(zip(*([int(n) for n in _NUMBER.findall(path)] for path in paths), strict=True))
    moving = [place for place, numbers in enumerate(columns) if len(set(numbers)) > 1]
    if len(moving) != 1:
        return listed(paths)
    texts = iter(
        _spans(numbers) if place in moving else str(numbers[0])
        for place, numbers in enumerate(columns)
    )
    return re.sub(r"\*", lambda _: next(texts), pattern)


def _spans(numbers: Sequence[int]) -> str:
    """Rising numbers as "0-11" or "[0-2,5]"."""
    spans = []
    for _, group in groupby(enumerate(sorted(numbers)), lambda pair: pair[1] - pair[0]):
        run = [n for _, n in group]
        spans.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return spans[0] if len(spans) == 1 else f"[{','.join(spans)}]"


OPTIMIZER = "opt."
CLIP, SQUARES = "tallystick.clip_coef", "tallystick.sum_squares"
POWER = "tallystick.beta_power"
Options = tuple[tuple[str, float | bool], ...]


class StepGraph:
    """A program's nodes by the values that they make."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._norms: dict[Value, set[Value | None]] = {}

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
        return tuple(self._kinds.get(name, ()))

    @cached_property
    def _kinds(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for slot in self.program.state_types:
            if slot.startswith(OPTIMIZER):
                kind, _, name = slot[len(OPTIMIZER) :].partition(".")
                found.setdefault(name, []).append(kind)
        return found

    def _normed(self, coefficient: Value) -> set[Value | None]:
        """The gradients whose norm a coefficient bounds."""
        if coefficient not in self._norms:
            node = self.node(coefficient)
            is_clip = node is not None and node.op == CLIP and not coefficient.out
            squares = [self.node(v) for v in node.inputs] if node is not None and is_clip else []
            self._norms[coefficient] = {
                s.inputs[0] for s in squares if s is not None and s.op == SQUARES
            }
        return self._norms[coefficient]

    def clips(self, coefficient: Value | None, gradient: Value | None) -> bool:
        """Whether a coefficient is absent, or bounds a norm to which the gradient belongs
        (NUMERICS 11.6)."""
        return coefficient is None or gradient in self._normed(coefficient)

    def is_power(self, value: Value | None, beta: AttrValue) -> bool:
        """Whether a value is a power of `beta`, kept in a slot from step to step (PROGRAM 8)."""
        node = self.node(value)
        if node is None or node.op != POWER or node.attrs["beta"] != beta:
            return False
        slot = self.input(node.inputs[0])
        return slot.startswith(OPTIMIZER) and self.next(slot) == value


@dataclass(frozen=True)
class ParameterRule:
    """What an update is, for one parameter: parameters of one rule are said together."""

    kind: str | None
    options: Options
    scalars: tuple[str, ...]
    gradient: Value | None = None
    coefficient: Value | None = None
    operator: str | None = None
    slots: tuple[str, ...] = ()
