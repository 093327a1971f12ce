"""The first step of a job, compared with the module itself in float64 (PROGRAM 5.9).

The program runs under the contract. The module runs in eager torch on the same weights and batch
with the contract's random numbers, once in float64 and once in float32. The second says how much
float32 itself errs on this model.

The threshold: a loss may differ from float64's by 16 times float32's own error, and 2⁻¹⁶ of the
loss, and 10⁻⁶. A parameter's gradient may differ by 16 times float32's own error, and 2⁻¹³ of its
norm, and 2⁻²⁰ of the whole gradient's norm (Euclidean norms). Both round in float32, in other
orders: so their errors are of one size, and 16 allows for luck. Beyond that, four more runs in
float64, whose weights and batch are shaken by up to 2⁻²² of each number, say more about float32's
own error: a ReLU within a rounding of zero may fall to either side. The largest of the five counts.
What capture could drop (another precision, a hook, a factor) is larger. Under B < 32 bits of
`rounded/1` the threshold is 2³²⁻ᴮ times wider.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tallystick.errors import TallystickError, UsageError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.contracts import Contract, find_contract
from tallystick.program.capture.constants import replaced
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.guard import carry_hooks
from tallystick.program.capture.plain import uncompiled
from tallystick.program.capture.settled import PythonState
from tallystick.program.capture.trace import BatchLoss, Body, call_with, first_tensor
from tallystick.program.executor import Executor
from tallystick.program.ir import Program

Array = np.ndarray
_TIMES = 16.0
_LOSS, _LOSS_FLOOR = 2.0**-16, 1e-6
_GRADIENT, _WHOLE_GRADIENT = 2.0**-13, 2.0**-20
_SHAKEN, _SHAKE = 4, 2.0**-22
_OUTPUT = 2.0**-12

_cross_entropy, _batch_norm = F.cross_entropy, F.batch_norm


class _Eager(Lowering):
    """torch's own functionals in one dtype, with the contract's random numbers.

    Where the model asks for float32 by name, it gets that dtype; so do its constants. `stand_ins`
    has the tensor in the place of each parameter and buffer.
    """

    def __init__(
        self, rng: Sequence[int], dtype: torch.dtype, stand_ins: Mapping[int, Tensor]
    ) -> None:
        super().__init__(torch.tensor(list(rng), dtype=torch.int64))
        self.dtype = dtype
        self.stand_ins = stand_ins

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            value = self.stand_ins.get(id(value), value)
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

    def _drawn(self, op: str, shape: Sequence[int], **attrs: Any) -> Tensor:
        found = evaluate(
            f"tallystick.{op}", self.rng.numpy(), draw=self.next_draw(), shape=tuple(shape), **attrs
        )
        assert isinstance(found, np.ndarray)
        made = torch.from_numpy(found)
        return made.to(self.dtype) if made.is_floating_point() else made

    def keep(self, p: float, shape: Sequence[int]) -> Tensor:
        return self._drawn("dropout_mask", shape, p=float(p))

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> Tensor:
        return self._drawn("uniform", shape, low=float(low), high=float(high))

    def normal(self, shape: Sequence[int], mean: float = 0.0, std: float = 1.0) -> Tensor:
        return self._drawn("normal", shape, mean=float(mean), std=float(std))

    def scaled(self, x: Tensor, mask: Tensor, scale: float) -> Tensor:
        return torch.where(mask, x * scale, 0.0)

    def cross_entropy(self, *args: Any, **kwargs: Any) -> Tensor:
        return _cross_entropy(*args, **kwargs)

    def batch_norm(self, *args: Any, **kwargs: Any) -> Tensor:
        return _batch_norm(*args, **kwargs)


@dataclass
class _Results:
    """Of one run: the loss, gradients by parameter, and outputs in order, each with its module."""

    loss: float
    gradients: dict[str, Array]
    outputs: list[tuple[str, Array]] = field(default_factory=list)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class FirstStep:
    """What a captured step keeps for the comparison: the module, its loss, and its modes.

    `gradients()` is the step's program with the gradients as outputs. `probes()` gives the forward
    pass with every submodule's output, and their modules, in the order in which they end.
    """

    module: nn.Module
    run: BatchLoss
    loss_of: Callable[[Any], Tensor]
    trainable: tuple[str, ...]
    gradients: Callable[[], Program]
    probes: Callable[[], tuple[Program, list[str]]]
    modes: dict[str, bool]

    def compare(
        self,
        contract: str,
        state: Mapping[str, Array],
        batch: Mapping[str, Array],
        scalars: Mapping[str, float],
        rng: tuple[int, int],
    ) -> str | None:
        """None where the step agrees; a reason where it could not be compared.

        Raises UsageError, naming the module where the difference begins, beyond the threshold.
        """
        with uncompiled(self.module):
            return self._compare(contract, state, batch, scalars, rng)

    def _compare(
        self,
        contract: str,
        state: Mapping[str, Array],
        batch: Mapping[str, Array],
        scalars: Mapping[str, float],
        rng: tuple[int, int],
    ) -> str | None:
        meaning = find_contract(contract)
        if meaning.keeps_log:
            meaning = Contract("rounded/1", meaning.bits)
        wide = 2.0 ** (32 - meaning.bits)
        try:
            step = Executor(self._under(self.gradients(), meaning)).run_step(
                {k: np.array(v) for k, v in state.items()}, batch, scalars, rng
            )
        except TallystickError as error:
            return f"the program's first step failed: {error.message}"
        try:
            exact = self._eager(torch.float64, state, batch, rng)
            single = self._eager(torch.float32, state, batch, rng)
        except TallystickError as error:
            return f"the module does not run in float64: {error.message}"
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as error:
            text = str(error).splitlines()
            return f"the module does not run in float64: {text[0] if text else type(error)}"
        assert step.loss is not None
        ours = _Results(
            float(step.loss),
            {k[5:]: v for k, v in step.outputs.items() if k.startswith("grad.")},
        )
        if not math.isfinite(exact.loss):
            return "the module's loss is not finite in float64"
        others = [single]
        if self._misses(ours, others, exact, wide):
            others += [
                self._eager(torch.float64, state, batch, rng, shake) for shake in range(_SHAKEN)
            ]
        missed = self._misses(ours, others, exact, wide)
        if missed is None:
            return None
        where = self._first_output(meaning, wide, state, batch, rng, others, exact)
        if missed == "loss":
            numbers = [abs(r.loss - exact.loss) for r in (ours, *others)]
            where = where or "every module's output agrees, so it is the loss function"
            raise _difference("loss", numbers, abs(exact.loss), where)
        true = _gradient(missed, exact, ours)
        place = missed.rpartition(".")[0] or type(self.module).__name__
        raise _difference(
            f"gradient of {missed}",
            [_distance(r.gradients.get(missed), true) for r in (ours, *others)],
            _distance(None, true),
            where or f"module {place} has the first such gradient from the loss backwards",
        )

    @staticmethod
    def _under(program: Program, contract: Contract) -> Program:
        return replace(program, contract=contract.text)

    def _eager(
        self,
        dtype: torch.dtype,
        state: Mapping[str, Array],
        batch: Mapping[str, Array],
        rng: Sequence[int],
        shake: int | None = None,
    ) -> _Results:
        drawn = np.random.default_rng(shake)

        def tensor(array: Array) -> Tensor:
            made = torch.from_numpy(np.array(array))
            if made.dtype != torch.float32:
                return made
            made = made.to(dtype)
            if shake is not None:
                made *= torch.from_numpy(1.0 + _SHAKE * drawn.uniform(-1.0, 1.0, array.shape))
            return made

        parameters = {
            k[6:]: tensor(v).requires_grad_(k[6:] in self.trainable)
            for k, v in state.items()
            if k.startswith("param.")
        }
        buffers = {k[7:]: tensor(v) for k, v in state.items() if k.startswith("buffer.")}
        placed = {f"module.{k}": v for k, v in (parameters | buffers).items()}
        outputs: list[tuple[str, Tensor]] = []

        def note(path: str, output: Any) -> None:
            found = first_tensor(output)
            if found is not None:
                outputs.append((path, found.detach()))

        python = PythonState(self.module)
        real = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        stand_ins = {id(v): placed[f"module.{k}"] for k, v in real.items()}
        lowering = _Eager(rng, dtype, stand_ins)
        carry_hooks(dict(self.module.named_parameters()), parameters)
        handles = [
            child.register_forward_hook(lambda _m, _a, y, path=path: note(path, y))
            for path, child in self.module.named_modules()
        ]
        try:
            for path, child in self.module.named_modules():
                child.training = self.modes.get(path, child.training)
            with _default_dtype(dtype), torch.enable_grad(), lowering.installed():
                body = Body(self.module, self.run)
                given = {k: tensor(v) for k, v in batch.items()}
                loss = self.loss_of(call_with(body, placed, given)[0])
                wanted = [parameters[k] for k in self.trainable]
                found = torch.autograd.grad(loss, wanted, allow_unused=True)
        finally:
            for handle in handles:
                handle.remove()
            python.restore()
        gradients = {
            k: g.detach().to(torch.float64).numpy()
            for k, g in zip(self.trainable, found, strict=True)
            if g is not None
        }
        seen = [(path, y.to(torch.float64).numpy()) for path, y in outputs]
        return _Results(float(loss.detach()), gradients, seen)

    def _first_output(
        self,
        contract: Contract,
        wide: float,
        state: Mapping[str, Array],
        batch: Mapping[str, Array],
        rng: tuple[int, int],
        others: Sequence[_Results],
        exact: _Results,
    ) -> str | None:
        """The first module whose output differs beyond the threshold, as a clause, if one does."""
        program, paths = self.probes()
        step = Executor(self._under(program, contract)).run_step(
            {k: np.array(v) for k, v in state.items() if k in program.state_types},
            batch,
            {},
            rng if program.uses_rng else None,
        )
        if paths != [path for path, _ in exact.outputs]:
            return "the modules do not run in the same order on real values"
        for i, path in enumerate(paths):
            found, true = step.outputs[f"output.{i:05d}"], exact.outputs[i][1]
            own = max(_distance(r.outputs[i][1], true) for r in others)
            allowed = wide * (_TIMES * own + _OUTPUT * _distance(None, true))
            if not _distance(found, true) <= allowed:
                return f"the output of module {path or type(self.module).__name__} is the first"
        return None

    def _misses(
        self, ours: _Results, others: Sequence[_Results], exact: _Results, wide: float
    ) -> str | None:
        """What is beyond the threshold: "loss", or the first such parameter from the loss back."""
        own = max(abs(r.loss - exact.loss) for r in others)
        allowed = wide * (_TIMES * own + _LOSS * abs(exact.loss) + _LOSS_FLOOR)
        if math.isfinite(allowed) and not abs(ours.loss - exact.loss) <= allowed:
            return "loss"
        whole = math.hypot(*(_distance(None, g) for g in exact.gradients.values()))
        order = {path: i for i, (path, _) in enumerate(exact.outputs)}

        def backward_order(name: str) -> tuple[int, str]:
            return -order.get(name.rpartition(".")[0], -1), name

        for name in sorted(set(ours.gradients) | set(exact.gradients), key=backward_order):
            true = _gradient(name, exact, ours)
            own = max(_distance(r.gradients.get(name), true) for r in others)
            floor = _GRADIENT * _distance(None, true) + _WHOLE_GRADIENT * whole
            allowed = wide * (_TIMES * own + floor)
            found = _distance(ours.gradients.get(name), true)
            if math.isfinite(allowed) and not found <= allowed:
                return name
        return None


def _gradient(name: str, exact: _Results, ours: _Results) -> Array:
    """That of float64; a parameter without one has zeros."""
    found = exact.gradients.get(name)
    return np.zeros(ours.gradients[name].shape) if found is None else found


def _distance(found: Array | None, true: Array) -> float:
    """The Euclidean norm of the difference; an absent array is zero."""
    return float(np.linalg.norm((true if found is None else found - true).reshape(-1)))


def _difference(what: str, numbers: Sequence[float], size: float, where: str) -> UsageError:
    return UsageError(
        f"The first step under the contract is not the module's: the {what} differs from float64 "
        f"by {numbers[0]:.3g} of {size:.6g}; float32's own error is {max(numbers[1:]):.3g}. Where "
        f"it begins: {where}.",
        "Something acts otherwise in a capture: a branch on the device, on values, or on the "
        "surroundings. Express it by tensor operators.",
    )
