"""Recipes that start from a Hugging Face checkpoint, and what an export gives back there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tallystick.disk.checkpoint import open_checkpoint
from tallystick.errors import (
    CannotCheckError,
    DigestMismatchError,
    StorageError,
    TallystickError,
    UsageError,
)
from tallystick.job.recipes import new_job, verify_job
from tallystick.job.recipes.base import Sources
from tallystick.job.recipes.llama import sizes_of

hf: Any = pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")


def llama(path: Path, dtype: torch.dtype = torch.float32, shards: str = "1GB") -> Any:
    torch.manual_seed(5)
    config = hf.LlamaConfig(
        vocab_size=300, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        tie_word_embeddings=False, rms_norm_eps=1e-6, rope_parameters={
            "rope_type": "llama3", "rope_theta": 5000.0, "factor": 4.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
    )  # fmt: skip
    model = hf.LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(path, max_shard_size=shards)
    return hf.LlamaForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def distilbert(path: Path) -> Any:
    torch.manual_seed(5)
    config = hf.DistilBertConfig(
        vocab_size=60, max_position_embeddings=20, dim=16, hidden_dim=24, n_layers=2, n_heads=2
    )
    model = hf.DistilBertModel(config)
    model.save_pretrained(path)
    return model


def text(directory: Path) -> Path:
    path = directory / "text.txt"
    path.write_bytes(b"one tally stick was split in two, and both halves matched. " * 40)
    return path


@pytest.mark.parametrize(("recipe", "dtype"), [("llama", "float32"), ("llama-lora", "bfloat16")])
def test_llama_starts_from_a_checkpoint(
    recipe: str, dtype: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    """Its sizes, its rotary positions and its weights: the validation loss is transformers'."""
    if recipe == "llama" and not is_exhaustive:
        pytest.skip("with --exhaustive only: llama-lora reads the same checkpoint")
    theirs = llama(tmp_path / "base", getattr(torch, dtype), "20KB")
    assert (tmp_path / "base" / "model.safetensors.index.json").exists()  # in several files
    sources = Sources(text=text(tmp_path), checkpoint=tmp_path / "base")
    given = {"block_size": "24", "batch_size": "2", "warmup": "0"}
    job = new_job(recipe, tmp_path / "job", given, sources, steps=2, evaluate_every=1)
    assert job.about["checkpoint"].startswith("base")
    from tallystick.run.execute.evaluation import Evaluator

    found = Evaluator(job).loss(job.genesis().slots)
    tokens = torch.from_numpy(np.array(job.validation_columns["tokens"][:4]))  # whole batches
    with torch.no_grad():
        logits = theirs(tokens[:, :-1]).logits.flatten(0, 1)
        wanted = torch.nn.functional.cross_entropy(logits, tokens[:, 1:].flatten())
    assert found == pytest.approx(float(wanted), rel=1e-6)
    assert "initial state" in verify_job(job, tmp_path / "base")
    with pytest.raises(CannotCheckError, match="--checkpoint DIR"):
        verify_job(job)
    llama(tmp_path / "other")
    weights = tmp_path / "other" / "model.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(raw)
    with pytest.raises(DigestMismatchError, match="initial state"):
        verify_job(job, tmp_path / "other")


def test_distilbert_starts_from_a_body(tmp_path: Path) -> None:
    """A body without a head: its weights under the prefix, and a new head that the job names."""
    theirs = distilbert(tmp_path / "base")
    given = {"length": "8", "records": "32", "batch_size": "4"}
    sources = Sources(checkpoint=tmp_path / "base")
    job = new_job("distilbert", tmp_path / "job", given, sources, steps=2)
    assert "; new: classifier.bias" in job.about["checkpoint"]
    slots = job.genesis().slots
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(slots[f"param.distilbert.{name}"], tensor.numpy())
    assert "initial state" in verify_job(job, tmp_path / "base")


def test_checkpoints_that_are_refused(tmp_path: Path) -> None:
    llama(tmp_path / "llama")
    distilbert(tmp_path / "distilbert")

    def refused(recipe: str, where: str, match: str, **given: str) -> None:
        with pytest.raises(TallystickError, match=match) as caught:
            words = text(tmp_path) if recipe == "llama" else None
            sources = Sources(text=words, checkpoint=tmp_path / where)
            new_job(recipe, tmp_path / "job", given, sources, steps=2)
        assert isinstance(caught.value, StorageError if "No other" in match else UsageError)

    refused("distilbert", "llama", "model_type is 'llama'")
    refused("gpt2", "llama", "takes no --checkpoint")
    refused("llama", "nowhere", "is not a checkpoint")
    given = json.loads((tmp_path / "llama" / "config.json").read_text())
    for key, value, named in (
        ("head_dim", "a", "head_dim"),
        ("num_attention_heads", 4.5, "no number num_attention_heads"),
        ("num_hidden_layers", None, "no number num_hidden_layers"),
    ):
        (tmp_path / "llama" / "config.json").write_text(json.dumps({**given, key: value}))
        refused("llama", "llama", named)
    (tmp_path / "llama" / "config.json").write_text(json.dumps(given))
    refused(
        "llama",
        "llama",
        r"has the shape \[300, 16\], but the recipe's has \[300, 32\]",
        n_embd="32",
    )
    config = tmp_path / "distilbert" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "pad_token_id": 1}))
    refused("distilbert", "distilbert", "pad_token_id is 1")
    waves = {"pad_token_id": 0, "sinusoidal_pos_embds": True}
    config.write_text(json.dumps({**json.loads(config.read_text()), **waves}))
    refused("distilbert", "distilbert", "sinusoidal_pos_embds is True")
    (tmp_path / "llama" / "model.safetensors").unlink()
    refused("llama", "llama", "No other format is read")


def test_halves_become_float32_exactly(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)
    tensors = {"b": every.view(torch.bfloat16), "h": every.clone().view(torch.float16)}
    (tmp_path / "config.json").write_text("{}")
    save_file({**tensors, "d": torch.zeros(2, dtype=torch.float64)}, tmp_path / "model.safetensors")
    found = open_checkpoint(tmp_path)
    for name, tensor in tensors.items():
        wanted, got = tensor.float().numpy(), found.read(name)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
        finite = ~np.isnan(wanted)
        np.testing.assert_array_equal(got[finite].view("u4"), wanted[finite].view("u4"))
    with pytest.raises(UsageError, match="has the type f64"):
        found.read("d")


def test_a_config_without_it_has_transformers_own_epsilon() -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 16,
    }  # fmt: skip
    assert float(sizes_of(config)["norm_eps"]) == hf.LlamaConfig().rms_norm_eps
