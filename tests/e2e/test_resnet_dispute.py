"""Disputes about every operator of a residual network that no other recipe has."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.resnet50 import ResnetSettings, make_module
from tallystick.protocol.judge import judge
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.unsigned import Declaration

STEPS = 6
CASES = [
    ("aten._native_batch_norm_legit_functional", 0),  # y
    ("aten._native_batch_norm_legit_functional", 2),  # rstd
    ("aten._native_batch_norm_legit_functional", 4),  # the running variance: a state slot
    ("aten.native_batch_norm_backward", 0),
    ("aten.native_batch_norm_backward", 1),
    ("aten.max_pool2d_with_indices", 0),
    ("aten.max_pool2d_with_indices", 1),  # the index
    ("aten.max_pool2d_with_indices_backward", 0),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, Path]:
    directory = tmp_path_factory.mktemp("resnet")
    pairs = {"size": "tiny", "stem": "imagenet", "image": "24", "width": "4", "records": "32"}
    job = new_job(
        "resnet50", directory / "job", pairs, steps=STEPS, checkpoint_interval=2, evaluate_every=0
    )
    train_job(job, directory / "honest", Options())
    return job, directory


@pytest.mark.sample(3)
@pytest.mark.parametrize(("op", "output"), CASES)
def test_one_false_number_convicts(world: tuple[Job, Path], op: str, output: int) -> None:
    job, directory = world
    node = next(k for k, n in enumerate(job.program.nodes) if n.op == op)
    liar = directory / f"{node}-{output}"
    # The sign, because a small change below a relu or a maximum may change nothing above it.
    bit = 31 if (op, output) == CASES[0] else 3
    lie = Declaration("lie-output", {"step": 3, "node": node, "output": output, "bit": bit})
    train_job(job, liar, Options(maker=declared_cheat(job, lie)))
    provers = [Prover(directory / "honest"), party_of(liar, as_attack=True)]
    try:
        played = play(job.terms, provers)
    finally:
        for prover in provers:
            prover.close()
    verdict = played.verdict
    assert [c.party for c in verdict.convicted] == [1] and verdict.accepted == 0
    assert verdict.place.node == node and verdict.terms <= 256
    assert judge(job.terms, played.evidence.to_bytes()).verdict == verdict


def test_sizes_are_the_published_ones() -> None:
    """The ImageNet models' parameter counts, as He et al.'s tables imply them."""
    for blocks, bottleneck, count in (
        ("3-4-6-3", True, 25_557_032),
        ("2-2-2-2", False, 11_689_512),
    ):
        import torch

        settings = ResnetSettings(
            blocks=blocks, bottleneck=bottleneck, stem="imagenet", classes=1000
        )
        with torch.device("meta"):
            module = make_module(settings)
        assert sum(p.numel() for p in module.parameters()) == count
