"""Writes docs/SCALE.md and docs/images/scale-*.png from raw results.

    python benchmarks/scale_page.py [--shapes] [--simulate] [--results DIR] [--docs docs]

`--shapes` counts the programs of 1B and 70B anew, `--simulate` simulates anew; both write into the
results. What `unit_costs.py` measures is only read. Words are in tallystick_bench/scale/page.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tallystick.cli.output import note
from tallystick_bench.papers import plots
from tallystick_bench.scale.measure.shapes import shape
from tallystick_bench.scale.page.page import page
from tallystick_bench.scale.page.plots import draw
from tallystick_bench.scale.simulate.scenarios import outcomes
from tallystick_bench.scale.units import SHAPES, read

HERE = Path(__file__).resolve().parent
SIMULATION = "simulation.json"


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shapes", action="store_true", help="capture and count the programs")
    parser.add_argument("--simulate", action="store_true", help="simulate every scenario")
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs")
    given = parser.parse_args()
    scale = given.results / "scale"
    if given.shapes:
        _write(scale / SHAPES, {name: shape(name) for name in ("1b", "70b")})
    found = read(scale, given.results / "ovt")
    if given.simulate:
        _write(scale / SIMULATION, outcomes(found, note))
    simulated = json.loads((scale / SIMULATION).read_text(encoding="utf-8"))
    (given.docs / "SCALE.md").write_text(page(found, simulated), encoding="utf-8")
    plots(draw, (found, simulated), given.docs / "images")


if __name__ == "__main__":
    main()
