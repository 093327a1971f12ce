"""What capture knows of transformers and peft: where they look at values only to save work.

transformers itself takes the general path at these places when torch.jit, torch.export or
torch.compile traces it, since a trace has no values. Capture does the same. The general path is
right for every mask: it adds the mask that the shortcut leaves out.

No import of transformers: a place is known by the name of its module and of its function.
"""

from __future__ import annotations

import contextlib
import functools
import linecache
import operator
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tallystick.program.capture.replaced import replacing, usual

# The answer that transformers' own tracing gives, by module and function. In each, a question that
# is answered by False goes on to build the mask.
_GENERAL_PATH: dict[tuple[str, str], bool] = {
    # 5.x: "may the causal (bidirectional) mask be left out?"
    ("transformers.masking_utils", "_ignore_causal_mask_sdpa"): False,
    ("transformers.masking_utils", "_ignore_bidirectional_mask_sdpa"): False,
    # 5.x: "has no row several sequences?" False keeps the row numbers, which are then all equal.
    ("transformers.masking_utils", "find_packed_sequence_indices"): False,
    # 5.x: "is all attended to, so that a state-space layer needs no mask?"
    ("transformers.masking_utils", "create_recurrent_attention_mask"): False,
    # 4.50
    ("transformers.modeling_attn_mask_utils", "_ignore_causal_mask_sdpa"): False,
    ("transformers.modeling_attn_mask_utils", "_prepare_4d_attention_mask_for_sdpa"): False,
    ("transformers.models.jamba.modeling_jamba", "_update_mamba_mask"): False,
    # It only warns that there is padding and no mask.
    ("transformers.modeling_utils", "warn_if_padding_and_no_attention_mask"): False,
}

# By the text of a line of transformers' models. "Is all finite?": False clamps to float32's largest
# number, which changes no finite number. So both sides of the branch have the same meaning.
_LINES: dict[str, bool] = {"if not torch.isfinite(hidden_states).all():": False}


# peft's LoHa and LoKr drop a whole adapter with a probability. With 0 they never do, but for one
# number in 2²⁴, which is exactly 0.
_MODULE_DROPOUT = "if (not self.training) or (self.training and torch.rand(1) > module_dropout):"


# 4.50 leaves a layer out with a probability, of this attribute of the frame's `self`. A number in
# [0, 1) is never below 0.
_SKIPPED = "skip_the_layer = True if self.training and (dropout_probability < self.{}) else False"
_LAYER_DROPS: dict[str, str] = {
    "if dropout_probability < self.layerdrop:": "layerdrop",
    _SKIPPED.format("layerdrop"): "layerdrop",
    _SKIPPED.format("config.layerdrop"): "config.layerdrop",
    "if not skip_the_layer or synced_gpus:": "config.layerdrop",
}


def _never_left_out(frame: FrameType, attribute: str) -> bool | None:
    """False where the frame's layers are left out with the probability 0."""
    try:
        return None if operator.attrgetter(attribute)(frame.f_locals["self"]) != 0 else False
    except (AttributeError, KeyError):
        return None


def shortcut(frame: FrameType) -> bool | None:
    """The answer to a question about values that `frame` asks, or None where no rule has one."""
    module = str(frame.f_globals.get("__name__", ""))
    if module.startswith("peft."):
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        never = line == _MODULE_DROPOUT and frame.f_locals.get("module_dropout") == 0
        return True if never else None
    if not module.startswith("transformers."):
        return None
    found = _GENERAL_PATH.get((module, frame.f_code.co_name))
    if found is not None:
        return found
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    attribute = _LAYER_DROPS.get(line.partition("#")[0].strip())
    return _never_left_out(frame, attribute) if attribute else _LINES.get(line)


def _weight(experts: Any, name: str, number: int) -> Tensor:
    found: Tensor = getattr(experts, name)[number]
    # (in, out) where the class says so; F.linear wants (out, in).
    return found.t() if experts.is_transposed else found


def _bias(experts: Any, name: str, number: int) -> Tensor | None:
    return getattr(experts, name + "_bias")[number] if experts.has_bias else None


def every_expert(experts: Any, hidden: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """A mixture's experts in a form whose shapes depend on no values.

    `hidden` is (tokens, width); `index` and `weights` are (tokens, k), the chosen experts and their
    weights. Every expert gets every token, with zeros in the place of those that did not choose it,
    and their results are left out: what an expert makes of another's token is in no sum.
    """
    total = torch.zeros_like(hidden)
    for number in range(experts.num_experts):
        chosen = index == number
        mine = chosen.to(hidden.dtype).amax(-1, keepdim=True) > 0
        x = hidden.masked_fill(mine.logical_not(), 0.0)
        name = "gate_up_proj" if experts.has_gate else "up_proj"
        y = F.linear(x, _weight(experts, name, number), _bias(experts, name, number))
        y = experts._apply_gate(y) if experts.has_gate else experts.act_fn(y)
        y = F.linear(y, _weight(experts, "down_proj", number), _bias(experts, "down_proj", number))
        if getattr(experts, "has_post_expert_norm", False):
            y = experts.post_expert_norm(y)
        share = weights.masked_fill(chosen.logical_not(), 0.0).sum(-1, keepdim=True)
        total = total + y.masked_fill(mine.logical_not(), 0.0) * share.to(y.dtype)
    return total


def every_module(block: Any, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
    """As `every_expert`, for a block of 4.50 whose experts are modules: result, router's scores."""
    hidden = hidden_states.view(-1, hidden_states.shape[-1])
    jambas = not hasattr(block, "gate")
    scores = block.router(hidden) if jambas else block.gate(hidden)
    weights = F.softmax(scores, dim=1, dtype=torch.float)
    weights, index = torch.topk(weights, block.top_k, dim=-1)
    if getattr(block, "norm_topk_prob", not jambas):
        weights = weights / weights.sum(dim=-1, keepdim=True)
    weights = weights.to(hidden.dtype)
    total = torch.zeros_like(hidden)
    for number, expert in enumerate(block.experts):
        chosen = index == number
        other = chosen.to(hidden.dtype).amax(-1, keepdim=True) == 0
        y = expert(hidden.masked_fill(other, 0.0))
        share = weights.masked_fill(chosen.logical_not(), 0.0).sum(-1, keepdim=True)
        total = total + y.masked_fill(other, 0.0) * share
    if hasattr(block, "shared_expert"):
        total = total + F.sigmoid(block.shared_expert_gate(hidden)) * block.shared_expert(hidden)
    return total.reshape(hidden_states.shape), scores


# Blocks of 4.50 that sort the tokens by experts. 5.x keeps the experts' weights in one tensor.
_BLOCKS = frozenset({
    "transformers.models.jamba.modeling_jamba.JambaSparseMoeBlock",
    "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
    "transformers.models.olmoe.modeling_olmoe.OlmoeSparseMoeBlock",
    "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
})  # fmt: skip


def _is_block(module: nn.Module) -> bool:
    kind = type(module)
    if f"{kind.__module__}.{kind.__qualname__}" not in _BLOCKS:
        return False
    jitters = module.training and getattr(module, "jitter_noise", 0) > 0
    return isinstance(getattr(module, "experts", None), nn.ModuleList) and not jitters


_EXPERTS = ("num_experts", "has_gate", "has_bias", "is_transposed", "_apply_gate", "down_proj")
_EXPERTS_MODULE = "transformers.integrations.moe"


def _is_static(module: nn.Module) -> bool:
    """Whether the module is a mixture's experts that `every_expert` can stand for."""
    if not type(module).__module__.startswith("transformers."):
        return False
    whole = all(hasattr(module, name) for name in _EXPERTS)
    return whole and not getattr(module, "_is_expert_parallel", False)


@contextlib.contextmanager
def static_experts(module: nn.Module) -> Iterator[None]:
    """Mixtures take `every_expert` (5.x) or `every_module` for their forward in a trace."""
    changed: list[nn.Module] = []
    for child in module.modules():
        static = every_expert if _is_static(child) else every_module if _is_block(child) else None
        if "forward" in vars(child) or static is None:
            continue
        vars(child)["forward"] = functools.partial(static, child)
        changed.append(child)
    try:
        yield
    finally:
        for child in changed:
            del vars(child)["forward"]


@contextlib.contextmanager
def eager_experts() -> Iterator[None]:
    """Experts of transformers 5 take `every_expert` while eager code runs, as in a trace.

    Their own forward counts the tokens of each expert, so its shapes depend on values. The place
    where transformers chooses an implementation is replaced, where that module has been imported.
    """
    if not hasattr(sys.modules.get(_EXPERTS_MODULE), "ExpertsInterface"):
        yield
        return
    place = f"{_EXPERTS_MODULE}:ExpertsInterface", "get_interface"
    chosen = usual(*place)

    def get_interface(self: Any, implementation: str, default: Any) -> Any:
        def forward(experts: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_static(experts):
                return every_expert(experts, *args, **kwargs)
            return chosen(self, implementation, default)(experts, *args, **kwargs)

        return forward

    with replacing(*place, get_interface):
        yield


@contextlib.contextmanager
def traced_as_called(module: nn.Module) -> Iterator[None]:
    """What a trace of a model of transformers needs around it; afterwards all is as it was."""
    with without_cache(module), static_experts(module):
        yield


@contextlib.contextmanager
def without_cache(module: nn.Module) -> Iterator[None]:
    """transformers' configs say `use_cache=False` while a trace runs.

    The cache serves generation. No loss depends on it, and a trace would carry it along. A call
    with `use_cache=True` of its own keeps its cache.
    """
    changed: list[Any] = []
    for child in module.modules():
        config = getattr(child, "config", None)
        if config is None or not type(config).__module__.startswith("transformers."):
            continue
        if vars(config).get("use_cache") is True:
            config.use_cache = False
            changed.append(config)
    try:
        yield
    finally:
        for config in changed:
            config.use_cache = True
