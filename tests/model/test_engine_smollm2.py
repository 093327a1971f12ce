"""SmolLM2 with its real weights: no token and no bit of a log-probability differs from the whole
text's. TALLYSTICK_SMOLLM2 names its directory."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_truth import SCALAR, Truth

from tallystick.answers.layout import Bucket, Settings
from tallystick.answers.model import open_model
from tallystick.answers.programs import answer_programs
from tallystick.devices.context import DEFAULT
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import GenerationRequest
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Program

SMOLLM2 = Path(os.environ.get("TALLYSTICK_SMOLLM2", "/nowhere"))
needs_smollm2 = pytest.mark.skipif(
    not (SMOLLM2 / "config.json").exists(), reason="TALLYSTICK_SMOLLM2 is not set"
)
MEMORY = 1 << 28


class SmolLM2(ModelNetwork):
    def __init__(self) -> None:
        self.model = open_model(SMOLLM2)
        super().__init__(self.model, find_contract("ordered/1").text)
        self._answers = cache(lambda bucket: answer_programs(self.model, bucket, self.contract))

    def answer(self, bucket: Bucket, sampler: str) -> Program:
        return self._answers(bucket)[sampler]


@pytest.fixture(scope="module")
def network() -> SmolLM2:
    return SmolLM2()


def prompts(count: int, shared: int = 0) -> list[tuple[int, ...]]:
    """Of 3 to 47 tokens; with `shared`, all begin with so many equal ones."""
    random = np.random.default_rng(17)
    beginning = random.integers(0, 49152, shared)
    found = []
    for _ in range(count):
        own = random.integers(0, 49152, int(random.integers(3, 48 - shared)))
        found.append(tuple(int(t) for t in [*beginning, *own]))
    return found


def settings(tokens: int) -> list[Settings]:
    """Greedy, and 23 others: each setting alone, each temperature with each truncation, and
    penalties with both."""
    truncations: list[dict[str, float]] = [
        {}, {"top_k": 40}, {"top_p": 0.9}, {"min_p": 0.05}, {"top_k": 100, "top_p": 0.8},
    ]  # fmt: skip
    penalties: list[dict[str, float]] = [
        {"repetition": 1.3}, {"presence": 0.8}, {"frequency": 0.7},
        {"repetition": 1.1, "presence": 0.2, "frequency": 0.2},
    ]  # fmt: skip
    made: list[dict[str, float]] = [{}]
    made += [{"temperature": t, **cut} for t in (0.3, 0.8, 1.4) for cut in truncations]
    made += penalties
    made += [{"temperature": 0.9, "top_p": 0.95, **penalty} for penalty in penalties]
    bias = ((5, 3.0), (30, -8.0))
    return [Settings(max_tokens=tokens, seed=i, bias=bias * (i % 5 == 4), **given)  # type: ignore[arg-type]
            for i, given in enumerate(made)]  # fmt: skip


def hold(network: SmolLM2, truth: Truth, wanted: list[GenerationRequest], way: str) -> None:
    """`alone` is token by token; `prefill` is the whole text but its last token as a prompt."""
    engine = AnswerEngine(network, memory=MEMORY, chunk=16 if way == "prefix" else 64)
    if way in ("alone", "prefix"):
        answers = [engine.generate([request])[0] for request in wanted]
    else:
        answers = [a for at in range(0, len(wanted), 16)
                   for a in engine.generate(wanted[at : at + 16])]  # fmt: skip
    for request, answer in zip(wanted, answers, strict=True):
        truth.check(request, answer)
    if way != "prefill":
        return
    for request, answer in zip(wanted, answers, strict=True):
        before = (*request.prompt, *answer.tokens[:-1])
        (last,) = engine.generate([GenerationRequest(before, Settings(max_tokens=1))])
        assert last.tokens == answer.tokens[-1:]
        assert last.logprobs.tobytes() == answer.logprobs[-1:].tobytes()


@needs_smollm2
def test_a_sample(network: SmolLM2) -> None:
    truth = Truth(network, DEFAULT)
    wanted = [GenerationRequest(p, s) for p, s in zip(prompts(6), settings(6)[::4], strict=True)]
    hold(network, truth, wanted, "batch")
    hold(
        network,
        truth,
        [GenerationRequest(p, Settings(max_tokens=5)) for p in prompts(2, 40)],
        "prefix",
    )
    hold(
        network,
        Truth(network, SCALAR),
        [GenerationRequest(prompts(1)[0], Settings(max_tokens=3))],
        "batch",
    )


@needs_smollm2
@pytest.mark.long
def test_every_setting(network: SmolLM2) -> None:
    made = settings(16)
    assert len(made) == 24
    truth = Truth(network, DEFAULT)
    for prompt in prompts(20):
        hold(network, truth, [GenerationRequest(prompt, s, choice=1) for s in made], "batch")


@needs_smollm2
@pytest.mark.long
@pytest.mark.parametrize("way", ["alone", "prefill", "batch", "prefix"])
def test_every_way(network: SmolLM2, way: str) -> None:
    truth = Truth(network, DEFAULT)
    shared = 33 if way == "prefix" else 0
    wanted = [GenerationRequest(p, Settings(max_tokens=32)) for p in prompts(200, shared)]
    hold(network, truth, wanted, way)
