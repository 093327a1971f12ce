"""Disputes over one share of a step: the claim of a worker against the claim of another one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from share_samples import make_share_job

from tallystick.commit.signing import PrivateKey
from tallystick.commit.tensor import tensor_digest
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.share import Shares, ShareTask
from tallystick.protocol.judge import judge
from tallystick.prover.cheating import CheatingProver
from tallystick.prover.local import Played, play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.engine import CheatingEngine
from tallystick.run.cheats.override import Override
from tallystick.run.execute.engine import Engine
from tallystick.run.store.claim import write_share_run

LIAR, HONEST = PrivateKey.generate(), PrivateKey.generate()


class WrongNode(Override):
    """One number of one node's output is another."""

    def __init__(self, index: int) -> None:
        self.index = index

    def watches(self, step: int) -> bool:
        return True

    def node(self, step: int, index: int, node: object, outputs: object) -> None:
        if index == self.index:
            outputs[0].reshape(-1)[0] += 1  # type: ignore[index]


@dataclass
class Ground:
    job: Job
    task: ShareTask
    state: Mapping[str, np.ndarray]
    path: Path

    def made(self, lie: Override | None = None) -> dict[str, bytes]:
        """The digests of what a worker computes."""
        where = self.path / f"job-{len(list(self.path.iterdir()))}"
        job = self.task.write(where, self.state)
        state = job.genesis()
        engine = Engine(job, state) if lie is None else CheatingEngine(job, state, override=lie)
        engine.run()
        return {n: tensor_digest(engine.state.slots[n]) for n in self.task.share.made}

    def run(self, made: Mapping[str, bytes], key: PrivateKey) -> Path:
        where = self.path / f"party-{len(list(self.path.iterdir()))}"
        claim = self.task.claim(made, key)
        return write_share_run(self.task, where, self.state, made, claim, key)


@pytest.fixture(
    scope="module", params=["ordered/1", pytest.param("rounded/1", marks=pytest.mark.long)]
)
def ground(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    path = tmp_path_factory.mktemp("share")
    job = make_share_job(path / "job", 6, request.param)
    engine = Engine(job, job.genesis())
    for _ in range(3):
        engine.run()
    state = {name: np.array(array) for name, array in engine.state.slots.items()}
    digests = {name: tensor_digest(array) for name, array in state.items()}
    return Ground(job, Shares(job).task(3, (1, 2), digests), state, path)


def played(ground: Ground, liar: Prover, honest: Prover) -> Played:
    """The dispute; what it finds is found again by a judge who has the share job's terms only."""
    with liar, honest:
        found = play(load_job(ground.path / "terms").terms, [honest, liar])
    again = judge(load_job(ground.path / "terms").terms, found.evidence.to_bytes())
    assert again.verdict == found.verdict
    return found


@pytest.fixture(scope="module")
def honest(ground: Ground) -> Path:
    ground.task.write(ground.path / "terms", ground.state)
    return ground.run(ground.made(), HONEST)


def test_a_false_gradient(ground: Ground, honest: Path) -> None:
    """Any node of either micro-batch: its worker is convicted in phase 3, the other one never."""
    share = ground.task.share
    ends = {v.node for v in share.values}
    for part in share.parts:
        for index in sorted(ends)[-2:]:
            lie = WrongNode(share.nodes[part, index])
            false = ground.run(ground.made(lie), LIAR)
            found = played(
                ground, CheatingProver(false, LIAR, override=lie), Prover(honest, HONEST)
            )
            assert [c.party for c in found.verdict.convicted] == [1]
            assert (found.verdict.phase, found.verdict.place.node) == (3, lie.index)
            assert signer_of(found, ground) == LIAR.public.key_id


def signer_of(found: Played, ground: Ground) -> str:
    """The convicted one, as a judge names it."""
    again = judge(load_job(ground.path / "terms").terms, found.evidence.to_bytes())
    (convicted,) = again.verdict.convicted
    return again.signers[convicted.party]


def test_false_bytes_that_no_execution_gives(ground: Ground, honest: Path) -> None:
    made = dict(ground.made())
    name = max(made)
    made[name] = tensor_digest(np.full((2,), 3, np.float32))
    false = ground.run(made, LIAR)
    found = played(ground, Prover(false, LIAR), Prover(honest, HONEST))
    assert [c.party for c in found.verdict.convicted] == [1]


def test_a_false_accusation(ground: Ground, honest: Path) -> None:
    """The worker who computes the share again lies: it is convicted, not the one it accuses."""
    false = dict.fromkeys(ground.made(), bytes(32))
    accuser = ground.run(false, LIAR)
    found = played(ground, Prover(accuser, LIAR), Prover(honest, HONEST))
    assert [c.party for c in found.verdict.convicted] == [1]
