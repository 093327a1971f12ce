"""Executes a program node by node on numpy arrays, in memory planned once.

All arrays a kernel sees are bound beforehand, so that a step is a loop over prepared calls. The
executor knows strides, storage and order; the operators' meaning is in `numerics`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from tallystick import _core
from tallystick.errors import CounterpartyError, MachineFaultError, TallystickError, UsageError
from tallystick.kernels import check_products, kernel_for, refused_operands
from tallystick.kernels.environment import exact_environment, reestablish
from tallystick.kernels.table import Run, kernel
from tallystick.numerics.contracts import parse_contract
from tallystick.numerics.registry import OpSpec
from tallystick.numerics.types import DTYPES, Attrs, TensorType, type_of
from tallystick.program.arena import ALIGNMENT
from tallystick.program.ir import BATCH_PREFIX, RNG_INPUT, SCALAR_PREFIX, Node, Program, op_spec
from tallystick.program.layout import Place
from tallystick.program.plan import Plan, PlanOptions, Step, make_plan

Array = np.ndarray
Tap = Callable[[int, Node, Sequence[Array | None], Sequence[Array]], None]
# A node's own kernel for this executor, or None for the contract's (a rounding log's session).
KernelHook = Callable[[int, Node, OpSpec], Run | None]
_Call = tuple[Callable[..., Any], Attrs, Sequence[Array | None], Sequence[Array], int]


class NodeError(UsageError):
    """A kernel refused what its operands hold, for example an index out of range.

    Whoever executes the step gets this error: it is a fault of the job or of the run. `node` is
    the node's index, `state_lost` says whether the step had begun to overwrite the state.
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


@dataclass(frozen=True)
class StepResult:
    """What a step gave. `loss` is a binary32 scalar or None where the program has no loss;
    `outputs` are copies of all outputs that are not state (`loss`, `metric.…`, `grad.…`,
    `logits`); `state` is the caller's dict, its arrays now the next state."""

    loss: np.float32 | None
    outputs: dict[str, Array]
    state: Mapping[str, Array]


@dataclass
class _Bound:
    """Arrays of one plan over one set of state arrays."""

    calls: list[_Call]
    taps: list[tuple[int, Sequence[Array | None], Sequence[Array]]]
    results: dict[str, Array]
    state_copies: list[tuple[str, Array]]
    first_state_write: int


def _empty(nbytes: int) -> Array:
    """Uninitialised bytes at an address divisible by `ALIGNMENT`."""
    raw = np.empty(nbytes + ALIGNMENT, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def _copy(_attrs: Attrs, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    _core.copy_strided(inputs[0], outputs[0])


class Executor:
    """Runs `program` any number of times.

    `threads` sets the core's thread count for the process (bits never depend on it). The state
    is a dict from slot name to a C-contiguous, writable array, which a step changes in place;
    several executors may share one state.

    `kernels(index, node, spec)` is asked once per node and binding, in no order, which kernel
    runs it; where it gives None, or there is no hook, the contract's own does. With a hook every
    node that is no view runs in every step, at its place in the plan's order, not the program's.
    """

    def __init__(
        self, program: Program, threads: int | None = None, kernels: KernelHook | None = None
    ) -> None:
        self.program = program
        self.threads = threads
        self.contract = parse_contract(program.contract)
        self._kernels = kernels
        self._rounds = any(n.op in self.contract.rounded_operators for n in program.nodes)
        self.plan = make_plan(program, PlanOptions(fold_constants=kernels is None))
        self.state_intact = True
        self._staged = {
            spec.name: np.zeros(spec.type.shape, DTYPES[spec.type.dtype])
            for spec in program.inputs
            if spec.kind != "state"
        }
        self._state_seen: tuple[Array, ...] = ()
        self._bound: _Bound | None = None
        self._arena: Array | None = None
        self._constants: dict[int, Array] = {}

    @property
    def arena_bytes(self) -> int:
        """Planned memory for everything that is neither state nor batch, in bytes."""
        return self.plan.arena_bytes

    # -- inputs --------------------------------------------------------------------------------

    def _stage(self, name: str, given: Any) -> None:
        staged = self._staged[name]
        array = np.asarray(given)
        if array.dtype != staged.dtype or array.shape != staged.shape:
            raise UsageError(
                f"Program input {name} must be {type_of(staged)}, got {array.dtype} "
                f"{list(array.shape)}.",
                "Check the batch against the shapes the program was captured with.",
            )
        np.copyto(staged, array)

    def _stage_all(
        self,
        batch: Mapping[str, Array],
        scalars: Mapping[str, float],
        rng: Sequence[int] | Array | None,
    ) -> None:
        for spec in self.program.inputs:
            if spec.kind == "batch":
                self._stage(spec.name, _item(batch, spec.name[len(BATCH_PREFIX) :], "batch"))
            elif spec.kind == "scalar":
                value = _item(scalars, spec.name[len(SCALAR_PREFIX) :], "scalars")
                self._stage(spec.name, np.float64(value))
            elif spec.kind == "rng":
                if rng is None:
                    raise UsageError("This program draws random numbers.", "Pass rng=(seed, step).")
                self._stage(RNG_INPUT, np.asarray(rng, dtype=np.int64))

    def _state_arrays(self, state: Mapping[str, Array]) -> tuple[Array, ...]:
        arrays = tuple(_item(state, name, "state") for name in self.program.state_types)
        if len(arrays) == len(self._state_seen) and all(
            a is b for a, b in zip(arrays, self._state_seen, strict=True)
        ):
            return arrays
        for (name, type_), array in zip(self.program.state_types.items(), arrays, strict=True):
            _check_state(name, type_, array, writable=bool(self.program.next_state))
        return arrays

    # -- memory --------------------------------------------------------------------------------

    def _bind(self, plan: Plan, arena: Array, state: Sequence[Array], tapped: bool) -> _Bound:
        """Every array of every call, as views of the arena, the state, and staged inputs."""
        state_of = dict(zip(self.program.state_types, state, strict=True))
        buffers: dict[int, Array] = {}
        for number, storage in enumerate(plan.storages):
            if storage.kind == "arena":
                buffers[number] = arena[storage.offset : storage.offset + storage.nbytes]
            elif storage.kind == "constant":
                if tapped or number not in self._constants:
                    self._constants[number] = _empty(storage.nbytes)
                buffers[number] = self._constants[number]
            else:
                name = storage.name
                buffers[number] = state_of[name] if storage.kind == "state" else self._staged[name]

        def array(place: Place) -> Array:
            dtype = DTYPES[place.dtype]
            if 0 in place.shape:
                return np.empty(place.shape, dtype)
            buffer, at = buffers[place.storage], place.offset
            made: Array = np.ndarray(place.shape, dtype, buffer, at, place.strides)
            return made

        def optional(place: Place | None) -> Array | None:
            return None if place is None else array(place)

        def calls_of(step: Step) -> list[_Call]:
            calls: list[_Call] = [
                (_copy, {}, [array(source)], [array(target)], step.index)
                for source, target in step.copies
            ]
            node = self.program.nodes[step.index]
            if step.runs and not kernel[node.op].is_view:
                run = self._kernel(step.index, node)
                outputs = [array(p) for p in step.outputs]
                calls.append(
                    (run, node.attrs, [optional(p) for p in step.inputs], outputs, step.index)
                )
            return calls

        for step in plan.constants:
            for run, attrs, inputs, outputs, index in calls_of(step):
                self._guarded(run, attrs, inputs, outputs, index)
        bound = _Bound([], [], {}, [], -1)
        for step in plan.steps:
            calls = calls_of(step)
            if step.writes_state and bound.first_state_write < 0:
                bound.first_state_write = len(bound.calls)
            bound.calls += calls
            if tapped:
                bound.taps.append(
                    (
                        len(bound.calls),
                        [optional(p) for p in step.inputs],
                        [array(p) for p in step.outputs],
                    )
                )
        if bound.first_state_write < 0:
            bound.first_state_write = len(bound.calls)
        bound.results = {name: array(place) for name, place in plan.results.items()}
        bound.state_copies = [(slot, array(place)) for slot, place in plan.state_copies]
        return bound

    def _kernel(self, index: int, node: Node) -> Run:
        spec = op_spec(node.op)
        chosen = None if self._kernels is None else self._kernels(index, node, spec)
        return chosen if chosen is not None else kernel_for(self.contract, spec)

    def _ready(self, state: tuple[Array, ...]) -> _Bound:
        same = len(state) == len(self._state_seen) and all(
            a is b for a, b in zip(state, self._state_seen, strict=True)
        )
        if self._bound is None or not same:
            if self._arena is None:
                self._arena = _empty(self.plan.arena_bytes)
            self._bound = self._bind(self.plan, self._arena, state, tapped=False)
            self._state_seen = state
        return self._bound

    # -- execution -----------------------------------------------------------------------------

    def _guarded(
        self,
        run: Callable[..., Any],
        attrs: Attrs,
        inputs: Sequence[Array | None],
        outputs: Sequence[Array],
        index: int,
    ) -> None:
        try:
            run(attrs, inputs, outputs)
        except Exception as error:
            self._fail(error, index)

    def _fail(self, error: Exception, index: int) -> NoReturn:
        """Name the node; say whose fault it is, and whether the state survived."""
        op, lost = self.program.nodes[index].op, not self.state_intact
        text = error.message if isinstance(error, TallystickError) else str(error)
        action = error.next_action if isinstance(error, TallystickError) else ""
        if lost:
            action = "The step had begun to change the state: go back to a stored checkpoint."
        if refused_operands(error):
            raise NodeError(f"Node {index} ({op}): {text}", action, index, lost) from error
        if isinstance(error, (CounterpartyError, UsageError)):
            raise error  # a rounding log is damaged, or this program calls a kernel wrongly
        raise NodeFaultError(
            f"Node {index} ({op}) could not be executed on this machine: "
            f"{text or type(error).__name__}",
            action or "Free memory, threads or disk space, then try again.",
            index,
            lost,
        ) from error

    @exact_environment()
    def run_step(
        self,
        state: Mapping[str, Array],
        batch: Mapping[str, Array],
        scalars: Mapping[str, float] | None = None,
        rng: Sequence[int] | Array | None = None,
        tap: Tap | None = None,
        advance: bool = True,
    ) -> StepResult:
        """Execute the program once; `state`'s arrays become the next state.

        `batch` and `scalars` are keyed without prefix, dtypes and shapes exactly as captured;
        `rng` is (seed, step). With `tap`, every node in program order, views and the commit
        node included, is reported as (index, node, inputs, outputs) with operands intact;
        the arrays are valid during the call only, and may be strided views; what a tap writes
        into outputs, later nodes read. Without `advance`, for tapped steps only, the state stays.

        Raises NodeError (a UsageError) where a kernel refuses what its operands hold,
        NodeFaultError (a CannotCheckError) where this machine fails, EnvironmentRefusedError where
        threads of a library that it needs flush subnormals or do not round to nearest (NUMERICS
        1.7). After any exception `state_intact` tells whether the state is as it was.
        """
        if tap is None and not advance:
            raise UsageError("Only a tapped step can leave the state as it is.", "Pass a tap.")
        arrays = self._state_arrays(state)
        self._stage_all(batch, scalars or {}, rng)
        if self.threads is not None:
            _core.set_threads(self.threads)
        if self._rounds:  # before any kernel: it is this machine's fault, and no node's
            check_products()
        self.state_intact = True
        if tap is None:
            bound = self._ready(arrays)
            self._run(bound)
        else:
            bound = self._run_tapped(arrays, tap)
        results = {name: array.copy() for name, array in bound.results.items()}
        if advance:
            self._write_state(bound, state)
        loss = np.float32(results["loss"]) if "loss" in results else None
        self.state_intact = True
        return StepResult(loss, results, state)

    def _run(self, bound: _Bound) -> None:
        calls, index = bound.calls, 0
        try:
            # `index` names the node in the handler below.
            for run, attrs, inputs, outputs, index in calls[: bound.first_state_write]:  # noqa: B007
                run(attrs, inputs, outputs)
            self.state_intact = bound.first_state_write == len(calls)
            for run, attrs, inputs, outputs, index in calls[bound.first_state_write :]:  # noqa: B007
                run(attrs, inputs, outputs)
        except Exception as error:
            self._fail(error, index)

    def _run_tapped(self, state: tuple[Array, ...], tap: Tap) -> _Bound:
        """Program order, nothing overwritten before the tap has seen it; more memory."""
        options = PlanOptions(reuse=False, hoist=False, fold_constants=False)
        plan = make_plan(self.program, options)
        bound = self._bind(plan, _empty(plan.arena_bytes), state, tapped=True)
        start = 0
        for step, (end, inputs, outputs) in zip(plan.steps, bound.taps, strict=True):
            for call in bound.calls[start:end]:
                self._guarded(*call)
            start = end
            tap(step.index, self.program.nodes[step.index], inputs, outputs)
            reestablish()  # a tap is foreign code (NUMERICS 1.7)
        return bound

    def _write_state(self, bound: _Bound, state: Mapping[str, Array]) -> None:
        """Copies the next state that could not be written in place."""
        if not bound.state_copies:
            return
        # A next value may be another slot's old array, so read everything before writing.
        own = [array for _, array in bound.state_copies]
        shared = [any(np.may_share_memory(a, s) for s in state.values()) for a in own]
        sources = [a.copy() if alias else a for a, alias in zip(own, shared, strict=True)]
        self.state_intact = False
        for (slot, _), source in zip(bound.state_copies, sources, strict=True):
            np.copyto(state[slot], source)


def _item(mapping: Mapping[str, Any], name: str, what: str) -> Any:
    if name not in mapping:
        raise UsageError(f"{what} has no {name!r}, which the program reads.")
    return mapping[name]


def _check_state(name: str, type_: TensorType, array: Array, writable: bool) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != DTYPES[type_.dtype]:
        raise UsageError(f"State slot {name} must be a numpy array of {type_}.")
    if array.shape != type_.shape or not array.flags.c_contiguous:
        raise UsageError(f"State slot {name} must be C-contiguous {type_}, got {array.shape}.")
    if writable and not array.flags.writeable:
        raise UsageError(f"State slot {name} is read-only.", "Pass a writable copy.")
