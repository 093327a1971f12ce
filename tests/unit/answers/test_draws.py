"""Tokens are drawn with the probabilities of the softmax (ANSWERS 3.5): Pearson's test.

`docs/proofs/sampler.md` has the result of a million draws of 49,152 tokens.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from unit.answers.draws import Case, cases, counted, fit, noise_of, words_of

from tallystick import evaluate
from tallystick.answers.layout import Settings, choice_seed

SEED = choice_seed(36, 1)


def check(classes: int, draws: int, compared: int) -> None:
    every = cases(classes)
    counts = counted(every, SEED, 10**6, draws, compared)
    for case in every:
        found = fit(counts[case.name], case.probabilities)
        assert 1e-4 < found.p < 1 - 1e-4, (case.name, found)


def test_draws_of_a_small_vocabulary() -> None:
    check(999, 60_000, 300)


@pytest.mark.long
def test_a_million_draws_of_a_large_vocabulary() -> None:
    check(49_152, 10**6, 100)


def test_the_statistic_sees_a_distribution_that_is_slightly_another_one() -> None:
    case = Case("tilted", Settings(temperature=1.0), np.linspace(0, 3, 40, dtype=np.float32))
    counts = counted([case], SEED, 0, 40_000)["tilted"]
    assert fit(counts, case.probabilities).p > 1e-4
    warmer = replace(case, settings=Settings(temperature=1.1))
    assert fit(counts, warmer.probabilities).p < 1e-6


def test_the_noise_of_words_is_the_operators() -> None:
    key, place = np.array([SEED, 0]), np.array([3, 2**31])
    out = evaluate("tallystick.gumbel", key, place, classes=4096, draw=0)
    assert isinstance(out, np.ndarray)
    words = np.empty((2, 4096), np.uint32)
    for k, at in enumerate(place):
        words_of(SEED, int(at), words[k : k + 1])
    assert noise_of(words.reshape(-1)).tobytes() == out.tobytes()
