"""Programs of models for answers: torch's logits, and the engine's bits (ANSWERS 2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import CONFIGS, VOCABULARY, PlainEngine, save_model, text_of

from tallystick import evaluate
from tallystick.answers.layout import Bucket, Settings, choice_seed, record
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.programs import (
    LOGPROBS,
    SALT,
    TOKENS,
    answer_program,
    answer_programs,
    answer_slots,
    engine_program,
    forward_program,
)
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import DTYPES
from tallystick.program.executor import Executor
from tallystick.program.ir import Program

LENGTH, ROWS = 18, 7
PLACES = np.array([3, 4, 5, 9, 16, 17, 17], np.int64)
CONTRACTS = ("ordered/1", "rounded/1")


class Opened:
    """A small model, its programs under ordered/1, and its weights."""

    def __init__(self, name: str, directory: Path) -> None:
        save_model(name, directory)
        self.model: Model = open_model(directory)
        self.weights = weights(self.model)
        self.forward = forward_program(self.model, LENGTH, ROWS, "ordered/1")

    def logits(self, program: Program, text: np.ndarray, places: np.ndarray) -> np.ndarray:
        return (
            Executor(program)
            .run_step(self.weights, {"text": text, "place": places})
            .outputs["logits"]
        )


_OPENED: dict[str, Opened] = {}


@pytest.fixture
def opened(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    name = request.param
    if name not in _OPENED:
        _OPENED[name] = Opened(name, tmp_path_factory.mktemp(name))
    return _OPENED[name]


def under(program: Program, contract: str) -> Program:
    """A contract changes what a program means, not its nodes."""
    return replace(program, contract=find_contract(contract).text)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


families = pytest.mark.parametrize("opened", sorted(CONFIGS), indirect=True)


def torch_logits(directory: Path, text: np.ndarray) -> np.ndarray:
    """torch's own model in float64, with its own attention and masks."""
    import torch
    from transformers import AutoModelForCausalLM

    module = AutoModelForCausalLM.from_pretrained(
        directory, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    ).eval()
    with torch.no_grad():
        found: np.ndarray = module(torch.from_numpy(text)[None]).logits[0].numpy()
    return found


@families
def test_logits_are_those_of_torch(opened: Opened) -> None:
    text = text_of(LENGTH)
    wanted = torch_logits(opened.model.directory, text)[PLACES]
    spread = wanted.std()
    for contract in CONTRACTS:
        found = opened.logits(under(opened.forward, contract), text, PLACES)
        assert np.abs(found - wanted).max() < 2e-5 * spread, contract
    assert np.abs(np.diff(wanted, axis=0)).max() > spread / 10  # rows differ, so places matter


@families
@pytest.mark.sample(5)
@pytest.mark.parametrize("contract", CONTRACTS)
def test_token_by_token_has_the_same_bits(opened: Opened, contract: str) -> None:
    """0 logits differ, alone and beside other texts in one pass."""
    text = text_of(LENGTH)
    every = under(forward_program(opened.model, LENGTH, LENGTH, "ordered/1"), contract)
    whole = opened.logits(every, text, np.arange(LENGTH))
    program = under(engine_program(opened.model, 3, "ordered/1"), contract)
    engine = PlainEngine(program, opened.weights)
    other = text_of(LENGTH, 4)
    for place in range(LENGTH):
        rows = [("other", other[place]), ("text", text[place]), ("late", text[place // 2])]
        found = engine.logits(rows)
        assert np.array_equal(bits(found[1]), bits(whole[place])), place


@pytest.mark.sample(3)
@families
def test_padding_decides_nothing(opened: Opened) -> None:
    """A text in a larger bucket, and whatever stands behind it, has the same bits."""
    text = text_of(LENGTH)
    short = opened.logits(opened.forward, text, PLACES)
    program = forward_program(opened.model, LENGTH + 9, ROWS, "ordered/1")
    for padding in (np.zeros(9, np.int64), text_of(9, 5)):
        long = opened.logits(program, np.concatenate([text, padding]), PLACES)
        assert np.array_equal(bits(short), bits(long))


@pytest.mark.parametrize("opened", ["qwen2"], indirect=True)
@pytest.mark.parametrize("sampler", ["greedy", "draw", "full"])
def test_an_answers_step_draws_its_tokens(opened: Opened, sampler: str) -> None:
    """Each row draws the token after the text before it, by the sampler over the engine's logits;
    the weights pass through."""
    bucket = Bucket(16, 5)
    settings = {
        "greedy": Settings(),
        "draw": Settings(temperature=0.8),
        "full": Settings(temperature=0.9, top_k=20, top_p=0.9, repetition=1.3, presence=0.2),
    }[sampler]
    program = answer_program(opened.model, bucket, sampler, "ordered/1")
    empty = {k: np.zeros(t.shape, DTYPES[t.dtype]) for k, t in answer_slots(bucket).items()}
    prompt, salt, seed = [3, 1, 4, 1, 5], np.arange(4), choice_seed(11, 0)

    def step(drawn: list[int]) -> dict[str, np.ndarray]:
        state = {name: x.copy() for name, x in {**opened.weights, **empty}.items()}
        made = record(bucket, settings, prompt, drawn, salt, VOCABULARY)
        batch = {name: array[np.newaxis] for name, array in made.items()}
        found = Executor(program).run_step(
            state, batch, rng=(seed, 0) if program.uses_rng else None
        )
        for name, x in opened.weights.items():
            assert np.array_equal(bits(state[name]), bits(x))
        total = evaluate("aten.sum", state[LOGPROBS])
        assert found.loss is not None and bits(found.loss) == bits(np.float32(0) - total)
        return state

    known: list[int] = []
    for _ in range(bucket.answer):  # what a row draws depends on the tokens before it
        known.append(int(step([*known, 0])[TOKENS][len(known)]))
    state = step(known)
    assert state[TOKENS].tolist() == known and len(set(known)) > 1
    assert (state[LOGPROBS] < 0).all() and state[SALT].tolist() == [0, 1, 2, 3]
    short = step(known[:2])
    assert short[TOKENS].tolist() == [*known[:2], 0, 0, 0]
    assert not bits(short[LOGPROBS])[2:].any()
    assert set(answer_programs(opened.model, bucket, "ordered/1")) == {"greedy", "draw", "full"}
