"""Training a member: as a captured program in an execution context, and as eager PyTorch code."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import tallystick
from tallystick.commit.state import CHAIN_START, extend_loss_chain
from tallystick.devices.context import ExecutionContext
from tallystick.program.capture import capture
from tallystick.program.capture.api import CapturedStep
from tallystick.program.executor import Executor
from tallystick.program.state import State
from tallystick.program.tables import number_at
from tallystick_bench.coverage.case import Batch
from tallystick_bench.families.member import Member, torchs

SEED = 11


@dataclass
class Run:
    """State roots by number of steps done, and the losses.

    `roots` cover every slot of the state and the losses (COMMITMENTS 5). `weights` cover the
    parameters, the buffers and the losses: what eager code has too.
    """

    roots: dict[int, str] = field(default_factory=dict)
    weights: dict[int, str] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, slots: Mapping[str, np.ndarray], chain: bytes) -> None:
        """The roots after as many steps as there are losses."""
        steps = len(self.losses)
        weights = {k: v for k, v in slots.items() if k.startswith(("param.", "buffer."))}
        self.roots[steps] = State(dict(slots), chain).root().hex()
        self.weights[steps] = State(dict(weights), chain).root().hex()


@dataclass
class Subject:
    """A member, built: its module, its captured step, and the batch of every step."""

    member: Member
    module: nn.Module
    captured: CapturedStep
    batches: list[Batch]

    @classmethod
    def of(cls, member: Member, steps: int) -> Subject:
        """Builds and captures. Raises what `capture` raises."""
        torch.manual_seed(7)
        module = member.build().float()
        generator = torch.Generator().manual_seed(5)
        batches = [member.batch(generator) for _ in range(steps)]
        mode = "train" if module.training else "eval"
        optimizer: Any = member.optimizer
        captured = capture(module, member.step, batches[0], optimizer, mode=mode)
        return cls(member, module, captured, batches)

    @property
    def parameters(self) -> int:
        """How many numbers the module's parameters have."""
        return sum(p.numel() for p in self.module.parameters())


def captured_run(subject: Subject, context: ExecutionContext, marks: tuple[int, ...]) -> Run:
    """Train the captured program in `context`; roots after each number of steps in `marks`."""
    captured, run, chain = subject.captured, Run(), CHAIN_START
    assert captured.initial_state is not None
    state = {name: array.copy() for name, array in captured.initial_state.items()}
    scalars = {name: number_at(rate, 1) for name, rate in captured.scalars.items()}
    executor = Executor(captured.program, context)
    started = time.perf_counter()
    for number in range(max(marks)):
        batch = {k: v.numpy() for k, v in subject.batches[number].items()}
        found = executor.run_step(state, batch, scalars, (SEED, number))
        assert found.loss is not None
        chain = extend_loss_chain(chain, number, found.loss)
        run.losses.append(float(found.loss))
        if number + 1 in marks:
            run.note(state, chain)
    run.seconds = time.perf_counter() - started
    return run


def eager_run(subject: Subject, marks: tuple[int, ...], slow_s: float) -> Run:
    """Train a copy of the module by a usual loop with torch.optim, in `reproducible`.

    It ends at the first mark where every step took more than `slow_s` of processor time.
    """
    module = copy.deepcopy(subject.module)
    step = _EagerStep(module, subject.member)
    run, chain = Run(), CHAIN_START
    started, fastest = time.perf_counter(), math.inf
    with tallystick.reproducible("ordered/1", seed=SEED) as block:
        for number in range(max(marks)):
            before = time.process_time()
            loss = step(dict(subject.batches[number]))
            block.next_step()
            fastest = min(fastest, time.process_time() - before)
            chain = extend_loss_chain(chain, number, np.float32(loss))
            run.losses.append(loss)
            if number + 1 in marks:
                run.note(_slots(module), chain)
                if fastest > slow_s:
                    break
    run.seconds = time.perf_counter() - started
    return run


class _EagerStep:
    """A training step as a user of torch writes it."""

    def __init__(self, module: nn.Module, member: Member) -> None:
        self.module, self.member = module, member
        self.rules = member.optimizer if isinstance(member.optimizer, Mapping) else None
        named = {k: p for k, p in module.named_parameters() if p.requires_grad}
        if self.rules is None:
            assert not isinstance(member.optimizer, Mapping)
            self.optimizers = {"": torchs(member.optimizer, list(named.values()))}
        else:
            self.optimizers = {
                group: torchs(
                    rule, [p for k, p in named.items() if k == group or k.startswith(f"{group}.")]
                )
                for group, rule in self.rules.items()
            }

    def __call__(self, batch: Batch) -> float:
        if self.rules is not None:
            loss = self.member.step(self.module, batch, self._update)
        else:
            loss = self.member.step(self.module, batch)
            self._update("", loss)
        first: Tensor = loss[0] if isinstance(loss, tuple) else loss
        return float(first.detach())

    def _update(self, group: str, loss: Any) -> None:
        optimizer = self.optimizers[group]
        optimizer.zero_grad()
        loss.reshape(()).backward()
        optimizer.step()


def _slots(module: nn.Module) -> dict[str, np.ndarray]:
    found: dict[str, Tensor] = {f"param.{k}": v for k, v in module.named_parameters()}
    found |= {f"buffer.{k}": v for k, v in module.named_buffers()}
    return {k: np.array(v.detach().numpy(), order="C") for k, v in found.items()}
