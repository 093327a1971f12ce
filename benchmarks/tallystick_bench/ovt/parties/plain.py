"""A plain PyTorch training step of a model, in float32 or float64: the yardstick of times.

It has the forward pass, mean cross-entropy, the backward pass, clipping by norm where the recipe
clips, and the recipe's optimizer. It is the captured step in torch's own eager kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tallystick.commit.tensor import Array
from tallystick.job.recipes import find_recipe, gpt2, resnet50, settings_for
from tallystick_bench.ovt.models import Model


def make_module(model: Model) -> nn.Module:
    """The recipe's module of `model`, with torch's own initial weights."""
    settings: Any = settings_for(find_recipe(model.recipe), model.pairs)
    if model.recipe == "gpt2":
        return gpt2.make_module(settings)
    return resnet50.make_module(settings)


class PlainStep:
    """Call it with a batch to take one training step; `loss` is the last one."""

    def __init__(
        self, model: Model, weights: Mapping[str, Array] | None, dtype: torch.dtype, threads: int
    ) -> None:
        torch.set_num_threads(threads)
        self.settings: Any = settings_for(find_recipe(model.recipe), model.pairs)
        self.text = model.is_text
        self.dtype = dtype
        self.module = make_module(model).to(dtype).train()
        if weights is not None:
            self._load(weights)
        self.parameters = list(self.module.parameters())
        self.optimizer = self._optimizer()
        self.loss = float("nan")

    def _load(self, weights: Mapping[str, Array]) -> None:
        with torch.no_grad():
            for prefix, tensors in (
                ("param.", self.module.named_parameters()),
                ("buffer.", self.module.named_buffers()),
            ):
                for name, tensor in tensors:
                    if f"{prefix}{name}" in weights:
                        tensor.copy_(torch.from_numpy(weights[f"{prefix}{name}"]))

    def _optimizer(self) -> torch.optim.Optimizer:
        s = self.settings
        groups = [
            {
                "params": [p for p in self.parameters if (p.ndim >= 2) is matrices],
                "weight_decay": s.weight_decay if matrices else 0.0,
            }
            for matrices in (True, False)
        ]
        if self.text:
            return torch.optim.AdamW(groups, lr=s.lr, betas=(s.beta1, s.beta2), fused=True)
        return torch.optim.SGD(groups, lr=s.lr, momentum=s.momentum, fused=True)

    def _loss(self, batch: Mapping[str, Array]) -> torch.Tensor:
        if self.text:
            tokens = torch.from_numpy(np.ascontiguousarray(batch["tokens"]))
            logits = self.module(tokens[:, :-1])
            return functional.cross_entropy(
                logits.reshape(-1, self.settings.vocab_size), tokens[:, 1:].reshape(-1)
            )
        x = torch.from_numpy(np.ascontiguousarray(batch["x"])).to(self.dtype)
        y = torch.from_numpy(np.ascontiguousarray(batch["y"]))
        return functional.cross_entropy(self.module(x), y)

    def __call__(self, batch: Mapping[str, Array]) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        clip = getattr(self.settings, "clip_norm", 0.0)
        if clip:
            nn.utils.clip_grad_norm_(self.parameters, clip)
        self.optimizer.step()
        self.loss = float(loss.detach())
