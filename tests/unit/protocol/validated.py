"""Lies about a job of format 2: its pass over held-out records, its decision, its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from unit.protocol.scenarios import WRONG, Scenario, answering

from tallystick.commit.job import STOP_SLOT
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.ir import Node
from tallystick.program.state import State
from tallystick.program.validation import BEST, StopRule
from tallystick.protocol import queries as q

# Steps of training between passes; a pass has 2 batches and a decision.
EVERY, CYCLE = 3, 6
PASS, DECISION = EVERY + 1, EVERY + 2  # steps of the first cycle


def make_validated_job(
    path: Path,
    patience: int | None = 1,
    contract: str = "ordered/1",
    rate: float = 30,
    min_delta: float = 0,
    steps: int = 12,
    interval: int = 4,
) -> Job:
    """A logistic regression that begins to get worse at once, and so stops after a few passes.

    Without patience it runs to its end.
    """
    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2"}
    pairs["lr"] = str(rate)
    pairs |= {"momentum": "0.9", "validation": "0.25", "schedule": "constant"}
    return new_job(
        "logreg", path, pairs, steps=steps, checkpoint_interval=interval, evaluate_every=EVERY,
        seed=3, stop_rule=StopRule(patience, min_delta), contract=contract,
    )  # fmt: skip


def _at(step: int, change: Any) -> Any:
    return lambda at, *rest: change(*rest) if at == step else None


def _slot(name: str, value: object) -> Any:
    def change(state: State) -> None:
        state.slots[name][...] = value

    return change


def _first_element(index: int, node: Node, outputs: list[Array]) -> None:
    if index == 0:
        outputs[0].reshape(-1)[:1] += 1


def _output(op: str, last: bool = False) -> Any:
    """A wrong output of the only, or the last, node of this operator."""

    def change(index: int, node: Node, outputs: list[Array]) -> None:
        if node.op == op:
            outputs[0].reshape(-1)[0] = 5

    return change


def lies() -> dict[str, Scenario]:
    """Lies of a party about a run that honestly ends after two passes."""
    return {
        "ends early": Scenario("4.11", "0", {"final_step": lambda job: CYCLE}),
        "goes on": Scenario("4.11", "0", {"final_step": lambda job: job.steps - 1}),
        "a false slot": Scenario(
            "4.11",
            "0",
            {
                "final_step": lambda job: job.steps - 1,
                "answer": answering(q.Slot, lambda _, body: replace(body, digest=WRONG)),
            },
            zero_only=True,
        ),
        "a false sum": Scenario(
            "6.5",
            "3",
            {"watches": lambda s: s == PASS, "node": _at(PASS, _output("aten.add.Tensor"))},
        ),
        "a false mean": Scenario(
            "6.5",
            "3",
            {"watches": lambda s: s == DECISION, "node": _at(DECISION, _output("aten.div.Scalar"))},
        ),
        "a best loss from nowhere": Scenario(
            "5.6.1", "2a", {"before": _at(DECISION, _slot(BEST, np.float32(-1)))}
        ),
        "a stop from nowhere": Scenario(
            "5.6.1", "2a", {"before": _at(EVERY, _slot(STOP_SLOT, True))}
        ),
        "other held-out records": Scenario(
            "5.6.3", "2c", {"data_step": lambda s: s - 1 if s == PASS else s}
        ),
        "other records": Scenario("5.6.3", "2c", {"data_step": lambda s: 7 if s == 1 else s}),
        "another rate": Scenario(
            "5.6.4", "2d", {"scalars": _at(1, lambda scalars: scalars.update(lr=1e-9))}
        ),
        "parameters moved while the pass goes on": Scenario(
            "5.6.1", "2a", {"before": _at(PASS, _slot("param.0.bias", 0.5))}
        ),
    }
