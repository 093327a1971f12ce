"""One sample of an entry as a function of tensors, and its results in each way to compute them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import tallystick
from tallystick.program.capture.api import capture, capture_forward
from tallystick.program.executor import Executor
from tallystick_bench.opdb.recorder import Recorder


@dataclass
class Results:
    """`outputs` and `gradients` in order; a gradient is None where there is none.

    `kernels` counts the contract's kernels that the forward pass ran, and `arithmetic` names the
    ATen operators that computed below them, where that is known.
    """

    outputs: list[Any]
    gradients: list[Tensor | None] = field(default_factory=list)
    kernels: int = 0
    arithmetic: list[str] = field(default_factory=list)


class Case:
    """A sample: `tensors` in pytree order, and how the entry's function takes them."""

    def __init__(self, function: Callable[..., Any], sample: Any) -> None:
        self.function = function
        self.process = getattr(sample, "output_process_fn_grad", None)
        given = (sample.input, tuple(sample.args), dict(sample.kwargs))
        self.leaves, self.tree = pytree.tree_flatten(given)
        self.places = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        self.tensors = [self.leaves[i].detach() for i in self.places]
        self.differentiated = [self.leaves[i].requires_grad for i in self.places]
        self.weights: list[Tensor | None] = []
        # The operator that draws from torch's generator, as `truth` saw it.
        self.random = ""

    def call(self, tensors: Sequence[Tensor], wide: bool = False) -> tuple[list[Any], list[Any]]:
        """The function's results, flat, and those that the entry differentiates.

        `wide` means float64 wherever float32 is asked for.
        """
        leaves = list(self.leaves)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        if wide:
            leaves = [torch.float64 if leaf is torch.float32 else leaf for leaf in leaves]
        first, args, kwargs = pytree.tree_unflatten(leaves, self.tree)
        result = self.function(first, *args, **kwargs)
        outputs = list(pytree.tree_flatten(result)[0])
        if self.process is None or not any(self.differentiated):
            return outputs, outputs
        return outputs, list(pytree.tree_flatten(self.process(result))[0])

    def weigh(self, outputs: Sequence[Any]) -> None:
        """Fix the weight of every element of every output that has a gradient."""
        generator = np.random.default_rng(1)
        self.weights = [
            torch.from_numpy(generator.random(tuple(o.shape), np.float32)) + 0.5
            if isinstance(o, Tensor) and o.requires_grad and o.dtype.is_floating_point
            else None
            for o in outputs
        ]

    def loss(self, outputs: Sequence[Any], weights: Sequence[Tensor | None]) -> Tensor | None:
        """The sum of the outputs times their weights, or None without a gradient."""
        total: Tensor | None = None
        for output, weight in zip(outputs, weights, strict=True):
            if weight is not None:
                part = (output * weight).sum()
                total = part if total is None else total + part
        return total

    def _eager(self, dtype: torch.dtype, kernels: Callable[[], int]) -> Results:
        wide = dtype == torch.float64
        tensors = [
            (t.to(dtype) if t.dtype == torch.float32 and wide else t.clone()).requires_grad_(g)
            for t, g in zip(self.tensors, self.differentiated, strict=True)
        ]
        outputs, differentiated = self.call(tensors, wide)
        count = kernels()
        if wide:
            self.weigh(differentiated)
        weights = [w if w is None or not wide else w.double() for w in self.weights]
        total = self.loss(differentiated, weights)
        wanted = [t for t in tensors if t.requires_grad]
        gradients: Sequence[Tensor | None] = []
        if total is not None and wanted:
            gradients = torch.autograd.grad(total, wanted, allow_unused=True)
        plain = [o.detach() if isinstance(o, Tensor) else o for o in outputs]
        return Results(plain, list(gradients), count)

    def truth(self) -> Results:
        """By torch on float64 copies. Also fixes the weights, so it comes first."""
        draws = _Draws()
        with draws:
            result = self._eager(torch.float64, lambda: 0)
        self.random = draws.by
        return result

    def torchs(self) -> Results:
        """By torch in float32."""
        return self._eager(torch.float32, lambda: 0)

    def ours(self) -> Results:
        """By torch in float32 within `tallystick.reproducible()`."""
        with Recorder() as below, tallystick.reproducible() as run:
            results = self._eager(torch.float32, lambda: sum(run.operators.values()))
        results.arithmetic = sorted(below.arithmetic)
        return results

    def captured(self) -> Results:
        """By the program that `tallystick.capture` makes of the same function."""
        module = _Operands(self)
        batch = {f"t{i}": t for i, t in enumerate(self.tensors) if not self.differentiated[i]}
        weights = {f"w{i}": w for i, w in enumerate(self.weights) if w is not None}
        if not weights:
            program = capture_forward(
                _Operands(self, frozen=True),
                {f"t{i}": t for i, t in enumerate(self.tensors)},
                lambda m, b: _named(m.outputs(b)[0]),
            )
            arrays = {f"t{i}": _array(t) for i, t in enumerate(self.tensors)}
            found = Executor(program).run_step({}, arrays, rng=(0, 0)).outputs
            return Results(_numbered(found, "output.o"))

        def loss(m: nn.Module, b: dict[str, Tensor]) -> Any:
            outputs, differentiated = m.outputs(b)  # type: ignore[operator]
            given = [b.get(f"w{i}") for i in range(len(differentiated))]
            metrics = {k: v.detach() for k, v in _named(outputs).items()}
            return self.loss(differentiated, given), metrics

        step = capture(
            module, loss, {**batch, **weights}, tallystick.SGD(lr=0.5), outputs_grads=True
        )
        assert step.initial_state is not None
        arrays = {k: _array(v) for k, v in {**batch, **weights}.items()}
        state = {k: v.copy() for k, v in step.initial_state.items()}
        ran = Executor(step.program).run_step(state, arrays, {"lr": 0.5}, rng=(0, 0))
        found = ran.outputs
        gradients = [
            None if (g := found.get(f"grad.p{i}")) is None else torch.from_numpy(g)
            for i, wanted in enumerate(self.differentiated)
            if wanted
        ]
        return Results(_numbered(found, "metric.o"), gradients)


class _Draws(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the first operator whose results depend on torch's generator."""

    by = ""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags and not self.by:
            self.by = str(func)
        return func(*args, **(kwargs or {}))


class _Operands(nn.Module):
    """The case's differentiated tensors as parameters; the others come in the batch."""

    def __init__(self, case: Case, frozen: bool = False) -> None:
        super().__init__()
        self.case = case
        for i, tensor in enumerate(case.tensors):
            if case.differentiated[i] and not frozen:
                self.register_parameter(f"p{i}", nn.Parameter(tensor.clone()))

    def outputs(self, batch: dict[str, Tensor]) -> tuple[list[Any], list[Any]]:
        """`Case.call` on the module's parameters and the batch."""
        own = dict(self.named_parameters())
        count = len(self.case.tensors)
        # A copy, as `_eager` has: an operator may change its operands, and a batch stays as it is.
        tensors = [own[f"p{i}"] if f"p{i}" in own else batch[f"t{i}"].clone() for i in range(count)]
        return self.case.call(tensors)


def _named(outputs: Sequence[Any]) -> dict[str, Tensor]:
    return {f"o{i:03d}": o for i, o in enumerate(outputs) if o is not None}


def _numbered(found: dict[str, Any], prefix: str) -> list[Any]:
    names = sorted(name for name in found if name.startswith(prefix))
    return [torch.from_numpy(np.asarray(found[name])) for name in names]


def _array(tensor: Tensor) -> np.ndarray:
    return np.array(tensor.numpy(), order="C")
