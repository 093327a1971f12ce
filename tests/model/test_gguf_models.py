"""Models in GGUF files: answers of the engine, programs of the whole text, and their statements
(ANSWERS 12)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_truth import hold_whole_text
from model.gguf_files import gguf_bytes, random_tensor, small_model, write_small_model
from reference.ops import REFERENCE
from test_engine_families import Family, requests

from tallystick.answers.derive import derive
from tallystick.answers.layout import Bucket
from tallystick.answers.model import open_model, weights
from tallystick.answers.modules import read_config
from tallystick.answers.programs import engine_program, forward_program
from tallystick.commit.tensor import widened
from tallystick.errors import RefusedModelError
from tallystick.numerics.operators.quantised import BLOCKS
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

SMALL = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "f16", "bf16", "f32")
LARGE = ("q4_k", "q6_k", "q5_k")


@pytest.mark.parametrize(
    ("architecture", "kinds", "width"),
    [
        ("llama", SMALL, 64),
        ("llama", LARGE, 256),
        ("qwen2", SMALL[2:], 64),
        ("qwen3", SMALL[4:], 64),
        ("phi3", SMALL[1:], 64),
        ("gpt2", SMALL, 64),
        ("gpt2", ("q4_k", "f16"), 256),
    ],
)
def test_answers_are_those_of_the_whole_text(
    architecture: str, kinds: tuple[str, ...], width: int, tmp_path: Path
) -> None:
    path = write_small_model(tmp_path / "m.gguf", architecture, kinds, width=width)
    family = Family(open_model(path), "ordered/1")
    hold_whole_text(family, requests())


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "phi3", "gpt2"])
def test_the_logits_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    """transformers over the file's numbers as float32, with its own attention, to its accuracy."""
    import torch
    from transformers import AutoModelForCausalLM

    path = write_small_model(tmp_path / "m.gguf", architecture, ("q8_0", "q4_1", "f16"))
    model = open_model(path)
    module = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
        read_config(model.config), dtype=torch.float32
    )
    held = weights(model)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            array = held[f"param.{name}"]
            kind = model.stored[name]
            if kind in BLOCKS:
                (array,) = REFERENCE["tallystick.dequantize"]({"format": kind}, [array])
            elif kind != "f32":
                array = widened(array)
            parameter.copy_(torch.from_numpy(array.T.copy() if name in model.turned else array))
        tokens = [5, 17, 40, 3, 3, 21]
        want = module.eval()(torch.tensor([tokens])).logits[0].numpy()

    program = forward_program(model, len(tokens), len(tokens), "ordered/1")
    batch = {"text": np.array(tokens, np.int64), "place": np.arange(len(tokens))}
    found = Executor(program).execute(held, StepInputs(batch)).outputs["logits"]
    np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-4)


def test_llamas_rows_are_those_of_the_file_in_another_order(tmp_path: Path) -> None:
    """Row h·D + c·(D/2) + i of the slot is row h·D + 2·i + c of the file (11.3)."""
    metadata, tensors = small_model("llama", ("q8_0",))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(metadata, tensors))
    held = weights(open_model(path))
    raw = np.frombuffer(tensors["blk.1.attn_k.weight"].data, np.uint8).reshape(32, -1)
    slot = held["param.model.layers.1.self_attn.k_proj.weight"]
    for h in range(2):
        for c in range(2):
            for i in range(8):
                assert np.array_equal(slot[16 * h + 8 * c + i], raw[16 * h + 2 * i + c])
    same = np.frombuffer(tensors["blk.1.attn_v.weight"].data, np.uint8).reshape(32, -1)
    assert np.array_equal(held["param.model.layers.1.self_attn.v_proj.weight"], same)


def test_a_statement_covers_every_byte_that_decides(tmp_path: Path) -> None:
    """A byte of a matrix, a merge, a token, the template, an epsilon: each makes another statement,
    and a person's notes do not."""
    metadata, tensors = small_model("llama", ("q8_0", "q4_0"), tied=True)
    path = tmp_path / "m.gguf"

    def digest(**changes: object) -> bytes:
        path.write_bytes(gguf_bytes({**metadata, **changes}, tensors))
        statement, _ = derive(open_model(path), [Bucket(16, 4)], "ordered/1")
        return statement.digest

    own = digest()
    assert digest() == own
    assert digest(**{"general.name": "another"}) == own
    tokens = [*metadata["tokenizer.ggml.tokens"]]
    tokens[7] = "\u00a2"
    for change in (
        {"tokenizer.ggml.tokens": tokens},
        {
            "tokenizer.ggml.merges": ["$ %"],
            "tokenizer.ggml.tokens": [*tokens[:2], "$%", *tokens[3:]],
        },
        {"tokenizer.ggml.pre": "qwen2"},
        {"tokenizer.ggml.eos_token_id": 4},
        {"tokenizer.chat_template": "{{ messages[0].content }}"},
        {"llama.attention.layer_norm_rms_epsilon": 1e-5},
        {"llama.rope.freq_base": 20000.0},
    ):
        assert digest(**change) != own
    given = tensors["blk.0.ffn_up.weight"]
    data = bytearray(given.data)
    data[-1] ^= 1
    tensors["blk.0.ffn_up.weight"] = type(given)(given.kind, given.shape, bytes(data))
    assert digest() != own


def test_frequencies_are_divided_by_the_files_factors(tmp_path: Path) -> None:
    metadata, tensors = small_model("llama", ("q8_0",))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(metadata, tensors))
    before = weights(open_model(path))
    rng = np.random.default_rng(1)
    tensors["rope_freqs.weight"] = random_tensor("f32", (8,), rng)
    factors = np.linspace(1, 8, 8).astype(np.float32)
    tensors["rope_freqs.weight"] = type(tensors["rope_freqs.weight"])(
        "f32", (8,), factors.tobytes()
    )
    path.write_bytes(gguf_bytes(metadata, tensors))
    after = weights(open_model(path))
    name = "buffer.model.rotary_emb.inv_freq"
    assert np.array_equal(after[name], np.divide(before[name], factors, dtype=np.float32))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"general.architecture": "mamba"}, "'mamba'"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope'"),
        ({"llama.rope.scaling.attn_factor": 0.5}, "attn_factor 0.5"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_log_multiplier": 0.1},
            "yarn_log_multiplier 0.1",
        ),
        ({"llama.rope.dimension_count": 8}, "part of a head"),
        ({"tokenizer.ggml.model": "t5"}, "'t5'"),
        ({"tokenizer.ggml.pre": "superbpe"}, "'superbpe'"),
    ],
)
def test_what_is_not_read_is_refused_by_its_name(
    change: dict[str, object], said: str, tmp_path: Path
) -> None:
    metadata, tensors = small_model("llama", ("q8_0",))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**metadata, **change}, tensors))
    with pytest.raises(RefusedModelError, match=said):
        open_model(path)


def test_experts_of_other_architectures_are_refused(tmp_path: Path) -> None:
    metadata, tensors = small_model("qwen2", ("q8_0",))
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({**metadata, "qwen2.expert_count": 8}, tensors))
    with pytest.raises(RefusedModelError, match="experts: those of qwen2"):
        open_model(path)


def test_a_tensor_that_the_family_lacks_is_refused(tmp_path: Path) -> None:
    metadata, tensors = small_model("llama", ("q8_0",))
    tensors["blk.0.ssm_a.weight"] = tensors["output_norm.weight"]
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes(metadata, tensors))
    with pytest.raises(RefusedModelError, match="ssm_a"):
        open_model(path)


def test_no_program_of_the_engine_has_a_whole_matrix_in_binary32(tmp_path: Path) -> None:
    path = write_small_model(tmp_path / "m.gguf", "llama", ("q4_k",), width=256)
    program = engine_program(open_model(path), 1, "ordered/1")
    assert sum(node.op == "tallystick.dequantize" for node in program.nodes) == 16
    assert Executor(program).arena_bytes < 256 * 256 * 4
