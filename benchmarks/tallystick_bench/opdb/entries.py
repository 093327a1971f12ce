"""The entries of PyTorch's operator database, with what a comparison needs of each.

`torch.testing._internal` asks for the package `expecttest`, whose snapshot tests nothing here uses.
Where it is not installed, an empty stand-in takes its place.
"""

from __future__ import annotations

import importlib.util
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import torch

# What torch.testing.assert_close allows for float32.
RTOL, ATOL = 1.3e-6, 1e-5


def op_db() -> list[Any]:
    """Every entry that has float32 samples on the CPU, in the database's order."""
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal import common_methods_invocations as database
    return [e for e in database.op_db if torch.float32 in e.supported_dtypes("cpu")]


def name_of(entry: Any) -> str:
    """The entry's name, with that of its variant."""
    variant = entry.variant_test_name
    return f"{entry.name}.{variant}" if variant else str(entry.name)


def tolerance(entry: Any) -> tuple[float, float]:
    """(rtol, atol) for float32: the defaults, or the widest that the entry states for itself."""
    rtol, atol = RTOL, ATOL
    for info in entry.decorators:
        if getattr(info, "device_type", None) not in (None, "cpu"):
            continue
        for decorator in getattr(info, "decorators", (info,)):
            stated = getattr(decorator, "d", None)
            if not isinstance(stated, dict) or torch.float32 not in stated:
                continue
            wider = stated[torch.float32]  # a pair, or (an older form) the absolute one
            rtol = max(rtol, float(getattr(wider, "rtol", 0.0)))
            atol = max(atol, float(wider if isinstance(wider, float) else wider.atol))
    return rtol, atol


def has_gradient(entry: Any) -> bool:
    """Whether the entry says that autograd gives float32 gradients."""
    supported = entry.supported_backward_dtypes("cpu")
    return bool(entry.supports_autograd) and torch.float32 in supported


def samples(entry: Any, limit: int | None = None) -> Iterator[Any]:
    """The float32 samples, the same at every call; at most `limit`."""
    torch.manual_seed(0)
    for count, sample in enumerate(
        entry.sample_inputs("cpu", torch.float32, requires_grad=has_gradient(entry))
    ):
        if count == limit:
            return
        yield sample
