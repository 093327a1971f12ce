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

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tallystick.errors import UsageError
from tallystick.program.capture import custom_ops
from tallystick.program.capture.composites import COMPOSITES, legacy_reduction
from tallystick.program.capture.plain import plain_python
from tallystick.program.capture.random_calls import Dropouts
from tallystick.program.capture.recurrent import CELLS, recurrent, refuse_packing
from tallystick.program.capture.replaced import replacing, usual

_ENGINE = "torch.autograd", "_engine_run_backward"
_engine = usual(*_ENGINE)


class Lowering(Dropouts, TorchFunctionMode):
    """Replaces random calls, attention, cross-entropy, batch_norm and recurrent dropout.

    `rng` is the i64[2] key tensor of the trace. The draw id is the ordinal of the random call
    in forward order (NUMERICS 8.2). Gradient checkpointing runs nothing twice here, and compiled
    functions run as they are written.
    """

    def __init__(self, rng: Tensor) -> None:
        TorchFunctionMode.__init__(self)
        Dropouts.__init__(self, rng)
        self.table: dict[Any, Callable[..., Any]] = {
            F.scaled_dot_product_attention: self.attention,
            F.cross_entropy: self.cross_entropy,
            F.batch_norm: self.batch_norm,
            F.instance_norm: self.instance_norm,
            torch._pack_padded_sequence: refuse_packing,
        }
        self.table |= COMPOSITES
        self.table |= self.table_of_draws()
        self.table |= {func: recurrent(cell, self.dropout) for func, cell in CELLS.items()}

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
        nested = self.nested_draws() | {
            "scaled_dot_product_attention": self.attention,
            "cross_entropy": self.cross_entropy,
            "batch_norm": self.batch_norm,
            "instance_norm": self.instance_norm,
            "rrelu": self.rrelu,
        }
        with contextlib.ExitStack() as stack:
            for name, replacement in nested.items():
                stack.enter_context(replacing("torch.nn.functional", name, replacement))
            for patch in plain_python():
                stack.enter_context(patch)
            stack.enter_context(replacing(*_ENGINE, self.engine))
            stack.enter_context(self)
            yield

    def engine(self, *args: Any, **kwargs: Any) -> Any:
        """The backward pass with this mode: torch switches it off around `torch.autograd.grad`."""
        with self:
            return _engine(*args, **kwargs)

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
                raise UsageError(
                    "Attention got both attn_mask and is_causal.", "Pass only one of them."
                )
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
        """One node over rows of classes (NUMERICS 7.1); classes are axis 1 as in torch.

        With class weights, smoothed labels or probabilities as targets: its parts.
        """
        if size_average is not None or reduce is not None:
            reduction = legacy_reduction(size_average, reduce, reduction)
        if weight is not None or label_smoothing != 0.0 or target.dtype.is_floating_point:
            # torch's own parts: log_softmax, nll_loss and arithmetic.
            code: Any = ("none", "mean", "sum").index(reduction)
            parts: Tensor = torch._C._nn.cross_entropy_loss(
                input, target, weight, code, ignore_index, label_smoothing
            )
            return parts
        wanted = (*input.shape[:1], *input.shape[2:]) if input.dim() > 1 else ()
        if tuple(target.shape) != wanted:
            raise UsageError(
                f"Cross-entropy of scores {tuple(input.shape)} has targets of the shape "
                f"{tuple(target.shape)}.",
                f"Give class indices of the shape {wanted}: classes are axis 1 of the scores.",
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
        if input.dim() < 2:
            raise UsageError(
                f"Batch normalisation of {tuple(input.shape)} has no axis of channels.",
                "Give it (N, C) or (N, C, ...).",
            )
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

    def instance_norm(
        self,
        input: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        use_input_stats: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """Batch normalisation of every image's channels; running statistics are their means."""
        if not use_input_stats or running_mean is None or running_var is None:
            if use_input_stats:
                F._verify_spatial_size(input.size())  # type: ignore[attr-defined]
            stats = (running_mean, running_var, use_input_stats, momentum, eps)
            return torch.instance_norm(input, weight, bias, *stats, cudnn_enabled=False)
        images, channels = input.shape[:2]
        mean, var = running_mean.repeat(images), running_var.repeat(images)
        scale, shift = (None if t is None else t.repeat(images) for t in (weight, bias))
        rows = input.reshape(1, images * channels, *input.shape[2:])
        y = self.batch_norm(rows, mean, var, scale, shift, True, momentum, eps)
        running_mean.copy_(mean.view(images, channels).mean(0))
        running_var.copy_(var.view(images, channels).mean(0))
        return y.view(input.shape)
