"""This machine's processor as a device: its tensors are numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache

import numpy as np

from tallystick.commit.tensor import tensor_digest
from tallystick.contracts.ordered.cpu.table import kernel
from tallystick.devices.arrays import copy
from tallystick.devices.device import ALIGNMENT, Device
from tallystick.devices.kernel import Kernel, Run
from tallystick.devices.sequence import Call, InTurn, Sequenced
from tallystick.numerics.contracts import Contract
from tallystick.numerics.types import DTYPES, Attrs


def _rounded(op: str, bits: int, ordinary: Run) -> Run:
    """The kernel of `op`, rounded to `bits` where its operands make it a rounded operator
    (NUMERICS 13.1)."""

    def run(
        attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
    ) -> None:
        # Imported late: the search for numpy's BLAS is needed only where a rounded operator runs.
        from tallystick.contracts.rounded.cpu.operators import is_rounded, run_rounded
        from tallystick.contracts.rounded.cpu.pieces import exactly

        if is_rounded(op, inputs):
            run_rounded(op, exactly(bits), attrs, inputs, outputs)
        else:
            ordinary(attrs, inputs, outputs)

    return run


def _exact(op: str, width: int) -> Run:
    """The kernel of `op` of the dot class by sums of integers (NUMERICS 17)."""

    def run(
        attrs: Attrs, inputs: Sequence[np.ndarray | None], outputs: Sequence[np.ndarray]
    ) -> None:
        # Imported late, as above.
        from tallystick.contracts.exact.cpu.operators import exact_kernel

        exact_kernel[op](attrs, inputs, outputs, width)

    return run


@lru_cache(maxsize=64)
def _kernels(contract: Contract) -> Mapping[str, Kernel]:
    table = dict(kernel)
    for op in contract.rounded_operators & table.keys():
        table[op] = replace(table[op], run=_rounded(op, contract.bits, table[op].run))
    for op in contract.exact_operators & table.keys():
        table[op] = replace(table[op], run=_exact(op, contract.width))
    return table


class Processor:
    """The processor. Its kernels are the core's; for rounded operators they use numpy's BLAS."""

    name = "cpu"
    architecture = ""
    takes_blocks = True
    hashes_beside = True

    def kernels(self, contract: Contract) -> Mapping[str, Kernel]:
        return _kernels(contract)

    def alone(self) -> AbstractContextManager[object]:
        return nullcontext()

    def sequence(self, calls: Sequence[Call]) -> Sequenced:
        return InTurn(calls)

    def prepare(self, contract: Contract) -> None:
        if contract.rounded_operators:
            # Imported late: the search for numpy's BLAS is needed only for rounded operators.
            from tallystick.products.engines import current_engine

            current_engine()
        elif contract.exact_operators:
            from tallystick.contracts.exact.cpu.engines import prepare

            prepare(contract.width)

    def allocate(self, nbytes: int) -> np.ndarray:
        raw = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return raw[start : start + nbytes]

    def free(self, buffer: np.ndarray) -> None:
        pass  # numpy's own count of references frees it

    def view(
        self,
        base: np.ndarray,
        offset: int,
        dtype: str,
        shape: Sequence[int],
        strides: Sequence[int],
    ) -> np.ndarray:
        if 0 in shape:
            return np.empty(tuple(shape), DTYPES[dtype])
        made: np.ndarray = np.ndarray(tuple(shape), DTYPES[dtype], base, offset, tuple(strides))
        return made

    def copy(self, source: np.ndarray, target: np.ndarray) -> None:
        copy(source, target)

    def write(self, host: np.ndarray, target: np.ndarray) -> None:
        np.copyto(target, host)

    def host(self, tensor: np.ndarray) -> np.ndarray:
        return tensor

    def digest(self, tensor: np.ndarray) -> bytes:
        return tensor_digest(tensor)

    def digests(self, tensors: Sequence[np.ndarray]) -> list[bytes]:
        return [tensor_digest(tensor) for tensor in tensors]

    def problem(self, tensor: object, dtype: str, shape: Sequence[int]) -> str:
        if not isinstance(tensor, np.ndarray) or tensor.dtype != DTYPES[dtype]:
            return f"it must be a numpy array of {dtype}"
        if tensor.shape != tuple(shape) or not tensor.flags.c_contiguous:
            return f"it must be C-contiguous {dtype}{list(shape)}, got {tensor.shape}"
        return ""

    def writable(self, tensor: np.ndarray) -> bool:
        return bool(tensor.flags.writeable)


CPU: Device = Processor()
