"""Models whose weights are bf16 or f16: the answers of the same numbers as float32, and no copy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import save_model, text_of

from tallystick.answers.derive import derive
from tallystick.answers.layout import Bucket, Settings
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.programs import forward_program
from tallystick.commit.tensor import STORED, dtype_name, widened
from tallystick.errors import RefusedModelError, UsageError
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import GenerationRequest
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

_TORCH = {"bf16": "bfloat16", "f16": "float16"}


def pair(name: str, dtype: str, path: Path) -> tuple[Model, Model]:
    """A model stored in `dtype`, and one of the same numbers in float32."""
    import torch

    half = save_model(name, path / "wide").to(getattr(torch, _TORCH[dtype]))
    half.save_pretrained(path / "half")
    half.float().save_pretrained(path / "wide")
    return open_model(path / "half"), open_model(path / "wide")


# Tied and own heads, biases, scaled embeddings, experts, Conv1D.
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["llama", "smollm", "gemma2", "gpt2", "mixtral"])
@pytest.mark.parametrize("dtype", STORED)
def test_answers_are_those_of_float32(name: str, dtype: str, tmp_path: Path) -> None:
    half, wide = pair(name, dtype, tmp_path)
    text = {"text": text_of(12), "place": np.array([3, 7, 11])}
    logits = []
    for model in (half, wide):
        program = forward_program(model, 12, 3, "ordered/1")
        held = weights(model)
        logits.append(Executor(program).execute(held, StepInputs(text)).outputs["logits"])
    assert np.array_equal(logits[0].view(np.uint32), logits[1].view(np.uint32))
    stored = {n for n, a in weights(half).items() if dtype_name(a.dtype) == dtype}
    assert stored == {n for n in weights(half) if n.startswith("param.")}

    tokens = [int(t) for t in text_of(20, seed=5)]
    asked = [
        GenerationRequest(tuple(tokens[:n]), Settings(max_tokens=6, temperature=t, seed=n), 0)
        for n, t in ((3, 0.0), (9, 0.9), (20, 1.3))
    ]
    found, due = (
        AnswerEngine(ModelNetwork(m, "ordered/1"), threads=2, chunk=7).generate(asked)
        for m in (half, wide)
    )
    for one, other in zip(found, due, strict=True):
        assert one.tokens == other.tokens
        assert one.logprobs.tobytes() == other.logprobs.tobytes()


def test_the_engine_holds_no_float32_matrix(tmp_path: Path) -> None:
    half, wide = pair("llama", "bf16", tmp_path)
    arenas = []
    for model in (half, wide):
        engine = AnswerEngine(ModelNetwork(model, "ordered/1"), threads=1)
        engine.generate([GenerationRequest((1, 2, 3), Settings(max_tokens=2), 0)])
        forward = engine._forward
        arenas.append(forward._body(4)[0].arena_bytes + forward._head(1).arena_bytes)
        made = {n: a for n, a in forward._state(4).items() if n.startswith("%")}
        assert all(a.ndim == 1 or 1 in a.shape for a in made.values()), "a matrix is made"
    assert arenas[0] == arenas[1]


def test_the_statement_says_the_stored_type(tmp_path: Path) -> None:
    half, _ = pair("smollm", "bf16", tmp_path)
    statement, programs = derive(half, [Bucket(8, 2)], "ordered/1")
    named = {n: w.header.dtype for n, w in statement.weights.items()}
    assert named["param.model.embed_tokens.weight"] == "bf16"
    (program, *_) = programs.values()
    assert {n: program.state_types[n].dtype for n in named} == named


def test_another_nan_is_refused(tmp_path: Path) -> None:
    pair("smollm", "bf16", tmp_path)
    file = tmp_path / "half" / "model.safetensors"
    data = bytearray(file.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    first, last = json.loads(data[8:start])["model.norm.weight"]["data_offsets"]
    data[start + first : start + last] = b"\xc1\x7f" * ((last - first) // 2)
    file.write_bytes(data)
    half = open_model(tmp_path / "half")
    assert np.isnan(widened(weights(half)["param.model.norm.weight"])).all()
    with pytest.raises(RefusedModelError, match="NaN"):
        derive(half, [Bucket(8, 2)], "ordered/1")


def test_a_statement_has_no_program_whose_record_is_over_the_limit(tmp_path: Path) -> None:
    """ANSWERS 10.2."""
    save_model("llama", tmp_path)
    model = replace(open_model(tmp_path), vocabulary=1 << 18)
    stated, programs = derive(model, [Bucket(8, 2)], "ordered/1")
    assert {name.set for name in stated.programs} == {"greedy", "draw"} == {n.set for n in programs}
    far = replace(model, longest=1 << 20)
    with pytest.raises(UsageError, match="larger than the limit"):
        derive(far, [Bucket(1 << 17, 2)], "ordered/1")
