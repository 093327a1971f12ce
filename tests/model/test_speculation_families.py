"""Speculation over the families of models: no bit differs from one token a pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import VOCABULARY, save_model
from drafting import Oracle, changes

from tallystick.answers.layout import Settings
from tallystick.answers.model import open_model
from tallystick.generation.drafters import Drafter, DraftModel, PromptLookup
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import GeneratedAnswer, GenerationRequest
from tallystick.numerics.contracts import find_contract

_SETTINGS = [
    Settings(max_tokens=15),
    Settings(max_tokens=12, temperature=0.8, seed=3),
    Settings(max_tokens=14, temperature=1.2, top_k=12, top_p=0.9, min_p=0.02, repetition=1.3,
             presence=0.2, frequency=0.4, bias=((4, 1.5),), stop=(1, 2, 3), seed=9),
    Settings(max_tokens=13, repetition=1.2),
]  # fmt: skip


def requests() -> list[GenerationRequest]:
    random = np.random.default_rng(6)
    return [
        GenerationRequest(
            (*(int(t) for t in random.integers(0, VOCABULARY, length)), i),
            _SETTINGS[i % len(_SETTINGS)],
            choice=i % 2,
        )
        for i, length in enumerate((1, 15, 32, 47, 7, 39, 16, 34))
    ]


def joined(engine: AnswerEngine, wanted: Sequence[GenerationRequest]) -> list[GeneratedAnswer]:
    handles = []
    for request in wanted:
        handles.append(engine.submit(request.prompt, request.settings, request.choice))
        engine.step()
    engine.run()
    return [handle.answer for handle in handles if handle.answer is not None]


@pytest.mark.parametrize(
    ("name", "contract"),
    [
        ("smollm", "ordered/1"),
        pytest.param("qwen2", "rounded/1", marks=pytest.mark.long),
        pytest.param("gemma2", "ordered/1", marks=pytest.mark.long),
        ("mixtral", "rounded/1"),
        ("gpt2", "ordered/1"),
    ],
)
def test_no_bit_differs(name: str, contract: str, tmp_path: Path) -> None:
    for place, layers in (("model", 2), ("small", 1)):
        (tmp_path / place).mkdir()
        changed = {"n_layer": layers} if name == "gpt2" else {"num_hidden_layers": layers}
        if name == "gemma2":
            changed["layer_types"] = ["sliding_attention", "full_attention"][:layers]
        save_model(name, tmp_path / place, **changed)
    network, small = (
        ModelNetwork(open_model(tmp_path / place), find_contract(contract).text)
        for place in ("model", "small")
    )
    wanted = requests()[: 8 if name == "smollm" else 5]
    alone = AnswerEngine(network, threads=1, memory=1 << 20).generate(wanted)
    answers = dict(zip(wanted, alone, strict=True))
    drafters: dict[str, Drafter] = {
        "lookup": PromptLookup(longest=2),
        "same": DraftModel(AnswerEngine(network, threads=1, memory=1 << 20), 7),
        "small": DraftModel(AnswerEngine(small, threads=2, memory=1 << 20), 4),
        **{
            kind: Oracle(answers, change)
            for kind, change in changes(VOCABULARY).items()
            if kind in ("right", "half right", "outside", "anything")
        },
    }
    for kind, drafter in drafters.items():
        engine = AnswerEngine(network, threads=2, chunk=7, memory=1 << 20, drafter=drafter)
        for found, true in zip(joined(engine, wanted), alone, strict=True):
            assert found.tokens == true.tokens and found.finish == true.finish, kind
            assert found.logprobs.tobytes() == true.logprobs.tobytes(), kind
        assert engine.speculation is not None
        assert engine.speculation.proposed > 0, kind
        if kind == "right":
            assert engine.speculation.right == engine.speculation.proposed
