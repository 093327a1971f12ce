"""ANSWERS 4.7.1: which layers an adapter's configuration means."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tallystick.answers import adapter
from tallystick.answers.adapter import meant
from tallystick.errors import RefusedModelError

LAYERS = [
    f"model.layers.{number}.{part}"
    for number in (0, 1, 11)
    for part in ("self_attn.q_proj", "self_attn.k_proj", "mlp.up_proj")
]
LAYERS += ["lm_head"]


def short(config: dict[str, Any]) -> list[str]:
    return [
        name.removeprefix("model.layers.").replace("self_attn.", "").replace("_proj", "")
        for name in meant(config, LAYERS)
    ]


@pytest.mark.parametrize(
    ("config", "due"),
    [
        ({"target_modules": ["q_proj"]}, ["0.q", "1.q", "11.q"]),
        ({"target_modules": ["proj", "_proj", "self_attn"]}, []),
        ({"target_modules": ["lm_head", "layers.1.mlp.up_proj"]}, ["1.mlp.up", "lm_head"]),
        ({"target_modules": "q_proj"}, []),
        ({"target_modules": r".*(q|k)_proj"}, ["0.q", "0.k", "1.q", "1.k", "11.q", "11.k"]),
        ({"target_modules": ["q_proj"], "exclude_modules": ["1.self_attn.q_proj"]},
         ["0.q", "11.q"]),
        ({"target_modules": ["q_proj"], "exclude_modules": r".*1\.self.*"}, ["0.q"]),
        ({"target_modules": ["q_proj"], "exclude_modules": []}, ["0.q", "1.q", "11.q"]),
        ({"target_modules": ["q_proj"], "layers_to_transform": 11}, ["11.q"]),
        ({"target_modules": ["q_proj"], "layers_to_transform": [0, 1]}, ["0.q", "1.q"]),
        ({"target_modules": ["q_proj"], "layers_to_transform": []}, ["0.q", "1.q", "11.q"]),
        ({"target_modules": ["q_proj"], "layers_to_transform": 1, "layers_pattern": "layers"},
         ["1.q"]),
        ({"target_modules": ["q_proj"], "layers_to_transform": 1, "layers_pattern": ["h"]}, []),
        ({"target_modules": ["lm_head"], "layers_to_transform": 1}, ["lm_head"]),
        ({"target_modules": r".*q_proj", "layers_to_transform": 1}, ["0.q", "1.q", "11.q"]),
    ],
    ids=str,
)  # fmt: skip
def test_layers(config: dict[str, Any], due: list[str]) -> None:
    assert short(config) == due


def test_keys_are_the_first_that_fit_the_end() -> None:
    config = {
        "target_modules": ["q_proj", "up_proj"],
        "rank_pattern": {"layers.1.mlp.up_proj": 2, r".*\.up_proj": 4, "p_proj": 9},
        "alpha_pattern": {"q_proj": 3, "mlp.up_proj": 5},
    }
    found = meant(config, LAYERS)
    assert found["model.layers.0.self_attn.q_proj"] == (None, "q_proj")
    assert found["model.layers.1.mlp.up_proj"] == ("layers.1.mlp.up_proj", "mlp.up_proj")
    assert found["model.layers.11.mlp.up_proj"] == (r".*\.up_proj", "mlp.up_proj")


def test_a_pattern_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from tallystick.data.sources import tokenizer_process

    monkeypatch.setattr(tokenizer_process, "SECONDS", 2.0)
    began = time.monotonic()
    with pytest.raises(RefusedModelError, match=r"patterns that cannot be tried here .*seconds"):
        meant({"target_modules": r"(([a-z._0-9])+)+X"}, LAYERS)
    assert time.monotonic() - began < 60


def test_plain_names_need_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(adapter, "RulesProcess")
    assert short({"target_modules": r"model\.layers\.0\.mlp\.up_proj"}) == ["0.mlp.up"]


@pytest.mark.parametrize("text", ["(", "x" * 1001, "(?i)q", "x{99999999999}", "*"])
def test_what_is_no_pattern(text: str) -> None:
    for config in (
        {"target_modules": text},
        {"target_modules": ["q_proj"], "exclude_modules": text},
        {"target_modules": ["q_proj"], "rank_pattern": {text: 3}},
        {"target_modules": ["q_proj"], "layers_to_transform": 1, "layers_pattern": [text]},
    ):
        with pytest.raises(RefusedModelError, match="the pattern"):
            meant(config, LAYERS)
