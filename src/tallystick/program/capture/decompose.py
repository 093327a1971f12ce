"""An ATen operator in terms of others: our composition, or torch's decomposition (PROGRAM 5.2).

A composition is a torch function in `rules_*.py`, attached to the operator's name. It uses
operators that have a meaning in a program, and it may return NotImplemented for types that it
does not know. Torch's reference decomposition is asked only for an operator that neither the
contract nor `rules_*.py` knows. So what these say never depends on torch's version.
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

from tallystick.errors import UnsupportedOperatorError
from tallystick.numerics.attachments import Attachments
from tallystick.program.capture.foreach import foreach

# By the names of ATen's operators; each takes the operator's arguments and gives its result.
composition: Attachments[Callable[..., Any]] = Attachments(
    "composition", "tallystick.program.capture.rules_*"
)


class _NotCoveredError(Exception):
    """A composition or decomposition returned NotImplemented."""


def defect(what: str, error: Exception) -> UnsupportedOperatorError:
    """A refusal for a failure that is ours, and neither the model's nor torch's."""
    return UnsupportedOperatorError(
        f"{what} fails on this call: {type(error).__name__}: {error}.",
        "This is a defect of Tallystick: report the call, with its shapes and dtypes.",
    )


class Parts:
    """An operator's decomposition: a graph, the arguments it reads, and its results' places.

    `graph` has one placeholder per tensor argument of the call, in pytree order. `tree` says how
    its outputs make up the operator's result.
    """

    def __init__(self, call: Callable[..., Any], args: Any, kwargs: Any, may_mutate: bool) -> None:
        leaves, tree = pytree.tree_flatten((args, kwargs))
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, fx.Node)]
        self.outputs: Any = None

        def flat(*tensors: Tensor) -> list[Tensor]:
            given = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                given[place] = tensor
            inner_args, inner_kwargs = pytree.tree_unflatten(given, tree)
            made = call(*inner_args, **inner_kwargs)
            if made is NotImplemented:
                raise _NotCoveredError
            results, self.outputs = pytree.tree_flatten(made)
            self.present = [isinstance(result, Tensor) for result in results]
            return [result for result in results if isinstance(result, Tensor)]

        examples = [_example(leaves[place].meta["val"]) for place in places]
        # In `reproducible` this runs below a dispatch mode, where torch's thread state hides
        # functionalization. A thread of its own has a fresh state.
        with ThreadPoolExecutor(1) as thread:
            pure = functionalize(flat, remove="mutations") if may_mutate else flat
            self.graph = thread.submit(_trace, pure, examples).result()

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
        return make_fx(flat, tracing_mode="real")(*examples).graph


def _example(known: Tensor) -> Tensor:
    return torch.empty_strided(known.shape, known.stride(), dtype=known.dtype, device="meta")


def _meaning(argument: Any) -> Any:
    """What a decomposition can depend on: types, strides and Python's values."""
    if isinstance(argument, fx.Node):
        known = argument.meta["val"]
        return ("tensor", known.dtype, tuple(known.shape), known.stride())
    # 1, 1.0 and True are one dictionary key but three meanings.
    return (type(argument), argument.hex() if isinstance(argument, float) else argument)


# In `reproducible` each call is lowered by itself, so what was traced is kept for the next one.
_KEPT = 2048
_kept: dict[Any, Parts | None] = {}


class Decompositions:
    """Compositions and decompositions, each traced once per operator, types and arguments."""

    def ours(self, name: str, node: fx.Node) -> tuple[Parts, list[fx.Node]] | None:
        """The parts by our composition of the operator `name`, and the nodes they read, or None."""
        call = composition.get(name)
        return None if call is None else self._parts(call, node, may_mutate=False)

    def torchs(self, node: fx.Node) -> tuple[Parts, list[fx.Node]] | None:
        """The parts by torch's decomposition of the node's operator, or None."""
        call = foreach(node.target) or decomposition_table.get(node.target)  # type: ignore[call-overload]
        return None if call is None else self._parts(call, node, may_mutate=True)

    def _parts(self, call: Callable[..., Any], node: fx.Node, may_mutate: bool) -> Any:
        leaves, tree = pytree.tree_flatten((node.args, node.kwargs))
        # `may_mutate` tells our composition of an operator from torch's decomposition of it.
        key = (may_mutate, node.target, tree, tuple(_meaning(leaf) for leaf in leaves))
        if key not in _kept:
            if len(_kept) >= _KEPT:
                _kept.clear()
            parts: Parts | None = None
            try:
                parts = Parts(call, node.args, node.kwargs, may_mutate)
            except _NotCoveredError:
                pass
            except (RuntimeError, ValueError, TypeError, LookupError) as error:
                # Torch's decompositions do not cover every call. Ours tell what they do not cover.
                if not may_mutate:
                    raise defect(f"The composition of {node.target}", error) from error
            if parts and any(n.target is node.target for n in parts.graph.nodes):
                parts = None
            _kept[key] = parts
        found = _kept[key]
        return found and (found, [leaf for leaf in leaves if isinstance(leaf, fx.Node)])


def is_item(node: fx.Node) -> bool:
    """Whether the node takes one result of an operator that has several."""
    return node.target is operator.getitem
