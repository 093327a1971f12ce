"""A trace records what torch's `make_fx` records; a second one is compared call by call (PROGRAM
5.8)."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from tallystick.program.capture import recorder as recorder_module
from tallystick.program.capture.recorder import Recorder, is_torchs

Function = Callable[[Tensor, Tensor], list[Tensor]]


def examples() -> list[Tensor]:
    return [torch.empty(4, 6, device="meta"), torch.empty(6, 6, device="meta")]


def recorded(function: Function, before: Recorder | None = None) -> Recorder:
    recorder = Recorder(before)
    recorder.run(function, examples())
    return recorder


def calls(graph: fx.Graph) -> list[Any]:
    """What each node does, and the type of its result; nodes by their places.

    Without results of several that nobody takes, for which torch makes nodes even where absent.
    """
    nodes = [n for n in graph.nodes if n.target is not operator.getitem or n.users]
    place = {node: i for i, node in enumerate(nodes)}

    def plain(value: Any) -> Any:
        return repr(fx.node.map_arg(value, place.__getitem__))

    def type_of(value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [type_of(v) for v in value]
        known = isinstance(value, Tensor)
        return (tuple(value.shape), value.stride(), value.dtype) if known else None

    return [
        (n.op, n.target if n.op == "call_function" else None, plain(n.args), plain(n.kwargs),
         type_of(n.meta.get("val")))
        for n in nodes
    ]  # fmt: skip


def gradient(x: Tensor, w: Tensor) -> list[Tensor]:
    with torch.enable_grad():
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = F.layer_norm(F.gelu(x @ w), (6,)).softmax(-1)
        a, b = y.split(3, -1)
        loss = (a * b).mean() + F.silu(w).std()
        return [loss.detach(), *torch.autograd.grad(loss, [x, w])]


def in_place(x: Tensor, w: Tensor) -> list[Tensor]:
    y = x.clone()
    y[1:, ::2].add_(1.0)
    y.unsqueeze_(0).mul_(2)
    top = y.topk(2, -1)
    return [torch.cat([y.squeeze(0), x], 1), top.values, top.indices]


def made(x: Tensor, w: Tensor) -> list[Tensor]:
    mask = torch.full((4, 6), -1.0, device=x.device).triu(1)
    places = torch.arange(6, device=x.device)
    return [x.masked_fill(mask == 0, float("-inf")), w[places], x.new_zeros(2), x]


def with_content(x: Tensor, w: Tensor) -> list[Tensor]:
    kept = torch.empty(6, device="meta")
    return [x + kept, kept]


@pytest.mark.parametrize("function", [gradient, in_place, made, with_content])
def test_the_record_is_that_of_make_fx(function: Function) -> None:
    """The same nodes with the same arguments, in the same order.

    Torch detaches the result of a factory where something else holds it, as a record does.
    """
    held = []

    def hold(proxy: Any, value: Any) -> Any:
        held.append(value)
        return proxy

    with mock.patch.object(proxy_tensor, "set_meta", hold):
        wanted = calls(make_fx(function)(*examples()).graph)
    assert [c[:4] for c in calls(recorded(function).graph)] == [c[:4] for c in wanted]


@pytest.mark.parametrize("function", [gradient, in_place, made])
def test_the_same_run_again_makes_no_graph(function: Function) -> None:
    first = recorded(function)
    types = calls(first.graph)
    second = recorded(function, first)
    assert second.repeats and second.graph is first.graph
    assert calls(first.graph) == types
    assert second.count() == first.count() - 1  # all but the output node


ONE: Function = lambda x, w: [x * 2, (x @ w).sum(1)]  # noqa: E731
OTHERS: dict[str, Function] = {
    "number": lambda x, w: [x * 3, (x @ w).sum(1)],
    "kind of number": lambda x, w: [x * 2.0, (x @ w).sum(1)],
    "truth value": lambda x, w: [x * True, (x @ w).sum(1)],
    "axis": lambda x, w: [x * 2, (x @ w).sum(0)],
    "keyword": lambda x, w: [x * 2, (x @ w).sum(1, dtype=torch.float64)],
    "operand": lambda x, w: [x * 2, (x @ w.t()).sum(1)],
    "operator": lambda x, w: [x * 2, (x @ w).mean(1)],
    "order": lambda x, w: [(x @ w).sum(1), x * 2][::-1],
    "results": lambda x, w: [x * 2, (x @ w).sum(1)][::-1],
    "fewer results": lambda x, w: [(x * 2), (x @ w).sum(1)][:1],
    "fewer calls": lambda x, w: [x * 2],
    "more calls": lambda x, w: [x * 2, (x @ w).sum(1), x.exp()],
    "other input": lambda x, w: [w * 2, (x @ w).sum(1)],
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_run_has_a_graph_of_its_own(what: str) -> None:
    first = recorded(ONE)
    before = calls(first.graph)
    second = recorded(OTHERS[what], first)
    assert not second.repeats
    assert calls(second.graph) == calls(recorded(OTHERS[what]).graph)
    assert calls(first.graph) == before
    second.graph.lint()


def test_zero_has_a_sign_and_nan_is_itself() -> None:
    def with_number(number: float) -> Function:
        return lambda x, w: [x.clamp(min=number)]

    first = recorded(with_number(0.0))
    assert recorded(with_number(0.0), first).repeats
    assert not recorded(with_number(-0.0), first).repeats
    assert recorded(with_number(float("nan")), recorded(with_number(float("nan")))).repeats


def forms(x: Tensor, w: Tensor) -> list[Tensor]:
    """Calls that differ in one thing alone: strides, the kind of a number, the default dtype."""
    whole = torch.arange(6, device=x.device)
    found = [whole + 1, whole + 1.0, whole + True, whole / 2, w + 1, w.t() + 1, w[::2] * 2]
    found += [w[:, ::2] * 2, w.expand(2, 6, 6) + 1, x.sum(1, True), x.sum(0, True)]
    torch.set_default_dtype(torch.float64)
    try:
        return [*found, whole / 2, whole + 1.0]
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("function", [gradient, in_place, made, with_content, forms])
def test_what_is_known_of_a_form_is_what_torch_finds(function: Function) -> None:
    """The types and strides of all results: without a known form, and with all of them."""
    with mock.patch.object(recorder_module, "has_one_form", lambda func: False):
        wanted = calls(recorded(function).graph)
    with mock.patch.object(recorder_module, "known_forms", {}) as known:
        assert calls(recorded(function).graph) == wanted
        assert known
        assert calls(recorded(function).graph) == wanted


def test_a_call_that_fails_fails_each_time() -> None:
    for _ in range(2):
        with pytest.raises(RuntimeError, match="broadcast"):
            recorded(lambda x, w: [x + w[:5]])


def test_an_operator_is_torchs_unless_somebody_gives_it_a_kernel_or_looks_on() -> None:
    """A clock that such a kernel or mode reads must be seen, and its results are not remembered."""
    relu, exp = torch.ops.aten.relu.default, torch.ops.aten.exp.default
    assert is_torchs(relu)
    assert is_torchs(exp)
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("relu", lambda x: x, "PrivateUse1")
        assert not is_torchs(relu)
        assert is_torchs(exp)
    finally:
        library._destroy()
    assert is_torchs(relu)
    with TorchDispatchMode():
        assert not is_torchs(exp)
    assert not is_torchs(torch.ops.mkldnn._linear_pointwise.default)
