"""One ATen call as a program: lowered by capture's rules, run on the contract's kernels.

An operator that writes is run as the one without mutation that gives its values. That is read off
ATen's schemas: the in-place operator `add_.Tensor` and `add.out` both belong to `add.Tensor`, whose
arguments are the same but for `out`.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx

from tallystick.errors import UnsupportedOperatorError
from tallystick.kernels.evaluate import view
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.capture.lower import Lowerer
from tallystick.program.capture.schema import op_name, type_of_tensor
from tallystick.program.executor import Executor
from tallystick.program.ir import Value
from tallystick.program.runner import StepInputs


class OneCall:
    """One ATen call with fixed types and Python arguments, ready to run on tensors.

    Its results have torch's strides, because later views by torch depend on them. `operators`
    counts the kernels that a run executes. Raises what lowering raises, and torch's own errors for
    operands that the call does not take.
    """

    def __init__(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], contract: str
    ) -> None:
        graph, builder = fx.Graph(), Builder(contract)
        inputs: list[Value] = []
        leaves, tree = pytree.tree_flatten((args, kwargs))
        meta, nodes = list(leaves), list(leaves)
        for position, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                inputs.append(builder.batch(_argument(len(inputs)), type_of_tensor(leaf)))
                meta[position] = shape_of(leaf)
                nodes[position] = graph.placeholder(_argument(len(inputs) - 1).replace(".", "_"))
                nodes[position].meta["val"] = meta[position]
        meta_args, meta_kwargs = pytree.tree_unflatten(meta, tree)
        node_args, node_kwargs = pytree.tree_unflatten(nodes, tree)
        call = graph.call_function(func, node_args, node_kwargs)
        call.meta["val"] = shapes = func(*meta_args, **on_meta(func, meta_kwargs))
        results, self.results_tree = pytree.tree_flatten(shapes)
        wanted = [call] if isinstance(shapes, Tensor) else self._items(graph, call, shapes)
        if len(wanted) != sum(isinstance(result, Tensor) for result in results):
            raise UnsupportedOperatorError(
                f"{op_name(func)} gives several lists of tensors.",
                "Use the operators that it is made of (optimizers with fused=False).",
            )
        graph.output(tuple(wanted))
        values = Lowerer(builder).run(graph, inputs)
        named = {f"output.{i:03d}": value for i, value in enumerate(values)}
        self.shapes = [result if isinstance(result, Tensor) else None for result in results]
        self.executor = Executor(canonicalize(builder.finish(named)))
        # Views are no kernels; of the rest each node is one run of a kernel.
        nodes_run = [n.op for n in self.executor.program.nodes if n.op not in view]
        self.operators = Counter(nodes_run)

    @staticmethod
    def _items(graph: fx.Graph, call: fx.Node, shapes: Any) -> list[fx.Node]:
        items = []
        for index, shape in enumerate(shapes):
            if isinstance(shape, Tensor):
                item = graph.call_function(operator.getitem, (call, index))
                item.meta["val"] = shape
                items.append(item)
        return items

    def __call__(self, tensors: list[Tensor]) -> Any:
        arrays = {_argument(i): t.detach().numpy() for i, t in enumerate(tensors)}
        used = self.executor.program.batch_types
        given = StepInputs({k: v for k, v in arrays.items() if k in used})
        outputs = self.executor.execute({}, given).outputs
        made = iter(torch.from_numpy(outputs[name]) for name in sorted(outputs))
        leaves = [None if shape is None else _laid_out(next(made), shape) for shape in self.shapes]
        return pytree.tree_unflatten(leaves, self.results_tree)


def on_meta(func: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """`kwargs` with which `func` makes its tensors without storage."""
    if any(a.name == "device" for a in func._schema.arguments):
        return {**kwargs, "device": "meta"}
    return kwargs


def shape_of(tensor: Tensor) -> Tensor:
    """A tensor of the same shape, strides and dtype without storage."""
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _laid_out(made: Tensor, shape: Tensor) -> Tensor:
    if made.stride() == shape.stride() or shape.is_contiguous():
        return made
    result = torch.empty_strided(shape.shape, shape.stride(), dtype=shape.dtype)
    return result.copy_(made)


def _argument(index: int) -> str:
    return f"arg{index:03d}"


def meaning(leaf: Any) -> Any:
    """A key of everything in an argument that a lowering can depend on."""
    if isinstance(leaf, Tensor):
        return ("tensor", leaf.dtype, tuple(leaf.shape), leaf.stride())
    # 1, 1.0 and True are one dictionary key but three meanings.
    return (type(leaf), leaf if not isinstance(leaf, float) else leaf.hex())


# What an out= form of a factory takes from `out` itself.
_PLACE = frozenset({"dtype", "layout", "device", "pin_memory"})


@dataclass(frozen=True)
class Functional:
    """`pure` computes what the operator writes.

    `written` names the operator's written arguments, in the order of the last results of `pure`.
    `out` says that they are its only results, and no operands. A `factory` takes the dtype from
    the written tensor.
    """

    pure: Any
    written: tuple[str, ...]
    out: bool
    factory: bool = False


def is_storage_view(func: Any) -> bool:
    """Whether the operator only changes how a tensor sees its storage: `squeeze_`, `t_`, …"""
    return torch.Tag.inplace_view in func.tags


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _signature(arguments: Any, skip: frozenset[str] = frozenset()) -> list[tuple[str, str]]:
    return [(a.name, str(a.type)) for a in arguments if a.name not in skip]


def _overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return []
    found = [getattr(packet, overload) for overload in packet.overloads()]
    return [op for op in found if not op._schema.is_mutable]


def _pure_name(base: str) -> str:
    if base.startswith("__i"):
        return f"__{base[3:]}"
    return base.removesuffix("_") if not base.endswith("__") else base


@functools.cache
def functional(func: Any) -> Functional | None:
    """The form of `func` without mutation, or None where ATen has none."""
    arguments = func._schema.arguments
    written = tuple(a.name for a in arguments if _written(a))
    out = all(a.kwarg_only for a in arguments if _written(a))
    base = op_name(func).removeprefix("aten.").partition(".")[0]
    wanted = _signature(arguments, frozenset(written) if out else frozenset())
    for pure in _overloads(base if out else _pure_name(base)):
        given = pure._schema.arguments
        if _signature(given) == wanted:
            return Functional(pure, written, out)
        if out and _signature(given, _PLACE) == [w for w in wanted if w[0] not in _PLACE]:
            return Functional(pure, written, out, factory=True)
    # These give the written values after their other results.
    for pure in _overloads(f"{base}_functional"):
        if _signature(pure._schema.arguments) == wanted:
            return Functional(pure, written, out=False)
    return None
