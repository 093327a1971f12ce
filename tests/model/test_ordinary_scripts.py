# ruff: noqa: E402
"""Ordinary training scripts within `reproducible()`: the same bits on two paths (PROGRAM 5.23).

`benchmarks/ordinary_scripts.py` runs all of them in all ways; docs/proofs/ordinary-scripts.md has
its record.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tallystick import _core
from tallystick_bench.scripts import ppo
from tallystick_bench.scripts.table import SCRIPTS, Script, outcome


@pytest.fixture(autouse=True)
def restored():
    before = torch.get_num_threads(), _core.isa(), torch.get_rng_state()
    yield
    torch.set_num_threads(before[0])
    _core.set_isa(before[1])
    torch.set_rng_state(before[2])


def trained(script: Script, isa: str, threads: int, workers: int) -> str:
    _core.set_isa(isa)
    _core.set_threads(threads)
    torch.set_num_threads(threads)
    digest: str = outcome(script, workers)["digest"]
    return digest


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda s: s.name)
def test_a_script_runs_and_has_the_same_bits(script: Script, monkeypatch) -> None:
    if script.missing():
        pytest.skip(f"not installed: {', '.join(script.missing())}")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(ppo, "STEPS", 16)  # two minibatches, in two updates: a bit shows in them
    monkeypatch.setattr(ppo, "UPDATES", 2)
    isas = _core.supported_isas()
    assert trained(script, isas[0], 1, 0) == trained(script, isas[-1], 2, 2)


def test_without_the_block_a_script_has_other_bits() -> None:
    """The comparison above can fail: torch's own kernels and numbers give another digest."""
    (script,) = [s for s in SCRIPTS if s.name == "ddp of one process"]
    module, losses = script.run(0)
    wanted = trained(script, _core.supported_isas()[0], 1, 0)
    assert losses
    found = [p.detach().numpy().tobytes() for p in module.parameters()]
    assert wanted != found
