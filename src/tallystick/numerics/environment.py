"""Whether this process can honour the contract at all (NUMERICS 1.7)."""

from __future__ import annotations

import os

from tallystick import _core
from tallystick.errors import EnvironmentRefusedError


def check_isa() -> None:
    """Raise EnvironmentRefusedError for a TALLYSTICK_ISA this machine or build does not have."""
    wanted, supported = os.environ.get("TALLYSTICK_ISA", ""), _core.supported_isas()
    if wanted and wanted not in supported:
        raise EnvironmentRefusedError(
            f"This machine or build has no instruction set {wanted[:40]!r} (TALLYSTICK_ISA).",
            f"Unset it, or set one of: {', '.join(supported)}.",
        )


def check_environment() -> None:
    """Refuse a machine that cannot honour the contract (NUMERICS 1.7).

    Raises EnvironmentRefusedError for an unsupported TALLYSTICK_ISA, or when subnormals are
    flushed or rounding is not to nearest.
    """
    check_isa()
    if not _core.fp_environment_ok():
        raise EnvironmentRefusedError(
            "This process flushes subnormals to zero or does not round to nearest.",
            "A library built with -ffast-math may have done it: start without it.",
        )
