"""Settings, buckets and batch fields of an answer (ANSWERS 3.1 to 3.4)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from reference.sampler import Asked, places, seed_of_choice

from tallystick.answers.layout import (
    SETS,
    Bucket,
    Settings,
    batch_types,
    choice_seed,
    record,
    setting_fields,
)
from tallystick.errors import UsageError
from tallystick.numerics.types import type_of

SALT = np.array([1, -2, 2**63 - 1, -(2**63)])
EVERY = Settings(
    temperature=0.7, top_k=5, top_p=0.9, min_p=0.1, repetition=1.2, presence=0.3, frequency=-0.4,
    bias=((0, -1.5), (8, 3.0)), seed=9, max_tokens=3, stop=(2, 7),
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "greedy"),
        ({"temperature": -0.0}, "greedy"),
        ({"temperature": 1e-30}, "draw"),
        ({"temperature": 1.0, "seed": 5, "stop": (1,), "max_tokens": 99}, "draw"),
        ({"top_k": 1}, "full"),
        ({"temperature": 1.0, "top_p": 0.5}, "full"),
        ({"min_p": 1e-9}, "full"),
        ({"repetition": 0.9}, "full"),
        ({"presence": 1.0}, "full"),
        ({"frequency": -1.0}, "full"),
        ({"bias": ((3, 0.0),)}, "full"),
        ({"temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0, "repetition": 1}, "draw"),
    ],
)
def test_the_set_of_settings(given: dict[str, Any], expected: str) -> None:
    settings = Settings(**given)
    assert settings.set == expected
    known = {k: v for k, v in given.items() if k not in ("seed", "stop", "max_tokens")}
    assert Asked(**{**known, "bias": dict(known.get("bias", ()))}).sampler() == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"top_p": 1 - 1e-9}, "greedy"),
        ({"top_p": 1 + 1e-9, "temperature": 1.0}, "draw"),
        ({"min_p": 1e-46}, "greedy"),
        ({"min_p": -1e-46}, "greedy"),
        ({"repetition": 1 + 1e-9}, "greedy"),
        ({"presence": 1e-46, "frequency": -1e-46}, "greedy"),
        ({"min_p": 1 + 1e-9}, "full"),
        ({"temperature": -1e-46}, "greedy"),
    ],
)
def test_a_setting_is_the_number_that_the_program_reads(
    given: dict[str, Any], expected: str
) -> None:
    """3.1: range and neutral value are those of RN32 of the number; the request keeps its own."""
    settings = Settings(**given)
    assert settings.set == expected
    assert all(getattr(settings, name) == value for name, value in given.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.inf), ("temperature", math.nan),
        ("temperature", 1e-46), ("temperature", 1e39), ("temperature", "1"),
        ("temperature", True), ("temperature", None),
        ("top_k", -1), ("top_k", 1.0), ("top_k", True), ("top_k", 2**63),
        ("top_p", 0.0), ("top_p", 1.1), ("top_p", 1e-46), ("top_p", math.nan),
        ("min_p", -1e-9), ("min_p", 1.01),
        ("repetition", 0.0), ("repetition", -1.0), ("repetition", 1e-46),
        ("presence", math.inf), ("frequency", -1e39), ("frequency", math.nan),
        ("bias", ((1, math.inf),)), ("bias", ((2, 0.0), (1, 0.0))), ("bias", ((1, 0.0), (1, 1.0))),
        ("bias", ((-1, 0.0),)), ("bias", ((1.0, 0.0),)), ("bias", ((1, "x"),)),
        ("seed", -1), ("seed", 2**64), ("seed", 1.5),
        ("max_tokens", 0), ("max_tokens", 2.0),
        ("stop", (3, 2)), ("stop", (2, 2)), ("stop", (-1,)), ("stop", ("a",)),
    ],
)  # fmt: skip
def test_a_setting_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=f"setting {name} "):
        Settings(**{name: value})


@pytest.mark.parametrize(("length", "answer"), [(1, 1), (4, 4), (4, 0), (4, 5), (0, 0)])
def test_a_bucket_has_room_for_a_prompt_and_an_answer(length: int, answer: int) -> None:
    with pytest.raises(UsageError, match="bucket"):
        Bucket(length, answer)


@pytest.mark.parametrize("sampler", SETS)
def test_fields_have_the_types_of_the_programs_inputs(sampler: str) -> None:
    bucket = Bucket(12, 4)
    fields = record(bucket, EVERY, [3, 1], [4, 1, 5], SALT, 9, sampler)
    types = batch_types(bucket, sampler, 9)
    assert {name: type_of(x) for name, x in fields.items()} == types
    assert ("temperature" in types) == (sampler != "greedy")
    assert ("bias" in types) == (sampler == "full")


@pytest.mark.parametrize(("prompt", "answer"), [(1, 1), (1, 4), (8, 4), (11, 1), (7, 2)])
def test_text_places_and_rows(prompt: int, answer: int) -> None:
    tokens = list(range(1, prompt + answer + 1))
    fields = record(Bucket(12, 4), Settings(), tokens[:prompt], tokens[prompt:], SALT, 99)
    assert fields["text"].tolist() == tokens + [0] * (12 - len(tokens))
    assert fields["place"].tolist() == places(prompt, answer, 4)
    assert fields["live"].tolist() == [1] * answer + [0] * (4 - answer)
    assert fields["salt"].tolist() == SALT.tolist()
    for row in range(answer):  # each live row draws the next token of the text
        assert fields["text"][fields["place"][row] + 1] == tokens[prompt + row]


def test_settings_are_binary32_numbers_in_the_fields() -> None:
    fields = record(Bucket(12, 4), EVERY, [3, 1], [4], SALT, 9)
    for name in ("temperature", "top_p", "min_p", "repetition", "presence", "frequency"):
        assert fields[name].tolist() == [float(np.float32(getattr(EVERY, name)))]
    assert fields["top_k"].tolist() == [5] and fields["prompt"].tolist() == [2]
    assert fields["bias"].tolist() == [-1.5, 0, 0, 0, 0, 0, 0, 0, 3]
    own = setting_fields(EVERY, "full", 9)
    assert all(own[name].tobytes() == fields[name].tobytes() for name in own)


@pytest.mark.parametrize(
    ("prompt", "answer", "given", "match"),
    [
        ([], [1], {}, "do not fit"),
        ([1], [], {}, "do not fit"),
        ([1], [1] * 5, {}, "do not fit"),
        ([1] * 10, [1] * 3, {}, "do not fit"),
        ([9], [1], {}, "Token 9"),
        ([1], [-1], {}, "Token -1"),
        ([1], [1], {"bias": ((9, 0.5),)}, "setting bias"),
    ],
)
def test_what_does_not_fit_is_refused(
    prompt: list[int], answer: list[int], given: dict[str, Any], match: str
) -> None:
    with pytest.raises(UsageError, match=match):
        record(Bucket(12, 4), Settings(**given), prompt, answer, SALT, 9)


@pytest.mark.parametrize("salt", [SALT[:3], SALT.reshape(2, 2)])
def test_a_salt_of_another_shape_is_refused(salt: np.ndarray) -> None:
    with pytest.raises(UsageError, match="salt"):
        record(Bucket(12, 4), Settings(), [1], [1], salt, 9)


def test_the_seed_of_a_choice() -> None:
    for seed in (0, 1, 2**63, 2**64 - 1, 12345):
        found = [choice_seed(seed, k) for k in (0, 1, 2, 2**32 - 1)]
        assert found == [seed_of_choice(seed, k) for k in (0, 1, 2, 2**32 - 1)]
        assert len(set(found)) == 4 and all(0 <= s < 2**63 for s in found)
    for seed, choice in ((-1, 0), (2**64, 0), (0, -1), (0, 2**32)):
        with pytest.raises(UsageError, match=r"setting (seed|choice) "):
            choice_seed(seed, choice)
