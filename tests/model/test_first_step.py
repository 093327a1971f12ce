"""`save_job` compares a job's first step with the module in float64 (PROGRAM 5.9)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from capture_models import CASES, Case, Gpt, Mlp, classify, next_token
from torch import Tensor, nn

from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.save import save_job
from tallystick.program.capture import CapturedStep, capture
from tallystick.program.optimizers import SGD

ALL: dict[str, Case] = {
    **CASES,
    "mlp-dropout": Case(lambda: Mlp(0.1), classify, CASES["mlp"].batch),
    "gpt-dropout": Case(lambda: Gpt(dropout=0.1), next_token, CASES["gpt"].batch),
}


def saved(step: CapturedStep, case: Case, where: Path, **more: Any) -> Job:
    parts = [case.example(seed) for seed in (1, 2)]
    data = {k: torch.cat([p[k] for p in parts]) for k in parts[0]}
    return save_job(step, where / "job", data, steps=2, seed=5, **more)


@pytest.mark.parametrize("name", ALL)
def test_the_first_step_agrees(name: str, tmp_path: Path) -> None:
    """Dropout too: eager float64 draws the contract's masks (NUMERICS 8.4)."""
    torch.manual_seed(11)
    case = ALL[name]
    step = capture(case.build(), case.loss, case.schema(), SGD(0.1))
    assert "first step" not in saved(step, case, tmp_path).about


@pytest.mark.parametrize("contract", ["rounded/1", "rounded/1;b=24", "replay/1;b=28"])
def test_under_other_contracts(contract: str, tmp_path: Path) -> None:
    torch.manual_seed(11)
    case = ALL["mlp-dropout"]
    step = capture(case.build(), case.loss, case.schema(), SGD(0.1), contract=contract)
    assert "first step" not in saved(step, case, tmp_path).about


class Middle(nn.Module):
    """Acts otherwise on real values than in a trace, which no comparison of traces can see."""

    def __init__(self, real: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.real = real

    def forward(self, x: Tensor) -> Tensor:
        return x * 1.0 if x.is_meta else self.real(x)


def hooked(x: Tensor) -> Tensor:
    y = x * 1.0
    y.register_hook(lambda g: g * 1.1)
    return y


OTHERWISE: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "factor": (
        lambda x: x * 1.001,
        r"gradient of 3.*output of module 1 is the first",
    ),
    "large factor": (lambda x: x * 1.1, r"the loss differs.*output of module 1 is the first"),
    "precision": (lambda x: x.bfloat16().to(x.dtype), r"the loss differs.*output of module 1 "),
    "hook": (hooked, r"gradient of 0\.(bias|weight).*module 0 has the first"),
    "detached": (lambda x: x.detach(), r"gradient of 0\.(bias|weight)"),
}


@pytest.mark.parametrize("what", OTHERWISE)
def test_a_difference_is_refused_and_its_module_named(what: str, tmp_path: Path) -> None:
    real, message = OTHERWISE[what]
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(20, 33), Middle(real), nn.ReLU(), nn.Linear(33, 10))
    case = CASES["mlp"]
    step = capture(module, classify, case.schema(), SGD(0.1))
    with pytest.raises(UsageError, match=f"(?s){message}") as caught:
        saved(step, case, tmp_path)
    assert caught.value.next_action
    assert not (tmp_path / "job").exists()
    # The one way past it is in the manifest.
    job = saved(step, case, tmp_path, compare_first_step=False)
    assert job.about["first step"] == "not compared with the module: switched off by the author"


def test_a_difference_in_the_loss_function_is_named_so(tmp_path: Path) -> None:
    def loss(module: nn.Module, batch: dict[str, Tensor]) -> Any:
        return classify(module, batch) * (1.0 if batch["x"].is_meta else 1.01)

    case = CASES["mlp"]
    step = capture(Mlp(), loss, case.schema(), SGD(0.1))
    with pytest.raises(UsageError, match="every module's output agrees, so it is the loss"):
        saved(step, case, tmp_path)


def test_a_module_that_cannot_run_in_float64_is_noted(tmp_path: Path) -> None:
    def fails(x: Tensor) -> Tensor:
        raise RuntimeError("no float64 here")

    module = nn.Sequential(nn.Linear(20, 10), Middle(fails))
    case = CASES["mlp"]
    job = saved(capture(module, classify, case.schema(), SGD(0.1)), case, tmp_path)
    assert "no float64 here" in job.about["first step"]


def test_the_comparison_uses_the_modes_of_capture_and_leaves_the_module_alone(
    tmp_path: Path,
) -> None:
    torch.manual_seed(4)
    case = ALL["gpt-dropout"]
    module = case.build()
    step = capture(module, case.loss, case.schema(), SGD(0.1))
    module.eval()
    before = {k: v.numpy().copy() for k, v in module.state_dict().items()}
    assert "first step" not in saved(step, case, tmp_path).about
    assert not any(m.training for m in module.modules())
    assert all(p.grad is None for p in module.parameters())
    after = module.state_dict()
    assert all(np.array_equal(v, after[k].numpy()) for k, v in before.items())
