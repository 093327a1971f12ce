"""Golden run roots of exact/1: no instruction set, thread count or engine changes a bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from golden import EXACT, EXACT_ROOTS, EXACT_STEPS, entry, golden_job
from long_runs import cases, in_turn, place

from tallystick import _core
from tallystick.contracts.exact.cpu.integers import ENGINES, using
from tallystick.devices.context import ExecutionContext
from tallystick.run.execute.trainer import Options, train_job

pytestmark = pytest.mark.usefixtures("probed_once")


def _configurations(name: str) -> list[tuple[str, int, str]]:
    """Every instruction set with an engine, on one to three threads; two for the slow net."""
    isas, engines = list(_core.supported_isas()), list(ENGINES)
    count = max(len(isas), len(engines)) if name != "resnet50" else 2
    return [(isas[-1 - i % len(isas)], 1 + i % 3, engines[i % len(engines)]) for i in range(count)]


@pytest.mark.parametrize(("name", "contract"), cases(EXACT))
def test_run_roots_on_every_path_and_engine(
    name: str, contract: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    golden = json.loads(EXACT_ROOTS.read_text())[f"{name} {contract}"]
    job = golden_job(name, tmp_path, contract, steps=EXACT_STEPS[name])
    assert job.steps >= 100, "some leaks show late"
    turn = place(EXACT, (name, contract))
    for number, way in in_turn(_configurations(name), is_exhaustive, turn):
        isa, threads, engine = way
        with using(engine):
            context = ExecutionContext(threads, isa)
            run = train_job(job, tmp_path / f"run-{number}", Options(context))
        assert entry(job, run) == golden, (isa, threads, engine)
