"""Which module of the model makes which nodes of a trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallystick.program.capture.replaced import replacing, usual


def first_tensor(output: Any) -> Tensor | None:
    """The tensor that a module returns, or the first in what it returns."""
    if isinstance(output, Mapping):
        output = tuple(output.values())
    while isinstance(output, (list, tuple)) and output:
        output = output[0]
    return output if isinstance(output, Tensor) else None


@contextlib.contextmanager
def around_calls(
    module: nn.Module, around: Callable[[str, nn.Module, Callable[[], Any]], Any]
) -> Iterator[None]:
    """Within it `around(path, child, call)` makes the forward call of each submodule.

    The calls have no hooks of ours: code may ask which hooks a module has.
    """
    named = list(module.named_modules())
    paths = {id(child): path for path, child in named}
    usually = usual("torch.nn:Module", "_call_impl")

    def call(child: nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(child))
        if path is None:
            return usually(child, *args, **kwargs)
        return around(path, child, lambda: usually(child, *args, **kwargs))

    with replacing("torch.nn:Module", "_call_impl", call):
        yield


@contextlib.contextmanager
def module_spans(
    module: nn.Module, results: list[tuple[str, Tensor]], count: Callable[[], int]
) -> Iterator[list[tuple[int, int, str]]]:
    """Collects (first node, end node, module path) for every forward call, innermost first.

    `results` gets the path and the tensor of every call that returns one.
    """
    spans: list[tuple[int, int, str]] = []

    def noted(path: str, child: nn.Module, call: Callable[[], Any]) -> Any:
        start = count()
        output = call()
        result = first_tensor(output)
        if result is not None:
            results.append((path, result))
        spans.append((start, count(), path or type(child).__name__))
        return output

    with around_calls(module, noted):
        yield spans


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
