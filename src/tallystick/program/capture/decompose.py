"""An ATen operator in terms of others, by torch's own reference decomposition (PROGRAM 5.2).

Asked only for an operator that neither the contract nor a rule of `rules_*.py` knows. So what a
rule or the contract says never depends on torch's version.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import Tensor, fx
from torch._decomp import decomposition_table
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx

from tallystick.program.capture.foreach import foreach


class Parts:
    """An operator's decomposition: a graph, the arguments it reads, and its results' places.

    `graph` has one placeholder per tensor argument of the call, in pytree order. `tree` says how
    its outputs make up the operator's result.
    """

    def __init__(self, call: Callable[..., Any], args: Any, kwargs: Any) -> None:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]
        self.outputs: Any = None

        def flat(*tensors: Tensor) -> list[Tensor]:
            given = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            inner_args, inner_kwargs = pytree.tree_unflatten(given, tree)
            results, self.outputs = pytree.tree_flatten(call(*inner_args, **inner_kwargs))
            self.present = [isinstance(result, Tensor) for result in results]
            return [result for result in results if isinstance(result, Tensor)]

        examples = [_example(leaves[place].meta["val"]) for place in places]
        # In `reproducible` this runs below a dispatch mode, where torch's thread state hides
        # functionalization. A thread of its own has a fresh state.
        with ThreadPoolExecutor(1) as thread:
            self.graph = thread.submit(_trace, flat, examples).result()

    def result(self, values: list[Any]) -> Any:
        """The operator's result, from the graph's outputs in order."""
        made = iter(values)
        leaves = [next(made) if here else None for here in self.present]
        return pytree.tree_unflatten(leaves, self.outputs)


def _trace(flat: Callable[..., list[Tensor]], examples: list[Tensor]) -> fx.Graph:
    with (
        torch._C.DisableTorchFunction(),
        torch.device("meta"),
        torch.no_grad(),
        tracing(TracingContext(FakeTensorMode(allow_fallback_kernels=True))),
    ):
        traced = make_fx(functionalize(flat, remove="mutations"), tracing_mode="real")
        return traced(*examples).graph


def _example(known: Tensor) -> Tensor:
    return torch.empty_strided(known.shape, known.stride(), dtype=known.dtype, device="meta")


def _meaning(argument: Any) -> Any:
    """What a decomposition can depend on: types, strides and Python's values."""
    if isinstance(argument, fx.Node):
        known = argument.meta["val"]
        return ("tensor", known.dtype, tuple(known.shape), known.stride())
    # 1, 1.0 and True are one dictionary key but three meanings.
    return (type(argument), argument.hex() if isinstance(argument, float) else argument)


class Decompositions:
    """Torch's reference decompositions, each traced once per operator, types and arguments."""

    def __init__(self) -> None:
        self._made: dict[Any, Parts] = {}

    def of(self, node: fx.Node) -> tuple[Parts, list[fx.Node]] | None:
        """The parts of the node's operator, and the nodes that they read, or None."""
        call = foreach(node.target) or decomposition_table.get(node.target)  # type: ignore[call-overload]
        if call is None:
            return None
        leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
        key = (node.target, tree, tuple(_meaning(leaf) for leaf in leaves))
        if key not in self._made:
            try:
                parts = Parts(call, node.args, node.kwargs)
            except (RuntimeError, ValueError, TypeError, NotImplementedError):
                return None
            if any(n.target is node.target for n in parts.graph.nodes):
                return None
            self._made[key] = parts
        return self._made[key], [leaf for leaf in leaves if isinstance(leaf, fx.Node)]


def is_item(node: fx.Node) -> bool:
    """Whether the node takes one result of an operator that has several."""
    return node.target is operator.getitem
