"""An exported file is what `load_state_dict(strict=True)` and `from_pretrained` take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import tallystick
from tallystick.cli.main import run as command
from tallystick.errors import CorruptFileError, UsageError
from tallystick.program.state import ModuleNames, names_of
from tallystick.run.store.export import Which, export_model, verify_model


class Odd(nn.Module):
    """A tied matrix, a tied module, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Embedding(7, 6)
        self.inside = nn.Linear(6, 6)
        self.again = self.inside
        self.out = nn.Linear(6, 7, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("scale", torch.full((6,), 0.5))
        self.register_buffer("shift", torch.arange(6.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.again(torch.tanh(self.inside(self.embed(x)))) * self.scale + self.shift
        found: Tensor = self.out(y)
        return found


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(batch["x"]), batch["x"])


def trained(module: nn.Module, where: Path, run: Any = loss, **options: Any) -> Path:
    data = {"x": torch.arange(64).reshape(-1) % 7}
    captured = tallystick.capture(
        module, run, {"x": data["x"][:8]}, tallystick.AdamW(0.01), **options
    )
    job = captured.save_job(where / "job", data, steps=4)
    tallystick.train(job, where / "run")
    return where / "run"


def test_a_strict_load_takes_the_file(tmp_path: Path) -> None:
    run = trained(Odd(), tmp_path)
    file = tmp_path / "model.safetensors"
    report = export_model(run, file)
    state = load_file(file)
    module = Odd()
    assert set(state) == set(module.state_dict()) and report.tensors == len(state)
    before = module.embed.weight.detach().clone()
    module.load_state_dict(state, strict=True)
    assert not torch.equal(module.embed.weight, before)
    assert torch.equal(state["out.weight"], state["embed.weight"])
    assert torch.equal(state["again.bias"], state["inside.bias"])
    verify_model(file, run)


def test_from_pretrained_takes_the_file(tmp_path: Path) -> None:
    config = GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=7, n_positions=8,
                        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    torch.manual_seed(5)
    module = GPT2LMHeadModel(config)
    module.save_pretrained(tmp_path / "hub")

    def words(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        tokens = batch["x"].reshape(2, 4)
        found: Tensor = module(input_ids=tokens, labels=tokens).loss
        return found

    run = trained(module.train(), tmp_path, words)
    export_model(run, tmp_path / "hub" / "model.safetensors")
    found = GPT2LMHeadModel.from_pretrained(tmp_path / "hub", output_loading_info=True)
    again, info = found
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    exported = load_file(tmp_path / "hub" / "model.safetensors")
    assert set(exported) == set(module.state_dict())
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, exported[name]), name
    with torch.no_grad():
        tokens = torch.arange(4)[None]
        module.load_state_dict(exported, strict=True)
        module.eval(), again.eval()
        assert torch.equal(module(tokens).logits, again(tokens).logits)


def test_averages_are_exported_as_parameters(tmp_path: Path) -> None:
    run = trained(Odd(), tmp_path, ema=0.5)
    last, average = tmp_path / "last.safetensors", tmp_path / "average.safetensors"
    assert command(["export", str(run), "-o", str(average), "--ema"]) == 0
    export_model(run, last)
    one, other = load_file(last), load_file(average)
    assert set(one) == set(other)
    assert torch.equal(other["out.weight"], other["embed.weight"])
    assert not torch.equal(one["embed.weight"], other["embed.weight"])
    assert torch.equal(one["scale"], other["scale"])
    Odd().load_state_dict(other, strict=True)
    assert command(["verify-model", str(average), str(run), "--ema"]) == 0
    assert command(["verify-model", str(average), str(run)]) == 1
    assert command(["verify-model", str(last), str(run), "--ema"]) == 1


def test_a_run_without_averages_has_none_to_export(tmp_path: Path) -> None:
    run = trained(Odd(), tmp_path)
    with pytest.raises(UsageError, match="keeps no averaged parameters"):
        export_model(run, tmp_path / "file", which=Which(average=True))


def test_names_survive_the_notes() -> None:
    names = ModuleNames({"b": "a", "d.e": "a"}, ("c",))
    assert names_of(names.notes(), {"a", "c"}) == names
    assert names_of({}, {"a"}) == ModuleNames()


@pytest.mark.parametrize(
    "about",
    [
        {"tied names": "b=none"},
        {"tied names": "a=c"},
        {"tied names": "=a"},
        {"buffers outside of state_dict": "x"},
    ],
)
def test_notes_that_do_not_fit(about: dict[str, str]) -> None:
    with pytest.raises(CorruptFileError):
        names_of(about, {"a", "c"})


def test_the_exported_numbers_are_the_state(tmp_path: Path) -> None:
    run = trained(Odd(), tmp_path)
    file = tmp_path / "model.safetensors"
    export_model(run, file)
    state = tallystick.load_job(tmp_path / "job").genesis().tensors()
    assert np.array_equal(load_file(file)["scale"].numpy(), state["buffer.scale"])
