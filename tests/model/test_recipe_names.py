"""The recipes' own modules have the names, shapes and values of transformers' and peft's classes.

So `export` gives a file that `load_state_dict(strict=True)` takes there.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tallystick.job.recipes import distilbert, llama, llama_lora, llama_module
from tallystick.job.recipes.settings import build

hf: Any = pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")

TINY = distilbert.PRESETS["tiny"]
# float32's error over two small blocks.
NEAR = {"rtol": 0.0, "atol": 2e-6}


def filled(module: torch.nn.Module) -> torch.nn.Module:
    """The module in evaluation mode, each weight a normal number of its own."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return module.eval()


def shapes(module: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(t.shape) for name, t in module.state_dict().items()}


def their_distilbert(s: Any) -> torch.nn.Module:
    kinds = {"classify": "SequenceClassification", "mlm": "MaskedLM"}
    config = hf.DistilBertConfig(
        vocab_size=s.vocab_size, max_position_embeddings=s.max_positions, n_layers=s.n_layers,
        n_heads=s.n_heads, dim=s.dim, hidden_dim=s.hidden_dim, num_labels=s.labels,
    )  # fmt: skip
    theirs: torch.nn.Module = getattr(hf, f"DistilBertFor{kinds[s.task]}")(config)
    return theirs


@pytest.mark.parametrize("task", ["classify", "mlm"])
def test_distilbert(task: str) -> None:
    s = build(distilbert.DistilbertSettings, {**TINY, "task": task}, "distilbert")
    ours = filled(distilbert.make_module(s))
    theirs = their_distilbert(s)
    assert shapes(ours) == shapes(theirs)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    ids = torch.randint(1, s.vocab_size, (3, 16), generator=torch.Generator().manual_seed(2))
    mask = torch.ones_like(ids)
    mask[1, 9:] = 0
    for attention in (None, mask):
        found, wanted = ours(ids, attention), theirs.eval()(ids, attention).logits
        assert float(wanted.detach().abs().max()) > 0.1
        torch.testing.assert_close(found, wanted, **NEAR)


def test_distilberts_own_size_is_the_default() -> None:
    for task in ("classify", "mlm"):
        s = build(distilbert.DistilbertSettings, {"task": task}, "distilbert")
        with torch.device("meta"):
            ours, theirs = distilbert.make_module(s), their_distilbert(s)
            default = type(theirs)(hf.DistilBertConfig())
        assert shapes(ours) == shapes(theirs) == shapes(default)


def their_llama(s: Any) -> torch.nn.Module:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": s.rope_theta}
    if s.rope_factor > 1:
        rope = {
            "rope_type": "llama3", "rope_theta": s.rope_theta, "factor": s.rope_factor,
            "low_freq_factor": s.rope_low, "high_freq_factor": s.rope_high,
            "original_max_position_embeddings": s.rope_original,
        }  # fmt: skip
    config = hf.LlamaConfig(
        vocab_size=s.vocab_size, hidden_size=s.n_embd, intermediate_size=s.intermediate,
        num_hidden_layers=s.n_layer, num_attention_heads=s.n_head, num_key_value_heads=s.n_kv_head,
        max_position_embeddings=131072, rms_norm_eps=s.norm_eps, tie_word_embeddings=s.tied,
        rope_parameters=rope,
    )  # fmt: skip
    theirs: torch.nn.Module = hf.LlamaForCausalLM(config)
    return theirs


@pytest.mark.parametrize("tied", ["true", "false"])
def test_llama(tied: str) -> None:
    # Waves of 128 tokens' first training: short, middle and long ones.
    given = {**llama.PRESETS["tiny"], "n_embd": "64", "tied": tied, "rope_theta": "10000",
             "rope_factor": "8", "rope_original": "128"}  # fmt: skip
    s = build(llama.LlamaSettings, given, "llama")
    ours = filled(llama.make_module(s))
    theirs = their_llama(s).eval()
    assert shapes(ours) == shapes(theirs)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    tokens = torch.randint(256, (2, 40), generator=torch.Generator().manual_seed(2))
    found, wanted = ours(tokens), theirs(tokens).logits
    assert float(wanted.detach().abs().max()) > 1
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("preset", ["1b", "8b"])
def test_llamas_of_1b_and_8b(preset: str) -> None:
    """Names, shapes and the angles of the rotary positions; no weight is made."""
    s = build(llama.LlamaSettings, llama.PRESETS[preset], "llama")
    with torch.device("meta"):
        ours, theirs = llama.make_module(s), their_llama(s)
    assert shapes(ours) == shapes(theirs)
    millions = sum(p.numel() for p in ours.parameters()) // 10**6
    assert millions == {"1b": 1235, "8b": 8030}[preset]
    small = their_llama(build(llama.LlamaSettings, {
        **llama.PRESETS[preset], "n_layer": "1", "vocab_size": "256", "intermediate": "8",
    }, "llama"))  # fmt: skip
    wanted = small.model.rotary_emb.inv_freq
    angles = torch.from_numpy(llama_module.inverse_frequencies(s))
    torch.testing.assert_close(angles, wanted, rtol=3e-7, atol=0.0)


@pytest.mark.parametrize("targets", ["q_proj,v_proj", "all"])
def test_llama_lora(targets: str) -> None:
    """peft's model takes the whole state, and the adapters are what it trains."""
    peft = pytest.importorskip("peft", reason="peft is not installed (extra `hf`)")
    given = {**llama.PRESETS["tiny"], "rank": "3", "alpha": "7", "target_modules": targets,
             "lora_dropout": "0.0"}  # fmt: skip
    s = build(llama_lora.LoraSettings, given, "llama-lora")
    ours = filled(llama_lora.make_module(s))
    config = peft.LoraConfig(
        r=s.rank, lora_alpha=s.alpha, lora_dropout=s.lora_dropout, target_modules=list(s.targets())
    )
    theirs = peft.get_peft_model(their_llama(s), config).eval()
    assert shapes(ours) == shapes(theirs)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    trained = [{n for n, p in m.named_parameters() if p.requires_grad} for m in (ours, theirs)]
    assert trained[0] == trained[1] and all(map(llama_lora.is_adapter, trained[0]))
    assert len(trained[0]) == 2 * s.n_layer * len(s.targets())
    tokens = torch.randint(256, (2, 16), generator=torch.Generator().manual_seed(2))
    losses = []
    for module in (ours, theirs):
        logits = module(tokens)
        losses.append(torch.nn.functional.cross_entropy(
            getattr(logits, "logits", logits).flatten(0, 1), tokens.flatten()))  # fmt: skip
        losses[-1].backward()
    torch.testing.assert_close(losses[0], losses[1], rtol=2e-6, atol=0.0)
    gradients = [dict(m.named_parameters()) for m in (ours, theirs)]
    for name in sorted(trained[0]):
        one, two = gradients[0][name].grad, gradients[1][name].grad
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
