"""Optimizers: the processor time of an update, beside torch's own update of the same matrix.

    python benchmarks/optimizers.py [--rows N] [--columns N] [--threads N]

The loss is the sum of w·x with x of the batch, so that the gradient is x. The time of an update is
that of the step, less that of the same step with plain SGD, plus that of torch's SGD. Theirs is
torch's own optimizer; of Lion and LAMB, calls of torch in place as their authors publish them; of
Muon, torch.optim.Muon, which multiplies in bfloat16, and the same rule in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick import _core
from tallystick.program.capture import capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import (
    LAMB,
    SGD,
    Adafactor,
    Adagrad,
    AdamW,
    Lion,
    Muon,
    RMSprop,
    TransformersAdafactor,
)
from tallystick.program.tables import number_at
from tallystick.program.update import EMA


class _Plain:
    """Calls of torch in place, without torch's frame around them."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = [*parameters]
        self.state: dict[int, dict[str, Any]] = {id(p): {} for p in self.parameters}


class _Lion(_Plain):
    @torch.no_grad()
    def step(self) -> None:
        for p in self.parameters:
            m = self.state[id(p)].setdefault("m", torch.zeros_like(p))
            p.add_(m.mul(0.9).add_(p.grad, alpha=0.1).sign_(), alpha=-1e-4)
            m.mul_(0.99).add_(p.grad, alpha=0.01)


class _Lamb(_Plain):
    @torch.no_grad()
    def step(self) -> None:
        for p in self.parameters:
            state = self.state[id(p)]
            m = state.setdefault("m", torch.zeros_like(p))
            v = state.setdefault("v", torch.zeros_like(p))
            m.lerp_(p.grad, 0.1)
            v.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            r = (m / 0.1).div_((v / 0.001).sqrt_().add_(1e-6)).add_(p, alpha=0.01)
            p.add_(r, alpha=-1e-3 * float(p.norm() / r.norm()))


class _Muon(_Plain):
    @torch.no_grad()
    def step(self) -> None:
        for p in self.parameters:
            buffer = self.state[id(p)].setdefault("b", torch.zeros_like(p))
            buffer.lerp_(p.grad, 0.05)
            x = p.grad.lerp(buffer, 0.95)
            x.div_(x.norm().clamp(min=1e-7))
            for _ in range(5):
                gram = x @ x.T
                mixed = torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315)
                x = torch.addmm(x, mixed, x, beta=3.4445)
            p.mul_(1 - 1e-4).add_(x, alpha=-1e-3)


CASES: dict[str, tuple[Any, Callable[[Any], Any], dict[str, Any]]] = {
    "SGD, momentum": (SGD(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, 0.9), {}),
    "AdamW": (AdamW(1e-3), lambda p: torch.optim.AdamW(p, 1e-3), {}),
    "RMSprop": (RMSprop(), lambda p: torch.optim.RMSprop(p), {}),
    "Adagrad": (Adagrad(), lambda p: torch.optim.Adagrad(p), {}),
    "Lion": (Lion(), _Lion, {}),
    "LAMB": (LAMB(), _Lamb, {}),
    "Adafactor": (Adafactor(), lambda p: torch.optim.Adafactor(p), {}),
    "Adafactor of transformers": (
        TransformersAdafactor(1e-3, relative_step=False),
        lambda p: torch.optim.Adafactor(p),
        {},
    ),
    "Muon": (Muon(), lambda p: torch.optim.Muon(p), {}),
    "Muon, beside float32": (Muon(), _Muon, {}),
    "AdamW, with an average": (
        AdamW(1e-3), lambda p: torch.optim.AdamW(p, 1e-3), {"ema": EMA(0.999)},
    ),
}  # fmt: skip


class Weights(nn.Module):
    """One matrix, whose gradient is the batch itself."""

    def __init__(self, rows: int, columns: int) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(rows, columns))


def loss(module: Any, batch: dict[str, Tensor]) -> Tensor:
    found: Tensor = (module.w * batch["x"]).sum()
    return found


def _time(call: Callable[[], object], repeats: int) -> float:
    """The least of several: other work disturbs the processor's time less than the clock's."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times[1:])


def measure(name: str, rows: int, columns: int, repeats: int) -> tuple[float, float, int]:
    """Seconds of our step less those of a step without optimizer, torch's update, our nodes."""
    optimizer, make, options = CASES[name]
    torch.manual_seed(1)
    module = Weights(rows, columns)
    x = torch.randn(rows, columns)
    batch = {"x": ((rows, columns), "f32")}
    times = []
    nodes = 0
    for given, more in ((optimizer, options), (SGD(0.1), {})):
        step = capture(module, loss, batch, given, **more)
        assert step.initial_state is not None
        state = {k: np.array(v) for k, v in step.initial_state.items()}
        scalars = {k: number_at(v, 1) for k, v in step.scalars.items()}
        executor, nodes = Executor(step.program), nodes or len(step.program.nodes)
        arrays = {"x": x.numpy()}
        count = iter(range(1 << 30))

        def run(
            executor: Executor = executor,
            state: Any = state,
            scalars: Any = scalars,
            arrays: Any = arrays,
            count: Any = count,
        ) -> object:
            return executor.run_step(state, arrays, scalars, (0, next(count)))

        times.append(_time(run, repeats))
    # What is left of the plain step is one fused update, which is added back by its traffic.
    module.w.grad = x
    theirs = _time(make([module.w]).step, repeats)
    sgd = _time(torch.optim.SGD([module.w], 0.1).step, repeats)
    return times[0] - times[1] + sgd, theirs, nodes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    _core.set_threads(given.threads)
    print(f"{given.rows}x{given.columns}, {given.threads} threads")
    for name in CASES:
        rows, columns = (given.rows, given.columns) if "Muon" not in name else (512, 1024)
        ours, theirs, nodes = measure(name, rows, columns, given.repeats)
        print(
            f"{name:26} {nodes:4} nodes {ours * 1e3:9.2f} ms, torch {theirs * 1e3:9.2f} ms, "
            f"{ours / theirs:5.2f}"
        )


if __name__ == "__main__":
    main()
