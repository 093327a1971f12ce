"""Recipe `llama-lora`: a frozen Llama with trained low-rank adapters (Hu et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.errors import UsageError
from tallystick.job.recipes import llama
from tallystick.job.recipes.base import Built, Recipe, StartingPoint, uniform
from tallystick.job.recipes.llama_module import make_module as make_base
from tallystick.job.recipes.settings import NAMES, setting
from tallystick.job.recipes.text_records import (
    SOURCES,
    build_next_token,
    check_next_token,
    next_token_data,
    vocabulary,
)
from tallystick.numerics.types import TensorType
from tallystick.program.update import Optimizers

if TYPE_CHECKING:
    import torch
    from torch import nn

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PREFIX = "base_model.model."
BASE_LAYER = "base_layer"
_A, _B = ".lora_A.", ".lora_B."


@dataclass(frozen=True)
class LoraSettings(llama.LlamaSettings):
    """Keys of `--set`."""

    recipe: ClassVar[str] = "llama-lora"

    rank: int = setting(8, "width of the adapters", low=1, high=65536)
    alpha: float = setting(16.0, "the adapters' product is scaled by alpha / rank", low=0)
    lora_dropout: float = setting(0.05, "dropout probability of the adapters' input", low=0)
    target_modules: str = setting("q_proj,v_proj", f"of {','.join(PROJECTIONS)}; or all")
    optimizer: str = setting("adamw", f"{', '.join(NAMES[:-1])}")
    lr: float = setting(3e-4, "peak learning rate", low=0)
    weight_decay: float = setting(0.0, "applied to the adapters", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("optimizer", NAMES[:-1])  # Muon would leave nothing to its AdamW
        self.below_one("lora_dropout")
        self.targets()

    def targets(self) -> tuple[str, ...]:
        """The projections that get an adapter. Raises UsageError."""
        if self.target_modules == "all":
            return PROJECTIONS
        names = tuple(self.target_modules.split(","))
        for name in names:
            if name not in PROJECTIONS or names.count(name) > 1:
                raise UsageError(
                    f"llama-lora: target_modules={self.target_modules} is not a list of "
                    "projections.",
                    f"Name some of {','.join(PROJECTIONS)}, or all.",
                )
        return names


def make_module(s: LoraSettings) -> nn.Module:
    """The Llama of `llama_module` with adapters beside the projections that `target_modules` names:
    layer(x) + B(A(dropout(x))) alpha / rank. Only the adapters require gradients.

    Names are those of peft's model, `get_peft_model(LlamaForCausalLM(...), LoraConfig(...))`.
    """
    from torch import nn

    targets, scale = s.targets(), s.alpha / s.rank

    class Adapted(nn.Module):
        def __init__(self, inside: int, out: int) -> None:
            super().__init__()
            self.base_layer = nn.Linear(inside, out, bias=False)
            self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(s.lora_dropout)})
            self.lora_A = nn.ModuleDict({"default": nn.Linear(inside, s.rank, bias=False)})
            self.lora_B = nn.ModuleDict({"default": nn.Linear(s.rank, out, bias=False)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            low = self.lora_A["default"](self.lora_dropout["default"](x))
            out: torch.Tensor = self.base_layer(x) + self.lora_B["default"](low) * scale
            return out

    def projection(name: str, inside: int, out: int) -> Any:
        return Adapted(inside, out) if name in targets else nn.Linear(inside, out, bias=False)

    class Base(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_base(s, projection)

    class Lora(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base_model = Base()

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.base_model.model(tokens)
            return out

    module = Lora()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(is_adapter(name))
    return module


def is_adapter(name: str) -> bool:
    """True for a name of an adapter's parameter or slot."""
    return _A in name or _B in name


def initial_state(s: LoraSettings, types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """The frozen weights as `llama` has them; A uniform within 1/sqrt(inputs), B 0, as in peft. The
    draw id is the slot's place in name order."""
    state = llama.initial_state(s, types, seed)
    for index, name in enumerate(sorted(types)):
        shape = types[name].shape
        if _A in name:
            state[name] = uniform(seed, index, shape, 1 / math.sqrt(shape[1]))
        elif _B in name:
            state[name] = np.zeros(shape, dtype=np.float32)
    return state


def on_meta(s: LoraSettings) -> tuple[nn.Module, Optimizers]:
    """The module without weights, and its optimizer: all that capture needs, whatever the size."""
    import torch

    with torch.device("meta"):
        module = make_module(s)
    return module, s.rule(lambda name, shape: False)


def build(s: LoraSettings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Capture the training step, the validation loss and the forward pass. Needs torch."""
    return build_next_token(
        *on_meta(s), s.rates(steps), s, lambda types, seed: initial_state(s, types, seed), seed
    )


def _base_names(name: str) -> tuple[str, ...]:
    """The names of a frozen parameter in the base model's checkpoint."""
    plain = name.removeprefix(PREFIX).replace(f".{BASE_LAYER}.", ".")
    return llama.STARTING.names(plain)


# The sizes of llama, with the rates of adapters.
PRESETS = {
    size: {key: value for key, value in preset.items() if key not in ("lr", "warmup")}
    for size, preset in llama.PRESETS.items()
}
RECIPE = Recipe(
    "llama-lora",
    "a frozen Llama with low-rank adapters, on the bytes or tokens of a text",
    LoraSettings,
    SOURCES,
    next_token_data,
    build,
    PRESETS,
    check_next_token,
    derive=lambda given, sources: vocabulary(sources),
    takes=("tokenizer", "checkpoint"),
    starting=StartingPoint(llama.sizes_of, _base_names, is_adapter),
)
