"""Models of transformers and peft as their users call them (PROGRAM 5.14, 5.15).

The batch has a real padded mask, and another one than the batch that was captured. So a rule that
leaves the mask out, or keeps the first one, gives another loss than eager torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.program.capture import CapturedStep, capture
from tallystick.program.executor import Executor
from tallystick.program.optimizers import SGD

hf: Any = pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
# Its first import is slow, and no part of what is tested.
auto = hf.AutoModelForCausalLM

SMALL = {
    "vocab_size": 31, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
OFF = {
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "dropout_rate": 0.0,
}  # fmt: skip


def model(kind: str, head: str, **given: Any) -> nn.Module:
    torch.manual_seed(2)
    config = hf.AutoConfig.for_model(kind, **{**SMALL, **OFF, **given})
    module: nn.Module = getattr(hf, head).from_config(config)
    return module.train()


def batch(*starts: int, left: bool = False) -> dict[str, Tensor]:
    """Rows of eight tokens; row i has `starts[i]` tokens of padding, right unless `left`."""
    generator = torch.Generator().manual_seed(sum(starts))
    ids = torch.randint(3, 31, (len(starts), 8), generator=generator)
    mask = torch.ones_like(ids)
    for row, padding in enumerate(starts):
        if padding and left:
            mask[row, :padding] = 0
        elif padding:
            mask[row, -padding:] = 0
    return {
        "input_ids": ids.masked_fill(mask == 0, 0),
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
    }


WHOLE, PADDED = batch(0, 0), batch(3, 2)


def named(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    loss: Tensor = module(**b).loss
    return loss


def positional(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    loss: Tensor = module(
        b["input_ids"], attention_mask=b["attention_mask"], labels=b["labels"]
    ).loss
    return loss


def cached(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    loss: Tensor = module(**b, use_cache=True).loss
    return loss


def as_tuple(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
    loss: Tensor = module(**b, return_dict=False)[0]
    return loss


def loss_of(step: CapturedStep, b: dict[str, Tensor]) -> float:
    assert step.initial_state is not None
    state = {k: np.array(v) for k, v in step.initial_state.items()}
    arrays = {k: v.numpy() for k, v in b.items()}
    result = Executor(step.program).run_step(state, arrays, {"lr": 0.1}, (3, 0))
    assert result.loss is not None
    return float(result.loss)


def check(module: nn.Module, loss: Any, captured_on: dict[str, Tensor], *run: Any) -> CapturedStep:
    step = capture(module, loss, captured_on, SGD(0.1))
    for b in run:
        eager = float(loss(module, b).detach())
        assert loss_of(step, b) == pytest.approx(eager, rel=3e-6)
    return step


CAUSAL = {"gpt2": {}, "llama": {"num_key_value_heads": 1}}


@pytest.mark.parametrize("kind", sorted(CAUSAL))
def test_the_mask_is_computed_whatever_the_batch_that_was_captured(kind: str) -> None:
    """transformers leaves a full mask out; a program must not. Left padding changes positions'
    rows too, whose padded queries see nothing."""
    module = model(kind, "AutoModelForCausalLM", **CAUSAL[kind])
    check(module, positional, WHOLE, WHOLE, PADDED, batch(3, 2, left=True))
    assert float(positional(module, WHOLE)) != pytest.approx(float(positional(module, PADDED)))


@pytest.mark.parametrize("kind", sorted(CAUSAL))
def test_the_cache_changes_no_program(kind: str) -> None:
    module = model(kind, "AutoModelForCausalLM", **CAUSAL[kind])
    assert module.config.use_cache is True
    programs = [
        capture(module, loss, PADDED, SGD(0.1)).program.digest()
        for loss in (named, cached, as_tuple)
    ]
    assert len(set(programs)) == 1
    assert module.config.use_cache is True


def test_without_a_mask_padding_is_only_warned_of() -> None:
    def bare(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
        loss: Tensor = module(b["input_ids"], labels=b["labels"]).loss
        return loss

    check(model("gpt2", "AutoModelForCausalLM"), bare, WHOLE, PADDED)


def test_an_encoder_adds_its_mask() -> None:
    module = model("bert", "AutoModelForMaskedLM")
    check(module, named, WHOLE, WHOLE, PADDED)


def test_an_encoder_decoder_shares_its_embedding() -> None:
    module = model(
        "t5", "AutoModelForSeq2SeqLM", d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2,
        num_decoder_layers=1, decoder_start_token_id=0,
    )  # fmt: skip
    shared = module.shared.weight
    check(module, named, WHOLE, PADDED)
    assert module.shared.weight is shared and not shared.is_meta


def test_a_choice_by_values_is_refused_with_its_line() -> None:
    def chooses(module: nn.Module, b: dict[str, Tensor]) -> Tensor:
        loss = named(module, b)
        return loss if b["attention_mask"].all() else 2 * loss

    module = model("gpt2", "AutoModelForCausalLM")
    with pytest.raises(UsageError, match="looks at the values"):
        capture(module, chooses, PADDED, SGD(0.1))


@pytest.mark.parametrize("method", ["LoraConfig", "PrefixTuningConfig"])
def test_a_peft_model_is_called_as_any(method: str) -> None:
    peft: Any = pytest.importorskip("peft", reason="peft is not installed (extra `hf`)")
    given = {"r": 2, "target_modules": ["q_proj"]} if method == "LoraConfig" else {}
    given = given or {"num_virtual_tokens": 2}
    inner = model("llama", "AutoModelForCausalLM", **CAUSAL["llama"])
    module = peft.get_peft_model(inner, getattr(peft, method)(task_type="CAUSAL_LM", **given))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.05
    step = check(module.train(), named, WHOLE, PADDED)
    trained = {f"param.{n}" for n, p in module.named_parameters() if p.requires_grad}
    moved = {n for n, v in step.program.next_state.items() if not v.is_input}
    assert trained and moved == trained


@pytest.mark.skipif(hf.__version__.startswith("4."), reason="experts are a class since 5.0")
def test_a_mixture_of_experts_has_a_static_form() -> None:
    module = model(
        "mixtral", "AutoModelForCausalLM", num_key_value_heads=1, num_local_experts=3,
        num_experts_per_tok=2,
    )  # fmt: skip
    check(module, named, WHOLE, WHOLE, PADDED)
    assert not any("forward" in vars(child) for child in module.modules())
