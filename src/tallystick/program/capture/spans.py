"""Which module of the model makes which nodes of a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def first_tensor(output: Any) -> Tensor | None:
    """The tensor that a module returns, or the first in what it returns."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


def _nothing(*given: Any) -> None:
    """What a copy of a hook does."""


class _Hook:
    """A hook of one trace: a copy of the module, which the code may keep, has none that acts."""

    def __init__(self, act: Callable[..., None]) -> None:
        self.act = act

    def __call__(self, *given: Any) -> None:
        self.act(*given)

    def __deepcopy__(self, memo: Any) -> Callable[..., None]:
        return _nothing


@contextlib.contextmanager
def module_spans(
    module: nn.Module, results: list[tuple[str, Tensor]], count: Callable[[], int]
) -> Iterator[list[tuple[int, int, str]]]:
    """Collects (first node, end node, module path) for every forward call, innermost first.

    `results` gets the path and the tensor of every call that returns one.
    """
    spans: list[tuple[int, int, str]] = []
    entered: list[int] = []
    handles = []
    for path, child in module.named_modules():

        def enter(_module: nn.Module, _args: Any) -> None:
            entered.append(count())

        def leave(_module: nn.Module, _args: Any, output: Any, path: str = path) -> None:
            result = first_tensor(output)
            if result is not None:
                results.append((path, result))
            spans.append((entered.pop(), count(), path or type(_module).__name__))

        handles.append(child.register_forward_pre_hook(_Hook(enter)))
        handles.append(child.register_forward_hook(_Hook(leave)))
    try:
        yield spans
    finally:
        for handle in handles:
            handle.remove()


def origins_of(graph: torch.fx.Graph, spans: list[tuple[int, int, str]]) -> dict[str, str]:
    """Module path per node name. A backward node is named after the forward node it reads."""
    names = [node.name for node in graph.nodes]
    origin: dict[str, str] = {}
    for start, end, path in spans:
        for name in names[start:end]:
            origin.setdefault(name, path)
    for node in graph.nodes:
        if node.name in origin or node.op != "call_function":
            continue
        # Saved activations say more about a backward node than the gradient that flows in.
        for operand in reversed(node.all_input_nodes):
            if operand.name in origin:
                path = origin[operand.name]
                suffix = " (backward)"
                origin[node.name] = path if path.endswith(suffix) else path + suffix
                break
    return origin
