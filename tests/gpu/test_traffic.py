"""What crosses the bus in a step (DESIGN 3: the device seam).

The batch, the scalars and the key go to the device; the loss, the metrics and the word of refusals
come back. A committed state adds a block of digests, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")

from e2e.golden import golden_job
from emulated_gpu import emulated_gpu

from tallystick.commit.encoding import HASH_BYTES
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.nvidia import Traffic
from tallystick.run.execute.engine import Engine

WORD = 8  # bytes of the word of refusals


@contextmanager
def crossing(gpu: Cuda, expected: Traffic) -> Iterator[None]:
    """Assert what crosses the bus within the block."""
    traffic = gpu.driver.traffic
    before = Traffic(**vars(traffic))
    yield
    found = {name: value - vars(before)[name] for name, value in vars(traffic).items()}
    assert found == vars(expected)


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("mlp", "ordered/1"),
        ("gpt2", "ordered/1"),
        ("mlp", "exact/1;b=8"),
        pytest.param("gpt2", "exact/1;b=22", marks=pytest.mark.long),
    ],
)
def test_what_crosses_in_a_step(name: str, contract: str, tmp_path: Path) -> None:
    job, gpu = golden_job(name, tmp_path, contract), emulated_gpu(seed=6)
    here = Engine(job, job.genesis())
    engine = Engine(job, job.genesis(), context=ExecutionContext(device=gpu))
    inputs = [spec for spec in job.program.inputs if spec.kind != "state"]
    batch = [spec for spec in inputs if spec.kind == "batch"]
    results = [v for name, v in job.program.outputs if name not in job.program.next_state]
    step = Traffic(
        len(batch) + 1,  # the scalars and the key together
        sum(spec.type.nbytes for spec in inputs),
        len(results) + 1,
        sum(job.program.type_of(v).nbytes for v in results) + WORD,
    )
    engine.run()  # binds memory, and computes what does not change from step to step
    here.run()
    assert engine.root() == here.root()
    slots = len(job.program.state_types)
    for _ in range(3):  # recorded, then replayed
        with crossing(gpu, step):
            engine.run()
        here.run()
        with crossing(gpu, Traffic(0, 0, 1, HASH_BYTES * slots)):
            root = engine.root()
        assert root == here.root()
    gpu.driver.check()
