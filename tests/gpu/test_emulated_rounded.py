"""`rounded/1` on a GPU (NUMERICS 13): its kernels in the emulation, against golden vectors and the
processor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import kernel_format as fmt
import make_rounded_vectors as maker
import numpy as np
import pytest
from device_calls import KINDS, call, check_cases, same_as_processor
from dot_shapes import convolution, product
from emulated_gpu import EmulatedDriver, emulated_gpu, planted
from kernel_format import same_bits
from reference.nasty import near_boundaries

from tallystick.contracts.rounded.cuda import rounded_kernel
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.numerics.contracts import find_contract
from tallystick.products.cuda import dots
from tallystick.products.cuda.dots import PartSizes

FORWARD = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
# Of a few elements, so that small operands are cut in every way.
SMALL = PartSizes(results=700, patches=900, blocks=12, shortest=16, longest=48)


@pytest.fixture(autouse=True)
def unforced() -> Iterator[None]:
    yield
    dots.LIMITS_OF[0] = PartSizes()


def checked(
    device: Cuda, bits: int, op: str, attrs: dict[str, Any], arrays: Any, **how: Any
) -> None:
    same_as_processor(device, op, attrs, arrays, f"rounded/1;b={bits}", **how)


def test_every_rounded_operator_has_a_kernel() -> None:  # NUMERICS 13.1
    assert set(rounded_kernel) == find_contract("rounded/1").own_operators


@pytest.mark.parametrize("group", sorted(maker.CONTRACTS))
@pytest.mark.parametrize("limits", [PartSizes(), SMALL], ids=["whole", "in parts"])
def test_golden_vectors(group: str, limits: PartSizes) -> None:  # NUMERICS 13.2 to 13.4
    dots.LIMITS_OF[0] = limits
    device, contract = emulated_gpu(len(group)), maker.CONTRACTS[group]
    cases = fmt.load(group, KINDS, maker.ROOT, contract)
    found = check_cases(device, group, cases, contract=contract)
    assert found.operators == set(maker.OPERATORS) and not found.missing
    assert found.calls >= len(cases) > 50
    assert found.wrong == []
    assert isinstance(device.driver, EmulatedDriver)
    device.driver.check()


def test_other_contracts_have_no_kernels_here() -> None:
    for name in ("replay/1;form=published",):
        assert not emulated_gpu().kernels(find_contract(name))


def test_vectors_of_another_grid_are_seen_as_wrong() -> None:
    cases = fmt.load("grid-27", KINDS, maker.ROOT, maker.CONTRACTS["grid-27"])
    assert check_cases(emulated_gpu(), "grid-27", cases, contract="rounded/1;b=28").wrong


@pytest.mark.parametrize("bits", [20, 27, 32])
def test_sums_about_boundaries(bits: int) -> None:  # NUMERICS 13.2, 13.3, 13.6
    device = emulated_gpu(bits)
    alone = 0
    for seed, (rows, terms, columns) in enumerate([(19, 41, 7), (9, 150, 33), (66, 23, 5)]):
        a, b = near_boundaries(rows, terms, columns, 100 * bits + seed, bits)
        dots.LIMITS_OF[0] = SMALL if seed % 2 else PartSizes()
        checked(device, bits, "aten.mm", {}, [a, b])
        with np.errstate(all="ignore"):
            exact = call(CPU, "aten.mm", {}, [a, b], f"rounded/1;b={bits}")[0]
            wide = np.float32(a.astype(np.float64) @ b.astype(np.float64))
            products = (a[:, :, None] * b[None]).astype(np.float32)
        alone += int((wide.view(np.uint32) != exact.view(np.uint32)).sum())
        checked(device, bits, "aten.sum.dim_IntList", {"dim": (1,)}, [products])
        checked(device, bits, "aten.mean.dim", {"dim": (1,)}, [products])
        checked(device, bits, "aten.sum", {}, [a])
        # The same products as those of a convolution with one place, and of its gradients.
        image, weight = a.reshape(rows, terms, 1, 1), b.T.reshape(columns, terms, 1, 1)
        form = {**FORWARD, "padding": (0, 0)}
        checked(device, bits, "aten.convolution", form, [image, np.ascontiguousarray(weight)])
    assert alone > 10  # binary64 alone does not do


def ties(rows: int, terms: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Every sum is a tie of binary32, and a product that is 2^-298 or nothing decides it. Only the
    exact accumulator sees it."""
    a, b = np.zeros((rows, terms), np.float32), np.zeros((terms, columns), np.float32)
    a[:, 0], b[0] = 1, 1
    a[:, terms // 2], b[terms // 2] = 2.0**-24, 1
    a[:, -1] = np.float32(2.0**-149) * np.resize([1, -1, 0], rows)
    b[-1] = np.float32(2.0**-149)
    a[1::2, 0] += np.float32(2.0**-23)
    return a, b


def test_the_smallest_product_decides_a_tie() -> None:  # NUMERICS 13.2, 13.5
    a, b = ties(7, 70, 3)
    device = emulated_gpu(5)
    checked(device, 32, "aten.mm", {}, [a, b])
    (got,) = call(device, "aten.mm", {}, [a, b], "rounded/1")
    one = np.float32(1)
    up, two = np.nextafter(one, np.float32(2)), one + np.float32(2.0**-22)
    assert got[:, 0].tolist() == [up, up, one, two, one, two, up]
    x = a.copy()
    x[:, 1] = 2.0**-149  # sums lose it, too
    checked(device, 32, "aten.sum.dim_IntList", {"dim": (1,)}, [x])


def test_operands_that_are_not_finite() -> None:  # NUMERICS 13.4
    rng = np.random.default_rng(4)
    device = emulated_gpu(4)
    inf, nan = np.float32(np.inf), np.uint32(0xFFC12345).view(np.float32)
    for limits in (PartSizes(), SMALL):
        dots.LIMITS_OF[0] = limits
        a, b = (rng.standard_normal(s).astype(np.float32) for s in ((9, 33), (33, 7)))
        c = rng.standard_normal((9, 7)).astype(np.float32)
        a[1, 3], a[2, 4], a[2, 5], a[3, 6] = inf, inf, -inf, nan
        b[3, 2], b[4, 1], b[8, 5] = 0, -inf, nan
        c[0, 0], c[1, 1], c[5, 0] = -inf, nan, inf
        a[7], b[:, 3] = 3.4e38, 3.4e38
        checked(device, 32, "aten.mm", {}, [a, b])
        for alpha, beta in ((1.0, 1.0), (0.5, 2.0), (1.0, 0.0)):
            for last in (c, c[0], c[:, :1]):
                attrs = {"alpha": alpha, "beta": beta}
                checked(device, 29, "aten.addmm", attrs, [np.asarray(last), a, b])
        x, w = a.reshape(1, 9, 3, 11).copy(), b[:27].reshape(7, 3, 3, 3).copy()
        form = {**FORWARD, "groups": 3}
        w = np.ascontiguousarray(w[:6])
        checked(device, 32, "aten.convolution", form, [x, w, c[:6, 0].copy()])
        grad = rng.standard_normal((1, 6, 3, 11)).astype(np.float32)
        grad[0, 2, 1, 1], grad[0, 4, 0, 0] = inf, nan
        mask = {**form, "output_mask": (True, True, True)}
        checked(device, 32, "aten.convolution_backward", mask, [grad, x, w])
        for dims in ((0,), (1,), (0, 1)):
            checked(device, 32, "aten.sum.dim_IntList", {"dim": dims}, [a])
            checked(device, 27, "aten.mean.dim", {"dim": dims}, [a])


def test_random_products() -> None:
    rng = np.random.default_rng(21)
    device = emulated_gpu(21)
    for i in range(14):
        op, attrs, arrays = product(rng)
        dots.LIMITS_OF[0] = SMALL if i % 3 == 2 else PartSizes()
        checked(device, int(rng.integers(20, 33)), op, attrs, arrays, turned=i % 2 == 1)


def test_random_convolutions() -> None:
    rng = np.random.default_rng(22)
    device = emulated_gpu(22)
    for i in range(8):
        dots.LIMITS_OF[0] = SMALL if i % 2 else PartSizes()
        for one in convolution(rng):
            checked(device, int(rng.integers(20, 33)), *one)


def test_random_sums() -> None:
    rng = np.random.default_rng(23)
    device = emulated_gpu(23)
    for shape in ((), (0,), (3, 0), (5000,), (3, 1100), (1100, 3), (4, 5, 6), (2, 300, 9), (7, 33)):
        x = rng.standard_normal(shape) * np.exp2(rng.integers(-40, 40, shape))
        x = np.asarray(x, np.float32)
        for axes in ((), (0,), (-1,), (0, -1), (0, 1)):
            if len({a % max(len(shape), 1) for a in axes}) < len(axes) or len(axes) > len(shape):
                continue
            attrs = {"dim": axes, "keepdim": bool(rng.integers(2))}
            bits = int(rng.integers(20, 33))
            checked(device, bits, "aten.sum.dim_IntList", attrs, [x])
            checked(device, bits, "aten.mean.dim", attrs, [x], turned=True)
        checked(device, 32, "aten.sum", {}, [x])
    whole = rng.integers(-9, 9, (4, 5))
    checked(device, 20, "aten.sum", {}, [whole])  # 13.1: on f32 only


def test_a_second_run_has_other_threads_first_and_the_same_bits() -> None:  # NUMERICS 1.8
    a, b = near_boundaries(40, 300, 20, 9, 32)
    found = {
        call(emulated_gpu(seed), "aten.mm", {}, [a, b], "rounded/1")[0].tobytes()
        for seed in range(2)
    }
    assert len(found) == 1


@pytest.mark.parametrize("fault", ["missing barrier", "race", "one bit"])
def test_a_planted_fault_is_seen(fault: str) -> None:
    a, b = near_boundaries(70, 40, 66, 5, 32)
    (expected,) = call(CPU, "aten.mm", {}, [a, b], "rounded/1")
    with planted(fault):
        for seed in range(2):
            (got,) = call(emulated_gpu(seed), "aten.mm", {}, [a, b], "rounded/1")
            assert not same_bits(got, expected)
