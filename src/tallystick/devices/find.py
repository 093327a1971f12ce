"""Devices by the names that people give them, and the context that computes on one."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device
from tallystick.errors import EnvironmentRefusedError
from tallystick.numerics.contracts import parse_contract


@lru_cache(maxsize=8)
def _gpu(ordinal: int) -> Device:
    """One object for a GPU in a process: its tensors and its turns belong to it."""
    # Imported late: the processor needs none of it.
    from tallystick.devices.cuda.device import Cuda
    from tallystick.devices.cuda.nvidia import NvidiaDriver

    return Cuda(NvidiaDriver(ordinal))


@lru_cache(maxsize=8)
def _torch_gpu(name: str) -> Device:
    try:
        from tallystick.devices.torch import TorchDevice
    except ImportError as error:
        raise EnvironmentRefusedError(
            "The published form computes on a GPU with torch, which is missing.",
            'Install it with: pip install "tallystick[train]", or compute with --device cpu.',
        ) from error
    return TorchDevice(name)


def find_device(name: str, contract: str) -> Device:
    """The device called `name` ("cpu", "cuda", "cuda:1") for steps under `contract`.

    Under the published form of replay/1 a GPU computes with torch's kernels (NUMERICS 14.9), else
    with this package's. Raises UsageError for another name, EnvironmentRefusedError where the
    machine has no such device, UnsupportedVersionError for an unknown contract.
    """
    if name == "cpu":
        return CPU
    from tallystick.devices.cuda.nvidia import ordinal_of

    ordinal = ordinal_of(name)
    kind = parse_contract(contract).kind_on_gpu
    return _torch_gpu(f"cuda:{ordinal}") if kind == "torch" else _gpu(ordinal)


def context_on(
    name: str, contract: Callable[[], str], threads: int | None = None
) -> ExecutionContext:
    """A context on the device called `name`. Raises as find_device and ExecutionContext.

    `contract` is asked only where the device depends on it: to ask may mean to read a job's file.
    """
    if name == "cpu":
        return ExecutionContext(threads)
    return ExecutionContext(threads, device=find_device(name, contract()))
