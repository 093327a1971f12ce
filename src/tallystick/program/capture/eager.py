"""`with tallystick.reproducible("ordered/1"):` — plain eager PyTorch code with the contract's bits.

Every ATen call that reaches the dispatcher becomes a program of one call, lowered by the same
rules as capture (PROGRAM 5.2), and runs on the contract's kernels. Calls that only move or allocate
storage stay torch's. The block commits to no value; for a commitment, capture the step.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode

from tallystick.errors import TallystickError, UnsupportedOperatorError, UsageError
from tallystick.kernels.environment import check_environment, exact_environment
from tallystick.numerics.contracts import without_log
from tallystick.program.build import Builder
from tallystick.program.canonical import canonicalize
from tallystick.program.capture.functions import Lowering
from tallystick.program.capture.lower import Lowerer, op_name, type_of_tensor
from tallystick.program.executor import Executor
from tallystick.program.ir import Value

# Allocation and movement of storage: no bit of a value depends on the library that does it.
_STORAGE = frozenset(
    f"aten.{name}"
    for name in (
        "empty.memory_format", "empty_like", "empty_strided", "new_empty", "new_empty_strided",
        "zeros", "zeros_like", "new_zeros", "ones", "ones_like", "new_ones", "full", "full_like",
        "scalar_tensor", "clone", "copy_", "zero_", "fill_.Scalar", "fill_.Tensor", "_unsafe_view",
        "_reshape_alias", "lift_fresh", "lift_fresh_copy", "_local_scalar_dense", "equal",
        "is_same_size", "resize_", "arange", "arange.start", "arange.start_step",
        "set_.source_Tensor",
    )
)  # fmt: skip


class _OneCall:
    """One ATen call with fixed types and Python arguments, ready to run on tensors."""

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
                meta[position] = torch.empty(leaf.shape, dtype=leaf.dtype, device="meta")
                nodes[position] = graph.placeholder(_argument(len(inputs) - 1).replace(".", "_"))
                nodes[position].meta["val"] = meta[position]
        meta_args, meta_kwargs = pytree.tree_unflatten(meta, tree)
        node_args, node_kwargs = pytree.tree_unflatten(nodes, tree)
        call = graph.call_function(func, node_args, node_kwargs)
        call.meta["val"] = shapes = func(*meta_args, **meta_kwargs)
        results, self.results_tree = pytree.tree_flatten(shapes)
        wanted = [call] if isinstance(shapes, Tensor) else self._items(graph, call, shapes)
        graph.output(tuple(wanted))
        values = Lowerer(builder).run(graph, inputs)
        named = {f"output.{i:03d}": value for i, value in enumerate(values)}
        self.present = [isinstance(result, Tensor) for result in results]
        self.executor = Executor(canonicalize(builder.finish(named)))
        self.inputs = len(inputs)

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
        outputs = self.executor.run_step({}, {k: v for k, v in arrays.items() if k in used}).outputs
        made = iter(torch.from_numpy(outputs[name]) for name in sorted(outputs))
        leaves = [next(made) if here else None for here in self.present]
        return pytree.tree_unflatten(leaves, self.results_tree)


def _argument(index: int) -> str:
    return f"arg{index:03d}"


def _hashable(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return ("tensor", leaf.dtype, tuple(leaf.shape))
    # 1, 1.0 and True are one dictionary key but three meanings.
    return (type(leaf), leaf if not isinstance(leaf, float) else leaf.hex())


class _ContractDispatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs every computing ATen call of the block on the contract's kernels."""

    def __init__(self, contract: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.contract = contract
        self.calls: dict[Any, _OneCall] = {}

    @exact_environment()
    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = op_name(func)
        if (
            func.is_view
            or torch.Tag.inplace_view in func.tags
            or name in _STORAGE
            or func.namespace == "profiler"
        ):
            return func(*args, **kwargs)
        if func._schema.is_mutable:
            return self._in_place(func, name, args, kwargs)
        return self._compute(func, args, kwargs)

    def _compute(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if any(t.device.type != "cpu" for t in tensors):
            raise UsageError(
                "reproducible() works on CPU tensors only.", "Move the model and data to the CPU."
            )
        key = (func, tree, tuple(_hashable(leaf) for leaf in leaves))
        try:
            call = self.calls.get(key)
            if call is None:
                call = self.calls[key] = _OneCall(func, args, kwargs, self.contract)
        except TallystickError:
            raise
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            raise UnsupportedOperatorError(
                f"{op_name(func)} cannot run under the contract: {error}",
                "spec/NUMERICS.md lists the operators there are.",
            ) from error
        return call(tensors)

    def _in_place(
        self, func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Tensor:
        """x.add_(y) becomes x.copy_(x.add(y)), because the contract knows values and no storage."""
        base, _, overload = name.removeprefix("aten.").partition(".")
        packet = getattr(torch.ops.aten, base.removesuffix("_"), None)
        pure = getattr(packet, overload or "default", None)
        # Of pow_ the functional form with the same operands has another name.
        if pure is None or str(pure._schema.arguments[0].type) != "Tensor":
            pure = getattr(packet, f"Tensor_{overload}", None)
        if not base.endswith("_") or pure is None or not isinstance(args[0], Tensor):
            raise UnsupportedOperatorError(
                f"{name} changes its operands in a way reproducible() does not know.",
                "Use the operator without out= (and optimizers with foreach=False, fused=False).",
            )
        target: Tensor = args[0]
        return target.copy_(self._compute(pure, args, kwargs))


class _EagerLowering(Lowering):
    """Capture's replacements, with the draws of one step after another."""

    def next_step(self) -> None:
        """Begin the next training step: its dropout masks are drawn afresh (NUMERICS 8.2)."""
        self.draws = 0
        self.rng = torch.from_numpy(np.array([int(self.rng[0]), int(self.rng[1]) + 1]))


@contextlib.contextmanager
def reproducible(contract: str = "ordered/1", *, seed: int = 0) -> Iterator[_EagerLowering]:
    """Within the block, eager CPU PyTorch computes with the bits of `contract`.

    Covers forward, backward and optimizers that use single-tensor ATen operators (torch.optim
    with foreach=False, fused=False). Dropout and torch's other random calls draw from Philox keyed
    by (seed, step), as in a capture (PROGRAM 5.3); call `.next_step()` on the object that the block
    yields, after each step. torch.optim.Adam's own bias correction uses Python's `pow`; capture
    does not.

    Raises UnsupportedVersionError for an unknown contract or one that keeps a log,
    UnsupportedOperatorError by name for an operator outside it, UsageError for tensors that are
    not on the CPU.
    """
    meaning = without_log(contract).text
    check_environment()
    lowering = _EagerLowering(torch.from_numpy(np.array([seed, 0], dtype=np.int64)))
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with lowering.installed(), _ContractDispatch(meaning):
            yield lowering
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
