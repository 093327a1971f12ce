"""Rounding logs of steps with micro-batches: those of the expanded program (PROGRAM 6.7)."""

from __future__ import annotations

import numpy as np
import pytest
from micro_samples import micro_inputs, micro_step

from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.operators.reduction import FOLD
from tallystick.program.executor import Executor
from tallystick.program.expand import expand, split_batch
from tallystick.program.sectioned import SectionedExecutor

LR, KEY = {"lr": 0.25}, np.array([5, 9], np.int64)
CONTRACTS = ("replay/1;b=24", "replay/1;b=27;form=published")


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("parts", [1, 3])
def test_logs_are_those_of_the_expansion(contract: str, parts: int) -> None:
    if "published" in contract:
        pytest.importorskip("torch", reason="the published form's kernels are torch's")
    program = micro_step(find_contract(contract).text)
    flat = expand(program, parts)
    one, two = LoggedSteps(flat), LoggedSteps(flat)
    plain = Executor(flat, kernels=one.kernels)
    ours = SectionedExecutor(program, parts, kernels=two.kernels)
    (state, batch), (other, _) = micro_inputs(parts), micro_inputs(parts)
    assert all(flat.nodes[section.node].op != FOLD for section in one.logged.sections)
    count = len({s.node for s in one.logged.sections if s.node < parts * program.section})
    assert count and count % parts == 0, "each micro-batch has sections of its own"
    for step in range(2):
        one.begin(step)
        a = plain.run_step(state, split_batch(batch, parts), LR, KEY)
        two.begin(step)
        b = ours.run_step(other, batch, LR, KEY)
        assert one.finish() == two.finish()
        assert a.loss is not None and b.loss is not None and a.loss.tobytes() == b.loss.tobytes()
        assert all(state[name].tobytes() == other[name].tobytes() for name in state)


def test_published_logs_on_a_torch_device() -> None:
    pytest.importorskip("torch", reason="a torch device needs torch")
    from tallystick.devices.context import ExecutionContext
    from tallystick.devices.torch import TorchDevice
    from tallystick.program.state import State

    program = micro_step(find_contract(CONTRACTS[1]).text)
    flat, device = expand(program, 3), TorchDevice("cpu")
    found = []
    for sectioned in (False, True):
        steps = LoggedSteps(flat)
        steps.move_to(device)
        context = ExecutionContext(device=device)
        slots, batch = micro_inputs(3)
        state = State(slots)
        with context.entered():
            state.move_to(device)
        steps.begin(0)
        if sectioned:
            ours = SectionedExecutor(program, 3, context, steps.kernels)
            ours.run_step(state.slots, batch, LR, KEY)
        else:
            plain = Executor(flat, context, steps.kernels)
            plain.run_step(state.slots, split_batch(batch, 3), LR, KEY)
        found.append((steps.finish(), [device.host(x).tobytes() for x in state.slots.values()]))
    assert found[0] == found[1]
