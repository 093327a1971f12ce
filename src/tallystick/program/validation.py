"""Programs of validation whose numbers are committed: the pass over the held-out records, and the
decision after it (PROGRAM 7).

The slots of validation stand in the state beside the model's. The step passes them through. A
batch of the pass adds its loss to a sum. The decision divides the sum, compares it with the best
one, and says whether the run ends. So the numbers that decide are disputed like any other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tallystick.commit.job import STOP_SLOT
from tallystick.commit.tensor import Array
from tallystick.commit.timetable import Timetable
from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.ir import Program, Value

LOSS, COUNTER, FLAG = TensorType("f32", ()), TensorType("i64", ()), TensorType("bool", ())

SUM, MEAN, BEST = "val.sum", "val.loss", "val.best"
PASSES, BEST_PASS, WAITED = "val.passes", "val.best_pass", "val.waited"
METRIC_SUM, METRIC = "val.metric_sum.", "val.metric."


@dataclass(frozen=True)
class StopRule:
    """A pass is better where its mean loss is less than the best one minus `min_delta`. The run
    ends after `patience` passes without a better one; None: never."""

    patience: int | None = None
    min_delta: float = 0.0

    def __post_init__(self) -> None:
        if self.patience is not None and self.patience < 1:
            raise UsageError(
                f"patience is {self.patience}, but it must be at least 1.", "Pass 1 or more."
            )
        if not 0 <= self.min_delta < float("inf"):
            raise UsageError(
                f"min_delta is {self.min_delta}, but it must not be negative.", "Pass 0 or more."
            )


def metric_names(evaluation: Program) -> list[str]:
    """The metrics that an evaluation program reports."""
    return [
        name[len("metric.") :] for name in evaluation.output_values if name.startswith("metric.")
    ]


def validation_slots(metrics: list[str]) -> dict[str, tuple[TensorType, Array]]:
    """The slots of validation: type and first value of each."""
    zero, infinite = np.zeros((), np.float32), np.array(np.inf, np.float32)
    count = np.zeros((), np.int64)
    slots = {
        STOP_SLOT: (FLAG, np.zeros((), np.bool_)),
        SUM: (LOSS, zero),
        MEAN: (LOSS, infinite),
        BEST: (LOSS, infinite),
        PASSES: (COUNTER, count),
        BEST_PASS: (COUNTER, count),
        WAITED: (COUNTER, count),
    }
    for name in metrics:
        slots[METRIC_SUM + name] = slots[METRIC + name] = (LOSS, zero)
    return slots


class _Written:
    """A program in writing, over a whole state: slots that nothing changes are passed through."""

    def __init__(self, contract: str, state: Mapping[str, TensorType]) -> None:
        self.builder = Builder(contract)
        self.state = {name: self.builder.state(name, state[name]) for name in sorted(state)}
        self.next: dict[str, Value] = dict(self.state)
        self.carried: dict[str, Value] = {}

    def copy(self, program: Program) -> dict[str, Value]:
        """The nodes of `program` but COMMIT; its outputs."""
        b = self.builder
        inputs: list[Value] = []
        for given in program.inputs:
            if given.kind == "state":
                inputs.append(self.state[given.name])
            elif given.kind == "batch":
                inputs.append(b.batch(given.name.partition(".")[2], given.type))
            elif given.kind == "scalar":
                inputs.append(b.scalar(given.name.partition(".")[2]))
            else:
                inputs.append(b.rng())
        moved = b.copy(program, inputs)
        self.carried |= {name: moved(value) for name, value in program.carried}
        return {name: moved(value) for name, value in program.outputs}

    def finish(self, outputs: Mapping[str, Value]) -> Program:
        """The program, with the commit node over the next state."""
        self.builder.commit(self.next)
        return self.builder.finish({**outputs, **self.next}, self.carried)


def best_pass_step(timetable: Timetable, best: int, passes: int, step: int) -> int | None:
    """The step after the best pass, for a state after `step` steps with these numbers of passes.

    None without a pass, and where the best one was of a run that this one continues: passes are
    counted over both.
    """
    decide = len(timetable.programs) - 1
    own = best - (passes - timetable.count(decide, step))
    return timetable.steps_for(decide, own) if best and own > 0 else None


def rule_of(decision: Program) -> StopRule:
    """The rule that a decision program was written with, if it is one of `decision_program`."""
    numbers = {node.op: node.attrs["other"] for node in decision.nodes if "other" in node.attrs}
    patience, least = numbers.get("aten.ge.Scalar"), numbers.get("aten.sub.Scalar", 0.0)
    whole = int(patience) if isinstance(patience, float) and math.isfinite(patience) else None
    return StopRule(whole, least if isinstance(least, float) else 0.0)


def with_slots(step: Program, slots: Mapping[str, TensorType]) -> Program:
    """`step` with further state slots, which it passes through.

    Raises UsageError where the state has such a slot already.
    """
    if taken := sorted(set(slots) & set(step.state_types)):
        raise UsageError(f"The state already has a slot {taken[0]}.", "Rename the module's slot.")
    written = _Written(step.contract, {**step.state_types, **slots})
    outputs = written.copy(step)
    written.next |= {name: outputs.pop(name) for name in step.next_state}
    return written.finish(outputs)


def pass_program(
    evaluation: Program, state: Mapping[str, TensorType], records: int | None = None
) -> Program:
    """One batch of the pass (PROGRAM 7.2): `evaluation` over the whole state; the batch's loss and
    metrics are added to the sums. With `records`, those of the batch, each counts that often (7.4).

    Raises UsageError for an evaluation that reads a slot which the state does not have.
    """
    if lacking := sorted(set(evaluation.state_types) - set(state)):
        raise UsageError(
            f"The evaluation reads {lacking[0]}, which the training state does not have.",
            "Capture both from the same module.",
        )
    written = _Written(evaluation.contract, state)
    outputs, b = written.copy(evaluation), written.builder
    sums = {SUM: "loss"} | {METRIC_SUM + n: f"metric.{n}" for n in metric_names(evaluation)}
    for slot, name in sums.items():
        if b.type_of(outputs[name]) != LOSS:
            raise UsageError(
                f"The evaluation's {name} is not an f32 number.", "Return a 0-d tensor."
            )
        value = outputs[name]
        if records is not None:
            value = b.one("aten.mul.Scalar", [value], other=float(records))
        written.next[slot] = b.one("aten.add.Tensor", [written.state[slot], value], alpha=1.0)
    return written.finish({"loss": outputs["loss"]})


def decision_program(
    contract: str,
    state: Mapping[str, TensorType],
    metrics: list[str],
    count: int,
    rule: StopRule,
) -> Program:
    """The decision after a pass of `count` batches (PROGRAM 7.3), or over `count` records that each
    count alike (7.4). Its loss is the pass's mean."""
    written = _Written(contract, state)
    b, was, after = written.builder, written.state, written.next
    zero = b.one("aten.full", [], size=(), value=0.0, dtype="f32")
    for name in metrics:
        total = was[METRIC_SUM + name]
        after[METRIC + name] = b.one("aten.div.Scalar", [total], other=float(count))
        after[METRIC_SUM + name] = zero
    mean = b.one("aten.div.Scalar", [was[SUM]], other=float(count))
    limit = was[BEST]
    if rule.min_delta:
        limit = b.one("aten.sub.Scalar", [limit], other=float(rule.min_delta), alpha=1.0)
    better = b.one("aten.lt.Tensor", [mean, limit])
    passes = b.one("aten.add.Scalar", [was[PASSES]], other=1.0, alpha=1.0)
    none = b.one("aten.full", [], size=(), value=0.0, dtype="i64")
    longer = b.one("aten.add.Scalar", [was[WAITED]], other=1.0, alpha=1.0)
    waited = b.one("aten.where", [better, none, longer])
    after |= {
        SUM: zero,
        MEAN: mean,
        BEST: b.one("aten.where", [better, mean, was[BEST]]),
        PASSES: passes,
        BEST_PASS: b.one("aten.where", [better, passes, was[BEST_PASS]]),
        WAITED: waited,
    }
    if rule.patience is not None:
        after[STOP_SLOT] = b.one("aten.ge.Scalar", [waited], other=float(rule.patience))
    shown = {f"metric.{name}": after[METRIC + name] for name in metrics}
    return written.finish({"loss": mean, **shown})
