"""Models as people write them: wrappers, functions and layers (PROGRAM 5.11)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_checks import (
    Around,
    Function,
    agrees,
    example,
    first_step_agrees,
    squares,
    step_of,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import tallystick
from tallystick.errors import UsageError
from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD

HERE = r"test_capture_as_is\.py:\d+"

# -- wrappers that change no value -----------------------------------------------------------------


def block() -> nn.Module:
    torch.manual_seed(8)
    return nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.GELU(), nn.Linear(6, 4))


def plain(m: Any, x: Tensor) -> Tensor:
    y: Tensor = m.layer(x)
    return y * torch.rand_like(x) + m.layer(y)


WRAPPED: dict[str, Function] = {
    "reentrant": lambda m, x: checkpoint(plain, m, x, use_reentrant=True),
    "not reentrant": lambda m, x: checkpoint(plain, m, x, use_reentrant=False),
    "no rng state": lambda m, x: checkpoint(
        plain, m, x, use_reentrant=False, preserve_rng_state=False, determinism_check="none"
    ),
    "compiled function": lambda m, x: m.compiled[0](m, x),
}


@pytest.fixture(scope="module")
def compiled() -> Callable[..., Any]:
    function: Callable[..., Any] = torch.compile(plain, backend="eager")
    return function


@pytest.mark.parametrize("name", WRAPPED)
def test_the_program_is_that_of_the_wrapped_function(name: str, compiled: Any) -> None:
    """PROGRAM 5.11: recomputation draws nothing anew, so the digests are equal."""
    wanted = step_of(Around(plain, layer=block())).program
    module = Around(WRAPPED[name], layer=block())
    module.compiled = [compiled]
    assert step_of(module).program.digest() == wanted.digest()
    assert wanted.uses_rng


def test_checkpointed_layers_one_after_the_other() -> None:
    one = step_of(Around(lambda m, x: m.layer(x), layer=block())).program
    two = step_of(
        Around(
            lambda m, x: checkpoint_sequential(m.layer, 2, x, use_reentrant=False), layer=block()
        )
    ).program
    assert one.digest() == two.digest()


def test_a_reentrant_checkpoint_without_inputs_that_need_gradients_has_none() -> None:
    """As in torch, which warns: the parameters within are not trained."""
    module = Around(
        lambda m, x: x + checkpoint(m.layer, x.detach(), use_reentrant=True), layer=block()
    )
    assert set(step_of(module).untrained) == {
        f"layer.{i}.{k}" for i in (0, 3) for k in ("weight", "bias")
    }


def test_checkpoints_draw_once_in_reproducible_too() -> None:
    found = []
    for function in (plain, WRAPPED["not reentrant"], WRAPPED["reentrant"]):
        module = Around(function, layer=block())
        x = example(module)
        with tallystick.reproducible("ordered/1", seed=5):
            squares(module, {"x": x}).backward()
        found.append([p.grad.numpy().tobytes() for p in module.parameters()])
    assert found[0] == found[1] == found[2]


def as_whole(m: nn.Module) -> nn.Module:
    return torch.compile(m, backend="eager")  # type: ignore[return-value]


def a_layer(m: nn.Module) -> nn.Module:
    m.layer = torch.compile(m.layer, backend="eager")
    return m


def in_place(m: nn.Module) -> nn.Module:
    m.compile(backend="eager")
    m.layer.compile(backend="eager")  # type: ignore[union-attr, operator]
    return m


@pytest.mark.parametrize("wrap", [as_whole, a_layer, in_place])
def test_compiled_modules_are_looked_through(
    wrap: Callable[[nn.Module], nn.Module], tmp_path: Path
) -> None:
    wanted = step_of(Around(plain, layer=block()))
    module: Any = wrap(Around(plain, layer=block()))
    names = [name for name, _ in module.named_parameters()]
    step = capture(module, squares, {"x": ((3, 4), "f32")}, SGD(0.1))
    assert step.program.digest() == wanted.program.digest()
    assert step.initial_state is not None and set(step.initial_state) == set(
        wanted.initial_state or ()
    )
    first_step_agrees(step, example(Around(plain)), tmp_path)
    assert [name for name, _ in module.named_parameters()] == names, "left as it was"


# -- functions and layers --------------------------------------------------------------------------


class Sines(torch.autograd.Function):
    """A gradient that is not the function's own, so that only an honoured `backward` agrees."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        y = x * factor
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return grads[0] * x.cos() + y * torch.tensor([1.0, 2.0, 3.0, 0.5], dtype=x.dtype), None


class Two(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        return x.exp(), x > 1

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[0])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * ctx.saved_tensors[0] * 3


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.b(self.a(x).tanh())
        return y


def ramp(y: Tensor) -> Tensor:
    """Weights per element: the squares of a normalised row have a constant sum."""
    weights = torch.arange(1, y.numel() + 1, device=y.device).reshape(y.shape)
    return y * (weights.to(y.dtype) / y.numel())


def encoder(**more: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 6, 0.0, batch_first=True, **more)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def attention(**more: Any) -> nn.Module:
    return nn.MultiheadAttention(4, 2, **more)


CAUSAL = torch.ones(3, 3, dtype=torch.bool).triu(1)
PADDED = torch.tensor([[False, False, True]])
COLUMN = torch.tensor([1.0, 2.0, 3.0, 0.5])
FUNCTIONS: dict[str, Function] = {
    "Function": lambda m, x: Sines.apply(x, 2.0),
    "Function of two results": lambda m, x: Two.apply(x)[0] * Two.apply(x)[1],
    "vmap": lambda m, x: torch.func.vmap(lambda row: (row * row).sum() * row)(x),
    "vmap with a constant": lambda m, x: torch.func.vmap(lambda row: row * COLUMN.to(x.dtype))(x),
    "vmap over a constant": lambda m, x: torch.func.vmap(
        lambda column, c: column * c, in_dims=(1, 0)
    )(x, COLUMN.to(x.dtype)),
    "grad": lambda m, x: torch.func.grad(lambda t: (t**3).sum())(x),
    "jvp": lambda m, x: torch.func.jvp(lambda t: t.sin(), (x,), (x,))[1],
    "vjp": lambda m, x: torch.autograd.functional.vjp(lambda t: t**3, x, x, create_graph=True)[1],
    "as_strided permuted": lambda m, x: torch.as_strided(x, (4, 3), (1, 4)),
    "as_strided steps": lambda m, x: torch.as_strided(x, (3, 2), (4, 2)) ** 2,
    "as_strided from": lambda m, x: torch.as_strided(x, (2, 2), (4, 2), 5) ** 2,
    "as_strided diagonal": lambda m, x: torch.as_strided(x, (3,), (5,)) ** 2,
    "as_strided windows": lambda m, x: torch.as_strided(x, (3, 3, 2), (4, 1, 1)) ** 2,
    "as_strided repeated": lambda m, x: torch.as_strided(x, (3, 2, 4), (4, 0, 1)) ** 2,
    "as_strided of permuted": lambda m, x: torch.as_strided(x * 1.0, (4, 3), (1, 4)).t() ** 2,
    "padded": lambda m, x: nn.utils.rnn.pad_sequence([x, x[:2]]),
}
LAYERS: dict[str, tuple[Callable[[], nn.Module], Function]] = {
    "tied": (Tied, lambda m, x: m.layer(x)),
    "vmap of a layer": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.GELU()),
        lambda m, x: torch.func.vmap(m.layer)(x),
    ),
    "lstm": (
        lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True),
        lambda m, x: m.layer(x.view(1, 3, 4))[0],
    ),
    "lstm state": (
        lambda: nn.LSTM(4, 3),
        lambda m, x: m.layer(x.view(3, 1, 4), (x[:1, :3][None], x[1:2, :3][None]))[1][1],
    ),
    "lstm projected": (lambda: nn.LSTM(4, 3, proj_size=2), lambda m, x: m.layer(x)[0]),
    "gru": (lambda: nn.GRU(4, 3, bidirectional=True), lambda m, x: m.layer(x[:, None])[0]),
    "rnn": (lambda: nn.RNN(4, 3, nonlinearity="relu", bias=False), lambda m, x: m.layer(x)[1]),
    "cells": (
        lambda: nn.ModuleList([nn.LSTMCell(4, 4), nn.GRUCell(4, 4), nn.RNNCell(4, 4)]),
        lambda m, x: m.layer[2](x, m.layer[1](x, m.layer[0](x)[0])),
    ),
    "encoder": (lambda: encoder(norm_first=True), lambda m, x: m.layer(x[None])),
    "encoder causal": (encoder, lambda m, x: m.layer(x[None], mask=CAUSAL, is_causal=True)),
    "encoder finds the mask": (
        encoder,
        lambda m, x: m.layer(x[None], mask=nn.Transformer.generate_square_subsequent_mask(3)),
    ),
    "encoder padded": (encoder, lambda m, x: m.layer(x[None], src_key_padding_mask=PADDED)),
    "transformer": (
        lambda: nn.Transformer(4, 2, 1, 1, 6, 0.0),
        lambda m, x: m.layer(x[:, None], x[:, None], tgt_mask=CAUSAL, tgt_is_causal=True),
    ),
    "attention": (attention, lambda m, x: m.layer(x, x, x)[0]),
    "attention weights": (
        lambda: attention(batch_first=True),
        lambda m, x: m.layer(x[None], x[None], x[None], average_attn_weights=False)[1],
    ),
    "attention alone": (
        attention,
        lambda m, x: m.layer(x[:, None], x[:, None], x[:, None], need_weights=False)[0],
    ),
    "attention with more keys": (
        lambda: attention(add_bias_kv=True, add_zero_attn=True),
        lambda m, x: m.layer(x[:, None], x[:, None], x[:, None])[0],
    ),
    "attention of other widths": (
        lambda: attention(kdim=3, vdim=2),
        lambda m, x: m.layer(x[:, None], x[:, None, :3], x[:, None, :2])[0],
    ),
    "attention masked": (
        lambda: attention(bias=False),
        lambda m, x: m.layer(
            x[:, None], x[:, None], x[:, None], attn_mask=CAUSAL, key_padding_mask=~PADDED & PADDED
        )[0],
    ),
    "attention causal": (
        attention,
        lambda m, x: m.layer(
            x[:, None], x[:, None], x[:, None], attn_mask=CAUSAL, is_causal=True, need_weights=False
        )[0],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_torch_agree_with_float64(name: str) -> None:
    agrees(Around(FUNCTIONS[name]))


@pytest.mark.parametrize("name", LAYERS)
def test_layers_agree_with_float64(name: str) -> None:
    make, function = LAYERS[name]
    torch.manual_seed(6)
    module = Around(lambda m, x: ramp(function(m, x)), layer=make())
    step = agrees(module, 1e-4)
    if name == "tied":
        assert [s for s in step.program.state_types if "layer" in s] == ["param.layer.a.weight"]


@pytest.mark.parametrize(
    "pack",
    [
        lambda x: nn.utils.rnn.pack_padded_sequence(x[None], [3], batch_first=True),
        lambda x: nn.utils.rnn.pack_sequence([x, x[:2]]),
    ],
)
def test_packed_sequences_are_refused_by_name(pack: Callable[[Tensor], Any]) -> None:
    with pytest.raises(UsageError, match=f"Packed sequences.*{HERE}"):
        step_of(Around(lambda m, x: m.layer(pack(x))[1], layer=nn.GRU(4, 3)))


def test_a_conversion_out_of_range_is_torchs_and_no_refusal() -> None:
    """PROGRAM 5.2 (c): models convert what they then do not select, such as log(0)."""
    x = torch.tensor(
        [float("-inf"), float("inf"), float("nan"), 1e30, -1e30, -(2.0**63), 2.9, -2.9]
    )
    with tallystick.reproducible():
        found = x.to(torch.int64)
    least = -(2**63)
    assert found.tolist() == [least] * 6 + [2, -2]
