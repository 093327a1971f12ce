"""cuBLAS's DGEMM as an engine of `rounded/1` (NUMERICS 13.6, 14.3), over a library of the tests."""

from __future__ import annotations

import ctypes
import gc
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kernel_format as fmt
import make_rounded_vectors as maker
import pytest
from device_calls import KINDS, call, check_cases, there
from emulated_gpu import EmulatedDriver, emulated_gpu
from kernel_format import same_bits
from make_exact_vectors import CONTRACTS as EXACT
from make_exact_vectors import ROOT as EXACT_ROOT
from reference.nasty import near_boundaries
from unit.rounding.recorded import Run, program, same
from unit.rounding.test_bounded import every_operator, everything

from tallystick.contracts.exact.cuda.ways import FORCED, ForcedWay
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.errors import EnvironmentRefusedError
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.types import TensorType
from tallystick.products.cuda import cublas as products
from tallystick.products.cuda import dots
from tallystick.products.cuda.cublas import Cublas, refuse_unless_admissible
from tallystick.products.cuda.dots import PartSizes
from tallystick.program.layout import new_tensor

SOURCE = Path(__file__).parent / "cublas" / "libcublas.cpp"
MODE = "TALLYSTICK_TEST_CUBLAS"
SMALL = PartSizes(results=700, patches=2100, blocks=12, shortest=16, longest=48)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    made = tmp_path_factory.mktemp("cublas") / "libcublas.so.13"
    flags = "-std=c++17 -O2 -ffp-contract=off -fPIC -shared".split()
    subprocess.run(["c++", *flags, str(SOURCE), "-o", str(made)], check=True)
    return ctypes.CDLL(str(made))


@pytest.fixture(autouse=True)
def unforced() -> Iterator[None]:
    yield
    dots.LIMITS_OF[0] = PartSizes()


class _Driver(EmulatedDriver):
    """The emulation, with what an NVIDIA driver has and cuBLAS asks for."""

    stream = 7

    def enter(self) -> None:
        pass


class _Recorded(Cublas):
    """On a GPU the stream records the call; here the driver does."""

    def _start(self, work: Callable[[], None]) -> None:
        self._driver._do(work)


def device(library: ctypes.CDLL, seed: int = 0) -> Cuda:
    driver = _Driver(seed)
    gpu = Cuda(driver)
    gpu.products = _Recorded(library, driver)
    return gpu


def test_a_plain_library_is_admitted(library: ctypes.CDLL) -> None:
    made = device(library).products
    assert made is not None and made.name == "cuBLAS 130000"
    refuse_unless_admissible(made, _Driver())


@pytest.mark.parametrize("mode", ["float", "digits", "flush", "fails"])
def test_another_arithmetic_is_refused(
    library: ctypes.CDLL, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # NUMERICS 14.3, 1.7
    made = device(library).products
    assert made is not None
    monkeypatch.setenv(MODE, mode)
    with pytest.raises(EnvironmentRefusedError, match="cuBLAS"):
        refuse_unless_admissible(made, _Driver())


def test_a_refused_library_leaves_our_own_kernels(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "find_library", lambda: library)
    assert isinstance(products.admitted(_Driver()), Cublas)
    for mode in ("digits", "fails"):
        monkeypatch.setenv(MODE, mode)
        driver = _Driver()
        assert products.admitted(driver) is None
        gc.collect()  # the failure held what it was called with
        assert not driver._memory  # a library that is not used keeps no memory
    monkeypatch.setattr(products, "find_library", lambda: None)
    assert products.admitted(_Driver()) is None
    assert products.admitted(EmulatedDriver()) is None


@pytest.mark.parametrize("limits", [PartSizes(), SMALL], ids=["whole", "in parts"])
def test_golden_vectors(library: ctypes.CDLL, limits: PartSizes) -> None:  # NUMERICS 13.2 to 13.4
    dots.LIMITS_OF[0] = limits
    gpu, contract = device(library, 2), maker.CONTRACTS["grid-27"]
    before = library.tallystick_test_calls()
    cases = fmt.load("grid-27", KINDS, maker.ROOT, contract)
    found = check_cases(gpu, "grid-27", cases, contract=contract)
    assert found.operators == set(maker.OPERATORS) and found.wrong == []
    assert library.tallystick_test_calls() > before + 50
    driver: Any = gpu.driver
    # Only sums of no terms are ours.
    assert driver.launched.get("rounded_product", 0) < library.tallystick_test_calls() / 5
    driver.check()


def test_sums_about_boundaries(library: ctypes.CDLL) -> None:  # NUMERICS 13.6
    gpu = device(library, 3)
    for seed, limits in enumerate((PartSizes(), SMALL)):
        dots.LIMITS_OF[0] = limits
        a, b = near_boundaries(33, 70, 29, seed, 32)
        (expected,) = call(CPU, "aten.mm", {}, [a, b], "rounded/1")
        for turned in (False, True):
            (got,) = call(gpu, "aten.mm", {}, [a, b], "rounded/1", turned=turned)
            assert same_bits(got, expected)


def test_a_recorded_product_reads_its_operands_again(library: ctypes.CDLL) -> None:
    gpu = device(library, 4)
    run = gpu.kernels(find_contract("rounded/1"))["aten.mm"].run
    pairs = [near_boundaries(9, 40, 5, seed, 32) for seed in range(3)]
    inputs = [there(gpu, x) for x in pairs[0]]
    out = new_tensor(gpu, TensorType("f32", (9, 5)))
    sequence = gpu.sequence([(run, {}, inputs, [out])])
    for pair in pairs:
        for x, tensor in zip(pair, inputs, strict=True):
            gpu.write(x, tensor)
        sequence.run()
        assert same_bits(gpu.host(out), call(CPU, "aten.mm", {}, list(pair), "rounded/1")[0])


@pytest.mark.parametrize("limits", [PartSizes(), SMALL], ids=["whole", "in parts"])
def test_a_log_of_its_products_is_followed_by_any_other(
    library: ctypes.CDLL, limits: PartSizes, tmp_path: Path
) -> None:  # NUMERICS 14.5, 14.6
    batch = everything(5, 29)
    made, gpu = program(29, batch, every_operator), device(library, 5)
    dots.LIMITS_OF[0] = limits
    recorded = Run(tmp_path / "there", made, batch, device=gpu)
    ours = Run(tmp_path / "ours", made, batch, device=emulated_gpu(5))
    for run, followers in ((recorded, (CPU, emulated_gpu(6))), (ours, (gpu,))):
        for follower in followers:
            found, outputs, digest = run.follow(device=follower)
            assert not found.findings and same(outputs, run.outputs) and digest == run.digest


@pytest.mark.parametrize("limits", ["whole", "in parts"])
def test_integers_in_binary64(library: ctypes.CDLL, limits: str) -> None:  # NUMERICS 17.8
    """`exact/1` by the library's products: the golden vectors, and the probe's own cases."""
    gpu = device(library, 5)
    FORCED.way = "binary64"
    if limits == "in parts":
        FORCED.laid, FORCED.results = 9000, 700
    try:
        for group, contract in EXACT.items():
            before = library.tallystick_test_calls()
            cases = fmt.load(group, KINDS, EXACT_ROOT, contract)
            found = check_cases(gpu, group, cases, contract=contract)
            assert len(found.operators) == 5 and found.wrong == []
            assert library.tallystick_test_calls() > before + 50
    finally:
        vars(FORCED).update(vars(ForcedWay()))
    driver: Any = gpu.driver
    assert "rounded_product" not in driver.launched
    driver.check()
