"""Nothing changes silently in capture: what it would drop is refused by name.

PROGRAM 5.7, 5.8. Every case here was once captured without a word, most with another meaning.
"""

from __future__ import annotations

import contextlib
import gc
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from silent_models import Body, Inner, Outer, X, captured, squares
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture import capture, capture_forward
from tallystick.program.optimizers import SGD

HERE = Path(__file__).name


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
        # A decorator is on where its function is called.
        (autocast_by_decorator, r"autocast is on \(.*silent_models\.py:\d+"),
        (autocast_of_the_device, rf"autocast is on \(.*{LINE}"),
        (counter, rf"inner\.count changes at every forward, from 1 to 2 \(.*{LINE}"),
        (counter_of_no_effect_yet, rf"inner\.count changes at every forward.*{LINE}"),
        (growing_list, rf"inner\.seen changes.*{LINE}"),
        (counter_outside, rf"global CALLS\[0\] changes at every forward, from 1 to 2 \(.*{LINE}"),
        (last_value, r"inner\.last"),
        (layer_drop, rf"draws from Python's random while it runs, and decides about.* \(.*{LINE}"),
        (legacy_numpy, rf"draws from numpy\.random while it runs \(.*{LINE}"),
        (numpy_generator, rf"differ: first aten\.mul\.Tensor.*module inner \(.*{LINE}"),
        (clock, rf"differ: first aten\.mul\.Tensor.*module inner \(.*{LINE}"),
        (default_dtype, rf"default dtype is float64 \(.*{LINE}"),
        (new_parameter, r"replaces the parameter inner\.weight"),
        (frozen_on_the_way, r"freezes the parameter inner\.weight"),
        (new_buffer, r"makes the buffer inner\.late"),
    )
}


def test_functions_set_aside_from_the_garbage_collector_are_found() -> None:
    body, message = REFUSED["counter_of_no_effect_yet"]
    gc.freeze()
    try:
        with pytest.raises(UsageError, match=f"(?s){message}"):
            captured(body)
    finally:
        gc.unfreeze()


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


def test_hooks_that_a_first_forward_adds_are_taken_away_with_their_mark() -> None:
    """transformers' `capture_outputs` adds them once, and keeps the mark as an attribute."""

    def body(m: Inner, x: Tensor) -> Tensor:
        if not hasattr(m, "hooked"):
            m.child.register_forward_hook(lambda child, args, y: y + 1)
            m.hooked = True  # type: ignore[assignment]
        return m.child(x)  # type: ignore[no-any-return]

    module = Outer(body)
    module.inner.child = nn.Linear(4, 4)
    kept = module.inner.child.register_forward_hook(lambda child, args, y: y * 2)
    before = list(module.inner.child._forward_hooks)
    capture(module, squares, X, SGD(0.1))
    assert list(module.inner.child._forward_hooks) == before == [kept.id]
    x = torch.randn(3, 4)
    first, second = module(x), module(x)
    expected = module.out(module.inner.child(module.linear(x)))
    assert torch.equal(first, second) and torch.equal(first, expected)
    assert len(module.inner.child._forward_hooks) == 2


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
