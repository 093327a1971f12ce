"""Lies about a job with two structures by the number of the step and a table of the loss:
both judges come to the same end (PROGRAM 5.21; PROTOCOL 5.6.3, 5.6.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from adversary.two_judges import package, text
from torch import Tensor, nn
from torch.nn import functional as F
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

import tallystick
from tallystick.commit.signing import PrivateKey
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.prover.local import play

KEY = PrivateKey(bytes([6]) * 32)
PENALIZED, PLAIN = 4, 5  # steps of the two structures


def loss(module: Any, batch: Any, at: Any) -> Tensor:
    """A penalty in every fourth step, whose weight grows."""
    found = F.cross_entropy(module(batch[0]), batch[1])
    return found + at.step / 10 * module.weight.square().sum() if at.step % 4 == 0 else found


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    torch.manual_seed(2)
    module = nn.Linear(3, 2).train()
    records = [(torch.randn(3), torch.tensor(i % 2)) for i in range(11)]
    out = tmp_path_factory.mktemp("numbers")
    run = tallystick.fit(
        module, loss, records, torch.optim.SGD(module.parameters(), lr=0.1), batch_size=4,
        out=out, steps=8, progress=False,
    )  # fmt: skip
    made = load_job(out / "job")
    programs = made.commitment.timetable.programs
    assert len(programs) == 3  # both structures, and the short last batch of an epoch
    assert len({program.stream.name for program in programs}) == 1
    table = made.scalars["at.0"]
    assert isinstance(table, list)
    assert [table[t] for t in (0, 1, PENALIZED)] == [0.0, 0.0, 0.4]
    report = tallystick.audit(out / "run", progress=False)
    assert report.accepted and len(run.losses) == 8
    return made


def at(step: int, change: Any) -> Any:
    return lambda found, *rest: change(*rest) if found == step else None


def no_penalty(scalars: dict[str, float]) -> None:
    scalars["at.0"] = 0.0


def other_record(batch: dict[str, np.ndarray]) -> None:
    for array in batch.values():
        array[-1] = array[0]


LIES: dict[str, tuple[str, dict[str, Any]]] = {
    "no penalty where the table has one": ("5.6.4", {"scalars": at(PENALIZED, no_penalty)}),
    "another record beside a penalty": ("5.6.3", {"batch": at(PENALIZED, other_record)}),
    "another record without one": ("5.6.3", {"batch": at(PLAIN, other_record)}),
}


@pytest.mark.parametrize("name", sorted(LIES))
@pytest.mark.parametrize("seat", [0, 1])
def test_a_lie_is_convicted_by_both_judges(job: Job, name: str, seat: int) -> None:
    clause, hooks = LIES[name]
    honest, cheat = Party(job), Party(job, Lie(**hooks))
    assert cheat.run.run_root != honest.run.run_root
    parties = [honest, honest]
    parties[seat] = cheat
    played = play(job.terms, parties, key=KEY)
    assert [(c.party, c.clause) for c in played.verdict.convicted] == [(seat, clause)]
    data = played.evidence.to_bytes()
    assert package(job, data) == text(job, data) == (False, [("AB"[seat], clause)])
