"""`bench step` of any model that capture takes: `step_models.NETS`, or a user's own."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick import _core
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import UsageError
from tallystick.job.save import save_job
from tallystick.program.capture import CapturedStep, capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD, Adam, AdamW, Optimizer
from tallystick.program.tables import number_at
from tallystick_bench.step_memory import memory_rows
from tallystick_bench.step_models import Net, net
from tallystick_bench.step_time import time_rows

MEMORY_TARGET = 1.0
# Batches in the job that the memory is measured on.
_BATCHES = 4


class TorchNet:
    """A training step of a `Net` in torch: call it to take one (step_time.Theirs)."""

    VARIANTS: tuple[str, ...] = ("fused", "foreach", "for-loop")

    def __init__(self, given: Net, threads: int) -> None:
        torch.set_num_threads(threads)
        self.net = given
        self.optimizer: Any = None
        self._compiled: Callable[[], Tensor] | None = None
        self._forward: Callable[[], Tensor] = self._loss

    def to(self, device: str) -> None:
        """Continue on torch's device `device`; before the first `use`."""
        batch = {name: tensor.to(device) for name, tensor in self.net.batch.items()}
        self.net = replace(self.net, module=self.net.module.to(device), batch=batch)

    def use(self, variant: str) -> None:
        """Continue with another variant of the optimizer, on the present moments."""
        state = None if self.optimizer is None else self.optimizer.state
        self.optimizer = _optimizer(self.net, variant)
        if state is not None:
            self.optimizer.state = state

    def compile(self, on: bool) -> None:
        """Take forward, loss and backward through torch.compile from now on, or eagerly."""
        if on and self._compiled is None:
            self._compiled = torch.compile(self._loss)
        self._forward = self._compiled if on and self._compiled is not None else self._loss

    def _loss(self) -> Tensor:
        return self.net.loss(self.net.module, self.net.batch)

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._forward()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        float(loss.detach())


def _optimizer(given: Net, variant: str) -> torch.optim.Optimizer:
    """torch's own optimizer with the settings of the captured one."""
    chosen: Optimizer = given.optimizer
    if not isinstance(chosen.lr, float) or chosen.no_decay or chosen.decay_min_ndim:
        raise UsageError(
            "The bench compares optimizers with one rate and one decay.",
            "Give the Net's optimizer a number as lr, and no exceptions from decay.",
        )
    parameters = [p for p in given.module.parameters() if p.requires_grad]
    how = {"fused": variant == "fused", "foreach": variant == "foreach"}
    if isinstance(chosen, SGD):
        return torch.optim.SGD(
            parameters,
            lr=chosen.lr,
            momentum=chosen.momentum,
            dampening=chosen.dampening,
            weight_decay=chosen.weight_decay,
            nesterov=chosen.nesterov,
            **how,
        )
    made = torch.optim.AdamW if isinstance(chosen, AdamW) else torch.optim.Adam
    assert isinstance(chosen, Adam)
    decay = chosen.weight_decay
    return made(
        parameters, lr=chosen.lr, betas=chosen.betas, eps=chosen.eps, weight_decay=decay, **how
    )


def captured(given: Net) -> CapturedStep:
    mode = "train" if given.module.training else "eval"
    return capture(given.module, given.loss, given.batch, given.optimizer, mode=mode)


def ours(
    given: Net,
    step: CapturedStep,
    threads: int,
    context: ExecutionContext = DEFAULT,
    placed: Callable[[np.ndarray], Any] = np.array,
) -> tuple[Executor, Callable[[], object]]:
    """The executor of the captured step, and a call that takes a step on the batch of `given`.

    `placed` makes a tensor of the state, on the device of `context`.
    """
    initial = step.initial_state
    if initial is None:
        raise UsageError("The module was made without weights.", "Build it off torch's meta.")
    state = {name: placed(array) for name, array in initial.items()}
    # The process's own context: it follows the instruction set that the bench sets.
    _core.set_threads(threads)
    executor = Executor(step.program, context)
    batch = {name: tensor.numpy() for name, tensor in given.batch.items()}
    rates = {name: number_at(v, 1) for name, v in step.scalars.items()}
    count = iter(range(1 << 40))
    return executor, lambda: executor.run_step(state, batch, rates, (0, next(count)))


def rows_of(
    name: str, threads: int, repeats: int, parts: Sequence[str], compiled: bool = True
) -> list[dict[str, Any]]:
    """Rows of time and of memory of the model called `name` (step_models.net)."""
    given = net(name)
    step = captured(given)
    title = name.rpartition(":")[2]
    found: list[dict[str, Any]] = []
    anchor = TorchNet.VARIANTS[0]
    if "memory" in parts:
        with tempfile.TemporaryDirectory(prefix="tallystick-bench-") as directory:
            found = _memory(name, title, given, step, Path(directory) / "job", threads, anchor)
    if "time" in parts:
        _, run = ours(given, step, threads)
        theirs = TorchNet(given, threads)
        found = time_rows(title, given.target, run, theirs, threads, repeats, compiled) + found
    return found


def _memory(
    name: str, title: str, given: Net, step: CapturedStep, job: Path, threads: int, anchor: str
) -> list[dict[str, Any]]:
    data = {k: np.concatenate([t.numpy()] * _BATCHES) for k, t in given.batch.items()}
    save_job(step, job, data, steps=_BATCHES, compare_first_step=False)
    return memory_rows(title, MEMORY_TARGET, job, {"net": name}, threads, anchor)
