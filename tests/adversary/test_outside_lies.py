"""Lies about tensors that code keeps outside of the module: slots like others (PROGRAM 5.20)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from adversary.games import Answers
from adversary.lies import KINDS, Ground, Told
from adversary.test_attacks import as_party
from adversary.test_every_lie import outcome, teller
from torch import Tensor, nn
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.job.save import save_job
from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD
from tallystick.protocol.judge import judge
from tallystick.prover.local import play
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.options import Options
from tallystick.run.execute.trainer import train_job
from tallystick.run.store.unsigned import Declaration

STEPS, INTERVAL = 4, 2
SLOTS = ("baseline", "table")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """A baseline that each call moves, and a table that none does, too large for a constant."""
    torch.manual_seed(4)
    baseline, table = torch.zeros(()), 0.1 * torch.randn(3, 1400)

    def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        nonlocal baseline
        value = ((module(batch["x"]) - batch["y"] - baseline) ** 2).mean()
        value = value + (batch["x"] @ table).square().mean() * module.weight.square().mean()
        baseline = 0.9 * baseline + 0.1 * batch["y"].mean()
        return value

    batch = {"x": ((4, 3), "f32"), "y": ((4, 2), "f32")}
    step = capture(nn.Linear(3, 2), loss, batch, SGD(0.1))
    drawn = np.random.default_rng(5)
    data = {k: drawn.standard_normal((16, n)).astype(np.float32) for k, n in (("x", 3), ("y", 2))}
    where = tmp_path_factory.mktemp("outside")
    return save_job(step, where / "job", data, steps=STEPS, checkpoint_interval=INTERVAL, seed=1)


def lies_of(job: Job) -> list[Told]:
    """Every lie about such a slot, and one in each node that makes one."""
    own = {f"buffer.outside.{name}" for name in SLOTS}
    makers = {job.program.next_state[name].node for name in own} - {-1}
    told = []
    for lie in KINDS["lived"](Ground(job, STEPS, range(STEPS))):
        index = lie.name.rpartition("node ")[2]
        if lie.name.split(" ")[0] in own or (index.isdigit() and int(index) in makers):
            told.append(lie)
    return told


def test_every_lie_about_such_a_slot_is_convicted(job: Job) -> None:
    assert {f"buffer.outside.{name}" for name in SLOTS} <= set(job.program.state_types)
    honest, executed, wrong = Answers(Party(job)), dict[int, Party](), []
    lies = lies_of(job)  # kept: executions are found by the identity of hooks
    assert len(lies) >= 2 * len(SLOTS) * STEPS + STEPS
    for lie in lies:
        cheat = teller(job, lie, executed)
        assert cheat.party.run.run_root != honest.party.run.run_root, lie.name
        for seat, players in enumerate(([cheat, honest], [honest, cheat])):
            ways = lie.second if seat and lie.second is not None else lie.ways
            why = outcome(job, players, seat, ways)
            if why:
                wrong.append(f"{lie.name}, seat {seat}: {why}")
    assert wrong == []


@pytest.mark.parametrize(
    ("attack", "clause"), [("swapped-frozen-weight", "5.3"), ("lie-output", "6.5")]
)
def test_attacks_by_name(job: Job, attack: str, clause: str, tmp_path: Path) -> None:
    """The first swaps the table; the second lies in the node that makes the baseline."""
    params = {}
    if attack == "lie-output":
        params = {"node": job.program.next_state["buffer.outside.baseline"].node}
    train_job(job, tmp_path / "honest", Options())
    declared = declared_cheat(job, Declaration(attack, params))
    train_job(job, tmp_path / "cheat", Options(maker=declared))
    for seat in (0, 1):
        runs = [tmp_path / "honest", tmp_path / "honest"]
        runs[seat] = tmp_path / "cheat"
        with as_party(runs, seat, 0) as first, as_party(runs, seat, 1) as second:
            played = play(job.terms, [first, second])
        assert [c.party for c in played.verdict.convicted] == [seat]
        assert played.verdict.convicted[0].clause == clause
        assert judge(job.terms, played.evidence.to_bytes()).verdict == played.verdict
