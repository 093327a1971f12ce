"""Functionals with another meaning in a program than in torch's kernels: lowered before tracing.

A TorchFunctionMode sees calls from the model. Python functionals that call others run with the
mode switched off, because torch disables a mode inside its own handler. So this module also puts
the same replacements into `torch.nn.functional` while a trace runs.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.program.capture import custom_ops


def _refuse_random(name: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedOperatorError(
            f"{name} draws random numbers that no contract defines.",
            "Use torch.nn.functional.dropout, or draw the numbers beforehand into the batch.",
        )

    return refused


_REFUSED: dict[Any, str] = {
    F.alpha_dropout: "alpha_dropout",
    F.feature_alpha_dropout: "feature_alpha_dropout",
    F.dropout1d: "dropout1d",
    F.dropout2d: "dropout2d",
    F.dropout3d: "dropout3d",
    F.gumbel_softmax: "gumbel_softmax",
    F.rrelu: "rrelu",
    F.fractional_max_pool2d: "fractional_max_pool2d",
    torch.rand: "torch.rand",
    torch.randn: "torch.randn",
    torch.rand_like: "torch.rand_like",
    torch.randn_like: "torch.randn_like",
    torch.randint: "torch.randint",
    torch.randperm: "torch.randperm",
    torch.bernoulli: "torch.bernoulli",
    torch.multinomial: "torch.multinomial",
    torch.normal: "torch.normal",
    Tensor.bernoulli_: "Tensor.bernoulli_",
    Tensor.bernoulli: "Tensor.bernoulli",
    Tensor.normal_: "Tensor.normal_",
    Tensor.uniform_: "Tensor.uniform_",
    Tensor.random_: "Tensor.random_",
    Tensor.exponential_: "Tensor.exponential_",
    Tensor.multinomial: "Tensor.multinomial",
}


class Lowering(TorchFunctionMode):
    """Replaces dropout, attention, cross-entropy, batch_norm and scalar constants; counts draws.

    `rng` is the i64[2] key tensor of the trace. The draw id is the ordinal of the random call
    in forward order (NUMERICS 8.2).
    """

    def __init__(self, rng: Tensor) -> None:
        super().__init__()
        self.rng = rng
        self.draws = 0
        self.in_backward = False
        self.table: dict[Any, Callable[..., Any]] = {
            F.dropout: self.dropout,
            torch.dropout: self.torch_dropout,
            torch.dropout_: self.torch_dropout,
            F.scaled_dot_product_attention: self.attention,
            F.cross_entropy: self.cross_entropy,
            F.batch_norm: self.batch_norm,
            torch.tensor: self.constant,
            torch.as_tensor: self.constant,
            torch.scalar_tensor: self.constant,
        }
        self.table.update({f: _refuse_random(name) for f, name in _REFUSED.items()})

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        replacement = self.table.get(func)
        return (replacement or func)(*args, **(kwargs or {}))

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """The mode, and the same replacements where functionals call each other by name."""
        nested = {
            "dropout": self.dropout,
            "scaled_dot_product_attention": self.attention,
            "cross_entropy": self.cross_entropy,
            "batch_norm": self.batch_norm,
        }
        with contextlib.ExitStack() as stack:
            for name, replacement in nested.items():
                stack.enter_context(mock.patch.object(F, name, replacement))
            stack.enter_context(self)
            yield

    def dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """mask_scale over a fresh dropout_mask (NUMERICS 8.4, 8.5)."""
        if not 0.0 <= p <= 1.0:
            raise UsageError(f"The dropout probability is {p}.", "Choose one from 0 to 1.")
        if not training or p == 0.0:
            return input
        if p == 1.0:
            return torch.zeros_like(input)
        if self.in_backward:
            raise UsageError(
                "A random operator ran again in the backward pass.",
                "Switch activation checkpointing off for capture.",
            )
        draw, self.draws = self.draws, self.draws + 1
        mask = custom_ops.dropout_mask(self.rng, draw, float(p), list(input.shape))
        scaled: Tensor = custom_ops.mask_scale(input, mask, 1.0 / (1.0 - float(p)))
        return scaled

    def torch_dropout(self, input: Tensor, p: float, train: bool) -> Tensor:
        """`torch.dropout`, whose last argument has another name."""
        return self.dropout(input, p, train)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Scaled dot-product attention by its parts (PROGRAM 5.3)."""
        if enable_gqa:
            key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
            value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
        factor = 1.0 / math.sqrt(query.size(-1)) if scale is None else float(scale)
        scores = torch.matmul(query, key.transpose(-2, -1)) * factor
        if is_causal:
            if attn_mask is not None:
                raise UsageError("Attention has attn_mask and is_causal.", "Pass one of them.")
            ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
            scores = scores.masked_fill(ones.triu(1), float("-inf"))
        blind = None
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            blind = attn_mask.to(torch.float32).amax(-1, keepdim=True) == 0
            banned = attn_mask.logical_not() & blind.logical_not()
            scores = scores.masked_fill(banned, float("-inf"))
        elif attn_mask is not None and not attn_mask.requires_grad:
            blind = attn_mask.amax(-1, keepdim=True) == float("-inf")
            scores = scores + attn_mask.masked_fill(blind, 0.0)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = torch.softmax(scores, -1)
        found = torch.matmul(self.dropout(weights, dropout_p), value)
        # A query that sees nothing gets 0, and its softmax no row of -inf, whose gradient is NaN.
        return found if blind is None else found.masked_fill(blind, 0.0)

    def cross_entropy(
        self,
        input: Tensor,
        target: Tensor,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> Tensor:
        """One node over rows of classes (NUMERICS 7.1); classes are axis 1 as in torch."""
        for name, given in (
            ("weight", weight is not None),
            ("label_smoothing", label_smoothing != 0.0),
            ("size_average", size_average is not None),
            ("reduce", reduce is not None),
            ("class probabilities as targets", target.dtype.is_floating_point),
        ):
            if given:
                raise UnsupportedOperatorError(
                    f"cross_entropy with {name} is not defined by the contract.",
                    "Write it from log_softmax and arithmetic.",
                )
        if input.dim() > 2:
            rows = input.movedim(1, -1)
        else:
            rows = input if input.dim() == 2 else input.unsqueeze(0)
        loss, _, _ = custom_ops.cross_entropy(
            rows.reshape(-1, rows.shape[-1]), target.reshape(-1), ignore_index, reduction
        )
        result: Tensor = loss.reshape(target.shape) if reduction == "none" else loss
        return result

    def batch_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """The functional form: torch's own would change the running statistics unseen."""
        if training and input.numel() == input.size(1):
            raise UsageError(
                f"Batch normalisation of {tuple(input.shape)} has one value per channel.",
                "Train it with a larger batch or image.",
            )
        if not training or running_mean is None or running_var is None:
            y, _, _ = torch.native_batch_norm(
                input, weight, bias, running_mean, running_var, training, momentum, eps
            )
            return y
        # Clones: autograd keeps its arguments for the gradient, although the gradient reads none.
        running = (running_mean.clone(), running_var.clone())
        y, _, _, mean, var = torch.ops.aten._native_batch_norm_legit_functional(
            input, weight, bias, *running, training, momentum, eps
        )
        running_mean.copy_(mean.detach())
        running_var.copy_(var.detach())
        result: Tensor = y
        return result

    def constant(self, data: Any = None, *args: Any, **kwargs: Any) -> Tensor:
        """`torch.tensor(3.0)` becomes a full node; a program has no larger constants."""
        data = kwargs.pop("s", data)
        if isinstance(data, Tensor):
            dtype = kwargs.get("dtype") or (args[0] if args else None)
            return data if dtype is None else data.to(dtype)
        if not isinstance(data, (bool, int, float)):
            raise UsageError(
                "The model makes a tensor from Python numbers while it runs.",
                "Register it as a buffer (register_buffer), so that it is part of the state.",
            )
        dtype = kwargs.get("dtype") or (args[0] if args else None)
        if dtype is None:
            dtype = {bool: torch.bool, int: torch.int64}.get(type(data), torch.get_default_dtype())
        return torch.full((), data, dtype=dtype, device=self.rng.device)
