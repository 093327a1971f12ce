"""Lies about a step of each optimizer: a false output of every node, every slot, every scalar.

Composed updates (PROGRAM 8) have no opening rule of their own: their nodes are the contract's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from adversary.games import Answers
from adversary.lies import KINDS, Ground, Told
from adversary.test_every_lie import INTERVAL, STEPS, outcome, teller
from torch import Tensor, nn
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.job.save import save_job
from tallystick.program.capture import capture
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    Adam,
    Lion,
    Muon,
    ParameterGroup,
    ParameterGroups,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.update import EMA

MUON = ParameterGroups(
    {
        "m": ParameterGroup(Muon(0.1, ns_steps=2), ("weight",)),
        "rest": ParameterGroup(Adam(0.1)),
    }
)
OPTIMIZERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "averages": (SGD(0.1), {"ema": EMA(0.5), "grad_norm": True}),
    "rmsprop": (RMSprop(0.1, momentum=0.9, centered=True, weight_decay=0.1), {}),
    "adagrad": (Adagrad(0.1, lr_decay=0.1), {"clip_norm": 0.1, "clip_value": 0.1}),
    "lion": (Lion(0.1, weight_decay=0.1), {}),
    "lamb": (LAMB(0.1), {"clip_norm": 0.1}),
    "adafactor": (Adafactor(0.6, weight_decay=0.1), {}),
    "transformers": (TransformersAdafactor(0.1, beta1=0.9, relative_step=False), {}),
    "muon": (MUON, {}),
}
# Nodes of which one false element may change no committed bit: a clamped sign, a value that a
# maximum, a minimum or a comparison drops, the norm that is only reported, and what is scaled away.
HIDING = {
    "aten.clamp", "aten.mul.Scalar", "aten.where", "aten.eq.Scalar", "aten.div.Tensor",
    "tallystick.clip_coef", "tallystick.sum_squares", "aten.sqrt", "aten.full", "aten.add.Tensor",
    "aten.div.Scalar",
}  # fmt: skip


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return ((module(batch["x"]) - batch["y"]) ** 2).mean()


def job_of(what: str, where: Path, contract: str = "ordered/1") -> Job:
    optimizer, options = OPTIMIZERS[what]
    torch.manual_seed(3)
    batch = {"x": ((4, 3), "f32"), "y": ((4, 2), "f32")}
    step = capture(nn.Linear(3, 2), loss, batch, optimizer, contract=contract, **options)
    drawn = np.random.default_rng(5)
    data = {k: drawn.standard_normal((16, n)).astype(np.float32) for k, n in (("x", 3), ("y", 2))}
    return save_job(step, where / "job", data, steps=STEPS, checkpoint_interval=INTERVAL, seed=1)


def update_lies(job: Job) -> list[tuple[int | None, Told]]:
    """Of step 2, with the node's number: one element of each output; slots; scalars."""
    found: list[tuple[int | None, Told]] = []
    for lie in KINDS["lived"](Ground(job, job.steps, (2,))):
        if lie.name.startswith("step 2: element -1 of"):
            found.append((int(lie.name.rpartition(" ")[2]), lie))
        elif lie.name.endswith((" before step 2", " after step 2", " of step 2")):
            found.append((None, lie))
    return found


def convicted(job: Job, first: int, is_exhaustive: bool) -> None:
    """Lies about nodes from `first` on, about slots and scalars, convict from both seats: all, or
    every fifth."""
    honest, executed = Answers(Party(job)), dict[int, Party]()
    wrong, silent = [], set[str]()
    lies = [(node, lie) for node, lie in update_lies(job) if node is None or node >= first]
    for node, lie in lies if is_exhaustive else lies[::5]:
        cheat = teller(job, lie, executed)
        if cheat.party.run.run_root == honest.party.run.run_root:
            silent.add(lie.name if node is None else job.program.nodes[node].op)
            continue
        for seat, players in enumerate(([cheat, honest], [honest, cheat])):
            ways = lie.second if seat and lie.second is not None else lie.ways
            why = outcome(job, players, seat, ways)
            if why:
                wrong.append(f"{lie.name}, seat {seat}: {why}")
    assert wrong == []
    assert silent <= HIDING, silent - HIDING


def first_update_node(job: Job) -> int:
    """The first node after the gradients: all that comes is clipping and the optimizer's."""
    program = job.program
    own = {"tallystick.sgd_step", "tallystick.adam_step", "tallystick.sum_squares", "aten.clamp"}
    slots = {i for i, spec in enumerate(program.inputs) if spec.name.startswith(("opt.", "ema."))}
    for index, node in enumerate(program.nodes):
        if node.op in own or any(v and v.is_input and v.out in slots for v in node.inputs):
            return index
    raise AssertionError("no update")


@pytest.mark.parametrize("what", OPTIMIZERS)
def test_every_lie_about_an_update_is_convicted(
    what: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    job = job_of(what, tmp_path)
    kinds = {name.split(".")[1] for name in job.program.state_types if name.startswith("opt.")}
    assert kinds or what == "averages"
    convicted(job, first_update_node(job), is_exhaustive)


@pytest.mark.parametrize(
    ("what", "contract"),
    [
        ("lamb", "exact/1;b=8"),
        ("muon", "rounded/1;b=28"),
        pytest.param("lamb", "rounded/1;b=28", marks=pytest.mark.long),
        pytest.param("muon", "exact/1;b=8", marks=pytest.mark.long),
    ],
)
def test_lies_under_other_contracts(
    what: str, contract: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    job = job_of(what, tmp_path, contract)
    convicted(job, first_update_node(job), is_exhaustive)
