"""The generators of random numbers that a loop may draw from, and what else may decide bits."""

from __future__ import annotations

import hashlib
import platform
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.utils._pytree as pytree
from torch import Tensor

from tallystick.comparing.recorded_tensors import bytes_of


def device_of(args: Any, kwargs: Mapping[str, Any]) -> torch.device:
    """Where a call computes: as it was asked, or else where its first tensor is."""
    asked = kwargs.get("device")
    if asked is not None:
        return torch.device(asked)
    read = (t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Tensor))
    return next((tensor.device for tensor in read), torch.device("cpu"))


def generator_of(args: Any, kwargs: Mapping[str, Any]) -> torch.Generator:
    """The default generator of the device on which a call computes."""
    device = device_of(args, kwargs)
    if device.type != "cuda" or not torch.cuda.default_generators:
        return torch.default_generator
    index = torch.cuda.current_device() if device.index is None else device.index
    found: torch.Generator = torch.cuda.default_generators[index]
    return found


def environment() -> dict[str, str]:
    """What may decide bits and is no part of the loop."""
    generator = torch.default_generator
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "mkldnn": str(torch.backends.mkldnn.enabled),
        "matmul precision": torch.get_float32_matmul_precision(),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
        "default type": str(torch.get_default_dtype()).removeprefix("torch."),
        "flush denormal": str(bool(torch.tensor(1e-40) * 1 == 0)),
        "torch seed": str(generator.initial_seed()),
        "torch generator": _state(bytes(bytes_of(generator.get_state()) or b"")),
        "numpy generator": _state(_numpy_state()),
        "python generator": _state(repr(random.getstate()).encode()),
    }


def outside_generators() -> dict[str, object]:
    """The states of the generators outside of torch."""
    return {"numpy": _numpy_state(), "python": random.getstate()}


def _numpy_state() -> bytes:
    found: Any = np.random.get_state()
    return bytes(found[1].tobytes()) + str(found[2]).encode()


def _state(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
