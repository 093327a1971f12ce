"""A part of a program: some of its nodes, whose inputs are given and whose results are returned.

A micro-batch is a part. The fold of its gradients and the update after it are a part too. A part
is a program of its own, so that the same executor runs it. Its nodes keep the numbers that they
have in the whole program, and make the same bits as there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.device import Tensor
from tallystick.errors import UsageError
from tallystick.program.executor import Executor, KernelHook
from tallystick.program.ir import BATCH_PREFIX, COMMIT, Input, Node, Program, Value, input_value


def _name(value: Value) -> str:
    """The name, in a part, of a value of the whole program: the name in the program's text
    (PROGRAM 2), which no batch tensor can have."""
    return f"%{value.node}.{value.out}"


@dataclass(frozen=True)
class Part:
    """`program` has the part's nodes; `numbers` are their numbers in the whole program.

    `given` are the values that the part's nodes read and other nodes make. `made` are the values
    that the part's nodes make and that other nodes read, or that are an output of the whole.
    """

    program: Program
    numbers: tuple[int, ...]
    given: tuple[Value, ...]
    made: tuple[Value, ...]


def part_of(program: Program, nodes: Iterable[int]) -> Part:
    """The part of `program` that consists of these nodes.

    The part only reads the state. A next state is among `made`, and the caller that executes parts
    writes it. Raises UsageError for a node that the program does not have, or for the commit node,
    which computes nothing.
    """
    numbers = tuple(sorted(set(nodes)))
    if not numbers or numbers[0] < 0 or numbers[-1] >= len(program.nodes):
        raise UsageError(
            f"A part has nodes of the program's {len(program.nodes)}.", "Name some of them."
        )
    if any(program.nodes[n].op == COMMIT for n in numbers):
        raise UsageError("The commit node computes nothing.", "Leave it out of the part.")
    inside = {number: at for at, number in enumerate(numbers)}
    read = {v for n in numbers for v in program.nodes[n].inputs if v is not None}
    given = tuple(sorted(v for v in read if not v.is_input and v.node not in inside))
    inputs = [program.inputs[v.out] for v in sorted(read) if v.is_input]
    inputs += [Input("batch", BATCH_PREFIX + _name(v), program.type_of(v)) for v in given]
    inputs.sort(key=lambda spec: spec.name.encode())
    place = {spec.name: i for i, spec in enumerate(inputs)}

    def here(value: Value | None) -> Value | None:
        if value is None:
            return None
        if value.is_input:
            return input_value(place[program.inputs[value.out].name])
        if value.node in inside:
            return Value(inside[value.node], value.out)
        return input_value(place[BATCH_PREFIX + _name(value)])

    own = [program.nodes[n] for n in numbers]
    rewritten = tuple(
        Node(node.op, tuple(here(v) for v in node.inputs), node.attrs, node.out_types)
        for node in own
    )
    made = _read_outside(program, inside)
    outputs = tuple(sorted((_name(v), Value(inside[v.node], v.out)) for v in made))
    return Part(Program(program.contract, tuple(inputs), rewritten, outputs), numbers, given, made)


def _read_outside(program: Program, inside: Mapping[int, int]) -> tuple[Value, ...]:
    """The values of the nodes `inside` that other nodes read, in order."""
    readers = (node for n, node in enumerate(program.nodes) if n not in inside)
    read = {v for node in readers for v in node.inputs if v is not None}
    read |= {value for _, value in program.outputs}
    return tuple(sorted(v for v in read if not v.is_input and v.node in inside))


class PartExecutor:
    """Runs a part of a program any number of times. Arguments are as Executor's."""

    def __init__(
        self,
        program: Program,
        nodes: Iterable[int],
        context: ExecutionContext = DEFAULT,
        kernels: KernelHook | None = None,
    ) -> None:
        self.part = part_of(program, nodes)
        self._executor = Executor(self.part.program, context, kernels, self.part.numbers)

    def run(
        self,
        state: Mapping[str, Tensor],
        batch: Mapping[str, Tensor],
        given: Mapping[Value, Tensor],
        scalars: Mapping[str, float] | None = None,
        rng: Sequence[int] | np.ndarray | None = None,
        on_device: bool = False,
    ) -> dict[Value, Tensor]:
        """Execute the part's nodes; return every value of `made`: as new host arrays, or as tensors
        of the device, which the caller may give to another part there.

        `state`, `batch`, `scalars` and `rng` are as for Executor.run_step; the part reads only the
        ones it needs. `given` has every value of `part.given`. The state does not change. Raises
        as Executor.run_step, and UsageError where a given value is missing.
        """
        own = {_name(value): tensor for value, tensor in given.items()}
        result = self._executor.run_step(state, {**batch, **own}, scalars, rng, on_device=on_device)
        return {value: result.outputs[_name(value)] for value in self.part.made}
