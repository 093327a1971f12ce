"""Nothing changes silently in capture: honoured, as eager float64 shows, or refused by name.

PROGRAM 5.7, 5.8. Every case here was once captured without a word, most with another meaning.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture import CapturedStep, capture, capture_forward
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

X = {"x": ((3, 4), "f32")}
HERE = Path(__file__).name
Body = Callable[[Any, Tensor], Tensor]


def squares(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    y: Tensor = module(batch["x"])
    return (y * y).sum()


class Inner(nn.Module):
    """Runs a function of itself and x, so that the function may keep something in it."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self.body = [body]
        self.count = 0
        self.seen: list[int] = []
        self.last: Tensor | None = None
        self.weight = nn.Parameter(torch.full((4,), 1.25))
        self.register_buffer("running", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.body[0](self, x)


class Outer(nn.Module):
    def __init__(self, body: Body = lambda m, x: x * m.weight) -> None:
        super().__init__()
        self.linear, self.inner, self.out = nn.Linear(4, 4), Inner(body), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.out(self.inner(self.linear(x)))
        return y


def captured(body: Body, **more: Any) -> CapturedStep:
    torch.manual_seed(3)
    return capture(Outer(body), squares, X, SGD(0.1), outputs_grads=True, **more)


# -- refused ---------------------------------------------------------------------------------------


def autocast(m: Inner, x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return (x @ x.T @ x).float()


@torch.autocast("cpu", dtype=torch.bfloat16)
def autocast_by_decorator(m: Inner, x: Tensor) -> Tensor:
    return (x @ x.T @ x).float()


def autocast_of_the_device(m: Inner, x: Tensor) -> Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return x * 2


def counter(m: Inner, x: Tensor) -> Tensor:
    m.count += 1
    return x * m.count


def counter_of_no_effect_yet(m: Inner, x: Tensor) -> Tensor:
    m.count += 1
    return x * 2 if m.count > 1000 else x


def growing_list(m: Inner, x: Tensor) -> Tensor:
    m.seen.append(1)
    return x * len(m.seen)


CALLS = [0]


def counter_outside(m: Inner, x: Tensor) -> Tensor:
    CALLS[0] += 1
    return x * CALLS[0]


def last_value(m: Inner, x: Tensor) -> Tensor:
    y = x if m.last is None else x + m.last
    m.last = x.detach().mean(0)
    return y


def layer_drop(m: Inner, x: Tensor) -> Tensor:
    return x if random.random() < 0.0 else x * 2


def legacy_numpy(m: Inner, x: Tensor) -> Tensor:
    return x * float(np.random.rand())


def numpy_generator(m: Inner, x: Tensor) -> Tensor:
    return x * float(np.random.default_rng().random())


def clock(m: Inner, x: Tensor) -> Tensor:
    return x * time.time()


def default_dtype(m: Inner, x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float64)
    try:
        return x * torch.ones(4).float()
    finally:
        torch.set_default_dtype(torch.float32)


def parameter_in_place(m: Inner, x: Tensor) -> Tensor:
    with torch.no_grad():
        m.weight.mul_(0.5)
    return x * m.weight


def parameter_data(m: Inner, x: Tensor) -> Tensor:
    m.weight.data = m.weight.data * 0.5
    return x * m.weight


def new_parameter(m: Inner, x: Tensor) -> Tensor:
    m.weight = nn.Parameter(m.weight.detach() * 0.5)
    return x * m.weight


def frozen_on_the_way(m: Inner, x: Tensor) -> Tensor:
    m.weight.requires_grad_(False)
    return x * m.weight


def new_buffer(m: Inner, x: Tensor) -> Tensor:
    m.register_buffer("late", torch.ones(4))
    return x * m.late


LINE = rf"{re.escape(HERE)}:\d+"
REFUSED: dict[str, tuple[Body, str]] = {
    f.__name__: (f, message)
    for f, message in (
        (autocast, rf"autocast is on \(.*{LINE}"),
        (autocast_by_decorator, rf"autocast is on \(.*{LINE}"),
        (autocast_of_the_device, rf"autocast is on \(.*{LINE}"),
        (counter, rf"inner\.count changes at every forward, from 1 to 2 \(.*{LINE}"),
        (counter_of_no_effect_yet, rf"inner\.count changes at every forward.*{LINE}"),
        (growing_list, rf"inner\.seen changes.*{LINE}"),
        (counter_outside, rf"differ: first aten\.mul\.Tensor.*module inner \(.*{LINE}"),
        (last_value, r"inner\.last"),
        (layer_drop, rf"draws from Python's random while it runs \(.*{LINE}"),
        (legacy_numpy, rf"draws from numpy\.random while it runs \(.*{LINE}"),
        (numpy_generator, rf"differ: first aten\.mul\.Tensor.*module inner \(.*{LINE}"),
        (clock, rf"differ: first aten\.mul\.Tensor.*module inner \(.*{LINE}"),
        (default_dtype, rf"default dtype is float64 \(.*{LINE}"),
        (parameter_in_place, r"changes the parameter inner\.weight"),
        (parameter_data, r"changes the parameter inner\.weight"),
        (new_parameter, r"replaces the parameter inner\.weight"),
        (frozen_on_the_way, r"freezes the parameter inner\.weight"),
        (new_buffer, r"makes the buffer inner\.late"),
    )
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name_with_the_models_line_and_a_next_action(what: str) -> None:
    body, message = REFUSED[what]
    with pytest.raises(UsageError, match=f"(?s){message}") as caught:
        captured(body)
    assert caught.value.next_action


def test_the_line_is_the_one_that_changes() -> None:
    wanted = counter.__code__.co_firstlineno + 1
    with pytest.raises(UsageError, match=rf"{re.escape(HERE)}:{wanted}\b"):
        captured(counter)


@contextlib.contextmanager
def float64_by_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("around", "message"),
    [
        (lambda: torch.autocast("cpu", dtype=torch.bfloat16), "autocast is on"),
        (float64_by_default, "default dtype is float64"),
        (torch.inference_mode, "inference_mode"),
    ],
)
def test_a_state_of_torch_around_capture_is_refused(around: Any, message: str) -> None:
    module = Outer()
    with around(), pytest.raises(UsageError, match=message):
        capture(module, squares, X, SGD(0.1))


def test_the_forward_program_draws_nothing_from_python_either() -> None:
    with pytest.raises(UsageError, match="draws from numpy"):
        capture_forward(Outer(legacy_numpy), X)


def test_a_hook_after_accumulation_is_refused() -> None:
    module = Outer()
    module.linear.weight.register_post_accumulate_grad_hook(lambda p: None)
    with pytest.raises(UsageError, match=r"linear\.weight .*post_accumulate"):
        capture(module, squares, X, SGD(0.1))


@pytest.mark.parametrize("refused", [True, False])
def test_the_module_and_pythons_generators_are_put_back(refused: bool) -> None:
    def body(m: Inner, x: Tensor) -> Tensor:
        m.seen.append(7)
        m.last = x
        m.cache = x * 2  # type: ignore[assignment]
        return x * random.random() if refused else x * len(m.seen[:0])

    def clearing(m: Inner, x: Tensor) -> Tensor:
        m.seen.clear()
        return body(m, x)

    module, drawn = Outer(clearing), random.getstate()
    with pytest.raises(UsageError) if refused else contextlib.nullcontext():
        capture(module, squares, X, SGD(0.1))
    assert module.inner.seen == [] and module.inner.last is None
    assert not hasattr(module.inner, "cache")
    assert random.getstate() == drawn


# -- the mode --------------------------------------------------------------------------------------


def test_evaluation_mode_is_captured_only_where_it_is_said() -> None:
    module = Outer().eval()
    with pytest.raises(UsageError, match=r"Outer is in evaluation mode") as caught:
        tallystick.capture(module, squares, X, SGD(0.1))
    assert 'mode="eval"' in caught.value.next_action
    assert tallystick.capture(module, squares, X, SGD(0.1), mode="eval").program.nodes
    with pytest.raises(UsageError, match="in training mode"):
        capture(module.train(), squares, X, SGD(0.1), mode="eval")
    with pytest.raises(UsageError, match="mode is 'test'"):
        capture(module, squares, X, SGD(0.1), mode="test")


def test_a_submodule_keeps_its_mode() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 4), nn.Dropout(0.5))
    module[0].eval()
    found = [n.op for n in capture(module, squares, X, SGD(0.1)).program.nodes]
    assert found.count("tallystick.dropout_mask") == 1
    module.eval()
    frozen = capture(module, squares, X, SGD(0.1), mode="eval").program
    assert not frozen.uses_rng


# -- honoured --------------------------------------------------------------------------------------


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
