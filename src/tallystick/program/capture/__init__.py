"""Capture from PyTorch. Of the package, few parts import torch; this is one of them."""

from __future__ import annotations

from tallystick.program.capture.api import CapturedStep as CapturedStep
from tallystick.program.capture.api import capture as capture
from tallystick.program.capture.api import capture_eval as capture_eval
from tallystick.program.capture.api import capture_forward as capture_forward
