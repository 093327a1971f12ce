"""One step of a captured module by torch, with the contract's random numbers (PROGRAM 5.9).

Over micro-batches it is one pass after the other, added up (6.10).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from tallystick.kernels.evaluate import evaluate
from tallystick.program.capture.composites import COMPOSITES
from tallystick.program.capture.constants import replaced
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.guard import carry_hooks
from tallystick.program.capture.micro import SUM, MicroBatches, cut
from tallystick.program.capture.model import loss_and_metrics
from tallystick.program.capture.python_state import PythonState
from tallystick.program.capture.recorder import around_calls, first_tensor
from tallystick.program.capture.recurrent import CELLS
from tallystick.program.capture.replaced import quiet
from tallystick.program.capture.stand_ins import StandIns
from tallystick.program.capture.trace import TracedModule, TraceRequest, call_with
from tallystick.program.capture.updates import Groups, Updates

Array = np.ndarray
SHAKE = 2.0**-22

_cross_entropy, _batch_norm = F.cross_entropy, F.batch_norm
_attention = F.scaled_dot_product_attention


@dataclass(frozen=True)
class Inputs:
    """The inputs of a job's first step. `updated` has the parameters after each of its updates.

    Its keys are `NUMBER.NAME`. The contract's own results stand there, so that every gradient is
    compared on the same weights.
    """

    state: Mapping[str, Array]
    batch: Mapping[str, Array]
    scalars: Mapping[str, float]
    rng: tuple[int, int]
    updated: Mapping[str, Array] = field(default_factory=dict)
    draws: int = 0  # the first draw id


def _recurrent(func: Any, ours: Any) -> Any:
    """torch's own recurrent layers, but with dropout, whose masks are the contract's."""

    def run(*args: Any, **kwargs: Any) -> Any:
        # (input, state, weights, bias, layers, dropout, train, ...), or packed ones, refused.
        own = len(args) > 6 and isinstance(args[5], float) and not (args[5] and args[6])
        return (func if own else ours)(*args, **kwargs)

    return run


class EagerStep(Lowering):
    """torch's own functionals in one dtype, with the contract's random numbers.

    Where the model asks for float32 by name, it gets that dtype; so do its constants. `stand_ins`
    has the tensor in the place of each one of the state.
    """

    def __init__(self, rng: Sequence[int], dtype: torch.dtype, stand_ins: StandIns) -> None:
        super().__init__(torch.tensor(list(rng), dtype=torch.int64))
        for func in COMPOSITES:  # a fault of ours would be on both sides of the comparison
            self.table.pop(func, None)
        for func in CELLS:
            self.table[func] = _recurrent(func, self.table[func])
        self.dtype = dtype
        self.stand_ins = stand_ins

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            known = self.stand_ins.of(value)
            value = value if known is None else known
            wide = value.dtype == torch.float32 and not value.requires_grad
            return value.to(self.dtype) if wide else value
        return self.dtype if value is torch.float32 else value

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") in ("__get__", "__set__"):
            return func(*args, **(kwargs or {}))
        args = tuple(replaced(a, self._mapped) for a in args)
        named = {k: replaced(v, self._mapped) for k, v in (kwargs or {}).items()}
        if func is Tensor.float:
            return args[0].to(self.dtype)
        return super().__torch_function__(func, types, args, named)

    def _drawn(self, op: str, shape: Sequence[int], generator: Any = None, **attrs: Any) -> Tensor:
        rng, draw = self.place(generator)
        found = evaluate(f"tallystick.{op}", rng.numpy(), draw=draw, shape=tuple(shape), **attrs)
        assert isinstance(found, np.ndarray)
        made = torch.from_numpy(found)
        return made.to(self.dtype) if made.is_floating_point() else made

    def keep(self, p: float, shape: Sequence[int]) -> Tensor:
        return self._drawn("dropout_mask", shape, p=float(p))

    def uniform(
        self, shape: Sequence[int], low: float = 0.0, high: float = 1.0, generator: Any = None
    ) -> Tensor:
        return self._drawn("uniform", shape, generator, low=float(low), high=float(high))

    def normal(
        self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0, generator: Any = None
    ) -> Tensor:
        return self._drawn("normal", shape, generator, mean=float(mean), std=float(std))

    def scaled(self, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        return torch.where(mask, x * scale, 0.0)

    def attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """torch's own, but with dropout, whose masks are the contract's."""
        if dropout_p != 0.0:
            return super().attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
            )
        # The gradient of its other kernel is wrong for a query whose mask is the least number
        # everywhere: its equal weights are all 1 there.
        with sdpa_kernel(SDPBackend.MATH):
            return _attention(
                query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
            )

    def cross_entropy(self, *args: Any, **kwargs: Any) -> Tensor:
        return _cross_entropy(*args, **kwargs)

    def batch_norm(self, *args: Any, **kwargs: Any) -> Tensor:
        return _batch_norm(*args, **kwargs)


class _Updates(Updates):
    """The gradients of every update; its results are given."""

    def __init__(
        self, groups: Groups, parameters: Mapping[str, Tensor], updated: Mapping[str, Tensor]
    ) -> None:
        super().__init__(groups, parameters)
        self.updated = updated
        self.found: dict[str, Tensor] = {}

    def stepped(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        number = len(self.done)
        self.found |= {gradient_name(number, n): g for n, g in gradients.items()}
        return {n: self.updated[f"{number}.{n}"] for n in gradients}


def gradient_name(number: int, parameter: str) -> str:
    """The gradient of one of several updates. Up to its last dot it is the module's path."""
    return f"{parameter} (update {number})"


@dataclass
class Results:
    """Of one run: the loss, gradients by parameter, the buffers and changed parameters after it,
    and outputs in order, each with its module. `count` is what a summed loss is divided by."""

    loss: float
    gradients: dict[str, Array]
    buffers: dict[str, Array]
    outputs: list[tuple[str, Array]] = field(default_factory=list)
    count: float = 1.0


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """torch's default dtype is `dtype` inside of the block."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def torch_step(
    request: TraceRequest,
    modes: Mapping[str, bool],
    dtype: torch.dtype,
    inputs: Inputs,
    shake: int | None = None,
    collect: Callable[[Any], dict[str, Tensor]] = loss_and_metrics,
) -> Results:
    """One forward and backward pass of what was traced, by torch on the CPU in `dtype`.

    With `shake`, that seed's numbers of up to 2⁻²² times each weight and batch element are added.
    After an update it goes on with `inputs.updated`. Raises what the model raises.
    """
    module = request.module
    drawn = np.random.default_rng(shake)

    def tensor(array: Array) -> Tensor:
        made = torch.from_numpy(np.array(array))
        if made.dtype != torch.float32:
            return made
        made = made.to(dtype)
        if shake is not None:
            made *= torch.from_numpy(1.0 + SHAKE * drawn.uniform(-1.0, 1.0, array.shape))
        return made

    parameters = {
        k[6:]: tensor(v).requires_grad_(k[6:] in request.trained)
        for k, v in inputs.state.items()
        if k.startswith("param.")
    }
    buffers = {k[7:]: tensor(v) for k, v in inputs.state.items() if k.startswith("buffer.")}
    kept = {k: buffers.pop(k) for k in request.outside.tensors()}
    placed = {f"module.{k}": v for k, v in (parameters | buffers).items()}
    outputs: list[tuple[str, Tensor]] = []

    def noted(path: str, _child: nn.Module, call: Callable[[], Any]) -> Any:
        output = call()
        found = first_tensor(output)
        if found is not None:
            outputs.append((path, found.detach()))
        return output

    python = PythonState(module, request.run)
    request.outside.outside.look()
    real = dict(module.named_parameters()) | dict(module.named_buffers())
    stand_ins = StandIns(real, parameters | buffers)
    request.outside.stand_in(stand_ins, kept)
    lowering = EagerStep(inputs.rng, dtype, stand_ins)
    lowering.draws = inputs.draws
    carry_hooks(dict(module.named_parameters()), parameters)
    try:
        for path, child in module.named_modules():
            child.training = modes.get(path, child.training)
        with default_dtype(dtype), torch.enable_grad(), lowering.installed(), quiet():
            given = {k: tensor(v) for k, v in inputs.batch.items()}
            updates = None
            if request.groups is not None:
                updated = {k: torch.from_numpy(v).to(dtype) for k, v in inputs.updated.items()}
                updates = _Updates(request.groups, parameters, updated)
            body = TracedModule(module, request.of_batch(updates))
            with request.outside.placed(kept) as placing, around_calls(module, noted):
                returned, _, present = call_with(body, placed, given)
                after = {k: v for k, v in present.items() if k not in request.filled}
                named = collect(returned)
                loss, count = named["loss"], named.get("count")
                if updates is not None:
                    found = updates.found
                else:
                    wanted = [parameters[k] for k in request.trained]
                    all_of_them = torch.autograd.grad(loss, wanted, allow_unused=True)
                    found = dict(zip(request.trained, all_of_them, strict=True))
                after |= {k: parameters[k] for k in request.changed}
                after |= placing.after()
            request.outside.refuse_changed()
            if dtype == torch.float32:  # in float64 a `.to(x.dtype)` makes another one
                request.outside.refuse_replaced()
    finally:
        request.outside.outside.put_back()
        python.restore()
        python.release()
    gradients = {k: g.detach().to(torch.float64).numpy() for k, g in found.items() if g is not None}
    buffered = {k: v.detach().to(torch.float64).numpy().copy() for k, v in after.items()}
    seen = [(path, y.to(torch.float64).numpy()) for path, y in outputs]
    return Results(
        float(loss.detach()), gradients, buffered, seen, 1.0 if count is None else float(count)
    )


def torch_micro_steps(
    request: TraceRequest,
    modes: Mapping[str, bool],
    dtype: torch.dtype,
    inputs: Inputs,
    shake: int | None,
    micro: MicroBatches,
    draws: int,
) -> Results:
    """`torch_step` of each micro-batch of `inputs`, which has the whole batch.

    Each one begins with the buffers that the one before left, and draws `draws` random numbers of
    its own. Loss and gradients are added up and divided once, in float64; the outputs are those of
    the first.
    """
    state = dict(inputs.state)
    done: list[Results] = []
    for part, batch in enumerate(cut(inputs.batch, micro.parts)):
        here = replace(inputs, state=state, batch=batch, draws=part * draws)
        # The buffers of a later one are torch's already: only weights and batch are shaken.
        found = torch_step(request, modes, dtype, here, shake, micro.collect)
        done.append(found)
        state |= {f"buffer.{k}": kept_value(state[f"buffer.{k}"], v, dtype)
                  for k, v in found.buffers.items()}  # fmt: skip
    divisor = sum(r.count for r in done) if micro.loss_over == SUM else float(micro.parts)
    names = sorted({name for r in done for name in r.gradients})
    gradients = {
        name: sum((r.gradients[name] for r in done if name in r.gradients), np.float64(0)) / divisor
        for name in names
    }
    return Results(
        sum(r.loss for r in done) / divisor,
        {name: np.asarray(g) for name, g in gradients.items()},
        done[-1].buffers,
        done[0].outputs,
    )


def kept_value(before: Array, after: Array, dtype: torch.dtype) -> Array:
    """A buffer after a pass, in the precision in which the next one reads it."""
    if before.dtype.kind != "f":
        return after.astype(before.dtype)
    return after if dtype == torch.float64 else after.astype(np.float32)
