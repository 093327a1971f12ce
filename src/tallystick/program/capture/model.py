"""A torch module as capture sees it: its slots, a request to trace it, and the lowered trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tallystick.errors import UsageError
from tallystick.numerics.types import TensorType
from tallystick.program.build import Builder
from tallystick.program.capture.batch import batch_types
from tallystick.program.capture.carried import Carried
from tallystick.program.capture.known import At
from tallystick.program.capture.lower import Lowerer, type_of_tensor
from tallystick.program.capture.trace import Trace, TraceRequest, meta_like
from tallystick.program.capture.updates import EmittedUpdates, Groups
from tallystick.program.check import check_name
from tallystick.program.ir import Value
from tallystick.program.state import ModuleNames
from tallystick.program.update import SlotRule


@dataclass(frozen=True)
class TorchModel:
    """The module's parameters and buffers under their first names; tied ones appear once."""

    module: nn.Module
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]
    # Tensors that code keeps outside of the module (PROGRAM 5.20); `buffers` has them too.
    outside: tuple[str, ...] = ()

    @classmethod
    def of(cls, module: nn.Module) -> TorchModel:
        if not isinstance(module, nn.Module):
            raise UsageError(
                f"capture needs a torch.nn.Module, not a {type(module).__name__}.",
                "Pass the module itself, not its class or its weights.",
            )
        parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
        for kind, tensors in (("param", parameters), ("buffer", buffers)):
            for name, tensor in tensors.items():
                if is_lazy(tensor):
                    raise UsageError(
                        f"The {kind} {name} of a lazy module has no shape yet.",
                        "Run the module on one batch before capture.",
                    )
                check_name(f"{kind}.{name}")
                type_of_tensor(tensor, f"{kind} {name}")
        return cls(module, dict(sorted(parameters.items())), dict(sorted(buffers.items())))

    def carrying(self, carried: Carried) -> TorchModel:
        """The model with the slots of `carried` among its buffers."""
        tensors = carried.tensors()
        for name in tensors:
            check_name(f"buffer.{name}")
        buffers = dict(sorted((self.buffers | tensors).items()))
        return replace(self, buffers=buffers, outside=tuple(tensors))

    def slot_types(self) -> dict[str, TensorType]:
        slots = {f"param.{k}": type_of_tensor(v) for k, v in self.parameters.items()}
        return slots | {f"buffer.{k}": type_of_tensor(v) for k, v in self.buffers.items()}

    def names(self) -> ModuleNames:
        """How the names of the module's state_dict differ from those of the slots."""
        own = {**self.parameters, **self.buffers}
        first = {id(tensor): name for name, tensor in own.items()}
        saved = self.module.state_dict(keep_vars=True)
        tied = {
            name: first[id(tensor)]
            for name, tensor in saved.items()
            if name not in own and id(tensor) in first
        }
        for name in tied:
            check_name(f"param.{name}")
        return ModuleNames(tied, tuple(name for name in own if name not in saved))

    def weights(self) -> dict[str, np.ndarray] | None:
        tensors = {f"param.{k}": v for k, v in self.parameters.items()}
        tensors |= {f"buffer.{k}": v for k, v in self.buffers.items()}
        if any(t.is_meta for t in tensors.values()):
            return None
        return {
            name: np.array(t.detach().cpu().contiguous().numpy(), order="C")
            for name, t in tensors.items()
        }

    def request(
        self,
        run: Callable[..., Any],
        batch: dict[str, Tensor],
        trained: tuple[str, ...] = (),
        groups: Groups | None = None,
        at: At | None = None,
    ) -> TraceRequest:
        """To trace `run` of the module and the batch, on meta tensors."""
        return TraceRequest(
            self.module,
            run,
            {k: meta_like(v) for k, v in self.parameters.items()},
            {k: meta_like(v) for k, v in self.buffers.items()},
            batch,
            trained,
            groups=groups,
            at=at,
        )


def declare(
    b: Builder, model: TorchModel, extra: Mapping[str, SlotRule], batch: Mapping[str, Tensor]
) -> dict[str, Value]:
    """Every state slot and batch tensor as a program input; the state slots' values."""
    state = {name: b.state(name, type_) for name, type_ in model.slot_types().items()}
    state |= {name: b.state(name, rule.type) for name, rule in extra.items()}
    for name, type_ in batch_types(batch).items():
        check_name(f"batch.{name}")
        b.batch(name, type_)
    return state


def lower(
    b: Builder,
    traced: Trace,
    state: Mapping[str, Value],
    updates: EmittedUpdates | None = None,
) -> dict[str, Value]:
    """Emit the traced graph; its outputs by name."""
    inputs = [state[name] if name in state else b.input(name) for name in traced.inputs]
    lowerer = Lowerer(b, traced.origin, traced.lines)
    lowerer.updates = updates
    values = lowerer.run(traced.graph, inputs)
    return dict(zip(traced.outputs, values, strict=True))


def loss_and_metrics(returned: Any) -> dict[str, Tensor]:
    """`loss`, or `(loss, {name: tensor})`, as named outputs."""
    loss, metrics = (
        returned if isinstance(returned, tuple) and len(returned) == 2 else (returned, {})
    )
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.is_floating_point():
        found = f"{str(loss.dtype)[6:]}{list(loss.shape)}" if isinstance(loss, Tensor) else None
        raise UsageError(
            "The loss function must return one scalar tensor, or (loss, {name: tensor}). It "
            f"returns {found or type(loss).__name__}.",
            "Reduce it with .mean() or .sum()." if found else "Return the loss, not an output.",
        )
    if not isinstance(metrics, Mapping) or not all(isinstance(t, Tensor) for t in metrics.values()):
        raise UsageError(
            "The loss function returns metrics that are not a dict of tensors.",
            "Return (loss, {name: tensor}), or the loss alone.",
        )
    named = {"loss": loss.reshape(())}
    for name, tensor in metrics.items():
        check_name(f"metric.{name}")
        named[f"metric.{name}"] = tensor
    return named
