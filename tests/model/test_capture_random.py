"""torch's random calls draw from the contract's generator (PROGRAM 5.3, NUMERICS 8)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_checks import Around, example, first_step_agrees, results, squares, step_of
from torch import Tensor, nn

import tallystick
from tallystick.errors import UsageError
from tallystick.kernels.evaluate import evaluate

Draw = Callable[[Any, Tensor], Tensor]


def _weights(x: Tensor) -> Tensor:
    return x.detach().abs() + 0.25


DRAWS: dict[str, Draw] = {
    "rand": lambda m, x: x + torch.rand(3, 4),
    "rand size": lambda m, x: x + torch.rand(size=(3, 4), dtype=torch.float32, device=x.device),
    "rand one": lambda m, x: x * torch.rand(()) + torch.rand([4]),
    "randn": lambda m, x: x * torch.randn((3, 4)),
    "rand_like": lambda m, x: x * torch.rand_like(x),
    "randn_like": lambda m, x: x + 0.5 * torch.randn_like(x),
    "normal numbers": lambda m, x: x + torch.normal(2.0, 0.5, (3, 4)),
    "normal tensors": lambda m, x: x * torch.normal(x, _weights(x)),
    "normal one tensor": lambda m, x: x * torch.normal(x, 2.0) + torch.normal(0.5, _weights(x)),
    "normal_": lambda m, x: x + torch.empty(3, 4).normal_(1.0, 2.0),
    "uniform_": lambda m, x: x + x.new_empty(3, 4).uniform_(-1, 3),
    "uniform_ from": lambda m, x: x + x.new_empty(3, 4).uniform_(to=3.0),
    "exponential_": lambda m, x: x * torch.empty_like(x).exponential_(2.0),
    "log_normal_": lambda m, x: x * torch.empty_like(x).log_normal_(0.0, 0.5),
    "bernoulli": lambda m, x: x * torch.bernoulli(x.clamp(0, 1)),
    "bernoulli number": lambda m, x: x * torch.bernoulli(torch.empty_like(x), 0.25),
    "bernoulli method": lambda m, x: x * x.bernoulli(0.75),
    "bernoulli_": lambda m, x: x * torch.empty_like(x).bernoulli_(0.4),
    "bernoulli_ tensor": lambda m, x: x * torch.empty(3, 4).bernoulli_(torch.full((4,), 0.6)),
    "randint": lambda m, x: x * torch.randint(7, (3, 4)),
    "randint low": lambda m, x: x * torch.randint(low=-3, high=9, size=(4,)),
    "randint index": lambda m, x: x[torch.randint(0, 3, (5,))],
    "randint_like": lambda m, x: x * torch.randint_like(x, 2, 5),
    "randint of many": lambda m, x: x * torch.randint(-5, 1 << 40, (4,)),
    "random_": lambda m, x: x * torch.empty_like(x).random_(1, 4),
    "random_ without bounds": lambda m, x: x * torch.empty_like(x).random_(),
    "random_ of integers": lambda m, x: x * torch.empty(4, dtype=torch.int64).random_(),
    "randperm": lambda m, x: x * torch.randperm(4),
    "randperm index": lambda m, x: x[torch.randperm(3)[:2]] * torch.randperm(4, dtype=x.dtype),
    "multinomial": lambda m, x: x * torch.multinomial(_weights(x), 4, replacement=True),
    "multinomial one": lambda m, x: x * _weights(x).multinomial(1),
    "multinomial apart": lambda m, x: x * torch.multinomial(_weights(x), 4),
    "multinomial row": lambda m, x: x.sum() * torch.multinomial(_weights(x)[0], 3),
    "gumbel_softmax": lambda m, x: F.gumbel_softmax(x, 0.7),
    "gumbel_softmax hard": lambda m, x: F.gumbel_softmax(x, hard=True, dim=0) * x,
    "dropout in place": lambda m, x: F.dropout(x * 1.0, 0.5, inplace=True) * 2,
    "torch.dropout": lambda m, x: torch.dropout(x, 0.5, True) * 2,
    "dropout1d": lambda m, x: F.dropout1d(x, 0.5) + F.dropout1d(x.view(3, 2, 2), 0.5).view(3, 4),
    "dropout2d": lambda m, x: F.dropout2d(x.view(1, 3, 2, 2), 0.5).view(3, 4) * x,
    "dropout3d": lambda m, x: F.dropout3d(x.view(1, 3, 2, 2, 1), 0.5).view(3, 4) * x,
    "alpha_dropout": lambda m, x: F.alpha_dropout(x, 0.3, True),
    "feature_alpha_dropout": lambda m, x: F.feature_alpha_dropout(x.view(2, 3, 2), 0.3, True),
    "rrelu": lambda m, x: F.rrelu(x - 0.7, training=True),
    "rrelu module": lambda m, x: m.layer(x - 0.7),
    "rrelu eval": lambda m, x: F.rrelu(x - 0.7),
    "distribution": lambda m, x: torch.distributions.Normal(x, _weights(x)).rsample() * x,
    "categorical": lambda m, x: x * torch.distributions.Categorical(_weights(x)).sample()[:, None],
    "bernoulli distribution": lambda m, x: x * torch.distributions.Bernoulli(logits=x).sample(),
    "lstm with dropout": lambda m, x: m.layer(x.view(1, 3, 4))[0],
    "several": lambda m, x: F.dropout(x * torch.rand_like(x), 0.5) + torch.randn(4),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "rrelu module": lambda: nn.RReLU(0.1, 0.4),
    "lstm with dropout": lambda: nn.LSTM(
        4, 3, 2, dropout=0.5, batch_first=True, bidirectional=True
    ),
}


def around(name: str) -> Around:
    torch.manual_seed(1)
    held = {"layer": LAYERS[name]()} if name in LAYERS else {}
    return Around(DRAWS[name], **held)


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_gives_the_same_bits_in_capture_and_reproducible_and_agrees_with_float64(
    name: str, tmp_path: Path
) -> None:
    module = around(name)
    step, x = step_of(module, outputs_grads=True), example(module)
    found = results(step, x)
    assert step.program.uses_rng == (name != "rrelu eval")
    with tallystick.reproducible("ordered/1", seed=5):
        loss = squares(module, {"x": x})
        loss.backward()
    assert loss.detach().numpy().tobytes() == np.asarray(found["loss"]).tobytes()
    for path, parameter in module.named_parameters():
        assert parameter.grad.numpy().tobytes() == found[f"grad.{path}"].tobytes(), path
    module.zero_grad()
    first_step_agrees(step, x, tmp_path)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", DRAWS)
def test_every_step_draws_anew(name: str) -> None:
    if name == "rrelu eval":
        return
    module = around(name)
    step, x = step_of(module), example(module)
    one, two = (results(step, x, (5, at))["loss"] for at in (0, 1))
    if name != "multinomial row":  # A permutation of three may come again.
        assert one != two


def test_draw_ids_count_the_calls_in_forward_order() -> None:
    """NUMERICS 8.2."""
    step = step_of(Around(DRAWS["several"]))
    nodes = [n for n in step.program.nodes if "draw" in n.attrs]
    assert [(n.op.removeprefix("tallystick."), n.attrs["draw"]) for n in nodes] == [
        ("uniform", 0),
        ("dropout_mask", 1),
        ("normal", 2),
    ]


def drawn(function: Callable[[], Tensor]) -> np.ndarray:
    with tallystick.reproducible("ordered/1", seed=3):
        return function().numpy()


def uniform(shape: tuple[int, ...]) -> np.ndarray:
    found = evaluate("tallystick.uniform", np.array([3, 0]), draw=0, shape=shape)
    assert isinstance(found, np.ndarray)
    return found


@pytest.mark.parametrize(("low", "high"), [(0, 2), (-5, 12), (0, 1000), (7, 7 + (1 << 24))])
def test_random_integers_by_their_rule(low: int, high: int) -> None:
    """low + floor(k·n / 2²⁴), exactly, also where the product in f32 rounds up."""
    k = (uniform((4000,)).astype(np.float64) * 2.0**24).astype(np.int64)
    wanted = low + (k * (high - low) >> 24)
    found = drawn(lambda: torch.randint(low, high, (4000,)))
    assert found.tolist() == wanted.tolist()
    assert found.min() >= low and found.max() < high


def test_random_words_by_their_rule() -> None:
    """Three parts of 21 bits; the numbers of a type are the top bits."""
    parts = (uniform((3, 500)).astype(np.float64) * 2.0**21).astype(np.int64)
    words = (parts[0] << 42) + (parts[1] << 21) + parts[2]
    assert words.max() > 1 << 62

    def found(dtype: torch.dtype) -> list[Any]:
        return drawn(lambda: torch.empty(500, dtype=dtype).random_()).tolist()

    assert found(torch.int64) == words.tolist()
    assert found(torch.int32) == (words >> 32).tolist()
    assert found(torch.uint8) == (words >> 55).tolist()
    assert found(torch.bool) == (words >> 62).tolist()
    assert found(torch.float32) == (words >> 39).tolist()
    many = drawn(lambda: torch.randint(-7, (1 << 62) + 5, (500,)))
    assert many.tolist() == (words % ((1 << 62) + 12) - 7).tolist()


@pytest.mark.parametrize("n", [0, 1, 2, 7, 5000])
def test_a_permutation_by_its_rule(n: int) -> None:
    keys = uniform((2, n)) if n else np.zeros((2, 0))
    found = drawn(lambda: torch.randperm(n))
    assert found.dtype == np.int64
    assert found.tolist() == np.lexsort((keys[1], keys[0])).tolist()


def test_a_permutation_is_one_where_all_numbers_are_equal() -> None:
    class Same(tallystick.program.capture.functions.Lowering):
        def uniform(self, shape: Any, *rest: Any, **options: Any) -> Tensor:
            return torch.zeros(list(shape))

    assert Same(torch.zeros(2, dtype=torch.int64)).randperm(6).tolist() == [0, 1, 2, 3, 4, 5]


def test_choices_by_their_rule() -> None:
    weights = torch.tensor([[0.0, 1.0, 0.0, 3.0, 0.0], [5.0, 0.0, 0.0, 0.0, 0.0]])
    found = drawn(lambda: torch.multinomial(weights, 2000, replacement=True))
    u = uniform((2, 2000))
    assert found[0].tolist() == np.where(u[0] * np.float32(4) < 1, 1, 3).tolist()
    assert not found[1].any()
    assert abs((found[0] == 3).mean() - 0.75) < 0.03
    apart = drawn(lambda: torch.multinomial(torch.rand(50, 6) + 0.1, 6))
    assert (np.sort(apart) == np.arange(6)).all()


def test_an_exponential_number_is_never_zero() -> None:
    """So gumbel_softmax has no NaN, whatever is drawn."""

    class Zero(tallystick.program.capture.functions.Lowering):
        def uniform(self, shape: Any, *rest: Any, **options: Any) -> Tensor:
            return torch.zeros(shape)

    draws = Zero(torch.zeros(2, dtype=torch.int64))
    assert float(draws.exponential([1])) == 2.0**-25
    assert torch.isfinite(draws.gumbel_softmax(torch.ones(2, 3))).all()


REFUSED: dict[str, tuple[Draw, str]] = {
    "generator": (
        lambda m, x: x + torch.rand(4, generator=torch.Generator()),
        "torch.rand .*gener",
    ),
    "generator of a method": (
        lambda m, x: x + torch.empty(4).normal_(generator=torch.Generator()),
        r"Tensor\.normal_ .*generator=",
    ),
    "poisson": (lambda m, x: torch.poisson(x), r"torch\.poisson"),
    "range": (lambda m, x: x * torch.randint(3, 3, (4,)), r"from 3 to 3"),
    "all integers": (lambda m, x: x * torch.empty(4).random_(3, None), r"random_ from 3 without"),
    "too many": (lambda m, x: x * torch.multinomial(x.detach(), 9), "without replacement"),
    "gamma": (lambda m, x: torch.distributions.Gamma(x, x).rsample(), "gamma sampler"),
    "backward": (lambda m, x: _hooked(x), "backward pass"),
}


def _hooked(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda g: g * torch.rand_like(g))
    return y


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name_with_a_next_action(name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(UsageError, match=message) as caught:
        step_of(Around(function))
    assert caught.value.next_action
    assert name == "backward" or re.search(r"test_capture_random\.py:\d+", caught.value.message)
