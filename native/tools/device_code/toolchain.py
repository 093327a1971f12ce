"""nvcc, ptxas and nvdisasm."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tallystick.kernels.cuda.flags import FMAD, INCLUDE_FOLDERS, OPTIONS

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ROOT / "native" / "cuda"
_MOST_S = 1800


class ToolError(Exception):
    """A tool is missing or failed. The message says what to do, or what the tool said."""


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MOST_S)
    if done.returncode != 0:
        raise ToolError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Toolchain:
    """The folder of the three programs, and a folder for what they make."""

    bin: Path
    work: Path

    def version(self) -> str:
        """Such as "13.0.88"."""
        said = _run([str(self.bin / "nvcc"), "--version"])
        return said.rsplit(", V", 1)[1].split()[0]

    def ptx(self, source: Path, architecture: str, fused: bool = False) -> str:
        """The PTX of one source. `fused`: with the one option that lets the compiler make an fma
        of a product and a sum."""
        options = [f"{FMAD.split('=')[0]}=true" if fused and o == FMAD else o for o in OPTIONS]
        folders = [f"-I{ROOT / 'native' / f}" for f in INCLUDE_FOLDERS]
        made = self.work / f"{source.stem}.{architecture}{'.fused' if fused else ''}.ptx"
        where = ["-arch", architecture, "-ptx", "-o", str(made), str(source)]
        _run([str(self.bin / "nvcc"), *options, *folders, *where])
        return made.read_text(encoding="utf-8")

    def assemble(self, source: Path, architecture: str) -> tuple[str, str]:
        """The machine code of what `ptx` made, as text, and what ptxas said about it."""
        made = self.work / f"{source.stem}.{architecture}.ptx"
        code = made.with_suffix(".cubin")
        said = _run(
            [str(self.bin / "ptxas"), "-v", "-arch", architecture, "-o", str(code), str(made)]
        )
        return _run([str(self.bin / "nvdisasm"), "-c", str(code)]), said


def find_toolchain(home: Path, work: Path) -> Toolchain:
    """The programs in the environment `home`; else those on PATH.

    Raises ToolError where one is missing.
    """
    names = ("nvcc", "ptxas", "nvdisasm")
    for folder in sorted(home.glob("lib/python*/site-packages/nvidia/cu*/bin")):
        if all((folder / name).exists() for name in names):
            work.mkdir(parents=True, exist_ok=True)
            return Toolchain(folder, work)
    raise ToolError(f"{home} has no {', '.join(names)}: `make ptx-check` installs them")


def workers() -> int:
    """As many programs as this process may use processors."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
