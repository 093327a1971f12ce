"""Executing the one step of an answer by the operators as they are defined (NUMERICS)."""

from __future__ import annotations

from typing import Any

import numpy as np

from reference.answers.job import Fields, Job
from reference.judge.merkle import NUMPY
from reference.judge.programs import Program, Value
from reference.ops import REFERENCE
from reference.rounded_operators import mm, sums
from reference.sums import axes_of


def executed(job: Job, program: Program, weights: Fields) -> Fields:
    """The outputs of the job's step, by name."""
    held: dict[str, np.ndarray] = dict(weights)
    for name, (_, (dtype, shape)) in program.inputs.items():
        if name.startswith("batch."):
            held[name] = job.record[name.removeprefix("batch.")].reshape(shape)
        elif name.startswith(("buffer.answer.", "chain.")):
            held[name] = np.zeros(shape, NUMPY[dtype])
        elif name == "rng":
            held[name] = np.array([job.seed, 0], np.int64)  # 3.4
    made: list[list[np.ndarray]] = []

    def value(operand: Value | None) -> np.ndarray | None:
        if operand is None:
            return None
        if operand[0] == "input":
            return held[operand[1]]
        index, output = operand[1]
        return made[index][output]

    rounded = job.statement.contract.startswith("rounded/")
    for node in program.nodes:
        if node.op == "tallystick.commit":
            break
        inputs = [value(operand) for operand in node.operands]
        made.append(_applied(node.op, node.attrs, inputs, rounded))
    return {name: value(of) for name, of in program.outputs.items()}  # type: ignore[misc]


def _applied(op: str, attrs: dict[str, Any], inputs: list[Any], rounded: bool) -> list[np.ndarray]:
    if rounded and op == "aten.mm":
        return [mm(*inputs, 32)]
    if rounded and op in ("aten.sum", "aten.sum.dim_IntList"):
        return [sums(inputs[0], axes_of(attrs, inputs[0].ndim), 32, False)]
    return REFERENCE[op](attrs, inputs)


def answer_slots(job: Job, outputs: Fields) -> Fields:
    """Those of `outputs` that the step fills."""
    return {n: outputs[n] for n in outputs if n.startswith("buffer.answer.")}


def first_difference(job: Job, made: Fields) -> int | None:
    """The first row that the step did not make as it is claimed (8.5)."""
    claimed = job.claimed()
    for row in range(len(job.said.numbers)):
        for name in set(claimed) - {"buffer.answer.salt"}:
            if claimed[name][row].tobytes() != made[name][row].tobytes():
                return row
    return None
