"""A driver of `devices/cuda` without a GPU: it runs the kernel sources on the host.

The C++ compiler of this machine reads native/cuda/*.cu over the small emulation of
tests/gpu/emulation. Memory of the device is memory of the host here, with a pattern around each
allocation, and between the places of scratch memory, that finds writes out of bounds.

`make gpu-memcheck` looks for reads out of bounds too, of shared memory as well, for addresses that
are less aligned than the access, and for what C++ leaves undefined; `make gpu-racecheck` for races
(tests/gpu/emulation/races.hpp).
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

import numpy as np

from tallystick.devices.cuda.device import Cuda
from tallystick.devices.cuda.nvidia import Grid, Traffic
from tallystick.numerics.contracts import Contract

ROOT = Path(__file__).resolve().parents[1]
CUDA, EMULATION = ROOT / "native" / "cuda", ROOT / "tests" / "gpu" / "emulation"
BUILD = ROOT / "build" / "emulation"
INCLUDES = (ROOT / "native" / "include", CUDA, EMULATION)
# As the core's numeric flags (CMakeLists.txt).
FLAGS = (
    "-std=c++17 -O2 -fPIC -ffp-contract=off -fno-math-errno -fno-trapping-math "
    "-fno-strict-aliasing -fvisibility=hidden -DTS_ISA=emulated"
).split()
# How closely the emulation looks (the two commands above). What the compiler is told for every
# source, and for the kernels alone.
WATCH = os.environ.get("TALLYSTICK_EMULATION", "")
_ALL_FLAGS, _KERNEL_FLAGS = {
    "": ("", ""),
    # Fibers change stacks, which the address sanitizer's watch over a stack does not follow.
    "memcheck": (
        "-g1 -fsanitize=address,undefined,float-cast-overflow -fno-sanitize=vptr "
        "-fno-sanitize-recover=all --param asan-stack=0",
        "",
    ),
    "racecheck": ("-g1 -DTS_RACECHECK", "-fsanitize=thread"),
}[WATCH]
FLAGS += _ALL_FLAGS.split()
_GUARD, _GUARD_BYTE = 256, 0x5C


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CXX", "c++"))


def _sources() -> list[Path]:
    return [*sorted(CUDA.glob("*.cu")), *sorted(EMULATION.glob("*.c*"))]


@lru_cache
def _headers() -> bytes:
    """A digest of all headers, in which any source may include any."""
    found = hashlib.sha256()
    for folder in INCLUDES:
        for path in sorted(folder.rglob("*.hpp")):
            found.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return found.digest()


def _flags(source: Path) -> list[str]:
    """What the compiler is told for a source."""
    return [*FLAGS, *(_KERNEL_FLAGS.split() if source.suffix == ".cu" else ())]


def _key(source: Path, defines: tuple[str, ...]) -> str:
    """A digest of everything that an object file is made of."""
    how = repr((_compiler(), _flags(source), defines)).encode()
    return hashlib.sha256(how + _headers() + source.read_bytes()).hexdigest()[:20]


def _run(*command: str) -> None:
    subprocess.run([*_compiler(), *command], check=True)


def _object(source: Path, defines: tuple[str, ...]) -> Path:
    """The object file of a source, made if it is not there."""
    made = BUILD / f"{source.stem}-{_key(source, defines)}.o"
    if not made.exists():
        own = made.with_suffix(f".{os.getpid()}")
        flags = [*_flags(source), *(f"-D{d}" for d in defines), *(f"-I{i}" for i in INCLUDES)]
        _run(*flags, "-x", "c++", "-c", str(source), "-o", str(own))
        own.rename(made)
    return made


def built(defines: tuple[str, ...] = ()) -> Path:
    """The kernels, compiled for the host with the macros `defines`; from build/ if they are there.

    The file is also a CUDA driver library, `libcuda.so.1` in a folder of its own (libcuda.cpp).
    Raises CalledProcessError where a source does not compile.
    """
    keys = "".join(_key(source, defines) for source in _sources())
    made = BUILD / hashlib.sha256(keys.encode()).hexdigest()[:20] / "libcuda.so.1"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    # Test workers wait for one another here, instead of compiling the same sources.
    with open(BUILD / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(lambda source: _object(source, defines), _sources()))
            own = made.with_suffix(f".{os.getpid()}")
            sanitizers = [flag for flag in FLAGS if flag.startswith("-fsanitize=")]
            _run("-shared", *sanitizers, *map(str, objects), "-o", str(own))
            own.rename(made)
    return made


@lru_cache
def library(defines: tuple[str, ...] = ()) -> ctypes.CDLL:
    """What `built` made, loaded."""
    loaded = ctypes.CDLL(str(built(defines)))
    loaded.ts_emulation_fault.restype = ctypes.c_char_p
    loaded.ts_emulation_name.restype = ctypes.c_char_p
    loaded.ts_emulation_name.argtypes = [ctypes.c_size_t]
    loaded.ts_emulation_file.restype = ctypes.c_char_p
    loaded.ts_emulation_file.argtypes = [ctypes.c_size_t]
    loaded.ts_emulation_count.restype = ctypes.c_size_t
    loaded.ts_emulation_launch.argtypes = [
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_uint32),
        ctypes.c_uint32,
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint64,
    ]
    return loaded


def _closed(start: int, end: int, closed: bool = True) -> None:
    """The sanitizer reports every access of a kernel to these bytes from now on, or no more."""
    if WATCH == "memcheck" and end > start:
        name = f"__asan_{'' if closed else 'un'}poison_memory_region"
        getattr(library(()), name)(ctypes.c_void_p(start), ctypes.c_size_t(end - start))


class EmulationError(AssertionError):
    """A kernel did what no GPU allows."""


class _Recorded:
    def __init__(self, driver: EmulatedDriver, work: list[Callable[[], None]]) -> None:
        self._driver, self._work = driver, work

    def replay(self) -> None:
        self._driver.guard([])
        for call in self._work:
            call()


class EmulatedDriver:
    """The driver (devices/cuda/nvidia.py) over the emulation. `seed` decides the order of threads
    and blocks; every launch has another. `launched` counts launches by kernel."""

    name = "emulated"
    architecture = "emulated"

    def __init__(self, seed: int = 0, defines: tuple[str, ...] = ()) -> None:
        self.traffic = Traffic()
        self.launched: dict[str, int] = {}
        self.defines = defines
        self._library = library(defines)
        self._seed = seed
        self._memory: dict[int, tuple[np.ndarray, int]] = {}
        self._recording: list[Callable[[], None]] | None = None
        self._guarded: list[tuple[int, int]] = []

    def kernels(self) -> dict[str, str]:
        """The names of all kernels, each with the name of its file, without the ending."""
        made = self._library
        return {
            made.ts_emulation_name(i).decode(): Path(made.ts_emulation_file(i).decode()).stem
            for i in range(made.ts_emulation_count())
        }

    def allocate(self, nbytes: int) -> int:
        raw = np.full(nbytes + 2 * _GUARD + 256, _GUARD_BYTE, np.uint8)
        start = -(raw.ctypes.data + _GUARD) % 256 + _GUARD
        address = int(raw.ctypes.data + start)
        raw[start : start + nbytes] = 0xA7
        self._memory[address] = (raw, nbytes)
        _closed(address - _GUARD, address)
        _closed(address + nbytes, address + nbytes + _GUARD)
        return address

    def free(self, address: int) -> None:
        self._check(address)
        nbytes = self._memory[address][1]
        _closed(address - _GUARD, address + nbytes + _GUARD, False)
        del self._memory[address]

    def _check(self, address: int) -> None:
        raw, nbytes = self._memory[address]
        start = address - raw.ctypes.data
        if (raw[:start] != _GUARD_BYTE).any() or (raw[start + nbytes :] != _GUARD_BYTE).any():
            raise EmulationError("a kernel wrote outside of its memory")

    def check(self) -> None:
        """Raises EmulationError if anything was written out of bounds."""
        for address in self._memory:
            self._check(address)
        self._check_guarded()

    def _check_guarded(self) -> None:
        for start, end in self._guarded:
            _closed(start, end, False)
            if set(ctypes.string_at(start, end - start)) != {_GUARD_BYTE}:
                raise EmulationError("a kernel wrote outside of its scratch memory")

    def guard(self, places: list[tuple[int, int]]) -> None:
        """Watch these bytes, from an address to another, from now on; those before are looked at
        and let go. A recording's launches come later: they are watched when they run alone."""
        self._check_guarded()
        self._guarded = [] if self._recording is not None else places
        for start, end in self._guarded:
            ctypes.memset(start, _GUARD_BYTE, end - start)
            _closed(start, end)

    def _do(self, work: Callable[[], None]) -> None:
        if self._recording is None:
            work()
        else:
            self._recording.append(work)

    def to_device(self, host: np.ndarray, address: int) -> None:
        assert self._recording is None and host.flags.c_contiguous
        self.traffic.to_device += 1
        self.traffic.to_device_bytes += host.nbytes
        ctypes.memmove(address, host.ctypes.data, host.nbytes)

    def to_host(self, address: int, host: np.ndarray) -> None:
        assert self._recording is None and host.flags.c_contiguous
        self.traffic.to_host += 1
        self.traffic.to_host_bytes += host.nbytes
        ctypes.memmove(host.ctypes.data, address, host.nbytes)

    def move(self, source: int, target: int, nbytes: int) -> None:
        assert source + nbytes <= target or target + nbytes <= source
        self._do(lambda: ctypes.memmove(target, source, nbytes) and None)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._do(lambda: ctypes.memset(address, byte, nbytes) and None)

    def launch(self, kernel: str, grid: Grid, threads: int, params: bytes, shared: int = 0) -> None:
        def start() -> None:
            self._seed += 1
            self.launched[kernel] = self.launched.get(kernel, 0) + 1
            sizes = (ctypes.c_uint32 * 3)(*grid)
            name = kernel.encode()
            if self._library.ts_emulation_launch(
                name, sizes, threads, shared, params, len(params), self._seed
            ):
                raise EmulationError(self._library.ts_emulation_fault().decode())

        self._do(start)

    def record(self, work: Callable[[], None]) -> _Recorded:
        self._recording = []
        try:
            work()
            return _Recorded(self, self._recording)
        finally:
            self._recording = None


# The kernels that have passed a device's probe in this process, and the contract of each probe.
_PASSED: set[tuple[tuple[str, ...], Contract]] = set()
_planted: list[str] = []


class _Guarded(Cuda):
    """A pattern lies behind each place of the scratch memory."""

    driver: EmulatedDriver

    def prepare(self, contract: Contract) -> None:
        """As `Cuda` has it. Devices of the same kernels are probed once in a process, and all of
        them while a fault is planted."""
        kernels = (self.driver.defines, contract)
        if kernels in _PASSED and not _planted:
            self.probed.add(contract)
        super().prepare(contract)
        if not _planted:
            _PASSED.add(kernels)

    def scratch(self, nbytes: int) -> int:
        return self.places([nbytes])[0]

    def places(self, sizes: Sequence[int]) -> list[int]:
        self.driver.guard([])  # a larger memory may take the place of this one
        rooms = [-(-size // 256) * 256 + _GUARD for size in sizes]
        starts = [*accumulate(rooms, initial=super().scratch(sum(rooms)))]
        ends = [start + size for start, size in zip(starts, sizes, strict=False)]
        self.driver.guard(list(zip(ends, starts[1:], strict=True)))
        return starts[:-1]


def emulated_gpu(seed: int = 0, defines: tuple[str, ...] = ()) -> Cuda:
    """A device whose kernels run in the emulation."""
    return _Guarded(EmulatedDriver(seed, defines))


FAULTS = ("missing barrier", "race", "missing wait", "one bit")  # Fault, in native/cuda/device.hpp


@contextmanager
def planted(fault: str) -> Iterator[None]:
    """Kernels of the emulation that know this fault have it meanwhile."""
    library(()).ts_emulation_plant(1 + FAULTS.index(fault))
    _planted.append(fault)
    try:
        yield
    finally:
        _planted.pop()
        library(()).ts_emulation_plant(0)
