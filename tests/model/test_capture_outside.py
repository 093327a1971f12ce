"""Tensors that code keeps outside of the module train as written: slots of the state.

PROGRAM 5.20.

Every case of `outside_models.py` was once captured with its first value for ever, or refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from outside_models import CASES, RECORDS, SIZE, Outside, records
from torch import Tensor

import tallystick
from tallystick.commit.order import batch_indices
from tallystick.job.job import Job
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore

STEPS, RATE = 20, 0.1
Arrays = Mapping[str, np.ndarray]


def data_of(name: str) -> dict[str, np.ndarray]:
    wanted = ("t",) if name == "hidden_states" else ("x", "y")
    return {k: v.numpy() for k, v in records().items() if k in wanted}


def job_of(made: Outside, name: str, out: Path, steps: int = STEPS, **given: object) -> Job:
    data = data_of(name)
    example = {k: torch.from_numpy(v[:SIZE]) for k, v in data.items()}
    step = tallystick.capture(made.module, made.loss, example, tallystick.SGD(RATE), **given)
    job = step.save_job(out, data, steps=steps, checkpoint_interval=1)
    assert "first step" not in job.about
    return job


def states(job: Job, run: Path) -> Iterator[dict[str, np.ndarray]]:
    store = RunStore(run)
    claim = read_claim(store, job, None)
    yield dict(job.genesis().slots)
    for step in range(1, claim.last_step + 1):
        yield dict(store.load_state(job, step, claim.roots[step]).slots)


def by_hand(made: Outside, batch: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """One step of the plain loop, in float64, from what stands in module and places."""
    loss = made.loss(made.module, batch)
    made.module.zero_grad()
    loss.backward()
    with torch.no_grad():
        for parameter in made.module.parameters():
            parameter -= RATE * parameter.grad
    found = {f"param.{k}": v for k, v in made.module.named_parameters()}
    found |= {f"buffer.outside.{k}": v for k, v in kept_by(made).items()}
    return {k: v.detach().numpy().copy() for k, v in found.items()}


def kept_by(made: Outside) -> dict[str, Tensor]:
    return {k: v for k, v in made.read().items() if k not in made.frozen}


def put(made: Outside, state: Arrays) -> None:
    """A committed state in module and places, in float64."""

    def wide(array: np.ndarray) -> Tensor:
        made = torch.from_numpy(np.array(array))
        return made.double() if made.is_floating_point() else made

    with torch.no_grad():
        for name, parameter in made.module.named_parameters():
            parameter.copy_(wide(state[f"param.{name}"]))
    frozen = {k: v.double() for k, v in made.read().items() if k in made.frozen}
    made.write(frozen | {k: wide(state[f"buffer.outside.{k}"]) for k in kept_by(made)})


@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_the_plain_loop_does(name: str, tmp_path: Path) -> None:
    """Each of twenty steps, from the committed state before it."""
    job = job_of(CASES[name](), name, tmp_path / "job")
    tallystick.train(job, tmp_path / "run", keep_checkpoints=STEPS + 1, progress=False, threads=1)
    found = list(states(job, tmp_path / "run"))
    assert len(found) == STEPS + 1
    plain = CASES[name]()
    kept = {f"buffer.outside.{k}" for k in kept_by(plain)}
    assert kept == {k for k in found[0] if "outside" in k}
    plain.module.double()
    data = data_of(name)
    torch.set_default_dtype(torch.float64)  # a factory in the loss makes float64 too
    try:
        for step in range(STEPS):
            put(plain, found[step])
            chosen = batch_indices(0, RECORDS, step, SIZE)
            batch = {k: torch.from_numpy(v[chosen]) for k, v in data.items()}
            batch = {k: v.double() if v.is_floating_point() else v for k, v in batch.items()}
            wanted = by_hand(plain, batch)
            for slot, value in wanted.items():
                own = found[step + 1][slot]
                np.testing.assert_allclose(own, value, rtol=2e-5, atol=2e-6, err_msg=slot)
    finally:
        torch.set_default_dtype(torch.float32)
    moved = [k for k in kept if found[0][k].tobytes() != found[-1][k].tobytes()]
    assert moved, "nothing that is kept changes in twenty steps"


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_a_capture_leaves_what_is_kept_as_it_was(name: str) -> None:
    made = CASES[name]()
    before = {k: (id(v), v.clone()) for k, v in made.read().items()}
    data = {k: torch.from_numpy(v[:SIZE]) for k, v in data_of(name).items()}
    texts = {
        tallystick.capture(made.module, made.loss, data, tallystick.SGD(RATE)).program.text()
        for _ in range(2)
    }
    assert len(texts) == 1
    for key, tensor in made.read().items():
        assert torch.equal(tensor, before[key][1]), key
        assert not tensor.is_meta


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CASES)
def test_the_text_is_the_same_in_every_capture(name: str) -> None:
    texts = set()
    for _ in range(2):
        made = CASES[name]()
        data = {k: torch.from_numpy(v[:SIZE]) for k, v in data_of(name).items()}
        texts.add(
            tallystick.capture(made.module, made.loss, data, tallystick.SGD(RATE)).program.text()
        )
    assert len(texts) == 1
