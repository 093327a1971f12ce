"""What the engine draws, beside the sampler's own program: all settings, and drafts."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tallystick.answers.layout import Bucket, Settings, batch_types, choice_seed, record
from tallystick.answers.sampler import emit
from tallystick.devices.context import ExecutionContext
from tallystick.generation.pages import Pages
from tallystick.generation.sampling import Drawn, Sampling, truncated
from tallystick.generation.sequences import GenerationRequest, Sequence, SubmittedRequest
from tallystick.numerics.contracts import ORDERED_1
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.executor import Executor

F32 = np.float32
CLASSES = 1500
PROMPT, DRAFTS = (3, 1, 4, 1, 5, 9, 2, 6), (5, 3, 5)
# Few and many tokens are left, at the ends of their ranges too.
VALUES: dict[str, tuple[Any, ...]] = {
    "temperature": (0.0, 0.7, 1.9),
    "top_k": (0, 1, 40, 1499, 5000),
    "top_p": (1.0, 0.9, 0.05, 0.99999994, 1e-30),
    "min_p": (0.0, 0.2, 1.0),
}
PENALTIES: tuple[dict[str, Any], ...] = (
    {},
    {"repetition": 1.7},
    {"presence": 0.9, "frequency": -0.3, "bias": ((3, 2.5), (9, -4.0))},
    {"presence": -0.0, "frequency": -0.0, "bias": ((3, -0.0),)},
)


def logits(what: str) -> np.ndarray:
    random = np.random.default_rng(9)
    z = (random.standard_normal((4, CLASSES)) * 3).astype(F32)
    if what == "flat":
        z *= F32(1e-3)  # every token is in the nucleus, or nearly
    if what == "ties":
        z = z.round(0)
        z[:, ::3] *= F32(-0.0)
        z[3] = 0
    if what == "odd":
        z[0, 5] = z[1, 7] = z[1, 8] = np.inf
        z[2, 9] = np.nan
        z[3] = -np.inf
        z[1, 100:] = -np.inf
    return z


class Whole:
    """The program of a set as an answer has it, over a text with its drafts."""

    def __init__(self) -> None:
        self.executors: dict[str, Executor] = {}

    def draw(self, settings: Settings, z: np.ndarray) -> list[Drawn]:
        bucket = Bucket(16, 4)
        if settings.set not in self.executors:
            builder = Builder(ORDERED_1)
            types = batch_types(bucket, settings.set, CLASSES)
            fields = {name: builder.batch(name, type_) for name, type_ in types.items()}
            given = builder.batch("logits", TensorType("f32", z.shape))
            drawn, logprobs = emit(builder, settings.set, given, fields, CLASSES)
            self.executors[settings.set] = Executor(
                builder.finish({"drawn": drawn, "logprobs": logprobs})
            )
        executor = self.executors[settings.set]
        batch = record(bucket, settings, PROMPT, (*DRAFTS, 0), np.arange(4), CLASSES)
        rng = (choice_seed(settings.seed, 2), 0) if executor.program.uses_rng else None
        found = executor.run_step({}, {**batch, "logits": z}, rng=rng).outputs
        return list(zip(found["drawn"].tolist(), found["logprobs"], strict=True))


def text_of(settings: Settings) -> Sequence:
    request = GenerationRequest(PROMPT, settings, 2)
    text = Sequence(SubmittedRequest(request, None), Pages(9))
    text.drafts = list(DRAFTS)
    return text


def same(found: list[Drawn], wanted: list[Drawn]) -> None:
    for (token, logprob), (true, bits) in zip(found, wanted, strict=True):
        assert token == true and F32(logprob).tobytes() == F32(bits).tobytes()


@pytest.mark.parametrize("what", ["plain", "flat", "ties", "odd"])
def test_every_cut_and_penalty(what: str) -> None:
    z, whole = logits(what), Whole()
    sampling = Sampling(ORDERED_1, CLASSES, ExecutionContext(1))
    tried = 0
    for number, values in enumerate(itertools.product(*VALUES.values())):
        chosen = dict(zip(VALUES, values, strict=True))
        for more in (PENALTIES[number % 4], PENALTIES[(number + 1) % 4]):
            settings = Settings(seed=number, **chosen, **more)
            (found,) = sampling.draw([text_of(settings)], z)
            same(found, whole.draw(settings, z))
            tried += settings.set == "full"
    assert tried > 400


def test_texts_are_drawn_together_as_alone() -> None:
    sampling = Sampling(ORDERED_1, CLASSES, ExecutionContext(1))
    z, whole = logits("plain"), Whole()
    drawn = Settings(temperature=0.5, seed=1)
    settings = [Settings(), drawn, Settings(top_k=3, temperature=1.0), Settings()]
    texts = [text_of(one) for one in settings]
    texts[3].drafts = []
    found = sampling.draw(texts, np.concatenate([z, z, z, z[:1]]))
    for one, rows in zip(settings[:3], found, strict=False):
        same(rows, whole.draw(one, z))
    assert found[3] == found[0][:1]


def test_no_more_tokens_are_put_in_order_than_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.generation import sampling as truncation

    counts: list[int] = []
    first = truncation.largest_tokens

    def counted(row: np.ndarray, count: int) -> np.ndarray:
        counts.append(count)
        return first(row, count)

    monkeypatch.setattr(truncation, "largest_tokens", counted)

    def softmax(y: np.ndarray) -> np.ndarray:
        e = np.exp(y - y.max(1, keepdims=True))
        return np.asarray(e / e.sum(1, keepdims=True), F32)

    for what, settings, wanted in (
        ("plain", Settings(top_p=0.5), [256]),
        ("flat", Settings(top_p=0.9), [256, 1500]),
        ("flat", Settings(top_k=30), [30]),
        ("flat", Settings(min_p=0.3), []),
    ):
        counts.clear()
        truncated(logits(what)[:1], settings, softmax)
        assert counts == wanted
