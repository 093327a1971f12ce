"""Several texts of one pass have the bits of the encoder's own program, which is executed for one
text in its bucket (ANSWERS 11.5).

TALLYSTICK_MINILM names the directory of all-MiniLM-L6-v2, for its real weights.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from encoder_models import CONFIGS, VOCABULARY, save_classifier, save_encoder

from tallystick import _core
from tallystick.answers.encoding_programs import VALUES, encoding_program, encoding_slots
from tallystick.answers.layout import EncodingBucket
from tallystick.answers.model import Model, open_model, weights
from tallystick.commit.tensor import DTYPES
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import UsageError
from tallystick.generation import encoders
from tallystick.generation.encoders import EncoderEngine, ModelEncoder
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

ORDERED, ROUNDED = (resolve_contract(name) for name in ("ordered/1", "rounded/1"))
MINILM = Path(os.environ.get("TALLYSTICK_MINILM", "/nowhere"))
BUCKET = 64


class Alone:
    """The values of one text, by the program of a bucket."""

    def __init__(self, model: Model, contract: str = ORDERED, length: int = BUCKET) -> None:
        assert model.encoding is not None
        program = encoding_program(model, length, contract)
        slots = dict(weights(model))
        for name, type_ in encoding_slots(EncodingBucket(length, model.encoding.values)).items():
            slots[name] = np.zeros(type_.shape, DTYPES[type_.dtype])
        self._state = {n: slots[n] for n in program.state_types}
        self._executor, self._length = Executor(program), length

    def __call__(self, tokens: Sequence[int]) -> bytes:
        batch = {
            "text": np.zeros((1, self._length), np.int64),
            "length": np.array([[len(tokens)]], np.int64),
            "salt": np.zeros((1, 4), np.int64),
        }
        batch["text"][0, : len(tokens)] = tokens
        self._executor.execute(self._state, StepInputs(batch))
        return np.array(self._state[VALUES], np.float32).tobytes()


def engine(
    model: Model, contract: str = ORDERED, context: ExecutionContext = DEFAULT, longest: int = 64
) -> EncoderEngine:
    return EncoderEngine(ModelEncoder(model, contract), weights(model), context, longest)


def texts(*lengths: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [[int(t) for t in rng.integers(2, vocabulary, length)] for length in lengths]


def equal(found: Sequence[np.ndarray], asked: Sequence[Sequence[int]], alone: Alone) -> bool:
    return [x.tobytes() for x in found] == [alone(text) for text in asked]


MIXED = (1, 7, 7, 3, 30, 2, 7, 1, 33, 16, 5, 64)


@pytest.mark.sample(3)
@pytest.mark.parametrize("contract", [ORDERED, ROUNDED])
@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_embeddings(family: str, contract: str, tmp_path: Path) -> None:
    save_encoder(family, tmp_path)
    model, asked = open_model(tmp_path), texts(*MIXED)
    assert equal(engine(model, contract).values(asked), asked, Alone(model, contract))


@pytest.mark.parametrize("family", sorted(CONFIGS))
def test_class_numbers(family: str, tmp_path: Path) -> None:
    save_classifier(family, tmp_path)
    model, asked = open_model(tmp_path), texts(*MIXED)
    assert equal(engine(model).values(asked), asked, Alone(model))


@pytest.mark.parametrize(("mode", "normalised"), [("cls", True), ("max", True), ("mean", False)])
def test_poolings(mode: str, normalised: bool, tmp_path: Path) -> None:
    save_encoder("bert", tmp_path, mode, normalised)
    model, asked = open_model(tmp_path), texts(*MIXED)
    assert equal(engine(model).values(asked), asked, Alone(model))


def test_long_texts_sum_over_blocks(tmp_path: Path) -> None:
    """300 places are three chunks of a DOT and two blocks of a SUM."""
    save_encoder("roberta", tmp_path)
    model, asked = open_model(tmp_path), texts(300, 129, 20, 128)
    found = engine(model, longest=300).values(asked)
    assert equal(found, asked, Alone(model, length=316))


def test_neither_company_nor_threads_nor_instructions_decide(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    model, asked = open_model(tmp_path), texts(*MIXED)
    wanted = [x.tobytes() for x in engine(model).values(asked)]
    for isa in _core.supported_isas():
        for threads in (1, 3):
            one = engine(model, context=ExecutionContext(threads, isa))
            assert [x.tobytes() for x in one.values(asked[::-1])] == wanted[::-1]
            assert [one.values([text])[0].tobytes() for text in asked] == wanted


def test_stored_weights(tmp_path: Path) -> None:
    import torch

    save_encoder("bert", tmp_path / "wide")
    from transformers import BertModel

    module = BertModel.from_pretrained(tmp_path / "wide", dtype=torch.bfloat16)
    module.save_pretrained(tmp_path / "wide")
    model, asked = open_model(tmp_path / "wide"), texts(*MIXED)
    assert "bf16" in set(model.stored.values())
    assert equal(engine(model).values(asked), asked, Alone(model))


def test_texts_of_one_length_are_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = list[encoders.SameLength]()
    real = encoders.batch_of_texts

    def seen(rows: np.ndarray, run: encoders.SameLength) -> np.ndarray:
        runs.append(run)
        return real(rows, run)

    monkeypatch.setattr(encoders, "batch_of_texts", seen)
    save_encoder("bert", tmp_path)
    engine(open_model(tmp_path)).values(texts(5, 9, 5, 5, 9))
    assert set(runs) == {encoders.SameLength(0, 2, 9), encoders.SameLength(18, 3, 5)}
    assert len(runs) == 2 * 3 * 2  # queries, keys and values, in two layers


def test_what_does_not_fit_a_pass(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path)
    one = engine(open_model(tmp_path), longest=8)
    for asked in ([[]], texts(9)):
        with pytest.raises(UsageError, match="1 to 8 rows"):
            one.values(asked)
    assert one.values([]) == []


@pytest.mark.skipif(not (MINILM / "config.json").exists(), reason="TALLYSTICK_MINILM is not set")
def test_real_weights() -> None:
    model = open_model(MINILM)
    lengths = [int(n) for n in np.random.default_rng(1).integers(1, 65, 40)]
    asked = texts(*lengths, vocabulary=30000)
    held = cache(lambda: Alone(model))
    assert equal(engine(model, longest=512).values(asked), asked, held())
