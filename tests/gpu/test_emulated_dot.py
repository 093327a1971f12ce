"""The dot class on a GPU (NUMERICS 2): its kernels in the emulation, against the processor's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest
from device_calls import call, check_vectors, same_as_processor, there
from dot_shapes import TERMS, convolution, numbers, product
from emulated_gpu import CUDA, EmulatedDriver, emulated_gpu
from kernel_format import same_bits

from device_tiles import time_tiles
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.device import Tensor
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType, type_of
from tallystick.products.cuda.tiles import FORCED, GATHERED, PRODUCTS, TILES, choose
from tallystick.program.layout import contiguous_strides, new_tensor

OPERATORS = {
    "aten.mm",
    "aten.addmm",
    "aten.bmm",
    "aten.convolution",
    "aten.convolution_backward",
}


@pytest.fixture(autouse=True)
def unforced() -> Iterator[None]:
    yield
    FORCED.tile, FORCED.split, FORCED.most_parts = None, None, type(FORCED)().most_parts


@pytest.mark.parametrize("seed", [1, 2])
def test_golden_vectors(seed: int) -> None:  # NUMERICS 2.4 to 2.7
    device = emulated_gpu(seed)
    found = check_vectors(device, ops=OPERATORS)
    assert found.operators == OPERATORS and found.calls > 80
    assert found.wrong == []


@pytest.mark.parametrize("name", ["128x128w", "32x64r"])
def test_golden_vectors_with_another_tile(name: str) -> None:  # NUMERICS 1.8
    FORCED.tile, FORCED.split = name, name == "32x64r"
    ops = OPERATORS if name in GATHERED else {"aten.mm", "aten.addmm", "aten.bmm"}
    assert check_vectors(emulated_gpu(3), ops=ops).wrong == []


def transposed(device: Cuda, x: np.ndarray) -> Tensor:
    """x on the device, its last two axes the other way round in memory."""
    there = new_tensor(device, TensorType("f32", x.swapaxes(-1, -2).shape))
    device.write(np.ascontiguousarray(x.swapaxes(-1, -2)), there)
    steps = contiguous_strides(there.shape, 4)
    return device.view(there, 0, "f32", x.shape, (*steps[:-2], steps[-1], steps[-2]))


@pytest.mark.parametrize("name", TILES)
def test_no_tile_and_no_split_changes_a_bit(name: str) -> None:  # NUMERICS 1.8, 2.2
    tile, rng = TILES[name], np.random.default_rng(len(name))
    device = emulated_gpu(seed=7)
    kernel = device.kernels(find_contract("ordered/1"))["aten.mm"]
    for terms, rows, split in ((129, 1, True), (127, 5, False), (300, 4, False), (300, 8, True)):
        FORCED.tile, FORCED.split = name, split
        a, b = numbers(rng, tile.rows + rows, terms), numbers(rng, terms, tile.cols + rows)
        (expected,) = call(CPU, "aten.mm", {}, [a, b])
        for ways in range(4):
            out = new_tensor(device, type_of(expected))
            left = transposed(device, a) if ways & 1 else there(device, a)
            right = transposed(device, b) if ways & 2 else there(device, b)
            kernel.run({}, [left, right], [out])
            assert same_bits(device.host(out), expected), (name, terms, split, ways)
    assert isinstance(device.driver, EmulatedDriver)
    device.driver.check()
    # Every pair of ones and fours.
    used = {kernel for kernel in device.driver.launched if name in kernel}
    assert used == {f"gemm_{name}_{ways}" for ways in (11, 14, 41, 44)}


def test_totals_of_chunks_in_several_rounds() -> None:  # NUMERICS 2.2
    rng = np.random.default_rng(3)
    device = emulated_gpu(seed=3)
    a, b = numbers(rng, 9, 1000), numbers(rng, 1000, 5)
    FORCED.split = True
    for parts in (1, 2, 3, 8):
        FORCED.most_parts = parts * 9 * 5 * 4
        before = device.driver.launched.get("gemm_totals", 0)
        same_as_processor(
            device, "aten.addmm", {"alpha": 0.5, "beta": 2.0}, [numbers(rng, 5), a, b]
        )
        assert device.driver.launched["gemm_totals"] - before == -(-8 // parts)


def test_random_products() -> None:
    rng = np.random.default_rng(11)
    device = emulated_gpu(seed=11)
    for i in range(60):
        op, attrs, arrays = product(rng)
        FORCED.split = (None, True, False)[i % 3]
        same_as_processor(device, op, attrs, arrays, turned=i % 2 == 1)


def test_random_convolutions() -> None:
    rng = np.random.default_rng(12)
    device = emulated_gpu(seed=12)
    for i in range(40):
        FORCED.tile = (None, *GATHERED)[i % (1 + len(GATHERED))]
        FORCED.split = (None, True, False)[i % 3]
        for op, attrs, arrays in convolution(rng):
            same_as_processor(device, op, attrs, arrays)
    kernels = {
        f"conv_{p}_{t}" for p in ("forward", "strided", "weight") for t in (*GATHERED, "each")
    }
    assert kernels <= set(device.driver.launched)


def test_masked_gradients() -> None:  # NUMERICS 2.7
    rng = np.random.default_rng(13)
    device = emulated_gpu(seed=13)
    _, (op, attrs, arrays) = convolution(rng)
    for mask in range(8):
        wanted = tuple(bool(mask >> i & 1) for i in range(3))
        same_as_processor(device, op, {**attrs, "output_mask": wanted}, arrays)


@pytest.mark.parametrize("terms", TERMS)
def test_terms_around_slices_and_chunks(terms: int) -> None:  # NUMERICS 2.1 to 2.3
    rng = np.random.default_rng(terms)
    device = emulated_gpu(seed=terms)
    a, b = numbers(rng, 40, terms), numbers(rng, terms, 70)
    # Results of -0 and infinities where a padded tail would change them.
    a[:4], b[:, :4] = -1e-30, 1e-30
    a[4:6] = np.inf
    same_as_processor(device, "aten.mm", {}, [a, b])


def test_the_table_of_tiles_is_that_of_the_kernels() -> None:
    def rows(file: str, macro: str) -> dict[str, tuple[str, ...]]:
        text = (CUDA / file).read_text()
        found = re.findall(rf"^{macro}\((\w+), (.*)\)$", text, re.M)
        return {name: tuple(rest.split(", ")) for name, rest in found}

    expected = {
        t.name: (
            *map(str, (t.at_once, t.rows, t.cols, t.down, t.across, t.depth)),
            "true" if t.shared_totals else "false",
        )
        for t in TILES.values()
    }
    assert rows("gemm.cu", "TS_GEMM") == expected
    assert rows("conv.cu", "TS_CONV") == {name: expected[name] for name in GATHERED}


def test_every_tile_is_chosen_by_some_shape() -> None:
    sides = (1, 16, 40, 64, 100, 128, 256, 512, 1024, 2048, 8192)
    chosen = {choose(m, n, 1024, b).tile.name for m in sides for n in sides for b in (1, 96)}
    assert chosen == set(PRODUCTS)
    gathered = {choose(m, n, 1024, 1, gathered=True).tile.name for m in sides for n in sides}
    assert gathered == set(GATHERED)
    assert choose(64, 64, 50257, 1).split and not choose(8192, 8192, 8192, 1).split
    assert choose(8192, 8192, 8192, 1).tile.name == "128x128w"


def test_every_tile_can_be_timed() -> None:
    rows = time_tiles(emulated_gpu(5), [(20, 9, 130, 2, "nt"), (7, 30, 5, 1, "tn")], 1, 1)
    assert len(rows) == 3 * len(TILES) and sum(r["chosen"] for r in rows) == 2
    assert FORCED.tile is None and FORCED.split is None
