"""Signed answers of the toy model, as a server keeps them."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from unit.answers.toy import KEY, SECRET, Toy, receipt_of

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import Settings
from tallystick.answers.request import ModelRequest
from tallystick.api.answering import GivenAnswer
from tallystick.commit.signing import PrivateKey
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.space import LEAST_BUDGET

NOW = int(time.time() * 1000)
DAY = 24 * 60 * 60 * 1000
BUDGET = LEAST_BUDGET


@cache
def toy() -> Toy:
    return Toy.make()


def given(
    seed: int = 11, until: int = NOW + 30 * DAY, key: PrivateKey = KEY, text: str | None = None
) -> GivenAnswer:
    """An answer with a receipt: its log-probabilities are claimed and not computed. With `text` its
    request holds a text of that many bytes."""
    model = toy()
    settings = Settings(max_tokens=3, seed=seed)
    asked = {"tokens": (3, 1, 4)} if text is None else {"text": text}
    request = ModelRequest(model.statement.digest, settings, secret=SECRET, **asked)  # type: ignore[arg-type]
    spoken = Spoken((3, 1, 4), (5, 6, 7), np.zeros(3, np.float32), "said")
    job = AnswerJob(model.statement, request, spoken)
    receipt = receipt_of(job, key=key, time=NOW - 60 * DAY, until=until)
    return _answer(job, receipt)


def true(seed: int = 11, until: int = NOW + 30 * DAY, key: PrivateKey = KEY) -> GivenAnswer:
    """The answer that the model gives."""
    job = toy().answered(replace(toy().request(), settings=Settings(max_tokens=3, seed=seed)))
    return _answer(job, receipt_of(job, key=key, time=NOW - 60 * DAY, until=until))


def _answer(job: AnswerJob, receipt: bytes) -> GivenAnswer:
    spoken = job.spoken
    program = toy().text_of(job)
    return GivenAnswer(spoken.text, spoken.tokens, spoken.logprobs, "length", receipt, job, program)


def keeper(directory: Path, budget: int = BUDGET) -> KeptAnswers:
    """A keeper that knows the toy model; `directory`.model stands for its files."""
    model = directory.with_name(directory.name + ".model")
    model.mkdir(exist_ok=True)
    found = KeptAnswers(directory, budget)
    found.uses(toy().statement, model)
    return found
