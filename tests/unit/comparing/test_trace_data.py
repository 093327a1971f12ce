"""Traces whose data differ: zeros of two signs, loaders that draw without an effect, records of
another step, and how a sentence says it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

import tallystick
from tallystick.comparing.trace_loading import Idle, notices


# -- zeros of two signs ----------------------------------------------------------------------------
def zeros(place: Path, sign: float, inside: bool) -> Path:
    """A loop that masks by zeros: a constant, or the result of an operator."""
    torch.manual_seed(0)
    w, x = torch.randn(6, requires_grad=True), torch.randn(8, 6)
    mask = torch.zeros(8, 6) * sign
    with tallystick.trace(place) as block:
        for _ in range(2):
            made = torch.zeros(8, 6).mul(sign) if inside else mask
            torch.where(x > 0, x, made).mul(w).sum().backward()
            block.next_step()
    return place


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_sign_of_a_constant_zero_is_named(sign: float, tmp_path: Path) -> None:
    found = tallystick.diff(zeros(tmp_path / "a", sign, False), zeros(tmp_path / "b", -sign, False))
    assert [cause.kind for cause in found.causes] == ["data"], found.causes
    ours, theirs = ("+", "-") if sign > 0 else ("-", "+")
    assert f"the sign of zero alone: {ours}0.0 in A and {theirs}0.0 in B" in str(found.causes)


def test_another_constant_is_no_other_order(tmp_path: Path) -> None:
    def run(name: str, fill: float) -> Path:
        torch.manual_seed(0)
        w, x, constant = torch.randn(6), torch.randn(8, 6), torch.full((8, 6), fill)
        with tallystick.trace(tmp_path / name):
            torch.where(x > 0, x, constant).mul(w).sum()
        return tmp_path / name

    found = tallystick.diff(run("a", 0.0), run("b", 1.0))
    assert found.cause is not None and found.cause.kind == "data", found.causes


# -- what a loader does without an effect ----------------------------------------------------------
def loaded(
    place: Path, ready: bool = False, draws: int = 0, rate: float = 0.1, seed: int = 1
) -> Path:
    """A loop over a shuffled loader, or over the same batches as another process hands them
    over; `draws` orders are drawn and used by nobody."""
    torch.manual_seed(0)
    net = nn.Linear(6, 3)
    data = TensorDataset(torch.randn(24, 6), torch.arange(24) % 3)
    generator = torch.Generator().manual_seed(seed)
    loader: Any = DataLoader(data, 8, shuffle=True, generator=generator)
    if ready:
        loader = [(x.clone(), y.clone()) for x, y in loader]
    other = torch.Generator().manual_seed(7)
    with tallystick.trace(place):
        rule = torch.optim.SGD(net.parameters(), rate)
        for x, y in loader:
            for _ in range(draws):
                torch.randperm(24, generator=other).tolist()
            rule.zero_grad()
            functional.cross_entropy(net(x), y).backward()
            rule.step()
    return place


@pytest.mark.parametrize("asked", [{"ready": True}, {"draws": 2}, {"ready": True, "draws": 1}])
def test_equal_batches_make_equal_loops(asked: Any, tmp_path: Path) -> None:
    ours, theirs = loaded(tmp_path / "a"), loaded(tmp_path / "b", **asked)
    for one, other in ((ours, theirs), (theirs, ours)):
        found = tallystick.diff(one, other)
        assert found.equal, (found.causes, found.first)
        assert found.compared["equal steps"] in (3, 4) and found.notices, found.notices


@pytest.mark.parametrize("asked", [{"ready": True}, {"draws": 2}])
def test_a_difference_behind_a_loader_is_named(asked: Any, tmp_path: Path) -> None:
    ours = loaded(tmp_path / "a")
    found = tallystick.diff(ours, loaded(tmp_path / "b", rate=0.2, **asked))
    assert found.cause is not None and found.cause.kind == "rate", found.causes
    found = tallystick.diff(ours, loaded(tmp_path / "c", seed=2, **asked))
    assert found.cause is not None and found.cause.kind == "data order", found.causes


# -- words -----------------------------------------------------------------------------------------
def drawn_by(place: Path, seed: int, steps: int) -> Path:
    """A loop that adds noise to its records, from a generator of its own."""
    torch.manual_seed(0)
    records, w = torch.randn(3, 8, 4), torch.randn(4)
    own = torch.Generator().manual_seed(seed)
    with tallystick.trace(place) as block:
        for step in range(steps):
            x = records[step].clone()
            (x.mul(w) + torch.rand(8, 4, generator=own)).sum()
            block.next_step()
    return place


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"seed": 2}, "aten.rand.generator draws with the seed 1 in A and 2 in B."),
        ({"steps": 3}, "B goes on after step 1, where A ends."),
    ],
)  # fmt: skip
def test_a_sentence_names_its_side(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    ours = drawn_by(tmp_path / "a", 1, 2)
    theirs = drawn_by(tmp_path / "b", **{"seed": 1, "steps": 2, **asked})
    assert [cause.sentence for cause in tallystick.diff(ours, theirs).causes] == [said]


def test_records_of_another_step_are_named(tmp_path: Path) -> None:
    def run(name: str, order: tuple[int, ...]) -> Path:
        torch.manual_seed(0)
        net, x = nn.Linear(6, 3), torch.randn(3, 8, 6)
        batches = [x[n].clone() for n in order]
        with tallystick.trace(tmp_path / name) as block:
            for batch in batches:
                net(batch)
                block.next_step()
        return tmp_path / name

    found = tallystick.diff(run("a", (0, 1, 2)), run("b", (1, 0, 2)))
    said = "Step 0 reads records that the other loop reads in another step or at another place."
    assert [cause.sentence for cause in found.causes] == [said]


@pytest.mark.parametrize(
    ("steps", "often"), [(1, ""), (2, " and once more"), (3, " and 2 more times")]
)
def test_how_often_is_said_in_words(steps: int, often: str) -> None:
    idle = [(n, Idle((("B", "aten.randperm"),))) for n in range(steps)]
    said = f"Only B draws aten.randperm in step 0{often}; no operator computes with it."
    assert list(notices(idle)) == [said]
