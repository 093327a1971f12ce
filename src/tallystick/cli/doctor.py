"""`tallystick doctor`: the abilities of this machine and build."""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click

from tallystick import _core
from tallystick.cli.output import CANNOT_CHECK, finish, json_option, print_json, say
from tallystick.devices.context import find_device
from tallystick.devices.device import Device
from tallystick.devices.environment import environment_holds
from tallystick.disk.files import free_bytes
from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.numerics.contracts import ORDERED_1, families, parse_contract
from tallystick.run.execute.engine import check_environment
from tallystick.run.show.estimate import human_bytes

_PACKAGES = ("numpy", "cryptography", "click", "rich", "torch", "safetensors")


def have_torch() -> bool:
    """True if PyTorch can be imported. The test does not import it."""
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _gpu() -> str:
    """The GPU, and whether its kernels have the contract's bits. Compiles them the first time."""
    try:
        device = find_device("cuda", ORDERED_1)
    except TallystickError as error:
        if any(Path("/proc/driver/nvidia").glob("version")) or Path("/dev/nvidia0").exists():
            return f"not usable: {error}"
        return "none found; none needed"
    try:
        device.prepare(parse_contract(ORDERED_1))
        library = _library(device)
    except (TallystickError, MemoryError) as error:
        return f"{device.name} not usable: {error}"
    return (
        f"{device.name} ({device.architecture}): its kernels have the bits of ordered/1; {library}"
    )


def _library(device: Device) -> str:
    """The library that multiplies in binary64 there under rounded/1 and exact/1."""
    from tallystick.devices.cuda.device import Cuda
    from tallystick.products.cuda.cublas import search

    found = search(device) if isinstance(device, Cuda) else None
    if found is None:
        return "products in binary64 by its own kernels: no cuBLAS was found, or none is admitted"
    return f"products in binary64 by {found.name}"


def examine() -> tuple[dict[str, Any], str]:
    """The facts, and the reason why this machine is refused (empty if it is not)."""
    refusal = ""
    try:
        check_environment()
    except TallystickError as error:
        refusal = str(error)
    facts = {
        "tallystick": tallystick_version(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "isa": _core.isa(),
        "supported_isas": list(_core.supported_isas()),
        "requested_isa": os.environ.get("TALLYSTICK_ISA"),
        "threads": _core.threads(),
        "cores": os.cpu_count(),
        "fp_environment_ok": environment_holds(),
        "sha256": _core.sha256_implementation(),
        "compiler": _core.compiler(),
        "contracts": [family.draft for family in families().values()],
        "packages": _versions(),
        "torch": "can make jobs"
        if have_torch()
        else "absent: cannot make jobs, can train and audit",
        "memory_bytes": _memory_bytes(),
        "disk_free_bytes": free_bytes(Path.cwd()),
        "gpu": _gpu(),
        "byte_order": sys.byteorder,
        "ok": not refusal,
        "refusal": refusal,
    }
    return facts, refusal


@click.command()
@json_option
def doctor(as_json: bool) -> None:
    """Print this machine's instruction set, floating-point environment, versions, memory, disk
    and GPU.
    """
    facts, refusal = examine()
    if as_json:
        print_json(facts)
    else:
        for key, value in facts.items():
            if key.endswith("_bytes") and value is not None:
                value = human_bytes(value)
            elif isinstance(value, dict):
                value = ", ".join(f"{k} {v or 'absent'}" for k, v in value.items())
            elif isinstance(value, list):
                value = ", ".join(map(str, value))
            if key != "refusal" and value is not None:
                say(f"{key:20}{value}")
        say(f"{'verdict':20}{refusal or 'this machine can train and audit'}")
    if refusal:
        finish(CANNOT_CHECK)
