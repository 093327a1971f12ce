"""Loops of plain PyTorch that differ in one planted thing each: the trace names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch
from torch import Tensor, nn
from torch.nn import functional
from traced_loops import (
    BASE,
    STEPS,
    Loop,
    compare,
    flip,
    plainly,
)

import tallystick
from tallystick.comparing.found import Comparison
from tallystick.comparing.recorded_tensors import device_of, generator_of
from tallystick.comparing.traced_pair import TracedPair
from tallystick.comparing.tracefile import TracedStep, TraceReader
from tallystick.errors import UsageError


def flip_by_torch(step: int, model: nn.Module) -> None:
    if step == 2:
        words = model.second.weight.data.view(torch.int32)  # type: ignore[operator, union-attr]
        words[1, 1] ^= 1 << 20


def overwritten(step: int, model: nn.Module) -> None:
    if step == 2:
        model.first.bias.detach().numpy()[:] += 0.5  # type: ignore[operator, union-attr]


@contextmanager
def patched(linear: Callable[..., Tensor]) -> Iterator[None]:
    usual = functional.linear
    functional.linear = linear
    try:
        yield
    finally:
        functional.linear = usual


def tf32(x: Tensor) -> Tensor:
    """The nearest value with 10 bits of significand behind the point, its gradient as it is."""
    words = x.detach().contiguous().view(torch.int32)
    short = ((words + 0x1000) & ~0x1FFF).view(torch.float32)
    return x + (short - x.detach())


def tf32_linear() -> Any:
    return patched(lambda x, w, b: tf32(x) @ tf32(w).t() + b)


def cut_linear() -> Any:
    """The operands themselves are short, as in hardware that cuts them."""

    def short(x: Tensor) -> Tensor:
        return (x.detach().contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)

    def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.addmm(b, short(x), short(w).t())

    return patched(linear)


class _OtherLibrary(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        # The sum in another order, by another library.
        made = np.einsum("ik,jk->ij", x.detach().numpy()[:, ::-1], w.detach().numpy()[:, ::-1])
        return torch.from_numpy(np.ascontiguousarray(made)) + b

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return grads[0] @ w, grads[0].t() @ x, grads[0].sum(0)


def numpy_linear() -> Any:
    return patched(lambda x, w, b: _OtherLibrary.apply(x, w, b))  # type: ignore[no-untyped-call]


def other_sums() -> Any:
    def linear(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        half = x.shape[1] // 2
        return x[:, :half] @ w[:, :half].t() + x[:, half:] @ w[:, half:].t() + b

    return patched(linear)


def autocast() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def smoothed(x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(x, y, label_smoothing=0.1)


def rounded_mode(kept: int) -> Any:
    """The same operators, whose operands are rounded to so many bits behind the point."""

    def short(x: Tensor) -> Tensor:
        half = 1 << (22 - kept)
        words = (x.contiguous().view(torch.int32) + half) & ~(2 * half - 1)
        return words.view(torch.float32)

    def instead(func: Any, args: Any) -> Any:
        if func is torch.ops.aten.addmm.default:
            return func(args[0], short(args[1]), short(args[2]))
        return None

    return below(instead)


def double_mode() -> Any:
    """The same operators by a kernel that adds in double precision."""

    def instead(func: Any, args: Any) -> Any:
        if func is torch.ops.aten.addmm.default:
            return (args[0].double() + args[1].double() @ args[2].double()).float()
        return None

    return below(instead)


@contextmanager
def below(instead: Callable[[Any, Any], Any]) -> Iterator[None]:
    """Replaces operators where the recorder does not see it, as another build of torch does."""
    from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode

    class Kernel(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            found = instead(func, args)
            return func(*args, **(kwargs or {})) if found is None else found

    recorder = _pop_mode()  # a mode that is entered later sees a call first
    try:
        with Kernel():  # type: ignore[no-untyped-call]
            _push_mode(recorder)
            try:
                yield
            finally:
                _pop_mode()
    finally:
        _push_mode(recorder)


PLANTED: dict[str, tuple[str, Loop, Loop]] = {
    "seed, weights made inside": ("seed", replace(BASE, inside=True), Loop(seed=2, inside=True)),
    "seed, weights made outside": ("seed", BASE, Loop(seed=2)),
    "seed of dropout": ("seed", Loop(weights=7), Loop(weights=7, seed=2)),
    "weights": ("weights", Loop(weights=7), Loop(weights=8)),
    "rate": ("rate", BASE, Loop(lr=0.04)),
    "rate from step 4": ("rate", BASE, Loop(rates={4: 0.01})),
    "rate of Adam": ("rate", Loop(optimizer="Adam"), Loop(optimizer="Adam", lr=0.04)),
    "rate without an optimizer": ("rate", Loop(manual=True), Loop(manual=True, lr=0.04)),
    "momentum": ("setting", BASE, Loop(momentum=0.8)),
    "weight decay": ("setting", BASE, Loop(decay=0.1)),
    "optimizer": ("setting", BASE, Loop(optimizer="AdamW")),
    "order by the loader": ("data order", Loop(shuffle=1), Loop(shuffle=2)),
    "shuffled or not": ("data order", BASE, Loop(permute=4)),
    "order by numpy": ("data order", Loop(permute=3), Loop(permute=4)),
    "data": ("data", BASE, Loop(shift=0.5)),
    "last batch dropped": ("last batch", BASE, Loop(drop_last=True)),
    "last batch at the end": ("last batch", Loop(steps=3), Loop(steps=2)),
    "batch size": ("batch size", BASE, Loop(batch=4)),
    "dropout": ("dropout", BASE, Loop(p=0.2)),
    "no dropout": ("dropout", BASE, Loop(p=0.0)),
    "evaluation mode": ("dropout", BASE, Loop(training=False)),
    "activation": ("program", BASE, Loop(act=torch.tanh)),
    "another layer": ("program", BASE, Loop(norm=True)),
    "loss": ("program", BASE, Loop(loss=smoothed)),
    "gelu": ("program", Loop(act=nn.GELU()), Loop(act=nn.GELU(approximate="tanh"))),
    "flipped bit": ("flipped bit", BASE, Loop(before=flip(22))),
    "flipped low bit": ("flipped bit", BASE, Loop(before=flip(9))),
    "flipped sign": ("flipped bit", BASE, Loop(before=flip(31))),
    "flipped by torch": ("flipped bit", BASE, Loop(before=flip_by_torch)),
    "overwritten": ("outside", BASE, Loop(before=overwritten)),
    "TF32": ("precision", BASE, Loop(around=tf32_linear)),
    "cut operands": ("precision", BASE, Loop(around=cut_linear)),
    "TF32 in a kernel": ("precision", BASE, Loop(around=lambda: rounded_mode(10))),
    "bfloat16 in a kernel": ("precision", BASE, Loop(around=lambda: rounded_mode(7))),
    "autocast": ("precision", BASE, Loop(around=autocast)),
    "another library": ("rounding", BASE, Loop(around=numpy_linear)),
    "another order of sums": ("rounding", BASE, Loop(around=other_sums)),
    "another kernel": ("rounding", BASE, Loop(around=double_mode)),
    "more steps": ("steps", Loop(steps=5), Loop(steps=4)),
}


def test_there_are_enough_planted_differences() -> None:
    assert len(PLANTED) >= 20


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_is_named(name: str, tmp_path: Path) -> None:
    cause, ours, theirs = PLANTED[name]
    found = compare(ours, theirs, tmp_path)
    assert not found.equal and found.cause is not None and found.first is not None
    assert found.cause.kind == cause, (found.causes, found.first, found.programs)
    back = tallystick.diff(tmp_path / "b", tmp_path / "a")
    assert back.cause is not None and back.cause.kind == cause, back.causes


@pytest.mark.parametrize("loop", [BASE, Loop(inside=True, optimizer="AdamW", shuffle=3, norm=True)])
def test_one_loop_is_equal_to_its_repetition(loop: Loop, tmp_path: Path) -> None:
    found = compare(loop, loop, tmp_path)
    assert found.equal and found.compared["equal steps"] == STEPS, (found.causes, found.first)


# -- what must not be taken for something else -----------------------------------------------------
def by_hand(
    place: Path,
    scale: float = 255.0,
    column: int = 0,
    first: int = 0,
    dtype: torch.dtype = torch.float32,
    halves: bool = False,
) -> Path:
    """A loop without modules, which scales its records and takes a column of its results."""
    torch.manual_seed(1)
    x, w = torch.randn(12, 64).to(dtype), torch.randn(64, 3).to(dtype).requires_grad_()
    with tallystick.trace(place):
        for _ in range(2):
            part = x[first : first + 4] / scale
            made = part[:, :32] @ w[:32] + part[:, 32:] @ w[32:] if halves else part @ w
            (grad,) = torch.autograd.grad(made[:, column].square().sum(), w)
            with torch.no_grad():
                w.sub_(0.1 * grad)
    return place


@pytest.mark.parametrize(
    ("asked", "cause"),
    [
        ({"scale": 256.0}, "program"),
        ({"column": -1}, "program"),
        ({"first": 4}, "data order"),
        ({"halves": True}, "rounding"),
    ],
)
def test_arguments_tell_causes_apart(asked: Any, cause: str, tmp_path: Path) -> None:
    found = tallystick.diff(by_hand(tmp_path / "a"), by_hand(tmp_path / "b", **asked))
    assert found.cause is not None and found.cause.kind == cause, (found.causes, found.first)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounding_in_a_short_type_is_no_lower_precision(dtype: Any, tmp_path: Path) -> None:
    ours = by_hand(tmp_path / "a", dtype=dtype, scale=1.0)
    found = tallystick.diff(ours, by_hand(tmp_path / "b", dtype=dtype, scale=1.0, halves=True))
    assert found.cause is not None and found.cause.kind == "rounding", found.causes


@pytest.mark.parametrize("form", [{"fused": True}, {"foreach": True}, {"foreach": False}])
def test_a_rate_is_named_in_every_form_of_an_optimizer(form: Any, tmp_path: Path) -> None:
    # Where each tensor has operators of its own, a quarter of the tensors has as many as need be.
    count = 100 if form == {"foreach": False} else 400

    def run(name: str, lr: float) -> Path:
        torch.manual_seed(0)
        weights = [torch.randn(4).requires_grad_() for _ in range(count)]
        rule = torch.optim.Adam(weights, lr=lr, **form)
        with tallystick.trace(tmp_path / name):
            torch.stack(weights).square().sum().backward()  # type: ignore[no-untyped-call]
            rule.step()
        return tmp_path / name

    found = tallystick.diff(run("a", 0.1), run("b", 0.1001))
    assert found.cause is not None and found.cause.kind == "rate", found.causes


def test_an_equal_draw_is_no_other_seed(tmp_path: Path) -> None:
    """The generators stand alike: another kernel has made other numbers of them."""

    def other(func: Any, args: Any) -> Any:
        if func is not torch.ops.aten.bernoulli_.float:
            return None
        made = func(*args)
        made[::2] = 1 - made[::2]
        return made

    found = compare(BASE, Loop(around=lambda: below(other)), tmp_path)
    assert found.cause is not None and found.cause.kind != "seed", found.causes
    assert found.first is not None and "bernoulli" in str(found.first.operator[0])


def test_a_draw_is_recorded_with_the_generator_of_its_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generators = (torch.Generator(), torch.Generator().manual_seed(5))
    monkeypatch.setattr(torch.cuda, "default_generators", generators)
    assert generator_of((), {"device": "cuda:1"}) is generators[1]
    assert generator_of((), {}) is torch.default_generator
    device = device_of((torch.empty(1, device="meta"), 0.5), {})
    assert device.type == "meta"
    assert device_of(((2,),), {"device": "cuda:1"}) == torch.device("cuda", 1)


def test_what_only_one_loop_states_is_seen(tmp_path: Path) -> None:
    """Of the optimizers' settings and of the environment, whichever loop it is."""
    readers = [TraceReader(BASE.run(tmp_path / name)) for name in ("a", "b")]
    readers[1].about["new flag"] = "True"
    settings: list[dict[str, str]] = [{}, {"fused": "True"}]
    for first, second in ((0, 1), (1, 0)):
        pair = TracedPair((readers[first], readers[second]))
        ours, theirs = (TracedStep(0, settings=[("SGD 0", settings[n])]) for n in (first, second))
        pair.steps = (ours, theirs)
        values = ["absent", "True"]
        assert pair.settings() == [("SGD 0", "fused", values[first], values[second])]
        assert pair.environment() == f"new flag: {values[first]} in A, {values[second]} in B"


# -- other loops -----------------------------------------------------------------------------------
def convolutional(place: Path, seed: int = 0, sign: float = 1.0, **asked: Any) -> Path:
    """A loop by hand: slices of a tensor, a convolution, batch norm, two optimizers in turns."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 3)
    )
    x, y = torch.randn(12, 1, 8, 8), torch.arange(12) % 3
    rules = [torch.optim.SGD(net[:2].parameters(), 0.1), torch.optim.Adam(net[4].parameters())]
    with tallystick.trace(place, **asked):
        for step in range(4):
            part = slice(4 * (step % 3), 4 * (step % 3) + 4)
            net.zero_grad()
            made = functional.cross_entropy(net(sign * x[part]), y[part])
            made.backward()  # type: ignore[no-untyped-call]
            rules[step % 2].step()
    return place


def test_a_convolutional_loop(tmp_path: Path) -> None:
    base = convolutional(tmp_path / "a")
    assert tallystick.diff(base, convolutional(tmp_path / "b")).equal
    other = tallystick.diff(base, convolutional(tmp_path / "c", seed=1))
    assert other.cause is not None and other.cause.kind == "seed"
    minus = tallystick.diff(base, convolutional(tmp_path / "d", sign=-1.0))
    assert minus.cause is not None and minus.cause.kind in ("program", "data", "rate")


def test_a_reproducible_block_is_recorded(tmp_path: Path) -> None:
    def run(name: str, loop: Loop) -> Path:
        block = tallystick.reproducible(record=tmp_path / name)
        return loop.run(tmp_path / name, block)

    loop = Loop(steps=3, optimizer="AdamW")
    first = run("a", loop)
    found = tallystick.diff(first, run("b", loop))
    assert found.equal and found.compared["equal steps"] == 3
    rate = tallystick.diff(first, run("c", replace(loop, lr=0.01)))
    assert rate.cause is not None and rate.cause.kind == "rate", (rate.causes, rate.first)
    seed = tallystick.diff(first, run("d", replace(loop, seed=4)))
    assert seed.cause is not None and seed.cause.kind == "seed", (seed.causes, seed.first)


def test_a_recorded_block_ends_its_steps_and_takes_budgets(tmp_path: Path) -> None:
    """`.next_step()` reaches both, also where an optimizer has ended the recorder's step."""

    def run(name: str, seed: int, optimizer: bool) -> Path:
        torch.manual_seed(1)
        weight = torch.ones(8, requires_grad=True)
        rule = torch.optim.SGD([weight], 0.1)
        trace = tallystick.trace(tmp_path / name, step=1, overwrite=True)
        with tallystick.reproducible(seed=seed, record=trace) as block:
            for _ in range(3):
                functional.dropout(weight, 0.5).sum().backward()  # type: ignore[no-untyped-call]
                if optimizer:
                    rule.step()
                block.next_step()
            assert block.operators
        return tmp_path / name

    for optimizer in (False, True):
        found = tallystick.diff(run("a", 1, optimizer), run("b", 1, optimizer))
        assert found.equal and found.compared["equal steps"] == 3
        other = tallystick.diff(tmp_path / "a", run("b", 2, optimizer))
        assert other.cause is not None and other.cause.kind == "seed", (other.causes, other.first)
    with pytest.raises(UsageError, match="not a trace"), tallystick.reproducible(record=plainly()):
        pass


def test_memory_is_compared_as_it_is_written(tmp_path: Path) -> None:
    """A buffer that is filled piece by piece has what the memory held elsewhere, until it is
    full."""

    def run(name: str, garbage: float, last: float) -> Comparison:
        def empty(func: Any, args: Any) -> Any:
            if func is torch.ops.aten.empty.memory_format:
                return torch.full(args[0], garbage)
            return None

        with tallystick.trace(tmp_path / name), below(empty):
            made = torch.empty(4, 3)
            for row in range(3):
                made[row] = 1.0
                made[: row + 1].sum()
                made.t()  # shows what is not written yet
            made[3] = last
            made.sum()
        return tallystick.diff(tmp_path / "a", tmp_path / name)

    assert run("a", 1.0, 1.0).equal
    assert run("b", 7.0, 1.0).equal
    other = run("c", 7.0, 2.0)
    assert not other.equal and other.first is not None
