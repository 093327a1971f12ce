"""`capture`, `capture_eval`, `capture_forward`: from a torch module to a program.

Capture does not change the weights: tracing runs on meta tensors, and a module built on the meta
device gives the same program. State slots are `param.<name>`, `buffer.<name>` and `opt.…` (PROGRAM
1.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.numerics.contracts import ORDERED_1, resolve_contract
from tallystick.numerics.types import DTYPES, TensorType
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.capture.batch import batch_types, meta_batch
from tallystick.program.capture.first_step import FirstStep
from tallystick.program.capture.guard import check_mode
from tallystick.program.capture.lower import Lowerer, type_of_tensor
from tallystick.program.capture.plain import original, uncompiled
from tallystick.program.capture.settled import settled_trace
from tallystick.program.capture.trace import BatchLoss, Request, Trace, meta_like, trace
from tallystick.program.check import check_name, check_program
from tallystick.program.ir import Program, Value
from tallystick.program.optimizers import Optimizer
from tallystick.program.update import LEARNING_RATE, SlotRule, emit_update, optimizer_slots


@dataclass(frozen=True)
class CapturedStep:
    """A captured training step.

    `initial_state` has every state slot as a C-contiguous numpy array, or is None where the
    module had no weights (meta device). `slot_rules` gives the first values of optimizer slots.
    `untrained` are parameters that require gradients but do not influence the loss. The program
    passes them through unchanged. `first_step` compares a job's first step with the module.
    """

    program: Program
    initial_state: dict[str, np.ndarray] | None
    batch: dict[str, TensorType]
    scalars: dict[str, float | str]
    slot_rules: dict[str, SlotRule] = field(default_factory=dict)
    untrained: tuple[str, ...] = ()
    first_step: FirstStep | None = field(default=None, repr=False, compare=False)

    def state_for(self, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The initial state around `weights`: every `param.` and `buffer.` slot by name."""
        state = {name: np.asarray(array, order="C") for name, array in weights.items()}
        for name, rule in self.slot_rules.items():
            state[name] = np.full(rule.type.shape, rule.initial, DTYPES[rule.type.dtype])
        missing = sorted(set(self.program.state_types) - set(state))
        if missing:
            raise UsageError(
                f"The weights have no {missing[0]}.",
                "Give an array for every parameter and buffer of the module.",
            )
        return {name: state[name] for name in self.program.state_types}


@dataclass(frozen=True)
class _Model:
    """The module's parameters and buffers under their first names; tied ones appear once."""

    module: nn.Module
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    @classmethod
    def of(cls, module: nn.Module) -> _Model:
        if not isinstance(module, nn.Module):
            raise UsageError(
                f"capture needs a torch.nn.Module, got {type(module).__name__}.",
                "Pass the module itself, not its class or its weights.",
            )
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        for kind, tensors in (("param", parameters), ("buffer", buffers)):
            for name, tensor in tensors.items():
                check_name(f"{kind}.{name}")
                type_of_tensor(tensor, f"{kind} {name}")
        return cls(module, dict(sorted(parameters.items())), dict(sorted(buffers.items())))

    def slot_types(self) -> dict[str, TensorType]:
        slots = {f"param.{k}": type_of_tensor(v) for k, v in self.parameters.items()}
        return slots | {f"buffer.{k}": type_of_tensor(v) for k, v in self.buffers.items()}

    def weights(self) -> dict[str, np.ndarray] | None:
        tensors = {f"param.{k}": v for k, v in self.parameters.items()}
        tensors |= {f"buffer.{k}": v for k, v in self.buffers.items()}
        if any(t.is_meta for t in tensors.values()):
            return None
        return {
            name: np.array(t.detach().cpu().contiguous().numpy(), order="C")
            for name, t in tensors.items()
        }


def _request(
    model: _Model, run: BatchLoss, batch: dict[str, Tensor], trained: tuple[str, ...]
) -> Request:
    return Request(
        model.module,
        run,
        {k: meta_like(v) for k, v in model.parameters.items()},
        {k: meta_like(v) for k, v in model.buffers.items()},
        batch,
        trained,
    )


def _declare(
    b: Builder, model: _Model, extra: Mapping[str, SlotRule], batch: Mapping[str, Tensor]
) -> dict[str, Value]:
    """Every state slot and batch tensor as a program input; the state slots' values."""
    state = {name: b.state(name, type_) for name, type_ in model.slot_types().items()}
    state |= {name: b.state(name, rule.type) for name, rule in extra.items()}
    for name, type_ in batch_types(batch).items():
        check_name(f"batch.{name}")
        b.batch(name, type_)
    return state


def _lower(b: Builder, traced: Trace, state: Mapping[str, Value]) -> dict[str, Value]:
    """Emit the traced graph; its outputs by name."""
    inputs = [state[name] if name in state else b.input(name) for name in traced.inputs]
    values = Lowerer(b, traced.origin, traced.lines).run(traced.graph.graph, inputs)
    return dict(zip(traced.outputs, values, strict=True))


def _loss_and_metrics(returned: Any) -> dict[str, Tensor]:
    """`loss`, or `(loss, {name: tensor})`, as named outputs."""
    loss, metrics = returned if isinstance(returned, tuple) else (returned, {})
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        raise UsageError(
            "The loss function must return one scalar tensor, or (loss, {name: tensor}).",
            "Reduce it with .mean() or .sum().",
        )
    named = {"loss": loss.reshape(())}
    for name, tensor in metrics.items():
        check_name(f"metric.{name}")
        named[f"metric.{name}"] = tensor
    return named


def _finish(b: Builder, outputs: Mapping[str, Value]) -> Program:
    program = canonicalize(b.finish(outputs))
    check_program(program)
    return program


@contextmanager
def _evaluation_mode(module: nn.Module) -> Iterator[None]:
    before = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for child, training in before:
            child.training = training


def capture(
    module: nn.Module,
    loss: BatchLoss,
    batch: Mapping[str, Any],
    optimizer: Optimizer,
    *,
    clip_norm: float | None = None,
    outputs_grads: bool = False,
    contract: str = ORDERED_1,
    mode: str = "train",
) -> CapturedStep:
    """Capture one training step: forward, loss, backward, optimizer update.

    `loss(module, batch)` gets a dict of tensors and returns a scalar f32 tensor, or that and a
    dict of named metrics. `batch` names example tensors, meta tensors, or (shape, dtype) pairs.
    `mode` says which mode the module is in, "train" or "eval": capture refuses another one and
    switches none, so submodules keep theirs. Two traces must be equal. `clip_norm` clips the
    global gradient norm and reports it as `metric.grad_norm`. With `outputs_grads` the program also
    outputs `grad.<parameter>`. `contract` changes the program's meaning, not its nodes.

    Raises UsageError when the model cannot become a program, and UnsupportedOperatorError,
    naming operator and module path, for an operator the contract does not define.
    """
    module = original(module)
    with uncompiled(module):
        return _capture(
            module,
            loss,
            batch,
            optimizer,
            clip_norm,
            outputs_grads,
            resolve_contract(contract),
            mode,
        )


def _capture(
    module: nn.Module,
    loss: BatchLoss,
    batch: Mapping[str, Any],
    optimizer: Optimizer,
    clip_norm: float | None,
    outputs_grads: bool,
    contract: str,
    mode: str,
) -> CapturedStep:
    model = _Model.of(module)
    check_mode(module, mode)
    trainable = tuple(k for k, v in model.parameters.items() if v.requires_grad)
    if not trainable:
        raise UsageError("No parameter requires a gradient.", "Unfreeze one, or use capture_eval.")
    meta = meta_batch(batch)
    traced = settled_trace(_request(model, loss, meta, trainable), _loss_and_metrics)
    trained = [k for k in trainable if f"grad.{k}" in traced.outputs]
    rules = optimizer_slots(optimizer, {k: type_of_tensor(model.parameters[k]) for k in trained})
    b = Builder(contract)
    state = _declare(b, model, rules, meta)
    outputs = _lower(b, traced, state)
    gradients = {k: outputs.pop(f"grad.{k}") for k in trained}
    changed, metrics = emit_update(b, optimizer, state, gradients, clip_norm)
    outputs |= {f"metric.{k}": v for k, v in metrics.items()}
    next_state = {name: outputs.get(name, value) for name, value in state.items()} | changed
    named = {f"grad.{k}": v for k, v in gradients.items()}
    b.commit(next_state)
    outputs |= next_state
    program = _finish(b, outputs | named if outputs_grads else outputs)
    weights = model.weights()
    captured = CapturedStep(
        program,
        None,
        program.batch_types,
        {LEARNING_RATE: optimizer.lr if isinstance(optimizer.lr, str) else float(optimizer.lr)},
        rules,
        tuple(sorted(set(trainable) - set(trained))),
        FirstStep(
            module,
            loss,
            lambda returned: _loss_and_metrics(returned)["loss"],
            trainable,
            lambda: _finish(b, outputs | named),
            lambda: _probes(model, loss, meta, program.contract),
            {path: child.training for path, child in module.named_modules()},
        ),
    )
    if weights is None:
        return captured
    return replace(captured, initial_state=captured.state_for(weights))


def _probes(
    model: _Model, loss: BatchLoss, batch: dict[str, Tensor], contract: str
) -> tuple[Program, list[str]]:
    """The forward pass with every module's output, and the modules' paths in their order."""
    paths: list[str] = []
    request = replace(_request(model, loss, batch, ()), probes=paths)
    traced = trace(request, _loss_and_metrics)
    b = Builder(contract)
    found = _lower(b, traced, _declare(b, model, {}, batch))
    return _finish(b, {k: v for k, v in found.items() if k.startswith("output.")}), paths


def _capture_without_step(
    module: nn.Module,
    run: BatchLoss,
    batch: Mapping[str, Any],
    collect: Callable[[Any], dict[str, Tensor]],
    contract: str,
) -> Program:
    module = original(module)
    meta = meta_batch(batch)
    with uncompiled(module):
        model = _Model.of(module)
        with _evaluation_mode(module):
            traced = settled_trace(_request(model, run, meta, ()), collect)
    b = Builder(contract)
    state = _declare(b, model, {}, meta)
    outputs = _lower(b, traced, state)
    kept = {name: v for name, v in outputs.items() if not name.startswith("buffer.")}
    return _finish(b, kept)


def capture_eval(
    module: nn.Module, loss: BatchLoss, batch: Mapping[str, Any], contract: str = ORDERED_1
) -> Program:
    """The loss of a batch in evaluation mode (no dropout), as a program without next state.

    It reads the `param.` and `buffer.` slots of the training state. Output: `loss`.
    """
    return _capture_without_step(module, loss, batch, _loss_and_metrics, resolve_contract(contract))


def capture_forward(
    module: nn.Module,
    batch: Mapping[str, Any],
    forward: BatchLoss | None = None,
    contract: str = ORDERED_1,
) -> Program:
    """The module's output in evaluation mode, as a program without next state.

    `forward(module, batch)` defaults to calling the module with the batch as keyword
    arguments. A single tensor becomes output `logits`; a dict becomes `output.<name>`.
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
    return _capture_without_step(module, run, batch, collect, resolve_contract(contract))
