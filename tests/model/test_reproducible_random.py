"""Where the random numbers of `reproducible` come from (PROGRAM 5.23)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor, nn  # noqa: E402

import tallystick  # noqa: E402
from tallystick.errors import TallystickError, UnsupportedOperatorError  # noqa: E402
from tallystick.kernels.evaluate import evaluate  # noqa: E402

N = 64


@pytest.fixture(autouse=True)
def restore_the_generator():
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


def mask() -> list[int]:
    return F.dropout(torch.ones(N), 0.5).ne(0).int().tolist()


def in_a_block(function: Callable[[], object] = mask, **options: int):
    with tallystick.reproducible("ordered/1", **options):
        return function()


def keys_of(seed: int, count: int) -> list[int]:
    """By numpy's mt19937: two words make a number, the first one on top."""
    words = np.random.MT19937()
    words._legacy_seeding(seed)
    raw = [int(w) for w in words.random_raw(2 * count)]
    return [(raw[2 * i] << 32 | raw[2 * i + 1]) % (1 << 63) for i in range(count)]


def expected_mask(key: int) -> list[int]:
    kept = evaluate("tallystick.dropout_mask", np.array([key, 0]), draw=0, p=0.5, shape=(N,))
    return np.asarray(kept).astype(int).tolist()


def test_a_block_goes_on_where_the_last_one_ended():
    torch.manual_seed(11)
    found = [in_a_block() for _ in range(3)]
    assert found == [expected_mask(key) for key in keys_of(11, 3)]
    assert len({tuple(m) for m in found}) == 3
    torch.manual_seed(11)
    assert in_a_block(lambda: [mask(), mask(), mask()]) == found
    assert in_a_block() not in found


def test_manual_seed_begins_anew_in_the_block_too():
    def twice():
        torch.manual_seed(4)
        first = mask()
        torch.manual_seed(4)
        return first, mask(), mask()

    first, again, next_one = in_a_block(twice)
    assert first == again != next_one


def test_a_seed_gives_the_numbers_of_a_capture_and_reads_no_generator():
    before = torch.get_rng_state()
    found = [in_a_block(seed=9) for _ in range(2)]
    assert found == [expected_mask(9)] * 2
    assert torch.equal(torch.get_rng_state(), before)


def test_a_restored_state_of_random_numbers_continues_the_masks(tmp_path: Path):
    """As the checkpoints of transformers and accelerate save and restore it."""

    def run():
        torch.save(torch.get_rng_state(), tmp_path / "rng")
        wanted = [mask() for _ in range(2)]
        mask()
        torch.set_rng_state(torch.load(tmp_path / "rng"))
        return wanted, [mask() for _ in range(2)]

    wanted, found = in_a_block(run)
    assert found == wanted
    torch.set_rng_state(torch.load(tmp_path / "rng"))
    assert in_a_block() == wanted[0], "in another block"


def test_fork_rng_leaves_the_position():
    def run():
        torch.manual_seed(2)
        with torch.random.fork_rng(devices=[]):
            inside = mask()
        return inside, mask(), mask()

    inside, outside, third = in_a_block(run)
    assert inside == outside != third


def test_a_generator_of_the_caller_gives_the_keys():
    def run():
        generator = torch.Generator().manual_seed(21)
        first = torch.rand(3, generator=generator)
        state = generator.get_state()
        second = torch.randn(3, generator=generator)
        generator.set_state(state)
        return first, second, torch.empty(3).normal_(generator=generator)

    keys = keys_of(21, 2)
    for options in ({}, {"seed": 3}):
        before = torch.get_rng_state()
        first, second, again = in_a_block(run, **options)
        wanted = evaluate("tallystick.uniform", np.array([keys[0], 0]), draw=0, shape=(3,))
        assert first.tolist() == np.asarray(wanted).tolist()
        wanted = evaluate("tallystick.normal", np.array([keys[1], 0]), draw=0, shape=(3,))
        assert second.tolist() == again.tolist() == np.asarray(wanted).tolist()
        assert torch.equal(torch.get_rng_state(), before)


RANDOM: dict[str, Callable[[torch.Generator], Tensor]] = {
    "rand": lambda g: torch.rand(4, generator=g),
    "randn": lambda g: torch.randn((4,), generator=g),
    "randint": lambda g: torch.randint(9, (4,), generator=g),
    "randint many": lambda g: torch.randint(1 << 31, (4,), generator=g),
    "randperm": lambda g: torch.randperm(9, generator=g),
    "normal": lambda g: torch.normal(torch.zeros(4), torch.ones(4), generator=g),
    "normal numbers": lambda g: torch.normal(0.0, 1.0, (4,), generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((40,), 0.5), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(40), 9, generator=g),
    "uniform_": lambda g: torch.empty(4).uniform_(-1, 1, generator=g),
    "normal_": lambda g: torch.empty(4).normal_(2, 3, generator=g),
    "log_normal_": lambda g: torch.empty(4).log_normal_(generator=g),
    "exponential_": lambda g: torch.empty(4).exponential_(generator=g),
    "bernoulli_": lambda g: torch.empty(40).bernoulli_(0.5, generator=g),
    "random_": lambda g: torch.empty(4, dtype=torch.int64).random_(generator=g),
    "random_ to": lambda g: torch.empty(4, dtype=torch.int64).random_(1, 90, generator=g),
    "kaiming": lambda g: nn.init.kaiming_uniform_(torch.empty(2, 2), generator=g),
    "trunc_normal": lambda g: nn.init.trunc_normal_(torch.empty(2, 2), generator=g),
}


@pytest.mark.parametrize("name", RANDOM)
def test_every_random_call_draws_from_its_generator(name: str):
    """And moves no other one."""

    def run():
        g = torch.Generator().manual_seed(6)
        return RANDOM[name](g).tolist(), RANDOM[name](g).tolist()

    before = torch.get_rng_state()
    first, second = in_a_block(run)
    assert first != second
    assert in_a_block(run) == (first, second)
    assert torch.equal(torch.get_rng_state(), before)


def test_random_calls_below_a_function_of_torch_are_the_contracts():
    """`nn.init` is one function for a mode: what it calls is seen as ATen operators only."""

    def run():
        torch.manual_seed(5)
        layer = nn.Linear(4, 3)
        return layer.weight.detach(), layer.bias.detach()

    weight, bias = in_a_block(run)
    for found, key in zip((weight, bias), keys_of(5, 2), strict=True):
        bound = 1.0 / np.sqrt(4.0)
        wanted = evaluate(
            "tallystick.uniform", np.array([key, 0]), draw=0, shape=tuple(found.shape),
            low=-bound, high=bound,
        )  # fmt: skip
        assert found.numpy().tobytes() == np.asarray(wanted).tobytes()


def test_another_thread_is_not_in_the_block():
    """PROGRAM 5.23 (d): the block is of the thread that entered it, with its backward passes."""
    found: list[object] = []

    def enter():
        with tallystick.reproducible("ordered/1"):
            pass

    def other():
        for call in (lambda: torch.poisson(torch.ones(3)).shape, mask, enter):
            try:
                found.append(call())
            except TallystickError as error:
                found.append(error)

    def run():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        other()

    in_a_block(run)
    shape, dropped, entered, refused, own, again = found
    assert shape == (3,)
    assert "in the thread that entered" in str(dropped)
    assert "Another thread is inside" in str(entered)
    assert isinstance(refused, UnsupportedOperatorError)
    assert isinstance(own, list)
    assert again is None, "a block in a block of the same thread"
    thread = threading.Thread(target=lambda: found.append(in_a_block()))
    thread.start()
    thread.join()
    assert isinstance(found[-1], list), "when the block has ended another thread may have one"


def test_numpys_and_pythons_numbers_are_not_touched():
    import random

    def run():
        np.random.seed(3)
        random.seed(3)
        return np.random.rand(), random.random()

    assert in_a_block(run) == run()
