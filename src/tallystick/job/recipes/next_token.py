"""The capture of a model that predicts the next token, for recipes of such models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tallystick.commit.tensor import Array
from tallystick.job.recipes.base import Built, is_weight
from tallystick.job.recipes.optimizers import step_options
from tallystick.job.recipes.text_records import FIELD
from tallystick.numerics.types import TensorType
from tallystick.program.ir import Program

if TYPE_CHECKING:
    import torch
    from torch import nn

InitialState = Callable[[Mapping[str, TensorType], int], dict[str, Array]]


def capture_next_token(module: nn.Module, optimizer: Any, s: Any) -> tuple[Any, Program, Program]:
    """The captured step, the validation loss and the forward pass of `module`, which gives logits
    f32[n, block_size, vocab_size] for tokens i64[n, block_size]. It may be on the meta device: no
    weight is read. The loss is the mean cross-entropy of each next token."""
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture, capture_eval, capture_forward

    def loss(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        tokens = batch[FIELD]
        logits = module(tokens[:, :-1])
        return F.cross_entropy(logits.reshape(-1, s.vocab_size), tokens[:, 1:].reshape(-1))

    def forward(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = module(batch[FIELD])
        return out

    module.train()
    batch = {FIELD: ((s.batch_size, s.block_size + 1), "i64")}
    return (
        capture(module, loss, batch, optimizer, **step_options(s)),
        capture_eval(module, loss, batch),
        capture_forward(module, {FIELD: ((1, s.block_size), "i64")}, forward),
    )


def build_next_token(
    module: nn.Module,
    optimizer: Any,
    rates: dict[str, Any],
    s: Any,
    initial_state: InitialState,
    seed: int,
) -> Built:
    """The same with its first values, `initial_state(types, seed)`."""
    captured, evaluation, forward = capture_next_token(module, optimizer, s)
    types = {n: t for n, t in captured.program.state_types.items() if is_weight(n)}

    def state() -> dict[str, Array]:
        found: dict[str, Array] = captured.state_for(initial_state(types, seed))
        return found

    return Built(captured, state, rates, evaluation, forward)
