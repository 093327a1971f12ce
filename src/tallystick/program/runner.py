"""What executes a program step by step, whatever way it does so, and the errors of a node that it
could not execute: the run is at fault, or this machine.

One small interface: a plain program (executor.py), one whose micro-batches come one after the other
(sectioned.py), and a worker's part of a step that several execute (run/distributed/step.py). Code
that holds a runner never asks for its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tallystick.devices.device import Run, Tensor
from tallystick.errors import MachineFaultError, UsageError
from tallystick.numerics.registry import OpSpec
from tallystick.program.ir import Node


class NodeError(UsageError):
    """A kernel refused the values of its operands, for example an index out of range.

    On every machine the step fails with this error: the job or the run is at fault. `node` is the
    node's index. `state_lost` says whether the step had begun to overwrite the state.
    """

    def __init__(self, message: str, next_action: str, node: int, state_lost: bool) -> None:
        super().__init__(message, next_action)
        self.node = node
        self.state_lost = state_lost


class NodeFaultError(MachineFaultError):
    """This machine could not execute a node: no memory, no thread, no disk, an interrupted call.

    `node` and `state_lost` are as in NodeError.
    """

    def __init__(self, message: str, next_action: str, node: int, state_lost: bool) -> None:
        super().__init__(message, next_action)
        self.node = node
        self.state_lost = state_lost


Tap = Callable[[int, Node, Sequence[Tensor | None], Sequence[Tensor]], None]
# A node's own kernel for this runner, or None for the contract's (a step with a rounding log).
KernelHook = Callable[[int, Node, OpSpec], Run | None]


@dataclass(frozen=True)
class StepInputs:
    """What a step reads beside the state.

    The keys of `batch` and `scalars` have no prefix. Dtypes and shapes are exactly as captured, in
    host arrays or tensors of the device. `rng` is (seed, step), or None for a program that draws
    nothing.
    """

    batch: Mapping[str, Any]
    scalars: Mapping[str, float] = field(default_factory=dict)
    rng: Sequence[int] | np.ndarray | None = None


@dataclass(frozen=True)
class Showing:
    """How a step is shown.

    `tap` sees every node in program order, views and the commit node included, as (index, node,
    inputs, outputs) with operands intact. The tensors are valid during the call only, and may be
    strided views. Later nodes read the values that a tap writes into outputs. Without `advance` the
    state stays as it is. Without `folded` a tap may get None for the operands of folds over
    micro-batches, which then need not be in memory together.
    """

    tap: Tap
    advance: bool = True
    folded: bool = True


@dataclass(frozen=True)
class StepResult:
    """The result of a step.

    `loss` is a binary32 scalar, or None where the program has no loss. `outputs` are copies of all
    outputs that are not state (`loss`, `metric.…`, `grad.…`, `logits`), on the host. `state` is the
    caller's dict, whose tensors now hold the next state."""

    loss: np.float32 | None
    outputs: dict[str, np.ndarray]
    state: Mapping[str, Tensor]


class Runner(ABC):
    """Executes one program any number of times."""

    @property
    @abstractmethod
    def arena_bytes(self) -> int:
        """The planned memory, in bytes, for all tensors that are neither state nor batch."""

    @property
    @abstractmethod
    def state_intact(self) -> bool:
        """Whether the state is as it was before the last step, after any exception."""

    @property
    def holds_folded(self) -> bool:
        """True if every step that is shown shows the operands of folds over micro-batches."""
        return True

    @abstractmethod
    def execute(
        self,
        state: Mapping[str, Tensor],
        inputs: StepInputs,
        showing: Showing | None = None,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        """Execute the program once; `state`'s tensors become the next state.

        `before_write` is called once, before the first byte of the state changes; until then other
        threads may read the state. A shown step calls it at its start, since a tap may write. An
        error of its own leaves the state as it is.

        Raises NodeError (a UsageError) where a kernel refuses the values of its operands,
        NodeFaultError (a CannotCheckError) where this machine fails, EnvironmentRefusedError where
        threads of a library that the step needs flush subnormals or do not round to nearest
        (NUMERICS 1.7).
        """

    def show_node(
        self, state: Mapping[str, Tensor], inputs: StepInputs, node: int, tap: Tap
    ) -> None:
        """Show `node`, which is no fold over micro-batches, with its operands. Other nodes that
        must be executed for it are shown too. The state stays as it is, and no other thread reads
        it meanwhile. Raises as `execute`."""
        self.execute(state, inputs, Showing(tap, advance=False, folded=False))

    def run_step(
        self,
        state: Mapping[str, Tensor],
        batch: Mapping[str, Any],
        scalars: Mapping[str, float] | None = None,
        rng: Sequence[int] | np.ndarray | None = None,
        tap: Tap | None = None,
        advance: bool = True,
        before_write: Callable[[], None] | None = None,
    ) -> StepResult:
        """`execute`, for who has the inputs apart."""
        if tap is None and not advance:
            raise UsageError("Only a tapped step can leave the state as it is.", "Pass a tap.")
        showing = None if tap is None else Showing(tap, advance)
        inputs = StepInputs(batch, scalars or {}, rng)
        return self.execute(state, inputs, showing, before_write)
