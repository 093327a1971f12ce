"""Capture from PyTorch; the only part of the package, with the recipes, that imports torch."""

from __future__ import annotations

from tallystick.program.capture.api import CapturedStep as CapturedStep
from tallystick.program.capture.api import capture as capture
from tallystick.program.capture.api import capture_eval as capture_eval
from tallystick.program.capture.api import capture_forward as capture_forward
