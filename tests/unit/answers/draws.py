"""Draws of tokens, counted and compared with the distribution that they are drawn from.

    python tests/unit/answers/draws.py [DRAWS] [--first PLACE] [--counts FILE] [--choice K]

One draw is the token of ANSWERS 3.5 at one place: argmax of y + noise over the whole vocabulary.
The noise falls as its word rises (tests/unit/numerics/test_noise.py). So of most classes the word
alone says that they cannot win at a place, and the logarithms are computed of the others: by the
core's own functions, as NUMERICS 8.8 writes. A place where this decides nothing gets its whole row
from the operator, and the first places get it too, for comparison with the programs themselves.

Counts can be made in parts: with `--counts` they are added to those of the file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import mpmath
import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[i]) for i in (1, 2)]

from unit.answers.sampled import SALT, program, run

from tallystick import _core
from tallystick.answers.layout import Bucket, Settings, choice_seed, record
from tallystick.program.executor import Executor

F32 = np.float32
VOCABULARY = 49_152
LEAST = 10.0  # of a cell's expected count: rarer tokens share one
EXPECTED = 20  # candidates of a place, so that one place in e^20 needs its whole row


@dataclass
class Case:
    """Logits with the settings by which tokens are drawn from them."""

    name: str
    settings: Settings
    logits: np.ndarray

    @cached_property
    def y(self) -> np.ndarray:
        """What the noise is added to: −∞ for a token that is cut."""
        t = F32(self.settings.temperature)
        return np.where(self._kept, self.logits / t, F32(-np.inf))

    @property
    def _kept(self) -> np.ndarray:
        if self.settings.set == "draw":
            return np.ones(self.logits.shape, bool)
        found: np.ndarray = np.isfinite(self.drawn(np.zeros(1, np.int64), 0)[1][0])
        return found

    @cached_property
    def probabilities(self) -> np.ndarray:
        p = np.exp(self.y.astype(np.float64) - float(self.y.max()))
        return p / p.sum()

    @cached_property
    def bounds(self) -> tuple[float, np.ndarray]:
        """(t, w): a class whose word is above its w stays below t, by 0.01 at least."""
        y = self.y.astype(np.float64)
        low, high = float(y.max()) - 5, float(y.max()) + 40
        for _ in range(60):  # about EXPECTED classes reach t
            t = (low + high) / 2
            if -np.expm1(-np.exp(y - t)).sum() > EXPECTED:
                low = t
            else:
                high = t
        return low, np.ceil(2.0**32 * -np.expm1(-np.exp(y - (low - 0.01)))) + 1

    def drawn(self, places: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """By the sampler's own program: the tokens of these places, and what they are chosen of."""
        bucket, classes = Bucket(len(places) + 2, len(places)), len(self.logits)
        batch = record(bucket, self.settings, [0], [0] * len(places), SALT, classes)
        batch |= {"place": places, "logits": np.tile(self.logits, (len(places), 1))}
        found = run(Executor(program(bucket, self.settings.set, classes)), batch, seed)
        return found.tokens, found.chosen_of


def cases(classes: int = VOCABULARY) -> list[Case]:
    """Flat logits; peaked ones, the first of which has a third of the weight; truncated ones."""
    rng = np.random.default_rng(36)
    peaked = (rng.standard_normal(classes) * 2.5).astype(F32)
    peaked[[classes // 3, classes - 1]] = (
        F32(np.log(np.exp(peaked.astype(float)).sum() / 2)),
        F32(9),
    )
    cut = Settings(temperature=0.9, top_k=50, top_p=0.95, min_p=0.001)
    return [
        Case("flat", Settings(temperature=1.0), np.zeros(classes, F32)),
        Case("peaked", Settings(temperature=1.0), peaked),
        Case("truncated", cut, (rng.standard_normal(classes) * 3).astype(F32)),
    ]


def noise_of(words: np.ndarray) -> np.ndarray:
    """NUMERICS 8.8."""
    odd = 2 * words.astype(np.int64) + 1
    v = np.minimum(odd.astype(F32) * F32(2.0**-33), F32(1 - 2.0**-24))
    inner, outer = np.empty_like(v), np.empty_like(v)
    _core.elementary("log1p", -v, inner)
    _core.elementary("log", -inner, outer)
    return -outer


def tokens_at(case: Case, seed: int, first: int, words: np.ndarray, near: np.ndarray) -> np.ndarray:
    """The tokens of the places from `first` on. `words` u32[n, V] are theirs, and `near` positions
    in it, ascending, among which are all that can win."""
    reach, bound = case.bounds
    classes = words.shape[1]
    row, column = near // classes, near % classes
    chosen = words.reshape(-1)[near] <= bound[column]
    row, column, near = row[chosen], column[chosen], near[chosen]
    y = case.y[column] + noise_of(words.reshape(-1)[near])
    best = np.full(len(words), -np.inf, F32)
    np.maximum.at(best, row, y)
    wins = y == best[row]
    tokens = np.full(len(words), classes)
    np.minimum.at(tokens, row[wins], column[wins])  # of equal ones the lowest
    for at in np.nonzero(best < reach)[0]:
        tokens[at] = case.drawn(np.array([first + at]), seed)[0][0]
    return tokens


def counted(
    every: list[Case], seed: int, first: int, draws: int, compared: int = 0
) -> dict[str, np.ndarray]:
    """How often each token is drawn at the places from `first` on, by the case's name. The tokens
    of the first `compared` places are those of the sampler's program."""
    classes = len(every[0].logits)
    counts = {case.name: np.zeros(classes, np.int64) for case in every}
    widest = np.maximum.reduce([case.bounds[1] for case in every])
    widest = np.minimum(widest, 2**32 - 1).astype(np.uint32)
    rows = max(1, (1 << 22) // classes)
    for start in range(first, first + draws, rows):
        count = min(rows, first + draws - start)
        words = np.empty((count, classes), np.uint32)
        words_of(seed, start, words)
        near = np.flatnonzero(words <= widest)
        for case in every:
            tokens = tokens_at(case, seed, start, words, near)
            here = np.arange(start, min(start + count, first + compared))
            if len(here):
                assert (case.drawn(here, seed)[0] == tokens[: len(here)]).all(), case.name
            counts[case.name] += np.bincount(tokens, minlength=classes)
    return counts


def words_of(seed: int, place: int, out: np.ndarray) -> None:
    """The words of the classes at the places from `place` on, a row each."""
    rows, classes = out.shape
    each = -(-classes // 4) * 4  # a row begins with a block of its own
    begin = place * each
    skipped = begin % 128  # the core gives words from a multiple of 128 on
    held = np.empty(skipped + rows * each, np.uint32)
    _core.philox_words(seed, 0, 0, begin - skipped, held)
    out[...] = held[skipped:].reshape(rows, each)[:, :classes]


@dataclass
class Fit:
    """Pearson's statistic, its degrees of freedom, and the probability of one at least as large."""

    statistic: float
    freedom: int
    p: float


def fit(counts: np.ndarray, probabilities: np.ndarray) -> Fit:
    """Tokens that are expected fewer than LEAST times share a cell."""
    expected = probabilities * counts.sum()
    assert not counts[expected == 0].any(), "a token that cannot be drawn"
    rare = expected < LEAST
    seen = [*counts[~rare], counts[rare].sum()]
    due = [*expected[~rare], expected[rare].sum()]
    cells = [(n, m) for n, m in zip(seen, due, strict=True) if m > 0]
    statistic = float(sum((n - m) ** 2 / m for n, m in cells))
    freedom = len(cells) - 1
    p = 1.0
    if freedom:
        p = mpmath.gammainc(freedom / 2, statistic / 2, mpmath.inf, regularized=True)
    return Fit(statistic, freedom, float(p))


def report(every: list[Case], counts: Mapping[str, np.ndarray]) -> None:
    for case in every:
        found = fit(counts[case.name], case.probabilities)
        kept = int((case.probabilities > 0).sum())
        print(
            f"{case.name}: {counts[case.name].sum()} draws of {kept} tokens, "
            f"chi² {found.statistic:.1f}, {found.freedom} degrees of freedom, p {found.p:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("draws", type=int, nargs="?", default=10**6)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--compared", type=int, default=20)
    parser.add_argument("--counts", type=Path)
    parser.add_argument("--choice", type=int, default=0)
    asked = parser.parse_args()
    every, seed, begun = cases(), choice_seed(36, asked.choice), time.monotonic()
    counts = counted(every, seed, asked.first, asked.draws, asked.compared)
    if asked.counts is not None:
        if asked.counts.exists():
            with np.load(asked.counts) as held:
                counts = {name: n + held[name] for name, n in counts.items()}
        np.savez(asked.counts, **counts)
    report(every, counts)
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
