"""Training by stock kernels without a log, to compare with the published method.

With float32 kernels it is ordinary training, which differs from one kind of hardware to the next.
With float64 kernels each result is rounded, and no log says which way a doubtful one went.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from tallystick.contracts.replay.published.follow import round_unlogged
from tallystick.contracts.replay.sections import sections_of
from tallystick.contracts.replay.stock.stock import Stock
from tallystick.devices.device import Run
from tallystick.errors import UsageError
from tallystick.numerics.contracts import MAX_BITS, find_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import Attrs
from tallystick.program.ir import Node, Program

Array = np.ndarray


class Float32(Stock):
    """torch's float32 kernels: ordinary training."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the operands: their own."""
        return torch.float32


class Unlogged:
    """Kernels of an executor: every f32 output but data movement is R(x), where x is `stock`'s."""

    def __init__(self, program: Program, stock: Stock, bits: int = MAX_BITS) -> None:
        self.stock = stock
        self.bits = bits
        if stock.dtype == torch.float32 and bits != MAX_BITS:
            raise UsageError("float32 kernels round to float32.", f"Leave bits at {MAX_BITS}.")
        covered = sections_of(program, find_contract("replay/1;form=published"))
        self._covered = {(section.node, section.output) for section in covered}

    def begin(self, step: int) -> None:
        """Before each step, as logged steps have it."""
        self.stock.prepare()

    def kernels(self, index: int, node: Node, spec: OpSpec) -> Run | None:
        """The executor's hook."""
        if not any((index, out) in self._covered for out in range(len(node.out_types))):
            return None

        def run(attrs: Attrs, inputs: Sequence[Array | None], given: Sequence[Array]) -> None:
            found = self.stock.compute(spec, attrs, inputs, given)
            for x, out in zip(found, given, strict=True):
                if x is not None:
                    round_unlogged(x, self.bits, out)

        return run
