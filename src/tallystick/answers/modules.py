"""The transformers module of a model, without weights or with an adapter's, and its attention as
the three nodes.

transformers lets one function stand for the attention of all its models. Ours writes no arithmetic:
it names the keys that a query reads, and leaves the rest to NUMERICS 18.

Not merged, a layer's output is y + ((x·Aᵀ)·Bᵀ)·s, in which A and B are weights of their own.
Merged, its weight is W + (B·A)·s (ANSWERS 4.7).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from tallystick.answers.adapter import LoraPair
from tallystick.answers.encoder_modules import encoder_module
from tallystick.answers.families import ENCODERS, FAMILIES, family_of, output_of
from tallystick.commit.tensor import STORED, Array, dtype_name, widened
from tallystick.errors import RefusedModelError, TallystickError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import ORDERED_1
from tallystick.program.capture import custom_ops
from tallystick.program.capture.eager import reproducible

if TYPE_CHECKING:
    from tallystick.answers.model import Model

_NAME = "tallystick"
# What models hand on to attention beside what it reads: places, which rotary embeddings have taken
# already, and what a call returns.
_IDLE = frozenset({
    "cache_position", "output_attentions", "output_hidden_states", "position_ids", "use_cache",
})  # fmt: skip


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of query row i, which has place i of its sequence, as AttentionInterface calls it.

    Raises RefusedModelError for what the nodes cannot say.
    """
    known = {name for name, given in others.items() if given is not None} - _IDLE
    if attention_mask is not None or not getattr(module, "is_causal", True) or dropout or known:
        named = min(known) if known else "a mask, dropout, or both directions"
        raise RefusedModelError(
            f"The attention of {type(module).__name__} takes {named}, which answers do not "
            "support.",
            f"Use one of these models: {', '.join(FAMILIES)}.",
        )
    scale = float(query.shape[-1] ** -0.5 if scaling is None else scaling)
    cap, window = float(softcap or 0.0), sliding_window or 0
    s = custom_ops.attention_scores(query, key, None, True, 0, scale, cap, window)
    p = custom_ops.attention_weights(s, s_aux, True, 0, window)
    return custom_ops.attention_values(p, value, True, 0, window).transpose(1, 2), None


def read_config(config: Mapping[str, Any]) -> Any:
    """transformers' config of a config.json, its defaults filled in. Raises RefusedModelError."""
    from transformers import CONFIG_MAPPING

    family = family_of(config)
    with _errors_of_transformers():
        return CONFIG_MAPPING[family].from_dict(dict(config))


@contextlib.contextmanager
def _errors_of_transformers() -> Iterator[None]:
    """A config that transformers cannot read or build raises errors of many classes there."""
    try:
        yield
    except TallystickError:
        raise
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise RefusedModelError(
            f"transformers cannot build a model from this config.json: {type(error).__name__}: "
            f"{said}",
            "Use the directory as save_pretrained wrote it.",
        ) from error


def empty_module(config: Mapping[str, Any]) -> Any:
    """The module of a config.json on the meta device, in float32 and evaluation mode.

    Raises RefusedModelError.
    """
    from transformers import AttentionInterface, AutoModelForCausalLM

    if family_of(config) in ENCODERS:
        with torch.device("meta"), _errors_of_transformers():
            return encoder_module(read_config(config), output_of(config)).eval()
    AttentionInterface.register(_NAME, _attend)
    with torch.device("meta"), _errors_of_transformers():
        module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            read_config(config), attn_implementation=_NAME, dtype=torch.float32
        )
    return module.eval()


def parameter_names(module: Any) -> tuple[dict[str, tuple[int, ...]], dict[str, str], str]:
    """The parameters' shapes by name; the further names of those that are tied, with their own
    names; and the prefix that a checkpoint without a head lacks."""
    parameters = dict(module.named_parameters())
    first = {id(tensor): name for name, tensor in parameters.items()}
    tied = {
        name: first[id(tensor)]
        for name, tensor in module.state_dict(keep_vars=True).items()
        if name not in parameters and id(tensor) in first
    }
    shapes = {name: tuple(tensor.shape) for name, tensor in parameters.items()}
    return shapes, tied, module.base_model_prefix


def computed_buffers(module: Any) -> dict[str, np.ndarray]:
    """The buffers of an empty module, which no file has: rotary frequencies and scales of
    embeddings, by their names.

    `ordered/1` computes them, since torch's powers differ from machine to machine. Raises
    RefusedModelError for a buffer that transformers does not initialise so.
    """
    found: dict[str, np.ndarray] = {}
    for path, child in module.named_modules():
        empty = dict(child.named_buffers(recurse=False))
        if not empty:
            continue
        for name, buffer in empty.items():
            child._buffers[name] = torch.full(buffer.shape, float("nan"), dtype=buffer.dtype)
        with reproducible(ORDERED_1):
            module._init_weights(child)
        for name, buffer in child.named_buffers(recurse=False):
            full = f"{path}.{name}".lstrip(".")
            if buffer.dtype != torch.float32 or bool(buffer.isnan().any()):
                raise RefusedModelError(
                    f"The buffer {full} cannot be computed from the config.", "Use another model."
                )
            found[full] = np.array(buffer.numpy(), np.float32)
    return found


def _hidden(module: Any, tokens: Tensor, places: Tensor) -> Tensor:
    """[batch, length, width] of tokens [batch, length] at these places of their texts."""
    called = module.base_model(input_ids=tokens, position_ids=places, use_cache=False)
    found: Tensor = called.last_hidden_state
    return found


def _logits(module: Any, hidden: Tensor) -> Tensor:
    """The logits [rows, V] of hidden states [rows, width], as the families' forward has them."""
    logits: Tensor = module.lm_head(hidden)
    cap = getattr(module.config, "final_logit_softcapping", None)
    return logits if cap is None else torch.tanh(logits / cap) * cap


def text_logits(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The logits after the places `place` [rows] of `text` [length]."""
    text = batch["text"]
    places = torch.arange(text.shape[0], device=text.device)
    hidden = _hidden(module, text[None], places[None])[0]
    return _logits(module, hidden.index_select(0, batch["place"]))


def token_logits(module: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The logits after each `token` [rows, 1], which stands at `place` [rows, 1] of its text."""
    return _logits(module, _hidden(module, batch["token"], batch["place"])[:, 0])


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
