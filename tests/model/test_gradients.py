"""Gradients of captured programs against torch's autograd in float64.

The tolerance is torch's own float32 error on the same model (times a factor), plus a few units
in the last place of the largest element: we must be about as accurate as eager float32, no better
is promised, and a wrong formula is wrong by far more.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from capture_models import CASES, Case, Gpt, Mlp, classify, next_token, transformers_cases
from torch import Tensor, nn

from tallystick.program.capture import capture
from tallystick.program.executor import Executor
from tallystick.program.ir import Node
from tallystick.program.optimizers import SGD

Gradients = dict[str, np.ndarray]
ULPS = 16 * 2.0**-24
TORCH_FACTOR = 6.0


def eager(module: nn.Module, case: Case, batch: dict[str, Tensor], dtype: torch.dtype) -> Gradients:
    """Loss (under the name `loss`) and gradients by torch autograd in `dtype`."""
    module = module.to(dtype)
    given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in batch.items()}
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        loss = case.loss(module, given)
        names, tensors = zip(*module.named_parameters(), strict=True)
        found = torch.autograd.grad(loss, tensors)
    finally:
        torch.set_default_dtype(previous)
    result = {name: g.double().numpy() for name, g in zip(names, found, strict=True)}
    return result | {"loss": np.asarray(loss.item())}


def assert_as_accurate(ours: Gradients, double: Gradients, single: Gradients) -> None:
    assert set(ours) == set(double)
    for name, exact in double.items():
        scale = float(np.abs(exact).max()) + 1e-12
        torch_error = float(np.abs(single[name] - exact).max())
        error = float(np.abs(ours[name].astype(np.float64) - exact).max())
        # Cancelling gradients (a bias before a softmax) have no scale of their own.
        allowed = TORCH_FACTOR * torch_error + ULPS * scale + 1e-9
        assert error <= allowed, f"{name}: error {error:.3g}, allowed {allowed:.3g}"


def program_gradients(module: nn.Module, case: Case, batch: dict[str, Tensor]) -> Gradients:
    step = capture(module, case.loss, case.schema(), SGD(1.0), outputs_grads=True)
    assert step.initial_state is not None
    arrays = {k: v.numpy() for k, v in batch.items()}
    result = Executor(step.program).run_step(step.initial_state, arrays, {"lr": 1.0}, (3, 0))
    found = {k[5:]: v for k, v in result.outputs.items() if k.startswith("grad.")}
    assert result.loss is not None
    return found | {"loss": np.asarray(result.loss)}


def check(case: Case) -> None:
    torch.manual_seed(11)
    module, batch = case.build(), case.example(5)
    ours = program_gradients(module, case, batch)
    weights = {k: v.clone() for k, v in module.state_dict().items()}
    single = eager(module, case, batch, torch.float32)
    module.load_state_dict(weights)
    assert_as_accurate(ours, eager(module, case, batch, torch.float64), single)


@pytest.mark.parametrize("name", sorted(CASES))
def test_gradients_equal_autograd(name: str) -> None:
    check(CASES[name])


@pytest.mark.parametrize("name", ["hf-gpt2", "hf-llama"])
def test_gradients_of_transformers_models(name: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
    check(transformers_cases()[name])


class _SameMasks:
    """Feeds the masks a program drew to torch's dropout calls, in forward order."""

    def __init__(self, masks: list[np.ndarray]) -> None:
        self.masks = masks
        self.used = 0

    def dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0.0:
            return input
        mask, self.used = self.masks[self.used], self.used + 1
        return input * torch.from_numpy(mask).to(input.dtype) / (1.0 - p)

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, is_causal: bool, dropout_p: float
    ) -> Tensor:
        scores = (q @ k.transpose(-2, -1)) / q.size(-1) ** 0.5
        banned = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(banned, float("-inf")).softmax(-1)
        return self.dropout(weights, dropout_p) @ v


DROPOUT_CASES = {
    "mlp": Case(lambda: Mlp(0.3), classify, CASES["mlp"].batch),
    "gpt": Case(lambda: Gpt(dropout=0.2), next_token, CASES["gpt"].batch),
}


@pytest.mark.parametrize("name", sorted(DROPOUT_CASES))
def test_gradients_with_dropout_and_the_same_masks(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = DROPOUT_CASES[name]
    torch.manual_seed(12)
    module, batch = case.build(), case.example(6)
    step = capture(module, case.loss, case.schema(), SGD(1.0), outputs_grads=True)
    assert step.initial_state is not None
    masks: dict[int, np.ndarray] = {}

    def tap(index: int, node: Node, inputs: object, outputs: list[np.ndarray]) -> None:
        if node.op == "tallystick.dropout_mask":
            draw = node.attrs["draw"]
            assert isinstance(draw, int)
            masks[draw] = outputs[0].copy()

    result = Executor(step.program).run_step(
        step.initial_state,
        {k: v.numpy() for k, v in batch.items()},
        {"lr": 1.0},
        (3, 4),
        tap=tap,  # type: ignore[arg-type]
    )
    assert sorted(masks) == list(range(len(masks))), "draw ids are ordinals"
    dropped = sum(int((~mask).sum()) for mask in masks.values())
    assert 0 < dropped < sum(mask.size for mask in masks.values())
    ours = {k[5:]: v for k, v in result.outputs.items() if k.startswith("grad.")}
    ours["loss"] = np.asarray(result.loss)
    weights = {k: v.clone() for k, v in module.state_dict().items()}
    reference: list[Gradients] = []
    for dtype in (torch.float32, torch.float64):
        same = _SameMasks([masks[i] for i in range(len(masks))])
        monkeypatch.setattr(F, "dropout", same.dropout)
        monkeypatch.setattr(F, "scaled_dot_product_attention", same.attention)
        module.load_state_dict(weights)
        reference.append(eager(module, case, batch, dtype))
        assert same.used == len(masks)
    assert_as_accurate(ours, reference[1], reference[0])


def test_the_comparison_would_notice_a_wrong_gradient() -> None:
    case = CASES["mlp"]
    torch.manual_seed(11)
    module, batch = case.build(), case.example(5)
    ours = program_gradients(module, case, batch)
    ours["hidden.weight"] = ours["hidden.weight"] * np.float32(1.0001)
    weights = {k: v.clone() for k, v in module.state_dict().items()}
    single = eager(module, case, batch, torch.float32)
    module.load_state_dict(weights)
    with pytest.raises(AssertionError, match=r"hidden\.weight"):
        assert_as_accurate(ours, eager(module, case, batch, torch.float64), single)
