"""nvcc, ptxas and nvdisasm. What they made of a source is kept until something changes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tallystick.devices.cuda.source import FMAD, INCLUDE_FOLDERS, OPTIONS

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "native" / "cuda"
_MOST_S = 3600
_PROGRAMS = ("nvcc", "ptxas", "nvdisasm")


class ToolError(Exception):
    """A tool is missing or failed. The message says what to do, or what the tool said."""


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MOST_S)
    if done.returncode != 0:
        raise ToolError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Toolchain:
    """The folder of the three programs, a folder for what they make, and a digest of the tools,
    the options and the headers."""

    bin: Path
    work: Path
    version: str
    common: bytes

    def _kept(self, source: Path, what: str, make: Callable[[Path], None]) -> Path:
        """The file `what` made from a source: the one of the last time if nothing changed."""
        digest = hashlib.sha256(self.common + source.read_bytes()).hexdigest()[:16]
        path = self.work / f"{source.stem}-{digest}.{what}"
        if not path.exists():
            own = path.with_name(f"{os.getpid()}-{path.name}")
            make(own)
            own.rename(path)
        return path

    def ptx(self, source: Path, architecture: str, fused: bool = False) -> Path:
        """The PTX of a source. `fused`: with the one option that lets the compiler make an fma of
        a product and a sum."""
        options = [f"{FMAD.split('=')[0]}=true" if fused and o == FMAD else o for o in OPTIONS]
        folders = [f"-I{ROOT / 'native' / f}" for f in INCLUDE_FOLDERS]

        def make(path: Path) -> None:
            where = ["-arch", architecture, "-ptx", "-o", str(path), str(source)]
            _run([str(self.bin / "nvcc"), *options, *folders, *where])

        return self._kept(source, f"{architecture}{'.fused' if fused else ''}.ptx", make)

    def assemble(self, source: Path, architecture: str) -> tuple[str, str]:
        """The machine code of what `ptx` made, as text, and what ptxas said about it."""
        ptx = self.ptx(source, architecture)

        def code(path: Path) -> None:
            command = [str(self.bin / "ptxas"), "-v", FMAD, "-arch", architecture]
            said = _run([*command, "-o", f"{path}.cubin", str(ptx)])
            disassembled = _run([str(self.bin / "nvdisasm"), "-c", f"{path}.cubin"])
            Path(f"{path}.cubin").unlink()
            path.write_text(f"{said}{_CUT}{disassembled}", encoding="utf-8")

        said, _, text = self._kept(source, f"{architecture}.code", code).read_text().partition(_CUT)
        return text, said


_CUT = "\n==== the machine code ====\n"


def find_toolchain(home: Path, work: Path) -> Toolchain:
    """The programs in the environment `home`. Raises ToolError where one is missing."""
    for folder in sorted(home.resolve().glob("lib/python*/site-packages/nvidia/cu*/bin")):
        if not all((folder / name).exists() for name in _PROGRAMS):
            continue
        work.mkdir(parents=True, exist_ok=True)
        versions = [_run([str(folder / name), "--version"]) for name in _PROGRAMS]
        common = hashlib.sha256(repr((OPTIONS, versions)).encode())
        for include in INCLUDE_FOLDERS:
            for path in sorted((ROOT / "native" / include).rglob("*.hpp")):
                common.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        version = versions[0].rsplit(", V", 1)[1].split()[0]
        return Toolchain(folder, work, version, common.digest())
    raise ToolError(f"{home} has no {', '.join(_PROGRAMS)}: `make ptx-check` installs them")


def workers() -> int:
    """As many programs as this process may use processors."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
