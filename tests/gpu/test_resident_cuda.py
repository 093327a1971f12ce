"""A published run that stays on an NVIDIA GPU has the bits of the same kernels here."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the published form runs on torch")

import torch
from unit.rounding.test_torch_device import CONTRACT, JOBS, STEPS, make_job, same_steps

from tallystick.devices.torch import TorchDevice

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no NVIDIA GPU here"),
]


@pytest.mark.parametrize("name", JOBS)
def test_a_run_on_the_gpu_has_the_bits_of_the_host(name: str, tmp_path: Path) -> None:
    """NUMERICS 14.9: x from tensors that stay there, and from arrays copied there and back."""
    same_steps(make_job(name, tmp_path), CONTRACT, TorchDevice("cuda"), STEPS)
