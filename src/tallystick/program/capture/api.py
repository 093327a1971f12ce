"""`capture`, `capture_eval`, `capture_forward`: from a torch module to a program.

Capture does not change the weights: tracing runs on meta tensors, and a module built on the meta
device gives the same program. State slots are `param.<name>`, `buffer.<name>` and `opt.…` (PROGRAM
1.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer as TorchOptimizer

from tallystick.errors import UsageError
from tallystick.numerics.contracts import ORDERED_1, resolve_contract
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.capture.batch import meta_batch
from tallystick.program.capture.between import LossCalls, evaluation_mode, joined, refuse_shared
from tallystick.program.capture.by_step import at_every_pass
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.first_calls import FirstCall
from tallystick.program.capture.first_step import FirstStep
from tallystick.program.capture.guard import check_loss, check_mode
from tallystick.program.capture.known import At, KnownSteps
from tallystick.program.capture.micro import (
    MEAN,
    SUM,
    MicroBatches,
    mean_of_sums,
    micro_batches_of,
)
from tallystick.program.capture.model import TorchModel, declare, loss_and_metrics, lower
from tallystick.program.capture.plain import original, uncompiled
from tallystick.program.capture.settled import settled_trace
from tallystick.program.capture.step import BuiltStep, emit_probes, emit_step
from tallystick.program.capture.stock_instances import (
    all_described,
    refused_without_group,
    without_group,
)
from tallystick.program.capture.trace import BatchLoss, Trace, TraceRequest, trace
from tallystick.program.capture.updates import (
    Groups,
    StepFunction,
    belongs,
    refuse_never_updated,
    without_updates,
)
from tallystick.program.check import check_program
from tallystick.program.expand import expand, step_batch_types
from tallystick.program.ir import Program, Value
from tallystick.program.state import ModuleNames
from tallystick.program.tables import Scalar
from tallystick.program.update import EMA, Clip, Optimizers, SlotRule


@dataclass(frozen=True)
class CapturedStep:
    """A captured training step.

    `initial_state` has every state slot as a C-contiguous numpy array, or is None where the
    module had no weights (meta device). `slot_rules` gives the first values of optimizer slots.
    `untrained` are parameters that require gradients but do not influence the loss. The program
    passes them through unchanged. `first_step` compares a job's first step with the module.
    `names` are those of its state_dict where they are not those of the slots. `batch` has a whole
    step's types. `micro_batches` says how many the step was captured for, None where its program is
    a text 1. `outside` has the tensors outside of the module that are slots (PROGRAM 5.20).
    `not_followed` names what could not be followed (PROGRAM 5.19), for a job's `about`. `calls` are
    those that were traced.
    """

    program: Program
    initial_state: dict[str, np.ndarray] | None
    batch: dict[str, TensorType]
    scalars: dict[str, Scalar]
    slot_rules: dict[str, SlotRule] = field(default_factory=dict)
    untrained: tuple[str, ...] = ()
    first_step: FirstStep | None = field(default=None, repr=False, compare=False)
    names: ModuleNames = field(default_factory=ModuleNames)
    micro_batches: int | None = None
    outside: Carried = field(default_factory=Carried.nothing, repr=False, compare=False)
    not_followed: str = ""
    calls: LossCalls | None = field(default=None, repr=False, compare=False)

    def state_for(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The initial state around `weights`: every `param.` and `buffer.` slot by name."""
        state = {name: np.asarray(array, order="C") for name, array in weights.items()}
        for name, rule in self.slot_rules.items():
            if rule.copies is None:
                state[name] = np.full(rule.type.shape, rule.initial, DTYPES[rule.type.dtype])
            elif rule.copies in state:
                state[name] = state[rule.copies].copy()
        missing = sorted(set(self.program.state_types) - set(state))
        if missing:
            raise UsageError(
                f"The weights contain no {missing[0]}.",
                "Give an array for every parameter and buffer of the module.",
            )
        return {name: state[name] for name in self.program.state_types}


def _finish(
    b: Builder, outputs: Mapping[str, Value], carried: Mapping[str, Value] | None = None
) -> Program:
    program = canonicalize(b.finish(outputs, carried))
    check_program(program)
    return program


def capture(
    module: nn.Module,
    loss: BatchLoss | StepFunction,
    batch: Mapping[str, Any],
    optimizer: Optimizers | TorchOptimizer | Mapping[str, Optimizers | TorchOptimizer],
    *,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    grad_norm: bool = False,
    ema: EMA | None = None,
    outputs_grads: bool = False,
    contract: str = ORDERED_1,
    mode: str = "train",
    micro_batches: int | None = None,
    loss_over: str = MEAN,
    trains: str | None = None,
) -> CapturedStep:
    """Capture one training step: forward, loss, backward, optimizer update.

    `loss(module, batch)` gets a dict of tensors and returns a scalar f32 tensor, or that and a
    dict of named metrics. With a dict of optimizers (by submodule or parameter) it is a step
    function `loss(module, batch, update)` that calls `update(name, loss)` once or more for each
    (PROGRAM 5.16). `batch` names example tensors, meta tensors, or (shape, dtype) pairs.
    `mode` says which mode the module is in, "train" or "eval": capture refuses another one and
    switches none, so submodules keep theirs. Two traces must be equal. `clip_norm` clips the
    global gradient norm and reports it as `metric.grad_norm` (that of update N as
    `metric.grad_norm.N`); `grad_norm` reports it without clipping. `clip_value` clips each element,
    before the norm. `ema` keeps an average of the trained parameters. With `outputs_grads` the
    program also outputs `grad.<parameter>` (`grad.N.<parameter>`). An optimizer of torch.optim, or
    transformers' Adafactor, is read with its groups and options. `contract` changes the
    program's meaning, not its nodes.

    With `micro_batches` the step runs over that many parts of the batch, one after the other, and
    updates once (PROGRAM 6.10). The program does not depend on their number, but on their size.
    `loss_over` "mean" takes the mean of their losses; with "sum" the loss function returns
    (sum, count), or (sum, count, metrics), and the sums of all are divided by the sum of the
    counts.

    With `trains`, the path of a submodule or the name of a parameter, the step trains that one
    alone and passes the others through. Its rate and its optimizer's slots have that name, so that
    programs which take turns in one job stand beside each other.

    Raises UsageError when the model cannot become a program, and UnsupportedOperatorError,
    naming operator and module path, for an operator the contract does not define.
    """
    prepared = prepare(
        module,
        loss,
        batch,
        optimizer,
        clip=Clip(clip_norm, clip_value, grad_norm),
        ema=ema,
        outputs_grads=outputs_grads,
        contract=contract,
        mode=mode,
        micro_batches=micro_batches,
        loss_over=loss_over,
        trains=trains,
    )
    return prepared.step(*prepared.traced(prepared.request()))


@dataclass(frozen=True)
class Preparation:
    """A step that is to be captured: once, or for several training steps (PROGRAM 5.21)."""

    model: TorchModel
    loss: BatchLoss | StepFunction
    batch: dict[str, Tensor]
    trainable: tuple[str, ...]
    rules: Any
    clip: Clip
    groups: Groups | None
    micro: MicroBatches | None
    ema: EMA | None
    outputs_grads: bool
    contract: str
    trains: str
    # Of a torch optimizer's: in no group, so the loss may not give them a gradient.
    ungrouped: tuple[str, ...] = ()
    # The first traces from the state of Python before the training.
    firsts: list[FirstCall] = field(default_factory=list, repr=False, compare=False)

    @property
    def module(self) -> nn.Module:
        return self.model.module

    @property
    def collect(self) -> Callable[[Any], dict[str, Tensor]]:
        """What makes named tensors of the loss's result."""
        return loss_and_metrics if self.micro is None else self.micro.collect

    def request(self, at: At | None = None) -> TraceRequest:
        """To trace the step; `at` a training step of which the loss gets the numbers."""
        return self.model.request(self.loss, self.batch, self.trainable, self.groups, at)

    def traced(self, request: TraceRequest) -> tuple[TraceRequest, Trace]:
        """Two traces that are equal, and the request with what the code keeps outside of the
        module. Raises as `capture`."""
        with uncompiled(self.module):
            found = settled_trace(replace(request, firsts=self.firsts), self.collect)
        if self.groups is not None:
            refuse_never_updated(self.groups, found[1].updates)
        return found

    def step(self, request: TraceRequest, traced: Trace) -> CapturedStep:
        """The captured step of that trace. Raises as `capture`."""
        for name in self.ungrouped:
            if f"grad.{name}" in traced.outputs:
                raise refused_without_group(name)
        b = Builder(resolve_contract(self.contract))
        request = replace(request, changed=traced.changed)
        model = self.model.carrying(request.outside)
        with uncompiled(self.module):
            step = emit_step(
                b, model, request, traced, self.rules, self.clip, self.micro, self.trains
            )
            if self.ema is not None:
                step = step.averaged(b, self.ema)
            made = _captured(b, model, request, step, self.outputs_grads, self.micro)
        modes = tuple((child, child.training) for child in self.module.modules())
        calls = LossCalls(self.module, self.collect, ((request, traced),), modes=modes)
        return replace(made, not_followed="; ".join(traced.notes), calls=calls)


def prepare(
    module: nn.Module,
    loss: BatchLoss | StepFunction,
    batch: Mapping[str, Any],
    optimizer: Optimizers | TorchOptimizer | Mapping[str, Optimizers | TorchOptimizer],
    *,
    clip: Clip,
    ema: EMA | None = None,
    outputs_grads: bool = False,
    contract: str = ORDERED_1,
    mode: str = "train",
    micro_batches: int | None = None,
    loss_over: str = MEAN,
    trains: str | None = None,
) -> Preparation:
    """What `capture` is given, checked and read. Raises UsageError."""
    module = original(module)
    check_loss(loss)
    with uncompiled(module):
        model = TorchModel.of(module)
        check_mode(module, mode)
        trainable = tuple(
            k
            for k, v in model.parameters.items()
            if v.requires_grad and (trains is None or belongs(k, trains))
        )
        if trains is not None and not trainable:
            raise UsageError(
                f"No parameter that requires a gradient belongs to trains={trains!r}.",
                "Name a submodule's path or a parameter of the module.",
            )
        if not trainable:
            raise UsageError(
                "No parameter requires a gradient.", "Unfreeze one, or use capture_eval."
            )
        groups = None
        parameters = {k: model.parameters[k] for k in trainable}
        ungrouped = without_group(optimizer, parameters)
        owned = {k: p for k, p in parameters.items() if k not in ungrouped}
        rules = all_described(optimizer, owned)
        micro = micro_batches_of(micro_batches, loss_over, isinstance(rules, Mapping))
        if isinstance(rules, Mapping):
            if trains is not None:
                raise UsageError(
                    "trains= cannot be used for a step with several optimizers, which trains each "
                    "of their parameters.",
                    "Leave trains out, or pass the program's only optimizer.",
                )
            groups = Groups.of(rules, trainable, clip)
        given = meta_batch(batch) if micro is None else micro.share(meta_batch(batch))
    return Preparation(
        model, loss, given, trainable, rules, clip, groups, micro, ema, outputs_grads, contract,
        trains or "", ungrouped,
    )  # fmt: skip


def _captured(
    b: Builder,
    model: TorchModel,
    request: TraceRequest,
    step: BuiltStep,
    outputs_grads: bool,
    micro: MicroBatches | None,
) -> CapturedStep:
    b.commit(step.next_state)
    outputs = step.outputs | step.next_state
    program = _finish(b, outputs | step.gradients if outputs_grads else outputs, step.carried)
    parts = 1 if micro is None else micro.parts
    expand(program, parts)  # the limits allow so many
    captured = CapturedStep(
        program,
        None,
        step_batch_types(program, parts),
        step.scalars,
        step.rules,
        tuple(sorted(set(request.trained) - step.trained)),
        FirstStep(
            request,
            lambda: _finish(b, outputs | step.gradients | step.updated | step.before, step.carried),
            lambda: _probes(model, request, step.rules, program.contract, micro),
            {path: child.training for path, child in model.module.named_modules()},
            step.updates,
            micro,
        ),
        model.names(),
        None if micro is None else micro.parts,
        request.outside,
    )
    weights = model.weights()
    if weights is None:
        return captured
    return replace(captured, initial_state=captured.state_for(weights))


def _probes(
    model: TorchModel,
    request: TraceRequest,
    rules: Mapping[str, SlotRule],
    contract: str,
    micro: MicroBatches | None,
) -> tuple[Program, list[str]]:
    """The forward pass with every module's output, and the modules' paths in their order."""
    paths: list[str] = []
    trained = request.trained if request.groups else ()
    at = None if request.at is None else replace(request.at, fixed=True)
    probing = replace(request, trained=trained, probes=paths, at=at)
    traced = trace(probing, loss_and_metrics if micro is None else micro.collect)
    b = Builder(contract)
    rules = rules if request.groups else {}
    return _finish(b, emit_probes(b, model, probing, traced, rules)), paths


@dataclass(frozen=True)
class _Evaluated:
    """A loss, or a forward pass, in evaluation mode."""

    model: TorchModel
    loss: Callable[..., Any]
    batch: dict[str, Tensor]
    collect: Callable[[Any], dict[str, Tensor]]
    known: Carried | None  # the tensors outside of the module that the training step carries

    @property
    def module(self) -> nn.Module:
        return self.model.module

    def request(self, at: At | None = None) -> TraceRequest:
        return self.model.request(self.loss, self.batch, at=at)

    def traced(self, request: TraceRequest) -> tuple[TraceRequest, Trace]:
        with uncompiled(self.module), evaluation_mode(self.module):
            return settled_trace(request, self.collect, self.known)


def _capture_without_step(
    module: nn.Module,
    run: Callable[..., Any],
    batch: Mapping[str, Any],
    collect: Callable[[Any], dict[str, Tensor]],
    contract: str,
    may_change: bool = True,
    passes: KnownSteps | None = None,
    step: CapturedStep | None = None,
) -> Pass:
    module = original(module)
    with uncompiled(module):
        known = None if step is None else step.outside
        evaluated = _Evaluated(TorchModel.of(module), run, meta_batch(batch), collect, known)
    at, ways = (None, ()) if passes is None else at_every_pass(evaluated, passes)
    request, traced = evaluated.traced(evaluated.request(at))
    if traced.changed and not may_change:
        raise UsageError(
            f"The validation loss changes the parameter {min(traced.changed)}, but committed "
            "validation must not change any.",
            "Give a validation loss that only computes (validation_loss=...).",
        )
    b = Builder(contract)
    model = evaluated.model.carrying(request.outside)
    state = declare(b, model, {}, evaluated.batch)
    outputs = lower(b, traced, state)
    kept = {name: v for name, v in outputs.items() if not name.startswith(("buffer.", "param."))}
    calls = LossCalls(module, collect, ((request, traced), *ways), evaluates=True)
    return Pass(_finish(b, kept), calls)


@dataclass(frozen=True)
class Pass:
    """A captured evaluation, and the calls that were traced."""

    program: Program
    calls: LossCalls

    def refuse_shared(
        self, steps: Sequence[CapturedStep], in_loop: bool = False, short: Pass | None = None
    ) -> None:
        """Raises UsageError where passes between these training steps share Python state with them
        (PROGRAM 5.19 f); `in_loop` where the loop is known, also a buffer. `short` is the pass of
        the last held-out records, where these are no whole batch."""
        found = [step.calls for step in steps if step.calls is not None]
        if found:
            calls = [self.calls, *([] if short is None else [short.calls])]
            refuse_shared(joined(found), joined(calls), in_loop)


def capture_pass(
    module: nn.Module,
    loss: BatchLoss | StepFunction,
    batch: Mapping[str, Any],
    contract: str = ORDERED_1,
    *,
    has_updates: bool = False,
    loss_over: str = MEAN,
    committed: bool = False,
    passes: KnownSteps | None = None,
    step: CapturedStep | None = None,
) -> Pass:
    """The loss of a batch in evaluation mode (no dropout), as a program without next state.

    It reads the `param.` and `buffer.` slots of the training state. `has_updates` says that `loss`
    is a step function: its updates do nothing here. With `loss_over` "sum" it returns (sum, count),
    as for `capture` with micro-batches. Output: `loss`, the batch's own quotient then. What the
    loss changes in place is changed for the batch alone; of a `committed` validation such a change
    of a parameter is refused. With `passes` the loss gets the numbers of each pass as its last
    argument, and is the same in all of them. `step` is the training step: its tensors outside of
    the module (PROGRAM 5.20) are read, and not written.
    """
    run: Any = without_updates(loss) if has_updates else loss  # type: ignore[arg-type]
    collect = mean_of_sums if loss_over == SUM else loss_and_metrics
    return _capture_without_step(
        module, run, batch, collect, resolve_contract(contract), not committed, passes, step
    )


def capture_eval(
    module: nn.Module,
    loss: BatchLoss | StepFunction,
    batch: Mapping[str, Any],
    contract: str = ORDERED_1,
    **given: Any,
) -> Program:
    """The program of `capture_pass`."""
    return capture_pass(module, loss, batch, contract, **given).program


def capture_forward(
    module: nn.Module,
    batch: Mapping[str, Any],
    forward: BatchLoss | None = None,
    contract: str = ORDERED_1,
    *,
    step: CapturedStep | None = None,
) -> Program:
    """The module's output in evaluation mode, as a program without next state.

    `forward(module, batch)` defaults to calling the module with the batch as keyword
    arguments. A single tensor becomes output `logits`; a dict becomes `output.<name>`. `step` as
    for `capture_eval`.
    """

    def collect(returned: Any) -> dict[str, Tensor]:
        if isinstance(returned, Tensor):
            return {"logits": returned}
        if isinstance(returned, dict) and all(isinstance(v, Tensor) for v in returned.values()):
            return {f"output.{k}": v for k, v in returned.items()}
        raise UsageError(
            "The forward function does not return a tensor or a dict of tensors.",
            "Return one tensor, or name several in a dict.",
        )

    run = forward or (lambda m, b: m(**b))
    contract = resolve_contract(contract)
    return _capture_without_step(module, run, batch, collect, contract, step=step).program
