"""A second device on this machine: its tensors are nothing that the host could read by accident.

It computes with the processor's kernels in memory of its own, and counts what crosses to and from
the host. What holds tensors of it and forgets to ask the device for their bytes fails here, on a
machine without a GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from tallystick.commit.tensor import tensor_digest
from tallystick.devices.cpu import CPU
from tallystick.devices.device import Device, Kernel, Run
from tallystick.numerics.contracts import Contract
from tallystick.numerics.types import Attrs


class There:
    """Memory of the device, or a tensor in it."""

    __slots__ = ("_there",)

    def __init__(self, there: np.ndarray) -> None:
        self._there = there

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a tensor of another device was read on the host")


def _at(x: There) -> np.ndarray:
    assert isinstance(x, There), f"{type(x).__name__} is not a tensor of this device"
    return x._there


def _kernel_there(run: Run) -> Run:
    def there(attrs: Attrs, inputs: Sequence[There | None], outputs: Sequence[There]) -> None:
        run(attrs, [None if x is None else _at(x) for x in inputs], [_at(x) for x in outputs])

    return there


class Island(Device):
    """The device (devices/device.py). `crossed` counts calls and bytes in each direction."""

    kind = name = "island"
    architecture = ""
    takes_blocks = True
    hashes_beside = False

    def __init__(self) -> None:
        self.crossed: Counter[str] = Counter()
        self.freed = 0
        self._kernels = lru_cache(self._make)

    def _make(self, contract: Contract) -> Mapping[str, Kernel]:
        there = CPU.kernels(contract)
        return {op: replace(found, run=_kernel_there(found.run)) for op, found in there.items()}

    def kernels(self, contract: Contract) -> Mapping[str, Kernel]:
        return self._kernels(contract)

    def prepare(self, contract: Contract) -> None:
        CPU.prepare(contract)

    def allocate(self, nbytes: int) -> There:
        return There(CPU.allocate(nbytes))

    def free(self, buffer: There) -> None:
        _at(buffer)[...] = 0xA5  # whoever uses it afterwards notices
        self.freed += 1

    def view(
        self, base: There, offset: int, dtype: str, shape: Sequence[int], strides: Sequence[int]
    ) -> There:
        return There(CPU.view(_at(base), offset, dtype, shape, strides))

    def copy(self, source: There, target: There) -> None:
        CPU.copy(_at(source), _at(target))

    def write(self, host: np.ndarray, target: There) -> None:
        self._count("written", host)
        CPU.write(host, _at(target))

    def host(self, tensor: There) -> np.ndarray:
        found = np.array(_at(tensor), order="C")
        self._count("read", found)
        return found

    def digest(self, tensor: There) -> bytes:
        self.crossed["digests"] += 1
        return tensor_digest(_at(tensor))

    def digests(self, tensors: Sequence[There]) -> list[bytes]:
        return [self.digest(tensor) for tensor in tensors]

    def problem(self, tensor: object, dtype: str, shape: Sequence[int]) -> str:
        if not isinstance(tensor, There):
            return f"it is a {type(tensor).__name__}"
        return CPU.problem(tensor._there, dtype, shape)

    def writable(self, tensor: There) -> bool:
        return CPU.writable(_at(tensor))

    def _count(self, direction: str, array: np.ndarray) -> None:
        self.crossed[f"calls {direction}"] += 1
        self.crossed[f"bytes {direction}"] += array.nbytes
