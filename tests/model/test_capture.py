"""What capture makes of a module, and what it refuses (PROGRAM 5)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_digests import digests
from capture_models import CASES, Block, Gpt, Mlp, classify, next_token
from torch import Tensor, nn

from tallystick.errors import UnsupportedOperatorError, UsageError
from tallystick.program.capture import capture, capture_eval, capture_forward
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.optimizers import SGD, Adam, AdamW
from tallystick.program.text import parse_text

HERE = Path(__file__).parent
GOLDEN = HERE / "capture_digests.txt"
X = {"x": ((3, 4), "f32")}


def total(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return module(batch["x"]).sum()


def ops(program: Program) -> list[str]:
    return [node.op for node in program.nodes]


# The rest is for `capture_digests.py`, which is run by hand under each torch version.
SOME = ("mlp-dropout/sgd", "gpt-dropout/adamw", "attention/sgd", "recurrent/sgd")


def recorded() -> dict[str, str]:
    return dict(line.split() for line in GOLDEN.read_text().splitlines())


@pytest.mark.parametrize("on_meta", [False, True])
def test_digests_are_the_recorded_ones_with_and_without_weights(on_meta: bool) -> None:
    """Recorded once, and the same under torch 2.11, 2.12 and 2.13: a torch upgrade or an edit
    that changes programs is noticed here. To record again:
    `python tests/model/capture_digests.py | grep -v hf- > tests/model/capture_digests.txt`."""
    assert digests(on_meta, SOME) == {name: recorded()[name] for name in SOME}


def test_digests_are_the_same_in_another_process() -> None:
    """And a capture loads no `onnx`: only `from_onnx` does."""
    code = (
        "from capture_models import *; from capture_digests import *\n"
        "c = CASES['mlp']\n"
        "print(capture(c.build(), c.loss, c.schema(), OPTIMIZERS['sgd'], clip_norm=1.0)"
        ".program.digest().hex())\n"
        "import sys, tallystick.api, tallystick.program.capture.onnx.ops_image\n"
        "print('onnx' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    environment["PYTHONPATH"] = os.pathsep.join([str(HERE), environment.get("PYTHONPATH", "")])
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    digest, loaded = out.stdout.split()
    assert digest == recorded()["mlp/sgd"]
    assert loaded == "False", "only from_onnx loads the package onnx"


def test_captured_text_reads_back() -> None:
    step = capture(Gpt(dropout=0.1), next_token, CASES["gpt"].schema(), AdamW(1e-3), clip_norm=1.0)
    assert parse_text(step.program.text().encode()) == step.program


def test_the_module_is_left_alone() -> None:
    module = Gpt()
    before = {k: v.clone() for k, v in module.state_dict().items()}
    module.drop.eval()
    modes = [m.training for m in module.modules()]
    capture(module, next_token, CASES["gpt"].schema(), SGD(0.1))
    capture_eval(module, next_token, CASES["gpt"].schema())
    assert [m.training for m in module.modules()] == modes
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    assert F.dropout.__module__ == "torch.nn.functional"


def test_tied_weights_are_one_slot_with_one_update() -> None:
    step = capture(Gpt(), next_token, CASES["gpt"].schema(), SGD(0.1))
    assert "param.wte.weight" in step.program.state_types
    assert "param.head.weight" not in step.program.state_types
    updates = [n for n in step.program.nodes if n.op == "tallystick.sgd_step"]
    assert len(updates) == len(step.program.state_types)


def test_draw_ids_are_ordinals_in_forward_order_and_survive_canonicalisation() -> None:
    """NUMERICS 8.2; the mask of the backward pass is the mask of the forward pass."""
    step = capture(Gpt(dropout=0.1), next_token, CASES["gpt"].schema(), SGD(0.1))
    draws = [n.attrs["draw"] for n in step.program.nodes if n.op == "tallystick.dropout_mask"]
    assert draws == list(range(7))
    assert ops(step.program).count("tallystick.mask_scale") == 14


def test_evaluation_has_no_randomness_no_commit_and_the_same_slots() -> None:
    module = Gpt(dropout=0.1)
    step = capture(module, next_token, CASES["gpt"].schema(), SGD(0.1))
    for program in (
        capture_eval(module, next_token, CASES["gpt"].schema()),
        capture_forward(module, {"idx": ((3, 12), "i64")}),
    ):
        assert not program.uses_rng
        assert not program.next_state
        assert "tallystick.commit" not in ops(program)
        assert program.state_types == step.program.state_types


def test_evaluation_programs_compute_what_the_module_computes() -> None:
    torch.manual_seed(3)
    module, batch = Gpt(dropout=0.1), CASES["gpt"].example(1)
    step = capture(module, next_token, CASES["gpt"].schema(), SGD(0.1))
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in batch.items()}
    loss = Executor(capture_eval(module, next_token, CASES["gpt"].schema()))
    logits = Executor(capture_forward(module, {"x": batch["x"]}, lambda m, b: m(b["x"])))
    module.eval()
    with torch.no_grad():
        expected, expected_loss = module(batch["x"]), next_token(module, batch)
    measured = loss.run_step(step.initial_state, arrays).loss
    assert measured is not None
    assert abs(float(measured) - float(expected_loss)) < 1e-5
    got = logits.run_step(step.initial_state, {"x": arrays["x"]}).outputs["logits"]
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-4)


class Counting(nn.Module):
    """Buffers changed in place and by assignment; in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(4))
        self.register_buffer("unchanged", torch.ones(4))
        self.calls: Tensor
        self.average: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        y: Tensor = self.linear(x)
        self.average = self.average * 0.5 + y.detach().mean(0) * 0.5
        return (y * 2).relu_() + self.unchanged


def test_buffers_are_state() -> None:
    torch.manual_seed(0)
    module = Counting()
    step = capture(module, total, X, SGD(0.1))
    assert step.initial_state is not None
    state, executor = step.initial_state, Executor(step.program)
    x = torch.randn(3, 4)
    for _ in range(2):
        executor.run_step(state, {"x": x.numpy()}, {"lr": 0.0})
        module(x)
    assert int(state["buffer.calls"]) == int(module.calls) == 2
    np.testing.assert_allclose(state["buffer.average"], module.average.detach(), rtol=1e-5)
    assert state["buffer.unchanged"].tolist() == [1.0] * 4
    assert int(Counting().calls) == 0


def test_assignments_into_slices_have_the_right_gradient() -> None:
    class Assigning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.linear(x) * 1.0
            y[:, 1] = y[:, 0] * 3
            y[0] = 7
            return y * y

    torch.manual_seed(4)
    module, x = Assigning(), torch.randn(3, 4)
    step = capture(module, total, X, SGD(0.1), outputs_grads=True)
    assert step.initial_state is not None
    result = Executor(step.program).run_step(step.initial_state, {"x": x.numpy()}, {"lr": 0.1})
    total(module, {"x": x}).backward()
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None
        np.testing.assert_allclose(result.outputs[f"grad.{name}"], parameter.grad, rtol=1e-5)


def test_frozen_and_unused_parameters_pass_through() -> None:
    class Partly(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.frozen, self.idle = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
            self.frozen.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(self.frozen(x))  # type: ignore[no-any-return]

    step = capture(Partly(), total, X, AdamW(0.1))
    assert step.untrained == ("idle.bias", "idle.weight")
    assert not any("frozen" in s or "idle" in s for s in step.program.state_types if "opt." in s)
    assert step.initial_state is not None
    before = {k: v.copy() for k, v in step.initial_state.items()}
    Executor(step.program).run_step(
        step.initial_state, {"x": np.ones((3, 4), np.float32)}, {"lr": 0.1}
    )
    for name, array in step.initial_state.items():
        moved = array.tobytes() != before[name].tobytes()
        assert moved == ("idle" not in name and "frozen" not in name), name


def test_decay_groups_are_decided_by_name_and_rank() -> None:
    def decays(**kwargs: Any) -> dict[str, float]:
        step = capture(
            Mlp(), classify, CASES["mlp"].schema(), AdamW(1e-3, weight_decay=0.1, **kwargs)
        )
        names = [s[6:] for s in step.program.state_types if s.startswith("param.")]
        found = [n.attrs["weight_decay"] for n in step.program.nodes if "adamw" in n.op]
        return dict(zip(names, found, strict=True))  # type: ignore[arg-type]

    spared = {"hidden.bias": 0.0, "hidden.weight": 0.1, "out.bias": 0.0, "out.weight": 0.1}
    assert decays(no_decay=("bias",)) == spared
    assert decays(decay_min_ndim=2) == spared
    assert decays(no_decay=lambda name, shape: len(shape) < 2) == spared
    assert set(decays().values()) == {0.1}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (SGD(0.1), lambda p: torch.optim.SGD(p, 0.1)),
        (
            SGD(0.1, momentum=0.9, weight_decay=0.01),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
        ),
        (
            SGD(0.1, momentum=0.9, nesterov=True),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
        ),
        (Adam(0.01, weight_decay=0.1), lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1)),
        (AdamW(0.01, weight_decay=0.1), lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1)),
    ],
)
def test_five_steps_follow_torchs_optimizer(ours: Any, theirs: Any) -> None:
    torch.manual_seed(8)
    case = CASES["mlp"]
    module, batch = case.build(), case.example(2)
    step = capture(module, case.loss, case.schema(), ours, clip_norm=0.5)
    assert step.initial_state is not None
    optimizer, executor = theirs(module.parameters()), Executor(step.program)
    for _ in range(5):
        result = executor.run_step(
            step.initial_state, {k: v.numpy() for k, v in batch.items()}, {"lr": ours.lr}
        )
        optimizer.zero_grad()
        loss = case.loss(module, batch)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(module.parameters(), 0.5)
        optimizer.step()
        assert result.loss is not None
        assert abs(float(result.loss) - loss.item()) < 1e-5
        assert abs(float(result.outputs["metric.grad_norm"]) - norm.item()) < 1e-5
    for name, parameter in module.named_parameters():
        np.testing.assert_allclose(
            step.initial_state[f"param.{name}"], parameter.detach().numpy(), rtol=2e-4, atol=2e-6
        )


def test_metrics_and_schedules() -> None:
    def with_accuracy(
        module: nn.Module, batch: dict[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        y = module(batch["x"])
        hits = (y.argmax(-1) == batch["y"]).sum()
        return F.cross_entropy(y, batch["y"]), {"hits": hits}

    case = CASES["mlp"]
    step = capture(case.build(), with_accuracy, case.schema(), SGD("warmup"))
    assert step.scalars == {"lr": "warmup"}
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in case.example(1).items()}
    result = Executor(step.program).run_step(step.initial_state, arrays, {"lr": 0.0})
    assert 0 <= int(result.outputs["metric.hits"]) <= 7


def test_modules_without_weights_have_no_initial_state() -> None:
    with torch.device("meta"):
        module = Mlp()
    step = capture(module, classify, CASES["mlp"].schema(), AdamW(0.1))
    assert step.initial_state is None
    real = capture(Mlp(), classify, CASES["mlp"].schema(), AdamW(0.1)).initial_state
    assert real is not None
    weights = {k: v for k, v in real.items() if not k.startswith("opt.")}
    assert set(step.state_for(weights)) == set(step.program.state_types)
    with pytest.raises(UsageError, match=r"param\.out\.weight"):
        step.state_for({k: v for k, v in weights.items() if k != "param.out.weight"})


# -- refusals -----------------------------------------------------------------------------------


class Inner(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.apply_to = [function]

    def forward(self, x: Tensor) -> Any:
        return self.apply_to[0](x)


class Wrapped(nn.Module):
    """A function of the output of a linear layer, inside a named submodule."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.inner = Inner(function)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(self.linear(x))  # type: ignore[no-any-return]


REFUSED: dict[str, tuple[Any, type[UsageError], str]] = {
    "unknown operator": (
        torch.linalg.svdvals,
        UnsupportedOperatorError,
        r"aten\._linalg_svd.*module inner",
    ),
    "several at once": (
        lambda x: torch.linalg.svdvals(x).sum() + torch.special.airy_ai(x.detach()),
        UnsupportedOperatorError,
        r"operators of the model are missing.*_linalg_svd.*airy_ai.*test_capture\.py:\d+",
    ),
    "item": (lambda x: x * x.max().item(), UsageError, "values of tensors|item"),
    "branch on values": (lambda x: x if x.sum() > 0 else -x, UsageError, "values of tensors"),
    "boolean indexing": (lambda x: x[x > 0], UsageError, "values|mask|nonzero"),
    "half precision": (lambda x: x.half().float(), UsageError, "float16"),
    "double": (lambda x: x.double().float(), UsageError, "f64|double"),
}


@pytest.mark.parametrize("what", sorted(REFUSED))
def test_refusals_say_what_and_where(what: str) -> None:
    function, kind, message = REFUSED[what]
    with pytest.raises(kind, match=f"(?s){message}") as caught:
        capture(Wrapped(function), total, X, SGD(0.1))
    assert caught.value.next_action or "operator" in str(caught.value)


def test_unknown_operators_name_the_module_path_in_the_backward_pass_too() -> None:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            return grad * torch.special.airy_ai(ctx.saved_tensors[0])

    with pytest.raises(UnsupportedOperatorError, match=r"airy_ai.*(linear|inner).*backward"):
        capture(Wrapped(Clipped.apply), total, X, SGD(0.1))


def test_wrong_arguments() -> None:
    with pytest.raises(UsageError, match="Module"):
        capture(lambda x: x, total, X, SGD(0.1))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="scalar"):
        capture(nn.Linear(4, 4), lambda m, b: m(b["x"]), X, SGD(0.1))
    with pytest.raises(UsageError, match="not a dtype"):
        capture(nn.Linear(4, 4), total, {"x": ((3, 4), "f99")}, SGD(0.1))
    with pytest.raises(UsageError, match="'x' is a list"):
        capture(nn.Linear(4, 4), total, {"x": [1.0]}, SGD(0.1))
    with pytest.raises(UsageError, match="bfloat16"):
        capture(nn.Linear(4, 4).bfloat16(), total, {"x": ((3, 4), "f64")}, SGD(0.1))
    with pytest.raises(UsageError, match="No parameter"):
        capture(nn.Linear(4, 4).requires_grad_(False), total, X, SGD(0.1))
    with pytest.raises(UsageError, match="lr"):
        SGD(float("nan"))
    with pytest.raises(UsageError, match="betas"):
        Adam(0.1, betas=(0.9, 1.0))


def test_attention_fast_path_setting_is_restored() -> None:
    before = torch.backends.mha.get_fastpath_enabled()
    capture(CASES["encoder-pre"].build(), CASES["encoder-pre"].loss,
            CASES["encoder-pre"].schema(), SGD(0.1))  # fmt: skip
    assert torch.backends.mha.get_fastpath_enabled() == before
    assert isinstance(Block(8, 2, 0.0), nn.Module)
