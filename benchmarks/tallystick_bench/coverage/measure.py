"""One case, measured: is it captured, and how far are losses and gradients from torch's float64?

The bounds are float32's own error, which torch's float32 on the same weights and batches shows.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

import tallystick
from tallystick.errors import TallystickError
from tallystick.program.capture import capture
from tallystick.program.capture.torch_step import default_dtype
from tallystick.program.executor import Executor
from tallystick_bench.coverage.case import Batch, Case

STEPS = 5
TIMES = 8.0
LOSS_FLOOR = 2.0**-20
GRADIENT_FLOOR = 2.0**-16


class _Wide(TorchFunctionMode):
    """Float64 where the model asks for float32 by name, so that float64 is float64 throughout."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        def wide(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        if func is Tensor.float:
            return args[0].to(torch.float64)
        named = {k: wide(v) for k, v in (kwargs or {}).items()}
        return func(*(wide(a) for a in args), **named)


@contextlib.contextmanager
def _precision(dtype: torch.dtype) -> Iterator[None]:
    wide = _Wide() if dtype is torch.float64 else contextlib.nullcontext()
    # The gradient of torch's other attention on a CPU is wrong for a query whose mask is the least
    # number everywhere: it takes weights of 1 for its equal ones (transformers 4.50, left padding).
    with default_dtype(dtype), wide, sdpa_kernel(SDPBackend.MATH):
        yield


def _eager(
    module: nn.Module, case: Case, batches: list[Batch], dtype: torch.dtype
) -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of SGD's steps by torch in `dtype`, and the first step's gradients."""
    twin = copy.deepcopy(module).to(dtype)
    for child in twin.modules():
        # Tables that a module keeps beside its buffers.
        for name, value in vars(child).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                setattr(child, name, value.to(dtype))
    named = {k: p for k, p in twin.named_parameters() if p.requires_grad}
    losses, first = [], {}
    with _precision(dtype):
        for batch in batches:
            given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
            loss = case.loss(twin, given)
            found = torch.autograd.grad(loss.reshape(()), list(named.values()), allow_unused=True)
            losses.append(float(loss.detach()))
            gradients = {k: g for k, g in zip(named, found, strict=True) if g is not None}
            first = first or {k: g.double().numpy() for k, g in gradients.items()}
            with torch.no_grad():
                for name, gradient in gradients.items():
                    named[name] -= case.rate * gradient
    return losses, first


def _loss_misses(ours: list[float], single: list[float], exact: list[float]) -> float:
    """The largest loss error over what float32's own error allows; above 1 is wrong."""
    worst = 0.0
    own = max(abs(a - b) for a, b in zip(single, exact, strict=True))
    for a, b in zip(ours, exact, strict=True):
        allowed = TIMES * own + LOSS_FLOOR * max(1.0, abs(b))
        worst = max(worst, abs(a - b) / allowed if math.isfinite(a) else math.inf)
    return worst


def _gradient_misses(
    ours: dict[str, np.ndarray], single: dict[str, np.ndarray], exact: dict[str, np.ndarray]
) -> float:
    """As `_loss_misses`, for the first step's gradients, by Euclidean norms per parameter."""
    whole = math.sqrt(sum(float((g * g).sum()) for g in exact.values()))
    worst = 0.0
    for name in sorted(set(ours) | set(exact)):
        true = exact.get(name, np.zeros(1))
        own = float(np.linalg.norm((single.get(name, np.zeros(1)) - true).ravel()))
        error = float(np.linalg.norm((ours.get(name, np.zeros(1)) - true).ravel()))
        floor = GRADIENT_FLOOR * float(np.linalg.norm(true.ravel())) + LOSS_FLOOR * whole
        allowed = TIMES * own + floor + 1e-12
        worst = max(worst, error / allowed if math.isfinite(error) else math.inf)
    return worst


def measure(case: Case) -> dict[str, Any]:
    """The row: `status` is captured, wrong, refused, or broken (torch itself fails)."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    row: dict[str, Any] = {"family": case.family, "name": case.name}
    try:
        module = case.build().float()
        generator = torch.Generator().manual_seed(5)
        batches = [case.batch(generator) for _ in range(STEPS)]
        if not case.drawn:
            single = _eager(module, case, batches, torch.float32)
            exact = _eager(module, case, batches, torch.float64)
    except Exception as error:
        return row | {"status": "broken", "why": f"{type(error).__name__}: {error}".strip()[:300]}
    started = time.perf_counter()
    try:
        step = capture(
            module,
            case.loss,
            batches[0],
            tallystick.SGD(case.rate),
            outputs_grads=True,
            mode="train" if module.training else "eval",
        )
    except TallystickError as error:
        return row | {"status": "refused", "why": str(error)}
    row |= {"seconds": time.perf_counter() - started, "nodes": len(step.program.nodes)}
    try:
        return row | (_drawn(step, batches) if case.drawn else _run(step, batches, single, exact))
    except TallystickError as error:
        return row | {"status": "wrong", "why": f"the program fails: {error}"}


def _run(step: Any, batches: list[Batch], single: Any, exact: Any) -> dict[str, Any]:
    executor = Executor(step.program)
    state = {k: np.array(v) for k, v in step.initial_state.items()}
    losses: list[float] = []
    gradients: dict[str, np.ndarray] = {}
    for number, batch in enumerate(batches):
        arrays = {k: v.numpy() for k, v in batch.items()}
        done = executor.run_step(state, arrays, {"lr": step.scalars["lr"]}, (11, number))
        losses.append(float(done.loss))
        if not gradients:
            gradients = {
                k[5:]: v.astype(np.float64) for k, v in done.outputs.items() if k[:5] == "grad."
            }
    if not all(map(math.isfinite, exact[0])):
        return {"status": "broken", "why": "torch's own loss is not finite in float64"}
    loss_miss = _loss_misses(losses, single[0], exact[0])
    gradient_miss = _gradient_misses(gradients, single[1], exact[1])
    right = loss_miss <= 1.0 and gradient_miss <= 1.0
    return {
        "status": "captured" if right else "wrong",
        "why": "" if right else "beyond float32's own error",
        "loss": losses[0],
        "loss_error": max(abs(a - b) for a, b in zip(losses, exact[0], strict=True)),
        "float32_error": max(abs(a - b) for a, b in zip(single[0], exact[0], strict=True)),
        "loss_of_bound": loss_miss,
        "gradient_of_bound": gradient_miss,
    }


def _drawn(step: Any, batches: list[Batch]) -> dict[str, Any]:
    """The first step against the module in float64 with the contract's random numbers."""
    arrays = {k: v.numpy() for k, v in batches[0].items()}
    reason = step.first_step.compare(
        step.program.contract, step.initial_state, arrays, {"lr": step.scalars["lr"]}, (11, 0)
    )
    if reason is None:
        return {"status": "captured", "why": "compared by the first step"}
    return {"status": "wrong", "why": reason}
