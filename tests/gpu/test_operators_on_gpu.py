"""Every operator runs on a GPU: nothing falls back to the host unseen."""

from __future__ import annotations

import re

import pytest
from emulated_gpu import CUDA, emulated_gpu

from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.source import file_of
from tallystick.kernels.evaluate import view
from tallystick.numerics.contracts import find_contract
from tallystick.numerics.registry import all_ops

# Contracts that the GPU has, and what it still lacks of each.
# Quantised weights are read by processors alone (ADR 0041).
_QUANTISED = "tallystick.dequantize"
MISSING: dict[str, set[str]] = {
    "ordered/1": {_QUANTISED}, "rounded/1": {_QUANTISED}, "rounded/1;b=20": {_QUANTISED},
    "replay/1;form=bounded": {_QUANTISED},
    "exact/1;b=8": {_QUANTISED}, "exact/1;b=15": {_QUANTISED}, "exact/1;b=22": {_QUANTISED},
}  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
def test_every_operator_has_a_kernel(name: str) -> None:
    """An operator that lands on the GPU leaves the list; a new one brings its kernel."""
    contract = find_contract(name)
    here, there = CPU.kernels(contract), emulated_gpu().kernels(contract)
    assert set(here) - set(view) - set(there) == MISSING[name]
    assert set(there) <= set(all_ops())


def test_every_kernel_can_be_found() -> None:
    """The host finds a kernel's file by the kernel's name (native/cuda/device.hpp)."""
    for kernel, file in emulated_gpu().driver.kernels().items():
        if file == "faulty":  # the emulation's own tests take it, no GPU does
            continue
        assert file_of(kernel) == file
        assert (CUDA / f"{file}.cu").exists()


def test_assembly_stands_in_headers() -> None:
    """A header holds each piece once, beside its twin for the host."""
    for source in CUDA.glob("*.cu"):
        assert not re.search(r"\basm\b", source.read_text()), source.name
