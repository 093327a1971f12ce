"""Micro-batches on the emulated GPU: the processor's bits (PROGRAM 6, NUMERICS 1.8)."""

from __future__ import annotations

import numpy as np
import pytest
from emulated_gpu import emulated_gpu
from micro_samples import ROWS, micro_inputs, micro_step

from tallystick.devices.context import ExecutionContext
from tallystick.numerics.contracts import find_contract
from tallystick.program.executor import Executor
from tallystick.program.expand import expand, split_batch
from tallystick.program.sectioned import SectionedExecutor
from tallystick.program.state import State

LR = {"lr": 0.25}


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1;b=24"])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_steps(contract: str, parts: int) -> None:
    """Four steps: each micro-batch's calls are started, recorded, and replayed."""
    program = micro_step(find_contract(contract).text)
    device = emulated_gpu(seed=parts)
    context = ExecutionContext(device=device)
    slots, _ = micro_inputs(parts)
    there = State({name: array.copy() for name, array in slots.items()})
    with context.entered():
        there.move_to(device)
    plain = Executor(expand(program, parts))
    ours = SectionedExecutor(program, parts, context)
    rng = np.random.default_rng(0)
    for step in range(4):
        batch = {"x": rng.standard_normal((parts * ROWS, 4), dtype=np.float32)}
        key = np.array([3, step], np.int64)
        a = plain.run_step(slots, split_batch(batch, parts), LR, key)
        tap = (lambda *_: None) if step == 3 else None
        b = ours.run_step(there.slots, batch, LR, key, tap)
        for name, array in a.outputs.items():
            assert b.outputs[name].tobytes() == array.tobytes(), (step, name)
        for name, array in slots.items():
            assert device.host(there.slots[name]).tobytes() == array.tobytes(), (step, name)
    device.driver.check()
