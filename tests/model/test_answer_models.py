"""Opening a transformers directory for answers: what is read, and what is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import LONGEST, VOCABULARY, PlainEngine, save_model, text_of

from tallystick.answers.model import open_model, weights
from tallystick.answers.programs import engine_program, forward_program
from tallystick.commit.tensor import dtype_name, widened
from tallystick.errors import CorruptFileError, RefusedModelError, TallystickError, UsageError
from tallystick.program.executor import Executor

SMOLLM2 = Path(os.environ.get("TALLYSTICK_SMOLLM2", "/nowhere"))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("smollm")
    save_model("smollm", made, shards="20KB")
    return made


def copy_of(directory: Path, to: Path, **config: Any) -> Path:
    """The directory's files, its config changed."""
    to.mkdir()
    for path in directory.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    written = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(written | config))
    return to


def test_a_directory_is_opened(directory: Path, tmp_path: Path) -> None:
    made = copy_of(directory, tmp_path / "m", eos_token_id=5)
    assert len(list(made.glob("*.safetensors"))) > 1  # several files of weights
    model = open_model(made)
    assert (model.family, model.vocabulary, model.longest) == ("llama", VOCABULARY, LONGEST)
    assert model.stop != (5,) and model.chat_template is None  # generation_config.json comes first
    (made / "generation_config.json").unlink()
    assert open_model(made).stop == (5,)
    (made / "generation_config.json").write_text('{"eos_token_id": [7, 2, 7]}')
    (made / "tokenizer_config.json").write_text('{"chat_template": "{{ x }}"}')
    (made / "tokenizer.json").write_bytes(b"{}")
    model = open_model(str(made))
    assert model.stop == (2, 7) and model.chat_template == "{{ x }}"
    assert set(model.files) == {"tokenizer.json", "tokenizer_config.json"}
    (made / "chat_template.jinja").write_text("{{ y }}")
    assert open_model(made).chat_template == "{{ y }}"
    assert set(model.stored.values()) == {"f32"}


def test_weights_are_views_of_the_files_and_tied_once(directory: Path) -> None:
    model = open_model(directory)
    slots = weights(model)
    program = engine_program(model, 1, "ordered/1")
    assert {n: (t.dtype, t.shape) for n, t in program.state_types.items()} == {
        n: ("f32", x.shape) for n, x in slots.items()
    }
    assert "param.model.embed_tokens.weight" in slots and "param.lm_head.weight" not in slots
    for name, x in slots.items():
        assert x.flags.c_contiguous and x.flags.writeable, name
        assert name.startswith("buffer.") or x.base is not None
    slots["param.model.norm.weight"][:] = 0  # a private map: the file keeps its own
    assert weights(model)["param.model.norm.weight"].any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_stay_what_they_are(tmp_path: Path, dtype: str) -> None:
    import torch

    module = save_model("gemma", tmp_path)
    half = module.to(getattr(torch, dtype))
    half.save_pretrained(tmp_path)
    model = open_model(tmp_path)
    assert set(model.stored.values()) == {"bf16" if dtype == "bfloat16" else "f16"}
    slots = weights(model)
    types = engine_program(model, 2, "ordered/1").state_types
    for name, parameter in half.named_parameters():
        held = slots[f"param.{name}"]
        assert dtype_name(held.dtype) == types[f"param.{name}"].dtype == model.stored[name]
        assert held.flags.c_contiguous and held.base is not None
        assert np.array_equal(widened(held), parameter.detach().float().numpy()), name


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "code": ({"auto_map": {"AutoModelForCausalLM": "x.Y"}}, "trust_remote_code"),
    "bloom": ({"model_type": "bloom", "architectures": ["BloomForCausalLM"]}, "'bloom'"),
    "head": ({"architectures": ["LlamaForSequenceClassification"]}, "logits of a next token"),
    "quantised": ({"quantization_config": {"quant_method": "gptq"}}, "quantised"),
    "dynamic": ({"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
                "dynamic NTK"),
    "of transformers 4": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "dynamic NTK"),
    "longrope": ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "long ones"),
    "unknown rope": ({"rope_parameters": {"rope_type": "novel"}}, "'novel'"),
    "one of two ropes": ({"rope_parameters": {"full_attention": {"rope_type": "dynamic"}}},
                         "dynamic NTK"),
    "both directions": ({"is_causal": False}, "both directions"),
    "no number": ({"hidden_size": "wide"}, "transformers cannot build a model"),
    "no head": ({"num_attention_heads": 0}, "transformers cannot build a model"),
    "unknown activation": ({"hidden_act": "novel"}, "transformers cannot build a model"),
    "layers without weights": ({"num_hidden_layers": 1 << 40}, "layers"),
    "another width": ({"hidden_size": 36}, "the config gives it"),
}  # fmt: skip


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_is_refused_says_why(directory: Path, tmp_path: Path, case: str) -> None:
    changes, why = REFUSED[case]
    made = copy_of(directory, tmp_path / "m", **changes)
    with pytest.raises(RefusedModelError, match=why) as raised:
        weights(open_model(made))
    assert raised.value.next_action


def test_pickles_and_adapters_are_refused(directory: Path, tmp_path: Path) -> None:
    made = copy_of(directory, tmp_path / "m")
    for path in made.glob("*.safetensors*"):
        path.unlink()
    (made / "pytorch_model.bin").write_bytes(b"never read")
    with pytest.raises(RefusedModelError, match="pickle"):
        open_model(made)
    (made / "adapter_config.json").write_text("{}")
    with pytest.raises(RefusedModelError, match="adapter"):
        open_model(made)


def test_strange_files_are_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        open_model(tmp_path)
    made = copy_of(directory, tmp_path / "m")
    for text in ('{"eos_token_id": "two"}', '{"eos_token_id": [true]}', "[]", "{"):
        (made / "generation_config.json").write_text(text)
        with pytest.raises(CorruptFileError):
            open_model(made)
    (made / "generation_config.json").unlink()
    (made / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CorruptFileError):
        open_model(made)


def test_tied_weights_that_differ_are_refused(tmp_path: Path) -> None:
    save_model("llama", tmp_path / "own", tie_word_embeddings=False)
    made = copy_of(tmp_path / "own", tmp_path / "m", tie_word_embeddings=True)
    with pytest.raises(RefusedModelError, match="differ, but the config ties them"):
        weights(open_model(made))


def test_checkpoints_without_a_head_and_with_old_buffers(tmp_path: Path) -> None:
    """GPT-2's own files lack the prefix, and hold its masks."""
    from safetensors.numpy import load_file, save_file

    save_model("gpt2", tmp_path)
    model = open_model(tmp_path)
    wanted = {name: x.copy() for name, x in weights(model).items()}
    path = tmp_path / "model.safetensors"
    old = {name.removeprefix("transformer."): x for name, x in load_file(path).items()}
    old["h.0.attn.bias"] = np.zeros((1, 1, 4, 4), np.float32)
    save_file(old, path)
    found = weights(open_model(tmp_path))
    assert set(found) == set(wanted)
    assert all(np.array_equal(found[name], x) for name, x in wanted.items())
    save_file({**old, "h.0.attn.strange": old["wte.weight"]}, path)
    with pytest.raises(RefusedModelError, match=r"h\.0\.attn\.strange"):
        weights(open_model(tmp_path))


def test_texts_longer_than_the_model_are_refused(directory: Path) -> None:
    model = open_model(directory)
    for length, rows in ((LONGEST + 1, 1), (0, 1), (4, 0)):
        with pytest.raises(UsageError):
            forward_program(model, length, rows, "ordered/1")
    with pytest.raises(UsageError):
        engine_program(model, 0, "ordered/1")


@pytest.mark.parametrize("contract", ["exact/1", "replay/1"])
def test_other_contracts_are_refused(directory: Path, contract: str) -> None:
    with pytest.raises(TallystickError, match="attention_scores"):
        engine_program(open_model(directory), 1, contract)


def test_experts_that_tie_are_taken_from_the_first(tmp_path: Path) -> None:
    """With a gate of zeros all tie: what experts 2 and 3 hold decides nothing."""
    save_model("mixtral", tmp_path)
    model = open_model(tmp_path)
    slots = {name: x.copy() for name, x in weights(model).items()}
    for name in slots:
        if name.endswith("mlp.gate.weight"):
            slots[name][:] = 0
    program = forward_program(model, 6, 6, "ordered/1")
    batch = {"text": text_of(6), "place": np.arange(6)}

    def logits(changed: int) -> np.ndarray:
        state = {name: x.copy() for name, x in slots.items()}
        for name in state:
            if "experts" in name:
                state[name][changed] += 1
        return Executor(program).run_step(state, batch).outputs["logits"]

    found = [logits(expert) for expert in range(4)]
    assert np.array_equal(found[2], found[3])
    assert not np.array_equal(found[0], found[2]) and not np.array_equal(found[1], found[2])


_LAYERS = "print(*{'sliding_attention', 'full_attention'})"
_DIGESTS = """
import sys
from tallystick.answers.model import open_model
from tallystick.answers.programs import engine_program, forward_program
model = open_model(sys.argv[1])
print(engine_program(model, 2, "ordered/1").digest().hex())
print(forward_program(model, 9, 3, "ordered/1").digest().hex())
"""


def _child(seed: int, *arguments: str) -> str:
    """What another process with that seed of hashes prints."""
    env = os.environ | {"PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def test_the_text_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Gemma 3 asks for its rotary tables in the order of a set of strings: in the other process it
    is another order."""
    save_model("gemma3", tmp_path)
    here = " ".join({"sliding_attention", "full_attention"})
    other = next(seed for seed in range(1, 99) if _child(seed, _LAYERS).strip() != here)
    model = open_model(tmp_path)
    programs = engine_program(model, 2, "ordered/1"), forward_program(model, 9, 3, "ordered/1")
    assert _child(other, _DIGESTS, str(tmp_path)).split() == [p.digest().hex() for p in programs]


@pytest.mark.skipif(not (SMOLLM2 / "config.json").exists(), reason="TALLYSTICK_SMOLLM2 is not set")
def test_smollm2_token_by_token() -> None:
    """Real weights: the logits are near torch's, and of 24 tokens one by one have the same bits."""
    import torch
    from transformers import AutoModelForCausalLM

    model = open_model(SMOLLM2)
    slots = weights(model)
    text = np.random.default_rng(1).integers(0, model.vocabulary, 24).astype(np.int64)
    program = forward_program(model, 24, 24, "ordered/1")
    whole = Executor(program).run_step(slots, {"text": text, "place": np.arange(24)})
    found = whole.outputs["logits"]
    module = AutoModelForCausalLM.from_pretrained(SMOLLM2, attn_implementation="eager").eval()
    with torch.no_grad():
        wanted = module(torch.from_numpy(text)[None]).logits[0].numpy()
    assert np.abs(found - wanted).max() < 1e-3
    engine = PlainEngine(engine_program(model, 1, "ordered/1"), slots)
    for place, token in enumerate(text):
        row = engine.logits([("text", token)])[0]
        assert np.array_equal(row.view(np.uint32), found[place].view(np.uint32)), place
