"""cuBLAS's DGEMM as an admissible kernel (NUMERICS 14.3), where this machine has it.

A probe decides: a library that emulates binary64, or that computes with fewer bits, is not used.
The kernels of native/cuda compute then; both give the same bits (13.6).
"""

from __future__ import annotations

import ctypes
import site
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tallystick.devices.cuda.nvidia import CudaDriver
from tallystick.devices.cuda.tensor import Memory
from tallystick.errors import EnvironmentRefusedError

if TYPE_CHECKING:
    from tallystick.devices.cuda.device import Cuda
    from tallystick.products.cuda.dots import Wide

_VERSIONS = (13, 12)
_WORKSPACE = 32 << 20  # bytes; recordings need memory that stays
_PEDANTIC = 2  # CUBLAS_PEDANTIC_MATH
_PLAIN, _TURNED = 0, 1  # CUBLAS_OP_N, CUBLAS_OP_T
_MOST = (1 << 31) - 1  # of a size


class CublasProducts(Protocol):
    """A library's products in binary64."""

    @property
    def name(self) -> str:
        """The library, for people."""

    def multiply(self, a: Wide, b: Wide, w: int, batches: int, adds: bool) -> None:
        """w[z][i][j] = Σ over k of a[z](i,k)·b[z](j,k), row-major; added to w if `adds`. Nothing is
        empty."""


class Cublas:
    """cuBLAS on the queue of `driver`, a driver over NVIDIA's. Raises EnvironmentRefusedError where
    it does not start."""

    def __init__(self, library: ctypes.CDLL, driver: Any) -> None:
        self._library, self._driver = library, driver
        self._gemm = library.cublasDgemmStridedBatched
        whole, wide, pointer = ctypes.c_int, ctypes.c_longlong, ctypes.c_void_p
        number = ctypes.POINTER(ctypes.c_double)
        self._gemm.argtypes = (
            pointer, whole, whole, whole, whole, whole, number, pointer, whole, wide,
            pointer, whole, wide, number, pointer, whole, wide, whole,
        )  # fmt: skip
        driver.enter()
        self._handle, self._workspace = pointer(), 0
        self._checked(library.cublasCreate_v2(ctypes.byref(self._handle)), "starting")
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def _prepare(self) -> None:
        library, driver, pointer, whole = self._library, self._driver, ctypes.c_void_p, ctypes.c_int
        stream = pointer(int(driver.stream))
        self._checked(library.cublasSetStream_v2(self._handle, stream), "taking the stream")
        # After the stream: that call resets the workspace.
        self._workspace = driver.allocate(_WORKSPACE)
        answer = library.cublasSetWorkspace_v2(
            self._handle, pointer(self._workspace), ctypes.c_size_t(_WORKSPACE)
        )
        self._checked(answer, "taking its memory")
        self._checked(library.cublasSetMathMode(self._handle, _PEDANTIC), "setting its arithmetic")
        version = whole()
        self._checked(library.cublasGetVersion_v2(self._handle, ctypes.byref(version)), "asking")
        self.name = f"cuBLAS {version.value}"

    def close(self) -> None:
        """Give back what the library holds; it multiplies no more."""
        self._library.cublasDestroy_v2(self._handle)
        if self._workspace:
            self._driver.free(self._workspace)
            self._workspace = 0

    def _checked(self, status: int, doing: str) -> None:
        if status != 0:
            raise EnvironmentRefusedError(
                f"cuBLAS failed ({doing}): status {status}.",
                "Update nvidia-cublas, or remove it: the program's own kernels compute then.",
            )

    def _start(self, work: Callable[[], None]) -> None:
        """Start a call; the driver's recording takes it from the stream."""
        work()

    def multiply(self, a: Wide, b: Wide, w: int, batches: int, adds: bool) -> None:
        # cuBLAS is column-major: it computes wᵀ [n,m] = b·aᵀ.
        m, n, k = a.lines, b.lines, a.terms
        if max(m, n, k, batches) > _MOST:
            raise EnvironmentRefusedError(
                f"cuBLAS takes no product of {m} x {k} x {n}.", "Use smaller batches."
            )
        of_b, step_b = (_PLAIN, n) if b.lines_first else (_TURNED, k)
        of_a, step_a = (_TURNED, m) if a.lines_first else (_PLAIN, k)

        def work() -> None:
            self._driver.enter()
            one, start = ctypes.c_double(1.0), ctypes.c_double(1.0 if adds else 0.0)
            status = self._gemm(
                self._handle, of_b, of_a, n, m, k, ctypes.byref(one), b.address, step_b, n * k,
                a.address, step_a, m * k, ctypes.byref(start), w, n, m * n, batches,
            )  # fmt: skip
            self._checked(status, "multiplying")

        self._start(work)


class OnHost:
    """The library as products/probe.py sees it: host arrays in, host arrays out."""

    def __init__(self, products: CublasProducts, driver: CudaDriver) -> None:
        self.name = products.name
        self._products, self._driver = products, driver

    def mm(self, a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        """out = a·b, f64 [M,K]·[K,N] or batches of them."""
        from tallystick.products.cuda.dots import Wide

        held: list[Memory] = []  # free when the call has ended
        sides = []
        for x, terms_last in ((a, True), (b, False)):
            # As it lies in memory, so that each order is tried.
            as_it_is = x.strides[-1] <= x.strides[-2]
            laid = np.ascontiguousarray(x if as_it_is else x.swapaxes(-1, -2))
            held.append(Memory(self._driver, laid.nbytes))
            self._driver.to_device(laid, held[-1].address)
            lines, terms = x.shape[-2:] if terms_last else x.shape[:-3:-1]
            sides.append(Wide(held[-1].address, lines, terms, as_it_is != terms_last))
        made = Memory(self._driver, out.nbytes)
        batches = out.size // (out.shape[-1] * out.shape[-2])
        self._products.multiply(sides[0], sides[1], made.address, batches, False)
        self._driver.to_host(made.address, out)

    def sums(self, x: np.ndarray) -> np.ndarray:
        """The library adds nothing for us."""
        total: np.ndarray = np.add.reduce(np.ascontiguousarray(x), axis=1)
        return total


def _folders() -> Iterator[Path]:
    """The folders of NVIDIA's packages."""
    for base in {*site.getsitepackages(), site.getusersitepackages(), *sys.path}:
        for version in _VERSIONS:
            yield Path(base) / "nvidia" / f"cu{version}" / "lib"
        yield Path(base) / "nvidia" / "cublas" / "lib"


def find_library() -> ctypes.CDLL | None:
    """cuBLAS: of NVIDIA's package, else of the system. None where there is none."""
    for version in _VERSIONS:
        for folder in (*_folders(), None):
            names = [f"{part}.so.{version}" for part in ("libcublasLt", "libcublas")]
            paths = names if folder is None else [str(folder / name) for name in names]
            try:
                # The second needs the first.
                return [ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL) for path in paths][1]
            except OSError:
                continue
    return None


def refuse_unless_admissible(products: CublasProducts, driver: CudaDriver) -> None:
    """Raise EnvironmentRefusedError, which names the library, unless its products are admissible
    kernels (NUMERICS 14.3) that keep subnormals and round to nearest (1.7)."""
    from tallystick.products.probe import probe, probe_products

    there = OnHost(products, driver)
    probe(there)
    probe_products(products.name, there.mm, 1)


def admitted(driver: CudaDriver) -> CublasProducts | None:
    """cuBLAS on the driver's queue, if this machine has it and the probe admits it."""
    if not hasattr(driver, "stream"):
        return None  # no driver of NVIDIA's
    library = find_library()
    if library is None:
        return None
    try:
        products = Cublas(library, driver)
    except (EnvironmentRefusedError, AttributeError):  # AttributeError: a version without a call
        return None
    try:
        refuse_unless_admissible(products, driver)
    except EnvironmentRefusedError:
        products.close()
        return None
    return products


def search(device: Cuda) -> CublasProducts | None:
    """The library that multiplies in binary64 on `device`, looked for once; None where none is
    admitted."""
    if not device.searched:
        device.products, device.searched = admitted(device.driver), True
    return device.products
