"""A DataLoader in `reproducible`, with and without workers (PROGRAM 5.23 e)."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

import torch.nn.functional as F  # noqa: E402
from torch.utils.data import DataLoader, Dataset, TensorDataset, get_worker_info  # noqa: E402

import tallystick  # noqa: E402
from tallystick.kernels.evaluate import evaluate  # noqa: E402


@pytest.fixture(autouse=True)
def restore_the_generator():
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


class Drawn(Dataset):
    """Records that draw, compute and come from numpy, with the seed of the worker."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int):
        info = get_worker_info()
        mask = F.dropout(torch.ones(6), 0.5)
        matrix = torch.rand(30, 30)
        seed = 0 if info is None else info.seed
        return i, seed, mask, torch.mm(matrix, matrix), np.float64(0.1) * i, np.arange(3.0) / 7


def epoch(seed: int | None = None, **options):
    torch.manual_seed(8)
    with tallystick.reproducible("ordered/1", seed=seed):
        return list(DataLoader(Drawn(), 2, **options))


def same(one, other) -> bool:
    return all(torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y))  # noqa: B905


def test_a_loader_gives_its_records_in_order():
    data = TensorDataset(torch.arange(6.0).view(6, 1), torch.arange(6))
    with tallystick.reproducible("ordered/1"):
        assert [b[1].tolist() for b in DataLoader(data, 2)] == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("seed", [None, 5])
def test_a_shuffled_order_is_a_permutation_by_the_contract(seed: int | None):
    """RandomSampler seeds a generator of its own by a 63-bit number, and permutes by it."""
    (order,) = [[int(i) for batch in epoch(seed, shuffle=True) for i in batch[0]]]
    assert sorted(order) == list(range(8))
    torch.manual_seed(8)
    with tallystick.reproducible("ordered/1", seed=seed):
        torch.empty((), dtype=torch.int64).random_()  # the base seed of workers
        key = int(torch.empty((), dtype=torch.int64).random_())
    words = np.random.MT19937()
    words._legacy_seeding(key % 2**32)
    high, low = (int(w) for w in words.random_raw(2))
    keys = evaluate(
        "tallystick.uniform", np.array([(high << 32 | low) % 2**63, 0]), draw=0, shape=(2, 8)
    )
    assert isinstance(keys, np.ndarray)
    assert order == np.lexsort((keys[1], keys[0])).tolist()


@pytest.mark.parametrize("seed", [None, 5])
def test_workers_draw_by_their_seeds_and_compute_in_the_block(seed: int | None):
    found = epoch(seed, num_workers=2)
    seeds = [int(s) for batch in found for s in batch[1]]
    assert len(set(seeds)) == 2
    words = np.random.MT19937()
    words._legacy_seeding(seeds[0] % 2**32)
    high, low = (int(w) for w in words.random_raw(2))
    key = np.array([(high << 32 | low) % 2**63, 0])
    kept = evaluate("tallystick.dropout_mask", key, draw=0, p=0.5, shape=(6,))
    assert found[0][2][0].ne(0).tolist() == np.asarray(kept).tolist()
    assert same(found, epoch(seed, num_workers=2)), "again"
    assert same(found, epoch(seed, num_workers=2, persistent_workers=True))
    assert not same(found, epoch(seed, num_workers=1))
    assert found[0][5].dtype == torch.float64


def test_a_worker_that_is_started_afresh_is_in_the_block_too():
    """It imports everything anew, as on systems without fork."""
    wanted = epoch(num_workers=1)
    assert same(wanted, epoch(num_workers=1, multiprocessing_context="spawn"))


def test_a_generator_of_the_caller_orders_a_loader_and_seeds_its_workers():
    def run(**options):
        generator = torch.Generator().manual_seed(3)
        return epoch(shuffle=True, generator=generator, **options)

    first = run()
    torch.manual_seed(99)
    assert [b[0].tolist() for b in run()] == [b[0].tolist() for b in first]
    assert same(run(num_workers=1), run(num_workers=1))
