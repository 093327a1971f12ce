"""The sampler against the plain reference (ANSWERS 3): every setting, each two of them, all."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from reference.data import Gen
from reference.sampler import Asked, full, noise, places, row
from unit.answers.sampled import SALT, Drawn, program, run, sampled

from tallystick.answers.layout import Bucket, Settings, record
from tallystick.program.executor import Executor

F32 = np.float32
SEED = (7 << 40) + 11
# Settings that change something: each is tried alone, and with each other one.
VALUES: dict[str, tuple[Any, ...]] = {
    "temperature": (0.7, 1.9),
    "top_k": (3, 1),
    "top_p": (0.6, 0.05),
    "min_p": (0.2, 1.0),
    "repetition": (1.7, 0.4),
    "presence": (0.9, -1.1),
    "frequency": (0.45, -0.3),
    "bias": (((0, 2.5), (3, -4.0), (6, 0.1)), ((1, 1e30), (2, -0.0))),
}
SETS = [*((name,) for name in VALUES), *itertools.combinations(VALUES, 2), tuple(VALUES)]


def logits(what: str, rows: int, classes: int) -> np.ndarray:
    """Ties at one decimal, zeros of both signs; with `infinities`, those too."""
    g = Gen(f"logits {what} {rows} {classes}")
    z = (g.floats(rows, classes) * F32(2)).round(1).astype(F32)
    flat = z.reshape(-1)
    flat[:: 5 if what == "ties" else 11] = F32(1.5)
    flat[2::7], flat[4::9] = F32(-0.0), F32(0.0)
    if what == "infinities":
        flat[3::4] = -np.inf
        z[1, classes // 2] = z[1, classes - 1] = np.inf
        z[2] = -np.inf
    if what == "NaN":
        z[1, classes // 2] = np.nan
    return z


def asked(settings: Settings) -> Asked:
    names = ("temperature", "top_k", "top_p", "min_p", "repetition", "presence", "frequency")
    return Asked(**{name: getattr(settings, name) for name in names}, bias=dict(settings.bias))


def text(classes: int, prompt: int, answer: int) -> tuple[list[int], list[int]]:
    """Tokens that repeat, in the prompt, in the answer, and in both."""
    tokens = (
        Gen(f"text {classes}").ints(0, min(classes, 5), prompt + answer) * 3 % classes
    ).tolist()
    return tokens[:prompt], tokens[prompt:]


def check(settings: Settings, z: np.ndarray, sampler: str | None = None) -> Drawn:
    """All rows of a bucket whose last two are not live."""
    rows, classes = z.shape
    prompt, answer = text(classes, 6, rows - 2)
    got = sampled(Bucket(6 + rows, rows), settings, prompt, answer, z, SEED, sampler)
    where = places(len(prompt), len(answer), rows)
    for r, place in enumerate(where):
        token, logprob = row(z[r], prompt + answer, len(prompt), place, asked(settings), SEED)
        if r >= len(answer):
            token, logprob = 0, F32(0)
        assert got.tokens[r] == token
        assert got.logprobs[r].tobytes() == F32(logprob).tobytes()
        if settings.set == "full":
            with np.errstate(all="ignore"):
                y = full(z[r], prompt + answer, len(prompt), place, asked(settings), SEED)
            assert got.chosen_of[r].tobytes() == y.tobytes()
    return got


def settings_of(names: tuple[str, ...], which: int) -> Settings:
    return Settings(**{name: VALUES[name][which] for name in names})


@pytest.mark.sample(3)
@pytest.mark.parametrize("names", SETS, ids="+".join)
@pytest.mark.parametrize("which", [0, 1])
def test_each_setting_and_each_two(names: tuple[str, ...], which: int) -> None:
    turn = SETS.index(names) + which
    classes = (7, 33, 64, 257)[turn % 4]
    what = ("ties", "infinities", "NaN")[turn % 3]
    check(settings_of(names, which), logits(what, 6, classes))


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", ["ties", "infinities", "NaN"])
@pytest.mark.parametrize("names", [("top_k",), ("temperature",), tuple(VALUES)], ids="+".join)
def test_a_larger_vocabulary(what: str, names: tuple[str, ...]) -> None:
    check(settings_of(names, 0), logits(what, 4, 500))


def test_what_truncation_keeps() -> None:
    """Of logits that are logarithms of probabilities: by hand, without the reference."""
    z = np.log(np.array([[0.1, 0.4, 0.2, 0.25, 0.05]], F32)).repeat(1, 0)

    def kept(**given: Any) -> list[int]:
        found = sampled(Bucket(3, 1), Settings(**given), [0, 0], [0], z, SEED).chosen_of[0]
        return np.nonzero(np.isfinite(found))[0].tolist()

    assert kept(top_k=2) == [1, 3]
    assert kept(top_k=99) == [0, 1, 2, 3, 4]
    # What comes before the third is 0.65, before the fourth 0.85.
    assert kept(top_p=0.64) == [1, 3] and kept(top_p=0.66) == [1, 2, 3]
    assert kept(top_p=1e-6) == [1]
    assert kept(min_p=0.26) == [1, 2, 3] and kept(min_p=0.24) == [0, 1, 2, 3]
    assert kept(min_p=1.0) == [1]
    # The nucleus is that of what top-k has left: 0.4 and 0.25 of 0.65.
    assert kept(top_k=2, top_p=0.61) == [1] and kept(top_k=2, top_p=0.62) == [1, 3]


def test_truncation_at_the_bounds() -> None:
    """Four tokens of a quarter each: what comes before the third is exactly a half."""
    z = np.zeros((1, 4), F32)

    def kept(**given: Any) -> int:
        found = sampled(Bucket(3, 1), Settings(**given), [0, 0], [0], z, SEED).chosen_of[0]
        return int(np.isfinite(found).sum())

    assert kept(top_p=0.5) == 2 and kept(top_p=0.5 + 2.0**-24) == 3
    assert kept(min_p=1.0) == 4


def test_ties_are_cut_from_the_highest_token() -> None:
    z = np.zeros((1, 9), F32)
    z[0, ::2] = -0.0  # equal to +0
    found = sampled(Bucket(3, 1), Settings(top_k=4), [0], [0], z, SEED)
    assert np.isfinite(found.chosen_of[0]).tolist() == [True] * 4 + [False] * 5
    assert found.tokens.tolist() == [0]


def test_penalties_see_prompt_and_answer_as_the_clause_says() -> None:
    """Repetition: prompt and answer so far. Frequency and presence: the answer alone. Neither sees
    a token that comes later, or the zeros behind the text."""
    z = np.full((3, 6), 4, F32)
    prompt, answer, bucket = [5, 2], [3, 3, 1], Bucket(9, 3)
    once = sampled(bucket, Settings(repetition=2.0), prompt, answer, z, SEED).chosen_of
    assert once.tolist() == [
        [4, 4, 2, 4, 4, 2], [4, 4, 2, 2, 4, 2], [4, 4, 2, 2, 4, 2],
    ]  # fmt: skip
    counted = sampled(bucket, Settings(frequency=0.5, presence=1.0), prompt, answer, z, SEED)
    assert counted.chosen_of.tolist() == [
        [4, 4, 4, 4, 4, 4], [4, 4, 4, 2.5, 4, 4], [4, 4, 4, 2, 4, 4],
    ]  # fmt: skip


@pytest.mark.parametrize("what", ["ties", "infinities", "NaN"])
@pytest.mark.parametrize("classes", [7, 64, 500])
def test_greedy_is_argmax(what: str, classes: int) -> None:
    z = logits(what, 5, classes)
    got = sampled(Bucket(11, 5), Settings(), [1, 2], [3] * 5, z, SEED)
    assert got.tokens.tolist() == np.argmax(z, axis=1).tolist()
    check(Settings(), logits(what, 4, classes))


@pytest.mark.parametrize("what", ["ties", "infinities", "NaN"])
@pytest.mark.parametrize("temperature", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("classes", [7, 500, 4099])
def test_neutral_settings_in_full_give_greedy_or_draw(
    what: str, temperature: float, classes: int
) -> None:
    """ANSWERS 3.5.10."""
    z, settings = logits(what, 8, classes), Settings(temperature=temperature)
    prompt, answer = text(classes, 5, 8)
    own, other = (
        sampled(Bucket(14, 8), settings, prompt, answer, z, SEED, sampler)
        for sampler in (None, "full")
    )
    np.testing.assert_array_equal(own.tokens, other.tokens)
    assert own.logprobs.tobytes() == other.logprobs.tobytes()
    np.testing.assert_array_equal(own.chosen_of, other.chosen_of)


@pytest.mark.parametrize("sampler", ["greedy", "draw", "full"])
@pytest.mark.parametrize("classes", [7, 131, 5003])
def test_many_rows_are_single_rows(sampler: str, classes: int) -> None:
    """A row depends on its own place alone: A rows at once, or one call for each."""
    every = settings_of(tuple(VALUES), 0)
    settings = {"greedy": Settings(), "draw": Settings(temperature=0.8), "full": every}[sampler]
    z, length = logits("ties", 9, classes), 20
    prompt, answer = text(classes, 5, 9)
    many = sampled(Bucket(length, 9), settings, prompt, answer, z, SEED)
    one = Executor(program(Bucket(length, 1), sampler, classes))
    batch = record(Bucket(length, 9), settings, prompt, answer, SALT, classes)
    for r, place in enumerate(places(5, 9, 9)):
        own = {**batch, "place": np.array([place]), "live": np.array([1]), "logits": z[r : r + 1]}
        # What stands behind the row's place decides nothing.
        own["text"] = np.where(np.arange(length) <= place, batch["text"], classes - 1)
        got = run(one, own, SEED)
        assert got.tokens[0] == many.tokens[r]
        assert got.logprobs.tobytes() == many.logprobs[r : r + 1].tobytes()
        assert got.chosen_of.tobytes() == many.chosen_of[r : r + 1].tobytes()


def test_a_draw_is_by_place_and_token() -> None:
    """Flat logits: the noise itself, of the row's place; another seed or place draws anew."""
    z = np.zeros((2, 40), F32)
    got = sampled(Bucket(9, 2), Settings(temperature=1.0), [1, 2, 3], [4, 5], z, SEED)
    for r, place in enumerate((2, 3)):
        expected = [noise(SEED, place, 40, c) for c in range(40)]
        assert got.chosen_of[r].tolist() == [float(x) for x in expected]
    assert got.chosen_of[0].tolist() != got.chosen_of[1].tolist()
    other = sampled(Bucket(9, 2), Settings(temperature=1.0), [1, 2, 3], [4, 5], z, SEED + 1)
    assert (other.chosen_of != got.chosen_of).all()


@pytest.mark.parametrize("contract", ["ordered/1", "rounded/1"])
def test_both_contracts_of_answers_give_the_same(contract: str) -> None:
    z, bucket, every = logits("ties", 5, 64), Bucket(12, 5), settings_of(tuple(VALUES), 0)
    batch = record(bucket, every, *text(64, 6, 5), SALT, 64)
    full_program = program(bucket, "full", 64, contract)
    got = run(Executor(full_program), {**batch, "logits": z}, SEED)
    expected = sampled(bucket, every, *text(64, 6, 5), z, SEED)
    assert got.chosen_of.tobytes() == expected.chosen_of.tobytes()
    assert got.logprobs.tobytes() == expected.logprobs.tobytes()
