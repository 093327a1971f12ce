"""The driver: the few things that a GPU does for us, and NVIDIA's own, through its bindings
(docs/adr/0016). Every other module of this room calls it.

The tests have a second driver, which runs the same kernel sources on the host
(tests/gpu/emulation).

One stream takes all work. Its calls are those of the CUDA driver API, so that the documentation of
that API says what each does.
"""

from __future__ import annotations

import ctypes
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from tallystick.devices.cuda.source import compiled, compiler_version, file_of, forget
from tallystick.errors import (
    DeviceLostError,
    EnvironmentRefusedError,
    MachineFaultError,
    UsageError,
)

Grid = tuple[int, int, int]


@dataclass
class Traffic:
    """Copies over the bus since the last reset: their number and bytes, by direction."""

    to_device: int = 0
    to_device_bytes: int = 0
    to_host: int = 0
    to_host_bytes: int = 0


class RecordedWork(Protocol):
    """Launches and copies on the device that were recorded once."""

    def replay(self) -> None:
        """Start all of them again, in their order, on the same addresses."""


class CudaDriver(Protocol):
    """One GPU and one queue of work on it. Work runs in the order in which it was given.

    Addresses are those of the device. Raises MemoryError where the device has no memory left,
    MachineFaultError where it failed, DeviceLostError where this process cannot use it any more.
    """

    @property
    def name(self) -> str:
        """The name for people and for reports, such as "cuda:0"."""

    @property
    def architecture(self) -> str:
        """The instruction set that the kernels are compiled for, such as "sm_90"."""

    @property
    def traffic(self) -> Traffic:
        """The copies over the bus."""

    def allocate(self, nbytes: int) -> int:
        """The address of uninitialised memory, divisible by 256."""

    def free(self, address: int) -> None:
        """Free what `allocate` gave, once the work given before has ended."""

    def to_device(self, host: np.ndarray, address: int) -> None:
        """Copy a C-contiguous host array. The array may change when the call has returned."""

    def to_host(self, address: int, host: np.ndarray) -> None:
        """Wait for all work given, then copy into a C-contiguous host array."""

    def move(self, source: int, target: int, nbytes: int) -> None:
        """Copy on the device, between places that do not overlap."""

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set every byte on the device."""

    def launch(self, kernel: str, grid: Grid, threads: int, params: bytes, shared: int = 0) -> None:
        """Start `kernel` in `grid` blocks of `threads` threads; `params` are its slots, `shared`
        the bytes of its dynamic shared memory."""

    def record(self, work: Callable[[], None]) -> RecordedWork:
        """Record the launches, moves and fills of `work`, without running them."""


LEAST_CAPABILITY = (8, 0)
_STATIC_SHARED = 48 * 1024  # more needs a kernel's leave
# After these every further call of the process fails: "the process must be terminated and
# relaunched" (CUDA driver API, CUresult); a bad memory cell ends a context too.
_FATAL = frozenset(
    f"CUDA_ERROR_{name}"
    for name in (
        "ASSERT", "CONTAINED", "CONTEXT_IS_DESTROYED", "ECC_UNCORRECTABLE", "EXTERNAL_DEVICE",
        "HARDWARE_STACK_ERROR", "ILLEGAL_ADDRESS", "ILLEGAL_INSTRUCTION", "INVALID_ADDRESS_SPACE",
        "INVALID_PC", "LAUNCH_FAILED", "LAUNCH_TIMEOUT", "MISALIGNED_ADDRESS",
        "MPS_CLIENT_TERMINATED", "NVLINK_UNCORRECTABLE", "TENSOR_MEMORY_LEAK",
    )
)  # fmt: skip
_NAME = re.compile(r"cuda(?::([0-9]{1,3}))?", re.ASCII)


@lru_cache(maxsize=1)
def _api() -> Any:
    """The bindings, with the driver's library loaded and started. Raises
    EnvironmentRefusedError."""
    try:
        from cuda.bindings import driver as api
    except ImportError as error:
        raise EnvironmentRefusedError(
            "This installation cannot use a GPU: the package cuda-bindings is missing.",
            'Install it with: pip install "tallystick[gpu]".',
        ) from error
    try:
        (result,) = api.cuInit(0)
    except Exception as error:  # the package's own class, where it finds no library
        raise EnvironmentRefusedError(
            "This machine has no NVIDIA driver.",
            "Install NVIDIA's driver, or compute with --device cpu.",
        ) from error
    if result != api.CUresult.CUDA_SUCCESS:
        raise EnvironmentRefusedError(
            f"NVIDIA's driver does not start: {result.name}.",
            "Look at nvidia-smi: is there a GPU, and is its driver new enough for cuda-bindings?",
        )
    return api


def _checked(answer: tuple[Any, ...], doing: str) -> Any:
    """The value of a call. Raises MemoryError, MachineFaultError, DeviceLostError."""
    result, *values = answer
    if result.value == 0:
        return values[0] if len(values) == 1 else tuple(values)
    if result.name == "CUDA_ERROR_OUT_OF_MEMORY":
        raise MemoryError(f"The GPU has no memory left ({doing}).")
    if result.name in _FATAL:
        raise DeviceLostError(
            f"The GPU failed ({doing}): {result.name}. This process cannot use it any more.",
            "Start the command again: a new process opens the GPU anew, and what was stored is "
            "there. Or compute with --device cpu.",
        )
    raise MachineFaultError(
        f"The GPU failed ({doing}): {result.name}.",
        "Run `tallystick doctor`; start the command again, or compute with --device cpu.",
    )


class _Graph:
    """A recording; freed with the object."""

    def __init__(self, owner: NvidiaDriver, graph: Any) -> None:
        self._owner, self._api = owner, owner.api
        try:
            answer = self._api.cuGraphInstantiate(graph, 0)
            self._executable = owner.checked(answer, "preparing a recording")
        finally:
            self._api.cuGraphDestroy(graph)
        weakref.finalize(self, _destroy, self._api, owner.context, self._executable)

    def replay(self) -> None:
        self._owner.enter()
        answer = self._api.cuGraphLaunch(self._executable, self._owner.stream)
        self._owner.checked(answer, "starting a recording")


def _destroy(api: Any, context: Any, executable: Any) -> None:
    """Free a recording. Nothing is checked here: an error would hide an earlier one."""
    api.cuCtxSetCurrent(context)
    api.cuGraphExecDestroy(executable)


class NvidiaDriver:
    """The GPU with number `ordinal`.

    Raises EnvironmentRefusedError where there is no such GPU or it is older than
    LEAST_CAPABILITY.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.api = api = _api()
        self.traffic = Traffic()
        self._lost: tuple[str, str] | None = None  # the words of the error that ended the context
        self._check_version()
        count = _checked(api.cuDeviceGetCount(), "counting GPUs")
        if ordinal >= count:
            raise EnvironmentRefusedError(
                f"There is no GPU {ordinal}; this machine shows {count}.",
                "Name another one, or set CUDA_VISIBLE_DEVICES.",
            )
        device = _checked(api.cuDeviceGet(ordinal), "finding the GPU")
        self.name = f"cuda:{ordinal}"
        self.model = _checked(api.cuDeviceGetName(128, device), "asking its name")
        self.model = self.model.split(b"\0")[0].decode(errors="replace").strip()
        kinds = api.CUdevice_attribute

        def attribute(name: str) -> int:
            kind = getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}")
            return int(_checked(api.cuDeviceGetAttribute(kind, device), "asking for a property"))

        self.capability = (
            attribute("COMPUTE_CAPABILITY_MAJOR"),
            attribute("COMPUTE_CAPABILITY_MINOR"),
        )
        if self.capability < LEAST_CAPABILITY:
            raise EnvironmentRefusedError(
                f"{self.model} has compute capability {self.capability[0]}.{self.capability[1]}; "
                f"the kernels need {LEAST_CAPABILITY[0]}.{LEAST_CAPABILITY[1]}.",
                "Use a newer GPU, or compute with --device cpu.",
            )
        self.total_bytes = int(_checked(api.cuDeviceTotalMem(device), "asking for its memory"))
        self.context = _checked(api.cuDevicePrimaryCtxRetain(device), "opening the GPU")
        self.enter()
        flag = api.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = _checked(api.cuStreamCreate(flag), "making a stream")
        self._modules: dict[str, Any] = {}
        self._functions: dict[str, Any] = {}
        self._allowed: dict[str, int] = {}

    def _check_version(self) -> None:
        """Code of a newer compiler does not load in an older driver."""
        driver = int(_checked(self.api.cuDriverGetVersion(), "asking for its version")) // 1000
        compiler = compiler_version()[0]
        if driver < compiler:
            raise EnvironmentRefusedError(
                f"NVIDIA's driver is of CUDA {driver}, and the kernels are compiled by CUDA "
                f"{compiler}.",
                "Update NVIDIA's driver, or compute with --device cpu.",
            )

    @property
    def architecture(self) -> str:
        """The name for the compiler, such as "sm_90"."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def enter(self) -> None:
        """Make this GPU the calling thread's: the API keeps one for each thread.

        Raises DeviceLostError, with the first fault's words, where this process has lost it.
        """
        if self._lost is not None:
            raise DeviceLostError(*self._lost)
        self.checked(self.api.cuCtxSetCurrent(self.context), "entering the GPU")

    def checked(self, answer: tuple[Any, ...], doing: str) -> Any:
        """The value of a call. Raises MemoryError, MachineFaultError, DeviceLostError."""
        try:
            return _checked(answer, doing)
        except DeviceLostError as error:
            self._lost = error.message, error.next_action
            raise

    # -- memory ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> int:
        self.enter()
        return int(self.checked(self.api.cuMemAlloc(nbytes), f"allocating {nbytes} bytes"))

    def free(self, address: int) -> None:
        # It waits for the work that was given. Nothing is checked: an error here would hide an
        # earlier one.
        self.api.cuCtxSetCurrent(self.context)
        self.api.cuMemFree(address)

    def memory(self) -> tuple[int, int]:
        """The GPU's free bytes and all its bytes, whoever uses them."""
        self.enter()
        free, total = self.checked(self.api.cuMemGetInfo(), "asking for its memory")
        return int(free), int(total)

    def to_device(self, host: np.ndarray, address: int) -> None:
        self.enter()
        self.traffic.to_device += 1
        self.traffic.to_device_bytes += host.nbytes
        answer = self.api.cuMemcpyHtoDAsync(address, host.ctypes.data, host.nbytes, self.stream)
        self.checked(answer, "copying to the GPU")
        # A copy from page-locked memory goes on after the call, and the array may change.
        self.wait()

    def to_host(self, address: int, host: np.ndarray) -> None:
        self.enter()
        self.traffic.to_host += 1
        self.traffic.to_host_bytes += host.nbytes
        answer = self.api.cuMemcpyDtoHAsync(host.ctypes.data, address, host.nbytes, self.stream)
        self.checked(answer, "copying from the GPU")
        self.wait()

    def wait(self) -> None:
        """Wait until all work given has ended. Raises where some of it failed."""
        self.checked(self.api.cuStreamSynchronize(self.stream), "waiting for the GPU")

    def move(self, source: int, target: int, nbytes: int) -> None:
        self.enter()
        answer = self.api.cuMemcpyDtoDAsync(target, source, nbytes, self.stream)
        self.checked(answer, "copying on the GPU")

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.enter()
        answer = self.api.cuMemsetD8Async(address, byte, nbytes, self.stream)
        self.checked(answer, "filling memory")

    # -- work --------------------------------------------------------------------------------------

    def _function(self, kernel: str) -> Any:
        if kernel not in self._functions:
            name = file_of(kernel)
            if name not in self._modules:
                self._modules[name] = self._load(name)
            answer = self.api.cuModuleGetFunction(self._modules[name], kernel.encode())
            self._functions[kernel] = self.checked(answer, f"finding {kernel}")
        return self._functions[kernel]

    def _load(self, name: str) -> Any:
        code = compiled(name, self.architecture)
        answer = self.api.cuModuleLoadData(code)
        if answer[0].value != 0:
            # A kept file may be damaged: once more, from the source.
            forget(name, self.architecture)
            answer = self.api.cuModuleLoadData(compiled(name, self.architecture))
        return self.checked(answer, f"loading {name}.cu")

    def launch(self, kernel: str, grid: Grid, threads: int, params: bytes, shared: int = 0) -> None:
        self.enter()
        function = self._function(kernel)
        if shared > max(_STATIC_SHARED, self._allowed.get(kernel, 0)):
            kind = self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self.checked(self.api.cuFuncSetAttribute(function, kind, shared), f"preparing {kernel}")
            self._allowed[kernel] = shared
        # A kernel has one parameter: an array of one pointer, to its bytes. The call copies them.
        held = ctypes.create_string_buffer(params, len(params))
        pointers = (ctypes.c_void_p * 1)(ctypes.addressof(held))
        answer = self.api.cuLaunchKernel(
            function, *grid, threads, 1, 1, shared, self.stream, ctypes.addressof(pointers), 0
        )
        self.checked(answer, f"starting {kernel}")

    def record(self, work: Callable[[], None]) -> _Graph:
        self.enter()
        api = self.api
        # Relaxed: memory that Python frees meanwhile is no part of the recording.
        mode = api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self.checked(api.cuStreamBeginCapture(self.stream, mode), "recording")
        try:
            work()
        except BaseException:
            result, graph = api.cuStreamEndCapture(self.stream)
            if result.value == 0:
                api.cuGraphDestroy(graph)
            raise
        return _Graph(self, self.checked(api.cuStreamEndCapture(self.stream), "recording"))


def ordinal_of(name: str) -> int:
    """The number of the GPU called `name` ("cuda" is 0, "cuda:1" is 1). Raises UsageError."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise UsageError(f"{name[:40]!r} is not a device.", "Use cpu, cuda, or cuda:N.")
    return int(found[1] or 0)
