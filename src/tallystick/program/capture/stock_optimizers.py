"""torch.optim's Adam, AdamW and SGD within `reproducible()`: the updates of NUMERICS 11.

A stock step is then the captured step of `tallystick.Adam`, `AdamW` or `SGD`, bit for bit. Torch's
own Adam takes a power of a Python number, which the platform's C library rounds. What the clause
does not have (amsgrad, capturable, tensors as betas, dampening with momentum) stays torch's, one
operator of the contract after another, and so do the other optimizers.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tallystick.kernels.evaluate import evaluate
from tallystick.program.capture.replaced import replacing, usual


class _Powers:
    """NUMERICS 11.1 from 1 on: a power per step, each made of the one before."""

    def __init__(self) -> None:
        self._of: dict[float, list[float]] = {}

    def at(self, beta: float, step: int) -> Any:
        """The binary64 power as a numpy scalar."""
        powers = self._of.setdefault(beta, [1.0])
        while len(powers) <= step:
            powers.append(powers[-1] * beta)
        return np.float64(powers[step])


def _plain_numbers(*values: Any) -> bool:
    return all(isinstance(value, (int, float)) for value in values)


class StockUpdates:
    """The replacements of torch.optim's functional forms; `operators` counts what they run."""

    def __init__(self, contract: str, operators: Counter[str]) -> None:
        self.contract = contract
        self.operators = operators
        self._powers = _Powers()

    def patches(self) -> Iterator[Any]:
        """Context managers that put the replacements in place."""
        for name in ("adam", "sgd"):
            owner = f"torch.optim.{name}"
            update = functools.partial(getattr(self, name), usual(owner, name))
            yield replacing(owner, name, update)

    def _run(self, op: str, operands: list[Any], attrs: dict[str, Any]) -> list[np.ndarray]:
        arrays = [x.detach().numpy() if isinstance(x, Tensor) else x for x in operands]
        self.operators[op] += 1
        made = evaluate(op, *arrays, contract=self.contract, **attrs)
        return list(made) if isinstance(made, tuple) else [made]

    def _update(self, op: str, written: list[Tensor], operands: list[Any], attrs: Any) -> None:
        for tensor, array in zip(written, self._run(op, operands, attrs), strict=True):
            tensor.copy_(torch.from_numpy(array))

    def adam(self, torchs: Callable[..., None], *lists: Any, **options: Any) -> None:
        """`torch.optim.adam.adam`: both Adam and AdamW."""
        beta1, beta2, lr = options["beta1"], options["beta2"], options["lr"]
        others = ("amsgrad", "capturable", "differentiable", "has_complex")
        scaled = any(options.get(name) is not None for name in ("grad_scale", "found_inf"))
        if scaled or any(options.get(k) for k in others) or not _plain_numbers(beta1, beta2, lr):
            torchs(*lists, **(options | {"fused": False}))
            return
        op = (
            "tallystick.adamw_step" if options["decoupled_weight_decay"] else "tallystick.adam_step"
        )
        attrs = {"beta1": float(beta1), "beta2": float(beta2), "eps": float(options["eps"])}
        attrs["weight_decay"] = float(options["weight_decay"])
        params, grads, averages, squares, _, steps = lists
        for p, g, m, v, step in zip(params, grads, averages, squares, steps, strict=True):
            step += 1
            count = int(step.item())
            powers = [self._powers.at(float(beta), count) for beta in (beta1, beta2)]
            gradient = -g if options["maximize"] else g
            operands = [p, gradient, m, v, np.float64(lr), *powers, None]
            self._update(op, [p, m, v], operands, attrs)

    def sgd(self, torchs: Callable[..., None], *lists: Any, **options: Any) -> None:
        """`torch.optim.sgd.sgd`."""
        momentum, lr = options["momentum"], options["lr"]
        scaled = any(options.get(name) is not None for name in ("grad_scale", "found_inf"))
        dampened = momentum != 0 and options["dampening"] != 0
        if scaled or dampened or not _plain_numbers(lr, momentum):
            torchs(*lists, **(options | {"fused": False}))
            return
        attrs = {k: float(options[k]) for k in ("momentum", "dampening", "weight_decay")}
        attrs["nesterov"] = options["nesterov"]
        params, grads, buffers = lists
        for i, (p, g) in enumerate(zip(params, grads, strict=True)):
            gradient = -g if options["maximize"] else g
            if momentum != 0 and buffers[i] is None:
                buffers[i] = torch.zeros_like(p)
            written = [p] if momentum == 0 else [p, buffers[i]]
            buffer = None if momentum == 0 else buffers[i]
            operands = [p, gradient, buffer, np.float64(lr), None]
            self._update("tallystick.sgd_step", written, operands, attrs)
