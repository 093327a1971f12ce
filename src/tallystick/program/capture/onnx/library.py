"""The `onnx` package, which only this room loads, and only when a file is read."""

from __future__ import annotations

import importlib
from typing import Any

from tallystick.errors import UsageError


def onnx_package() -> Any:
    """The module `onnx`. Raises UsageError where it is not installed."""
    try:
        return importlib.import_module("onnx")
    except ImportError as error:
        raise UsageError(
            f"tallystick.from_onnx needs the package onnx ({error}).",
            "Run pip install 'tallystick[onnx]'.",
        ) from None
