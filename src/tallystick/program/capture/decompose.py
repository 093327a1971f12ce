"""An ATen operator in terms of others: our composition, or torch's decomposition (PROGRAM 5.2).

A composition is a torch function in `rules_*.py`, attached to the operator's name. It uses
operators that have a meaning in a program, and it may return NotImplemented for types that it
does not know. Torch's reference decomposition is asked only for an operator that neither the
contract nor `rules_*.py` knows. So what these say never depends on torch's version.

A list operator, `aten._foreach_…`, is its plain operator on each element, one by one.
"""

from __future__ import annotations

import functools
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
from torch.utils._device import _device_constructors

from tallystick.errors import UnsupportedOperatorError
from tallystick.numerics.attachments import Attachments

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


class Decomposition:
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


def meta_device() -> torch.device:
    """The device of a trace, to be entered as a context.

    At the first context of a device torch remembers the functions that make tensors. transformers
    has one of its own in the place of `torch.linspace` while it loads a model. If that was the
    first context, torch's own kernel would make the values of a later `torch.linspace`.
    """
    if _device_constructors() != _device_constructors.__wrapped__():
        _device_constructors.cache_clear()
    return torch.device("meta")


def _trace(flat: Callable[..., list[Tensor]], examples: list[Tensor]) -> fx.Graph:
    with (
        torch._C.DisableTorchFunction(),
        meta_device(),
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
_kept: dict[Any, Decomposition | None] = {}


class Decompositions:
    """Compositions and decompositions, each traced once per operator, types and arguments."""

    def ours(self, name: str, node: fx.Node) -> tuple[Decomposition, list[fx.Node]] | None:
        """The parts by our composition of the operator `name`, and the nodes they read, or None."""
        call = composition.get(name)
        return None if call is None else self._parts(call, node, may_mutate=False)

    def torchs(self, node: fx.Node) -> tuple[Decomposition, list[fx.Node]] | None:
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
            parts: Decomposition | None = None
            try:
                parts = Decomposition(call, node.args, node.kwargs, may_mutate)
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


_PREFIX = "aten::_foreach_"
_ATEN = torch.ops.aten


def _norm(x: Tensor, ord: Any = 2, dtype: torch.dtype | None = None) -> Any:
    return _ATEN.linalg_vector_norm.default(x, ord, None, False, dtype=dtype)


def _addc(name: str) -> Callable[..., Any]:
    packet = getattr(_ATEN, name)
    return lambda x, tensor1, tensor2, value=1: packet.default(x, tensor1, tensor2, value=value)


def _limit(name: str) -> Callable[..., Any]:
    """A minimum or maximum with a tensor or a number."""
    plain, limit = {
        "maximum": (_ATEN.maximum.default, _ATEN.clamp_min.default),
        "minimum": (_ATEN.minimum.default, _ATEN.clamp_max.default),
        "clamp_min": (_ATEN.maximum.default, _ATEN.clamp_min.default),
        "clamp_max": (_ATEN.minimum.default, _ATEN.clamp_max.default),
    }[name]
    return lambda x, other: (plain if isinstance(other, Tensor) else limit)(x, other)


def _lerp(x: Tensor, end: Tensor, weight: Any) -> Any:
    return (_ATEN.lerp.Tensor if isinstance(weight, Tensor) else _ATEN.lerp.Scalar)(x, end, weight)


def _pow(x: Any, exponent: Any) -> Any:
    if not isinstance(x, Tensor):
        return _ATEN.pow.Scalar(x, exponent)
    form = _ATEN.pow.Tensor_Tensor if isinstance(exponent, Tensor) else _ATEN.pow.Tensor_Scalar
    return form(x, exponent)


def _arithmetic(name: str) -> Callable[..., Any]:
    packet = getattr(_ATEN, name)

    def call(x: Tensor, other: Any, **alpha: Any) -> Any:
        return (packet.Tensor if isinstance(other, Tensor) else packet.Scalar)(x, other, **alpha)

    return call


_PLAIN: dict[str, Callable[..., Any]] = {
    **{name: _arithmetic(name) for name in ("add", "sub", "mul", "div")},
    **{name: _limit(name) for name in ("maximum", "minimum", "clamp_min", "clamp_max")},
    **{name: _addc(name) for name in ("addcmul", "addcdiv")},
    "lerp": _lerp,
    "pow": _pow,
    "norm": _norm,
    "max": _ATEN.max.default,
    "mm": _ATEN.mm.default,
    "copy": _ATEN.copy.default,
    "zero": _ATEN.zeros_like.default,
    "clone": _ATEN.clone.default,
}


def foreach(func: Any) -> Callable[..., list[Any]] | None:
    """The list operator as plain operators on its elements, or None where `func` is none."""
    schema = func._schema
    if not schema.name.startswith(_PREFIX) or schema.is_mutable:
        return None
    name = schema.name.removeprefix(_PREFIX)
    plain = _PLAIN.get(name)
    if plain is None:
        packet = getattr(_ATEN, name, None)
        if packet is None or "default" not in packet.overloads():
            return None
        plain = packet.default
    return functools.partial(_one_by_one, func, plain)


def _one_by_one(func: Any, plain: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
    arguments = func._schema.arguments
    listed = [str(a.type) in ("List[Tensor]", "List[number]") for a in arguments]
    count = next(len(v) for v, many in zip(args, listed, strict=False) if many)
    results = []
    for i in range(count):
        given = [v[i] if many else v for v, many in zip(args, listed, strict=False)]
        results.append(plain(*given, **kwargs))
    return results
