"""Nothing changes silently in capture: what acts in a model is honoured, as eager float64 shows.

PROGRAM 5.7, 5.8. Every case here was once captured without a word, most with another meaning.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from silent_models import Body, Inner, Outer, X, captured, squares
from torch import Tensor, nn

from tallystick.program.capture import CapturedStep, capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD


def tensor_hook(m: Inner, x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y * m.weight


def no_grad(m: Inner, x: Tensor) -> Tensor:
    with torch.no_grad():
        y = x * 3
    return x * m.weight + y


def inference(m: Inner, x: Tensor) -> Tensor:
    with torch.inference_mode():
        y = x * 3
    return x * m.weight + y


def detached(m: Inner, x: Tensor) -> Tensor:
    return x * m.weight + x.detach() * x.data


def autocast_disabled(m: Inner, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
        return x @ x.T @ x * m.weight


def inner_gradient(m: Inner, x: Tensor) -> Tensor:
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g * m.weight


def seeded(m: Inner, x: Tensor) -> Tensor:
    random.seed(5)
    return x * random.random() * m.weight


def cached_number(m: Inner, x: Tensor) -> Tensor:
    m.count = m.count or 3
    return x * m.count * m.weight


def kept_for_looking(m: Inner, x: Tensor) -> Tensor:
    m.last = x * m.weight
    return m.last


def buffer_in_place(m: Inner, x: Tensor) -> Tensor:
    y = x * m.running.clone() * m.weight
    with torch.no_grad():
        m.running.mul_(0.5).add_(x.detach().mean(0))
    return y


def saved_tensors(m: Inner, x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
        return x * x * m.weight


BODIES: list[Body] = [
    tensor_hook, no_grad, inference, detached, autocast_disabled, inner_gradient, seeded,
    cached_number, kept_for_looking, buffer_in_place, saved_tensors,
]  # fmt: skip


def parameter_hook(m: Outer) -> None:
    m.linear.weight.register_hook(lambda g: g * 3)


def forward_hooks(m: Outer) -> None:
    m.inner.register_forward_pre_hook(lambda mod, args: (args[0] * 3,))
    m.inner.register_forward_hook(lambda mod, args, y: y * 2 + args[0])


def backward_hooks(m: Outer) -> None:
    m.inner.register_full_backward_hook(lambda mod, given, got: (given[0] * 3,))
    m.out.register_full_backward_pre_hook(lambda mod, got: (got[0] * 2,))


def frozen_parameter(m: Outer) -> None:
    m.linear.weight.requires_grad_(False)


def agrees(step: CapturedStep, module: nn.Module) -> None:
    """The loss, every gradient and every buffer against the module itself in float64."""
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(9))
    assert step.initial_state is not None
    state = {k: v.copy() for k, v in step.initial_state.items()}
    result = Executor(step.program).run_step(state, {"x": x.numpy()}, {"lr": 0.0})
    module.double()
    loss = squares(module, {"x": x.double()})
    loss.backward()
    np.testing.assert_allclose(result.loss, loss.item(), rtol=2e-6)
    for name, parameter in module.named_parameters():
        found = result.outputs.get(f"grad.{name}")
        assert (found is None) == (parameter.grad is None), name
        if found is not None:
            np.testing.assert_allclose(found, parameter.grad.numpy(), rtol=2e-5, atol=2e-5)
    for name, buffer in module.named_buffers():
        np.testing.assert_allclose(state[f"buffer.{name}"], buffer.numpy(), rtol=2e-6)


@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_honoured_in_forward(body: Body) -> None:
    step = captured(body)
    torch.manual_seed(3)
    agrees(step, Outer(body))


@pytest.mark.parametrize(
    "prepare",
    [parameter_hook, forward_hooks, backward_hooks, frozen_parameter],
    ids=lambda f: f.__name__,
)
def test_hooks_and_frozen_parameters_are_honoured(prepare: Callable[[Outer], None]) -> None:
    torch.manual_seed(3)
    module = Outer()
    prepare(module)
    agrees(capture(module, squares, X, SGD(0.1), outputs_grads=True), module)


def test_hooks_of_every_module_see_the_models_modules_only() -> None:
    module, seen = Outer(), []

    def hook(called: nn.Module, args: Any, y: Tensor) -> Tensor:
        seen.append(type(called).__name__)
        return y * 2

    handle = nn.modules.module.register_module_forward_hook(hook)
    try:
        agrees(capture(module, squares, X, SGD(0.1), outputs_grads=True), module)
    finally:
        handle.remove()
    assert set(seen) == {"Outer", "Inner", "Linear"}


def test_flags_that_allow_torch_less_precision_change_no_program() -> None:
    """They say what torch's kernels may do. The contract's kernels compute in float32, always."""
    plain = captured(no_grad).program.digest()
    before = torch.get_float32_matmul_precision()
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.backends.mkldnn.flags(enabled=False):
            assert captured(no_grad).program.digest() == plain
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision(before)
