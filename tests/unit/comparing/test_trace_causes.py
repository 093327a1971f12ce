"""Traces whose first difference has a near cause and a far one: the near one is named."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import nn
from traced_loops import BASE, Loop

import tallystick
from tallystick.comparing.found import Comparison


def kinds(found: Comparison) -> list[str]:
    return [cause.kind for cause in found.causes]


# -- generators outside of torch -------------------------------------------------------------------
def of_two(tmp_path: Path, run: Callable[[Path, int], None]) -> Comparison:
    """The comparison of `run` for 0 and for 1, each with its own state of numpy's generator and of
    Python's."""
    for number, name in enumerate(("a", "b")):
        torch.manual_seed(0)
        np.random.seed(number)
        random.seed(number)
        run(tmp_path / name, number)
    return tallystick.diff(tmp_path / "a", tmp_path / "b")


@pytest.mark.parametrize(
    ("loop", "cause"), [(Loop(shift=0.5), "data"), (Loop(weights=8), "weights")]
)
def test_a_generator_that_nobody_draws_from_is_no_cause(
    loop: Loop, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = replace(BASE, weights=loop.weights and 7)
    monkeypatch.setattr(np.random, "seed", lambda _: None)
    np.random.standard_normal(1)
    first = base.run(tmp_path / "a")
    np.random.standard_normal(1)
    found = tallystick.diff(first, loop.run(tmp_path / "b"))
    assert kinds(found) == [cause], found.causes


def test_a_generator_that_the_loop_draws_from_stands_beside(tmp_path: Path) -> None:
    def run(place: Path, number: int) -> None:
        net = nn.Linear(4, 2)
        with tallystick.trace(place):
            for _ in range(2):
                noise = np.random.standard_normal((8, 4)).astype(np.float32)
                net(torch.from_numpy(noise)).sum().backward()

    found = of_two(tmp_path, run)
    assert kinds(found) == ["data", "seed"], found.causes
    assert "Numpy's generator" in found.causes[1].sentence
    assert "Python" not in str(found.causes)
