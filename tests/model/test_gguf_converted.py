"""A GGUF file of a model gives the bits of the model's directory, family by family (ANSWERS 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import save_model
from answer_truth import hold_whole_text
from model.gguf_converted import (
    FORMS,
    Form,
    config_changes,
    file_tensors,
    from_q8_0,
    given,
    is_matrix,
    metadata_of,
    write_converted,
)
from model.gguf_files import Given, gguf_bytes
from test_engine_families import Family, requests

from tallystick.answers.model import open_model, weights
from tallystick.answers.programs import engine_program, forward_program
from tallystick.errors import CorruptFileError, RefusedModelError
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

TOKENS = [5, 17, 40, 3, 3, 21, 9, 0, 33, 46, 1]


def logits(model: Any) -> bytes:
    """Of every place of a text, under ordered/1."""
    program = forward_program(model, len(TOKENS), len(TOKENS), "ordered/1")
    batch = {"text": np.array(TOKENS, np.int64), "place": np.arange(len(TOKENS))}
    found = Executor(program).execute(weights(model), StepInputs(batch)).outputs["logits"]
    assert np.isfinite(found).all()
    return bytes(found.tobytes())


def saved(form: Form, directory: Path) -> Any:
    return save_model(form.model, directory, **config_changes(form))


def rounded(form: Form, module: Any, directory: Path) -> None:
    """The directory again, each matrix as Q8_0 has it. Norms are vectors, and the order of rows
    changes no block; so the file's matrices are the model's in this."""
    import torch

    for name, parameter in module.named_parameters():
        array = parameter.detach().numpy()
        if is_matrix(name.replace("mlp.gate.", "ffn_gate_inp."), array):
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(from_q8_0(array)))
    module.save_pretrained(directory)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(FORMS))
def test_the_logits_are_those_of_the_directory(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    module = saved(form, tmp_path / "model")
    file = tmp_path / "m.gguf"
    write_converted(file, form, module, "f32")
    assert logits(open_model(file)) == logits(open_model(tmp_path / "model"))
    write_converted(file, form, module, "q8_0")
    quantised = logits(open_model(file))
    rounded(form, module, tmp_path / "rounded")
    assert quantised == logits(open_model(tmp_path / "rounded"))


@pytest.mark.parametrize(
    "name", ["gemma3", pytest.param("mixtral", marks=pytest.mark.long), "qwen3moe"]
)
def test_answers_are_those_of_the_whole_text(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    file = tmp_path / "m.gguf"
    write_converted(file, form, saved(form, tmp_path / "model"), "q8_0")
    family = Family(open_model(file), "ordered/1")
    hold_whole_text(family, requests()[:5])


def test_experts_become_numbers_one_by_one(tmp_path: Path) -> None:
    """No program has the numbers of all experts, nor those of one outside of a product."""
    form = FORMS["mixtral"]
    file = tmp_path / "m.gguf"
    write_converted(file, form, saved(form, tmp_path / "model"), "q8_0")
    program = engine_program(open_model(file), 1, "ordered/1")
    made = [n.out_types[0] for n in program.nodes if n.op == "tallystick.dequantize"]
    assert all(len(t.shape) == 2 for t in made)
    assert len(made) == 2 * (4 + 4 * 2) + 2
    assert Executor(program).arena_bytes < 64 * 96 * 4


def changed(name: str, directory: Path, keys: dict[str, Any], tensors: dict[str, Given]) -> Path:
    """The file of the form `name`, with other keys and tensors."""
    form = FORMS[name]
    module = saved(form, directory / "model")
    own = {n: given(x, "f32", n) for n, x in file_tensors(form, module)}
    path = directory / "m.gguf"
    path.write_bytes(gguf_bytes({**metadata_of(form, module), **keys}, {**own, **tensors}))
    return path


VECTOR = Given("f32", (8,), bytes(32))
EXPERTS = Given("f16", (4, 96, 64), bytes(2 * 4 * 96 * 64))


@pytest.mark.parametrize(
    ("name", "keys", "tensors", "said"),
    [
        ("gemma2", {"gemma2.rope.freq_base_swa": 500.0}, {}, "freq_base_swa 500"),
        ("gemma", {}, {"rope_freqs.weight": VECTOR}, "rope_freqs"),
        ("gemma3", {}, {"blk.0.attn_output.bias": VECTOR}, "self_attn.o_proj.bias"),
        ("gemma3", {"gemma3.rope.scaling.type": "su"}, {}, "'su'"),
        ("phi2", {"phi2.rope.dimension_count": 17}, {}, "17 elements"),
        ("mixtral", {}, {"blk.1.ffn_up_exps.weight": EXPERTS}, "stored as f16 and f32"),
        ("mixtral", {"llama.expert_weights_scale": 2.0}, {}, "expert_weights_scale 2.0"),
        ("mixtral", {}, {"blk.0.ffn_gate_shexp.weight": VECTOR}, "ffn_gate_shexp"),
    ],
)
def test_what_is_not_known_is_refused_by_its_name(
    name: str, keys: dict[str, Any], tensors: dict[str, Given], said: str, tmp_path: Path
) -> None:
    path = changed(name, tmp_path, keys, tensors)
    with pytest.raises(RefusedModelError, match=said):
        weights(open_model(path))


@pytest.mark.parametrize(
    ("name", "keys", "tensors"),
    [
        ("gemma3", {"gemma3.block_count": 2**31 - 1}, {}),
        ("gemma3", {"gemma3.attention.sliding_window_pattern": [1, 0]}, {}),
        ("gemma3", {"gemma3.attention.sliding_window_pattern": [1, 0, 1, 1, 1, 2, 0]}, {}),
        ("mixtral", {}, {"blk.0.ffn_up_exps.weight": VECTOR}),
        ("mixtral", {"llama.expert_used_count": 5}, {}),
        ("mixtral", {"llama.expert_count": 2**31 - 1}, {}),
        ("qwen3moe", {"qwen3moe.expert_used_count": 0}, {}),
    ],
)
def test_what_contradicts_itself_is_refused(
    name: str, keys: dict[str, Any], tensors: dict[str, Given], tmp_path: Path
) -> None:
    path = changed(name, tmp_path, keys, tensors)
    with pytest.raises(CorruptFileError):
        weights(open_model(path))


def test_a_list_says_which_blocks_slide(tmp_path: Path) -> None:
    slides = [0, 1, 1, 0, 1, 0, 1]
    keys = {"gemma3.attention.sliding_window_pattern": slides}
    found = open_model(changed("gemma3", tmp_path, keys, {})).config["layer_types"]
    assert found == [("full", "sliding")[x] + "_attention" for x in slides]
    keys = {"gemma3.attention.sliding_window": 0}
    found = open_model(changed("gemma3", tmp_path, keys, {})).config["layer_types"]
    assert found == ["full_attention"] * 7


@pytest.mark.parametrize(
    ("name", "blocks", "root"), [("gemma2", 46, 16), ("gemma3", 62, 16), ("gemma2", 45, 24)]
)
def test_the_largest_gemmas_divide_by_another_root(
    name: str, blocks: int, root: int, tmp_path: Path
) -> None:
    """By that of the share of a head in the width of the model, 64 / 4, and not of a head's own."""
    keys = {f"{name}.block_count": blocks, f"{name}.attention.key_length": 24,
            f"{name}.attention.value_length": 24}  # fmt: skip
    more = {f"blk.{n}.attn_norm.weight": VECTOR for n in range(blocks)}
    found = open_model(changed(name, tmp_path, keys, more)).config
    assert found["query_pre_attn_scalar"] == root
