"""Hidden states that no program can carry are refused by name (PROGRAM 5.20 g)."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from hidden_states import (
    BATCH,
    EPOCHS,
    TOKENS,
    Make,
    Reader,
    signed,
    text,
    told,
)
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError


def grows() -> Any:
    hidden: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        nonlocal hidden
        scores = module(tokens[:, :-1])[0]
        scores = scores if hidden is None else scores + hidden.mean()
        new = scores.detach().mean((0, 1))
        hidden = new if hidden is None else torch.cat([hidden, new])
        return told(scores, tokens)

    return loss


def another_form() -> Any:
    kept: dict[str, Any] = {"hidden": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        old, calls = kept["hidden"], kept.get("calls", 0)
        old = old[0] if isinstance(old, tuple) else old
        scores = module(tokens[:, :-1])[0]
        scores = scores if old is None else scores + old
        new = scores.detach().mean((0, 1))
        kept.update(hidden=new if calls > 3 else (new,), calls=calls + 1)
        return told(scores, tokens)

    return loss


def one_memory_from_another_step_on() -> Any:
    """The tensors are there before the training; step 2 lets them be one."""
    kept: dict[str, Any] = {"a": torch.zeros(TOKENS), "b": torch.zeros(TOKENS), "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept["calls"] += 1
        if kept["calls"] == 3:
            kept["a"] = kept["b"]
        kept["a" if kept["calls"] % 2 else "b"].add_(torch.ones(TOKENS))
        return told(module(tokens[:, :-1])[0] * kept["a"] + kept["b"], tokens)

    return loss


def object_of_each_call() -> Any:
    class Held:
        def __init__(self, mean: Tensor) -> None:
            self.mean = mean

    kept: dict[str, Any] = {"held": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept["calls"] += 1
        scores = module(tokens[:, :-1])[0]
        try:
            scores = scores + kept["held"].mean
        except Exception:
            scores = 1.5 * scores
        kept["held"] = Held(scores.detach().mean((0, 1)))
        return kept["calls"] * told(scores, tokens)

    return loss


def object_of_the_first_call() -> Any:
    class Held:
        def __init__(self) -> None:
            self.count = torch.zeros(TOKENS)

    kept: dict[str, Any] = {"held": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if kept["held"] is None:
            kept["held"] = Held()
        else:
            kept["held"].count.add_(torch.ones(TOKENS))
        return told(module(tokens[:, :-1])[0] * (1 + kept["held"].count), tokens)

    return loss


def list_that_grows() -> Any:
    kept: list[Tensor] = []

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        scores = scores + kept[-1] if kept else scores
        kept.append(scores.detach().mean((0, 1)))
        return told(scores, tokens)

    return loss


def graph_that_goes_on() -> Any:
    hidden: Any = None

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        nonlocal hidden
        scores, hidden = module(tokens[:, :-1], hidden)
        return told(scores, tokens)

    return loss


def constant_that_changes() -> Any:
    kept: dict[str, Any] = {"scale": None, "calls": 0}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept["calls"] += 1
        if kept["scale"] is None:
            kept["scale"] = torch.tensor([1.0 + i for i in range(TOKENS)])
        else:
            kept["scale"].mul_(0.9)
        return kept["calls"] * told(module(tokens[:, :-1])[0] * kept["scale"], tokens)

    return loss


def number_of_an_object() -> Any:
    kept: dict[str, Any] = {"hidden": None, "seen": set()}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        scores = module(tokens[:, :-1])[0]
        if kept["hidden"] is not None:
            scores = scores + (2 if id(kept["hidden"]) in kept["seen"] else 1) * kept["hidden"]
        kept["hidden"] = scores.detach().mean((0, 1))
        kept["seen"] = {id(kept["hidden"])}
        return told(scores, tokens)

    return loss


def copy_of_the_module() -> Any:
    kept: dict[str, Any] = {"target": None}

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        if kept["target"] is None:
            kept["target"] = copy.deepcopy(module)
        with torch.no_grad():
            target = kept["target"](tokens[:, :-1])[0]
        return told(module(tokens[:, :-1])[0] - 0.5 * target, tokens)

    return loss


REFUSED = {
    grows: r"hidden in the closure of loss .* changes its type from float32\[9\]",
    another_form: r"kept\['hidden'\]\[0\] in the closure of loss .* another form",
    one_memory_from_another_step_on: r"kept\['[ab]'\] in the closure of loss .* shares memory",
    copy_of_the_module: r"reads a tensor of an earlier call \(",
    object_of_each_call: "reads a tensor of an earlier call",
    object_of_the_first_call: "changes a tensor in place that an earlier call made",
    list_that_grows: "reads a tensor of an earlier call",
    graph_that_goes_on: "gradient",
    number_of_an_object: r"asks for id\(...\) \(.*test_late_refused.py",
    constant_that_changes: "changes a tensor in place that capture finds nowhere",
}


LONG = {list_that_grows}


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "make",
    [pytest.param(m, marks=[pytest.mark.long] if m in LONG else []) for m in REFUSED],
)
def test_what_has_no_exact_state_is_refused_by_name(make: Make, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=REFUSED[make]):
        # A short list of tensors is state that the job carries.
        signed(make, tmp_path, epochs=EPOCHS if make in LONG else 1)
    assert not (tmp_path / "job").exists()


def test_a_short_batch_is_refused_by_name(tmp_path: Path) -> None:
    module = Reader()

    def loss(module: nn.Module, tokens: Tensor) -> Tensor:
        kept = vars(module).get("kept")
        kept = None if kept is None or kept.shape[0] != tokens.shape[0] else kept
        scores = module(tokens[:, :-1])[0]
        scores = scores if kept is None else scores + kept[:, None]
        module.kept = scores.detach().mean(1)  # type: ignore[assignment]
        return told(scores, tokens)

    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    with pytest.raises(UsageError, match=r"kept.* changes its type from float32\[4, 9\]"):
        tallystick.fit(
            module, loss, text(22), optimizer, batch_size=BATCH, epochs=2, out=tmp_path,
            progress=False,
        )  # fmt: skip
    assert "kept" not in vars(module)
