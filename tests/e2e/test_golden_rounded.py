"""Golden run roots of rounded/1: no instruction set, thread count or kernel changes a bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from golden import ROUNDED, ROUNDED_ROOTS, entry, golden_job
from long_runs import in_turn
from reference.orders import Shuffled

from tallystick import _core
from tallystick.api import audit
from tallystick.devices.context import ExecutionContext
from tallystick.job.recipes import verify_job
from tallystick.products.engines import DEFAULT, ProductEngine, using
from tallystick.run.execute.trainer import Options, train_job

pytestmark = pytest.mark.usefixtures("probed_once")


def _configurations(name: str) -> list[tuple[str, int, ProductEngine]]:
    """Every instruction set, and every engine, on one to three threads; two of them for the
    convolutional net, which is slow."""
    isas = list(_core.supported_isas())
    engines = [DEFAULT, Shuffled(1), Shuffled(2, 5)]
    count = max(len(isas), len(engines)) if name != "resnet50" else 2
    return [(isas[-1 - i % len(isas)], 1 + i % 3, engines[i % len(engines)]) for i in range(count)]


@pytest.mark.parametrize(("name", "contract"), ROUNDED)
def test_run_roots_on_every_path_and_engine(
    name: str, contract: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    golden = json.loads(ROUNDED_ROOTS.read_text())[f"{name} {contract}"]
    job = golden_job(name, tmp_path, contract)
    assert job.steps >= 100, "some leaks show late"
    turn = ROUNDED.index((name, contract))
    for number, (isa, threads, engine) in in_turn(_configurations(name), is_exhaustive, turn):
        _core.set_isa(isa)
        with using(engine):
            run = train_job(job, tmp_path / f"run-{number}", Options(ExecutionContext(threads)))
        assert entry(job, run) == golden, (isa, threads, engine.name)


def test_a_rounded_run_is_audited_and_its_job_derived_again(tmp_path: Path) -> None:
    job = golden_job("logreg", tmp_path, "rounded/1;b=28")
    assert job.commitment.contract == "rounded/1-draft.1;b=28"
    assert "program" in verify_job(job)
    train_job(job, tmp_path / "run", Options())
    with using(Shuffled(3)):
        report = audit(tmp_path / "run")
    assert report.accepted and report.whole
