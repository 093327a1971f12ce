"""Compile every kernel for every architecture, and read what came out.

Run: python -m device_code --toolkit build/nvcc [--write] [NAME ...]
Exit codes: 0 all is well, 1 something was found, 3 the compiler is missing or failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from device_code import ptx, resources, rules, sass
from device_code.allowed import Allowances
from device_code.toolchain import ROOT, SOURCES, Toolchain, ToolError, find_toolchain, workers
from tallystick.devices.cuda import source
from tallystick.devices.cuda.source import ARCHITECTURES, OPTIONS
from tallystick.errors import EnvironmentRefusedError

PAGE = ROOT / "docs" / "proofs" / "ptxas.md"
# For which NVRTC's text is read.
RUN_TIME = "compute_90"
# The twin that must fail is read for one: the compiler fuses before it looks at the architecture.
TWIN = ARCHITECTURES[1]


@dataclass
class Read:
    """What one source became for one architecture."""

    file: str
    module: ptx.Module
    code: sass.Code | None  # None: it was not assembled
    resources: dict[str, resources.Resources]


def _read(tools: Toolchain, path: Path, architecture: str, assembled: bool) -> Read:
    module = ptx.parse(tools.ptx(path, architecture).read_text(encoding="utf-8"))
    if not assembled:
        return Read(path.stem, module, None, {})
    code, said = tools.assemble(path, architecture)
    return Read(path.stem, module, sass.parse(code), resources.parse(said))


def _kernels(reads: dict[tuple[str, str], Read]) -> set[str]:
    """The names of all kernels."""
    modules = [read.module for (_, a), read in reads.items() if a == ARCHITECTURES[0]]
    return {n for m in modules for n, function in m.functions.items() if function.is_kernel}


def _computes(module: ptx.Module) -> bool:
    """True if a sum or a product of floats is in it, which a compiler may treat otherwise."""
    return any(
        i.base in ("add", "sub", "mul") and i.floats
        for function in module.functions.values()
        for i in function.instructions
    )


def _cost(path: Path) -> tuple[int, str]:
    """The order in which sources are compiled."""
    names = ("conv", "gemm", "elementary", "reduce", "norm", "softmax", "pointwise", "fingerprint")
    return (names.index(path.stem) if path.stem in names else len(names), path.stem)


def _is_fma(i: ptx.Instruction) -> bool:
    return i.base == "fma"


def _page(reads: dict[tuple[str, str], Read], files: list[str], version: str) -> str:
    rows = []
    for file in files:
        by = [reads[file, a] for a in ARCHITECTURES]
        for name, function in by[0].module.functions.items():
            if function.is_kernel:
                fmas = rules.uses(by[0].module.reachable(name), _is_fma)
                row = resources.Row(name, fmas, tuple(r.resources[name] for r in by))
                rows.append(row)
    return (
        "# Registers and memory of the device kernels\n\n"
        "Made by `make ptx-table`; `make ptx-check` reads the same code in CI and compares the "
        "kernels' names with this page. nvcc "
        f"{version}, `{' '.join(OPTIONS)}`, for {', '.join(ARCHITECTURES)}; where they differ, "
        "in that order with slashes. fma: how many the kernel's PTX holds, all of them written in "
        "its source. shared: bytes of static shared memory. stack: bytes of local memory, for "
        "arrays with a variable index. spilled: bytes stored and loaded because registers ran "
        "out.\n\n" + resources.table(rows)
    )


def check(
    tools: Toolchain, sources: list[Path], page: str | None, jobs: int, assembled: tuple[str, ...]
) -> tuple[list[str], dict[tuple[str, str], Read]]:
    """What is wrong, and what was read. `page` is the committed one; None: it is not compared. The
    machine code of the architectures `assembled` is read too."""
    wrong: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        # The largest sources first: they would end last.
        sources = sorted(sources, key=_cost)
        futures: dict[tuple[str, str], Future[Read]] = {
            (s.stem, a): pool.submit(_read, tools, s, a, a in assembled)
            for s in sources
            for a in ARCHITECTURES
        }
        twins = {s.stem: pool.submit(tools.ptx, s, TWIN, fused=True) for s in sources}
        # What a GPU runs is compiled by NVRTC, which reads the sources in a dialect of its own.
        own = {s.stem: pool.submit(source.ptx, s.stem, RUN_TIME) for s in sources}
        reads = {key: future.result() for key, future in futures.items()}
        fused = {
            file: ptx.parse(future.result().read_text(encoding="utf-8"))
            for file, future in twins.items()
        }
    allowances = Allowances()
    for (file, architecture), read in reads.items():
        for finding in rules.findings(file, read.module, allowances):
            wrong.append(f"{architecture} {finding}")
        for finding in () if read.code is None else sass.findings(file, read.module, read.code):
            wrong.append(f"{architecture} machine code, {finding}")
        wrong += [f"{architecture} {s}" for s in resources.spills(read.resources)]
    for file, future in own.items():
        for finding in rules.findings(file, ptx.parse(future.result()), allowances):
            wrong.append(f"NVRTC {finding}")
    for file, module in fused.items():
        if _computes(reads[file, TWIN].module) and not list(
            rules.findings(file, module, Allowances())
        ):
            wrong.append(f"{file}: built with fused products, it passes the check")
    if page is not None:
        wrong += [f"{unused} is allowed, and no source needs it" for unused in allowances.unused()]
        if resources.listed(page) != _kernels(reads):
            wrong.append("docs/proofs/ptxas.md lists other kernels: run `make ptx-table`")
    return wrong, reads


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="device_code", description=__doc__)
    parser.add_argument("--toolkit", type=Path, default=ROOT / "build" / "nvcc")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "device-code")
    parser.add_argument("--jobs", type=int, default=workers(), help="programs at once")
    parser.add_argument(
        "--write", action="store_true", help="write docs/proofs/ptxas.md, the rows of these sources"
    )
    parser.add_argument(
        "--all", action="store_true", help=f"assemble for all architectures, not for {TWIN} alone"
    )
    parser.add_argument("names", nargs="*", help="sources without ending (default: all)")
    asked = parser.parse_args()
    began = time.monotonic()
    sources = sorted(SOURCES.glob("*.cu"))
    if asked.names:
        sources = [s for s in sources if s.stem in asked.names]
    old = PAGE.read_text() if PAGE.exists() else ""
    compared = None if asked.write or asked.names else old
    try:
        tools = find_toolchain(asked.toolkit, asked.work)
        assembled = ARCHITECTURES if asked.write or asked.all else (TWIN,)
        wrong, reads = check(tools, sources, compared, asked.jobs, assembled)
    except (ToolError, EnvironmentRefusedError) as error:
        print(error, file=sys.stderr)
        return 3
    if asked.write:
        page = _page(reads, [s.stem for s in sources], tools.version)
        others = {path.stem for path in SOURCES.glob("*.cu")} - {s.stem for s in sources}
        PAGE.write_text(resources.merged(page, old, lambda k: k.split("_", 1)[0] in others))
    for line in wrong:
        print(line)
    kernels = len(_kernels(reads))
    print(
        f"{len(sources)} sources, {kernels} kernels, {len(ARCHITECTURES)} architectures, "
        f"{len(wrong)} findings, {time.monotonic() - began:.0f} s, of processors "
        f"{sum(os.times()[:4]):.0f} s"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
