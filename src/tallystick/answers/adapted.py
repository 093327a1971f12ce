"""A model's module with its adapter, and its weights with the adapter's products in them.

Not merged, a layer's output is y + ((x·Aᵀ)·Bᵀ)·s, in which A and B are weights of their own.
Merged, its weight is W + (B·A)·s (ANSWERS 4.7).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.answers.adapter import LoraPair
from tallystick.answers.modules import empty_module
from tallystick.commit.tensor import STORED, Array, dtype_name, widened
from tallystick.errors import RefusedModelError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import ORDERED_1

if TYPE_CHECKING:
    from tallystick.answers.model import Model


def module_of(model: Model) -> Any:
    """The empty module of a model (`empty_module`). The matrices of an adapter that is not merged
    are parameters of it. Raises RefusedModelError."""
    module = empty_module(model.config)
    if model.adapter is not None and not model.adapter.merged:
        for pair in model.adapter.pairs(_linear_layers(module)):
            _adapt(module.get_submodule(pair.layer), pair)
    return module


def merged_weights(model: Model, module: Any) -> list[str]:
    """The weights that a merged adapter changes, by parameter of the model's module."""
    if model.adapter is None or not model.adapter.merged:
        return []
    return [f"{pair.layer}.weight" for pair in model.adapter.pairs(_linear_layers(module))]


def merge(model: Model, module: Any, found: dict[str, Array]) -> None:
    """Put the products of a merged adapter into the weights `found`, which are by parameter
    (ANSWERS 4.7.3). Raises RefusedModelError where another layer has the same weight."""
    if model.adapter is None or not model.adapter.merged:
        return
    matrices = model.adapter.mapped()
    holders: dict[int, list[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        holders.setdefault(id(tensor), []).append(name)
    for pair in model.adapter.pairs(_linear_layers(module)):
        layer, name = module.get_submodule(pair.layer), f"{pair.layer}.weight"
        others = [other for other in holders[id(layer.weight)] if other != name]
        if others:
            raise RefusedModelError(
                f"The adapter changes {name}, which is the same weight as {others[0]}.",
                "Use the adapter without --merge.",
            )
        a, b = (_wide(matrices[matrix]) for matrix in pair.names)
        found[name] = _merged(
            _wide(found[name]), a, b, pair.scale, not isinstance(layer, nn.Linear)
        )


def _merged(w: Array, a: Array, b: Array, scale: float, turned: bool) -> Array:
    """W + (B·A)·s by operators of `ordered/1`; `turned` for a weight that is [in, out]."""

    def by(op: str, *operands: Array, **attrs: object) -> Array:
        made = evaluate(op, *operands, contract=ORDERED_1, **attrs)
        assert isinstance(made, np.ndarray)
        return made

    product = by("aten.mm", b, a)
    scaled = by("aten.mul.Scalar", product.T.copy() if turned else product, other=scale)
    return by("aten.add.Tensor", w, scaled, alpha=1.0)


def _wide(array: Array) -> Array:
    return widened(array) if dtype_name(array.dtype) in STORED else array


def _linear_layers(module: Any) -> Mapping[str, tuple[int, int]]:
    """The numbers of inputs and outputs of a module's linear layers, by name."""
    from transformers.pytorch_utils import Conv1D

    found: dict[str, tuple[int, int]] = {}
    for name, layer in module.named_modules():
        if isinstance(layer, nn.Linear):
            found[name] = (layer.in_features, layer.out_features)
        elif isinstance(layer, Conv1D):  # GPT-2's, whose weight is [in, out]
            inputs, outputs = layer.weight.shape
            found[name] = (int(inputs), int(outputs))
    return found


def _adapt(layer: Any, pair: LoraPair) -> None:
    """Give a linear layer its matrices, and what they add to its output."""
    from transformers.pytorch_utils import Conv1D

    inputs, outputs = layer.weight.shape if isinstance(layer, Conv1D) else layer.weight.shape[::-1]
    layer.lora_A = nn.Linear(inputs, pair.rank, bias=False, device="meta", dtype=torch.float32)
    layer.lora_B = nn.Linear(pair.rank, outputs, bias=False, device="meta", dtype=torch.float32)
    plain: Callable[[Tensor], Tensor] = layer.forward

    def forward(x: Tensor) -> Tensor:
        added: Tensor = layer.lora_B(layer.lora_A(x))
        return plain(x) + added * pair.scale

    layer.forward = forward
