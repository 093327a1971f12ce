"""The published form's kernels on a torch device: results stay there, packed entries leave it.

`PublishedKernels` does the same on host arrays. A step copies to the host the packed entries of
what it records. Where the entries of a followed log change a value, the operands and results of
that call come to the host too, because the entries are judged there (NUMERICS 14.10).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from tallystick.contracts.replay.published.follow import (
    LoggedCall,
    PublishedFollow,
    PublishedRecord,
)
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import LoggedStep, NodeCall, NodeKernels
from tallystick.contracts.replay.stock import table
from tallystick.contracts.replay.stock.table import stock_of
from tallystick.numerics.types import DTYPES

if TYPE_CHECKING:
    from tallystick.contracts.replay.contract import Replay
    from tallystick.devices.device import Device

Tensor = torch.Tensor


class PublishedResident(NodeKernels):
    """The kernels of the nodes that have published sections, for tensors of `device`.

    `record` and `follow` are those of the host's kernels (kernels.py), whose attributes these
    share. Values, entries and findings are the same.
    """

    def __init__(
        self,
        logged: LoggedProgram,
        device: Device,
        record: PublishedRecord,
        follow: PublishedFollow,
    ) -> None:
        super().__init__(logged)
        self._device = device
        self._contract: Replay = logged.contract
        self.record, self.follow = record, follow

    def begin(self, step: LoggedStep) -> None:
        super().begin(step)
        if step.follows:
            self.follow.begin()

    def _run(self, step: LoggedStep, call: NodeCall) -> None:
        spec, attrs, inputs, outputs = call.spec, call.attrs, call.inputs, call.outputs
        found = stock_of(self._device).compute_there(spec, attrs, inputs, outputs)
        # Outputs may be written over operands, so every value is there before the first write.
        values = {
            out: self._settled(
                step, LoggedCall(spec, out, call.sections[out], attrs, (), ()), x, inputs
            )
            for out, x in enumerate(found)
            if x is not None
        }
        with torch.no_grad():
            for out, value in values.items():
                outputs[out].copy_(value)

    def _settled(
        self, step: LoggedStep, call: LoggedCall, x: Tensor, inputs: Sequence[Tensor | None]
    ) -> Tensor:
        """The value of an output, of which x (f64) is the stock kernel's result; its section is
        written."""
        with torch.no_grad():
            if not step.follows:
                value, packed = self._recorded(call, x)
            else:
                value, packed = self._followed(step, call, x, inputs)
        step.sink.published(call.number, packed.tobytes())
        return value

    def _recorded(self, call: LoggedCall, x: Tensor) -> tuple[Tensor, np.ndarray]:
        contract, name = self._contract, call.spec.name
        threshold, decimal = contract.threshold_of(name), contract.scale == "decimal"
        plus = self.record.plus(call)
        value, packed = table.log(x, threshold, decimal, contract.bits, plus)
        return value, self._device.host(packed)

    def _followed(
        self, step: LoggedStep, call: LoggedCall, x: Tensor, inputs: Sequence[Tensor | None]
    ) -> tuple[Tensor, np.ndarray]:
        packed = self.follow.section(step, call.number)
        if self.follow.records(call):
            return self._recorded(call, x)
        there = torch.from_numpy(packed).to(x.device)
        value, changed = table.follow(x, there, self._contract.bits, self.record.plus(call))
        if not changed:
            self.follow.unchanged(step, call)
            return value, packed
        on_host = self._device.host
        read = [None if operand is None else on_host(operand) for operand in inputs]
        # The judge of an entry asks for the outputs' types, and for room like theirs.
        node = self._logged.program.nodes[self._logged.sections[call.number].node]
        made = [np.empty(t.shape, DTYPES[t.dtype]) for t in node.out_types]
        judged = replace(call, inputs=read, outputs=made)
        out = np.empty(tuple(x.shape), np.float32)
        self.follow.settle(step, judged, np.ascontiguousarray(on_host(x)), out, packed)
        return torch.from_numpy(out).to(x.device), packed
