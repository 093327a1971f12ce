"""Programs of models for answers: torch's logits, and the engine's bits (ANSWERS 2)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import CONFIGS, PlainEngine, save_model, text_of

from tallystick.answers.model import Model, engine_program, forward_program, open_model, weights
from tallystick.numerics.contracts import find_contract
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
