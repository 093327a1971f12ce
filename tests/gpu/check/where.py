"""The device that a part of the check runs on."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tallystick.devices.cuda.device import Cuda

ROOT = Path(__file__).resolve().parents[3]
EXPECTED = ROOT / "tests" / "gpu" / "expected"


@dataclass
class Where:
    """`small`: sizes for a device that the host emulates. `work`: a folder of the part's own."""

    device: Cuda
    small: bool
    work: Path

    def expected(self, name: str) -> Any:
        """What the processor made beforehand (make_expected.py)."""
        return json.loads((EXPECTED / f"{name}.json").read_text())
