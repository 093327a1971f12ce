"""SmolLM2 in a GGUF file: an answer with its receipt, checked to the last bit by the file alone.
TALLYSTICK_SMOLLM2_GGUF names the file."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tallystick.answers.derive import derive
from tallystick.answers.layout import GREEDY, Bucket, Settings, record
from tallystick.answers.model import open_model, weights
from tallystick.answers.programs import LOGPROBS, TOKENS, answer_slots
from tallystick.answers.text import ModelWords
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import GenerationRequest
from tallystick.numerics.types import DTYPES
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.runner import StepInputs

SMOLLM2 = Path(os.environ.get("TALLYSTICK_SMOLLM2_GGUF", "/nowhere"))
needs_file = pytest.mark.skipif(not SMOLLM2.is_file(), reason="TALLYSTICK_SMOLLM2_GGUF is not set")


def executed(
    program: Program,
    bucket: Bucket,
    held: dict[str, Any],
    prompt: tuple[int, ...],
    tokens: tuple[int, ...],
) -> dict[str, Any]:
    """The answer's step over the claimed text."""
    slots = {n: np.zeros(t.shape, DTYPES[t.dtype]) for n, t in answer_slots(bucket).items()}
    fields = record(bucket, Settings(), prompt, tokens, np.zeros(4, np.int64), 49152)
    state = {**held, **slots}
    batch = {name: array[None] for name, array in fields.items()}
    Executor(program).execute(state, StepInputs(batch))
    return state


@needs_file
def test_an_answer_is_that_of_the_whole_text() -> None:
    model = open_model(SMOLLM2)
    bucket = Bucket(64, 16)
    statement, programs = derive(model, [bucket], "ordered/1")
    words = ModelWords.of(statement, model.files, model.chat_template)
    text = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    prompt = tuple(words.tokenizer.encode(text.encode(), "the prompt").tolist())
    held = weights(model)
    network = ModelNetwork(model, statement.contract, held)
    settings = replace(Settings(), max_tokens=12, stop=model.stop)
    (answer,) = AnswerEngine(network, threads=2).generate([GenerationRequest(prompt, settings)])
    said = words.tokenizer.decode([t for t in answer.tokens if t not in model.stop])
    assert "Paris" in said
    (program,) = [p for name, p in programs.items() if name.set == GREEDY]
    state = executed(program, bucket, held, prompt, answer.tokens)
    count = len(answer.tokens)
    assert tuple(state[TOKENS][:count].tolist()) == answer.tokens
    assert state[LOGPROBS][:count].tobytes() == answer.logprobs.tobytes()
    # A byte of a matrix decides: another one in the first layer, and the answer is not its own.
    name = "param.model.layers.0.mlp.down_proj.weight"
    other = held[name].copy()
    other[:, 5] ^= 8
    state = executed(program, bucket, {**held, name: other}, prompt, answer.tokens)
    assert state[LOGPROBS][:count].tobytes() != answer.logprobs.tobytes()
