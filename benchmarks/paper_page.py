"""Writes docs/PAPERS.md and docs/images/paper-*.png from raw results.

    python benchmarks/paper_page.py DIR [DIR ...] [--docs docs]

The directories are the --out of `tallystick bench paper` and of `tallystick bench ovt`. Every
figure on the page comes from there; only the words are here and in
tallystick_bench/paper/results/sections.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tallystick_bench.paper.measure import results
from tallystick_bench.paper.results.plots import draw
from tallystick_bench.paper.results.row import Row
from tallystick_bench.paper.results.sections import SECTIONS, rows
from tallystick_bench.paper.results.tables import beside, missed, of_proofs, of_runs
from tallystick_bench.papers import plots

HEAD = """# The papers' tables, beside ours

*Written by `benchmarks/paper_page.py` from the results of `tallystick bench paper` and `tallystick
bench ovt`; do not edit.*

OVT is "Optimistic Verifiable Training by Controlling Hardware Nondeterminism" (Srivastava, Arora,
Boneh 2024). Verde is "Verde: Verification via Refereed Delegation for Machine Learning Programs"
(Arun et al. 2025). **All of our figures are from a CPU; the papers' are from GPUs.** So compare
bytes, counts and ratios over PyTorch on the same machine, not seconds. *Load* is the machine's load
average while a row was measured: on two cores a load above 2 says that other work ran beside it,
and then times are no figures to quote: PyTorch's threads wait for each other more than ours do. ✗
marks a figure in which the paper's is the better one. CIFAR-10 is 5,000 of its 50,000 training
images here; every image counts alike in time and bytes.
"""
REPEAT = """## Repeat it

    tallystick bench paper --out DIR --text tinyshakespeare.txt --cifar10 CIFAR10   # hours
    tallystick bench paper --out DIR --part steps --part verde --part products      # timing rows
    tallystick bench paper --out DIR --part runs --model gpt2-124m                  # one model
    python benchmarks/paper_page.py DIR

What DIR holds is not measured again: remove a file `paper-PART-MODEL.json` to measure it anew.
"""


def page(found: Sequence[Row], images: set[str]) -> str:
    """The whole page."""
    blocks = [HEAD]
    for name, section in SECTIONS.items():
        mine = [row for row in found if row.section == name]
        if not mine:
            continue
        blocks.append(f"## {section.title}\n\n{section.text}\n")
        if section.image in images:
            blocks.append(f"![{section.title}](images/{section.image})\n")
        blocks.append({"runs": of_runs, "proofs": of_proofs}.get(name, beside)(mine))
        bounds = [f"- {line}" for line in section.misses]
        worse = missed(mine)
        if worse:
            bounds.append(f"- The paper's figure is the better one in {len(worse)} rows (✗).")
        if bounds:
            blocks.append("Misses, and what bounds them:\n\n" + "\n".join(bounds) + "\n")
    blocks.append(REPEAT)
    return "\n".join(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    given = parser.parse_args()
    found = rows(results(*given.directories))
    pictures = given.docs / "images"
    drawn = plots(draw, found, pictures)
    images = drawn or {path.name for path in pictures.glob("paper-*.png")}
    (given.docs / "PAPERS.md").write_text(page(found, images), encoding="utf-8")


if __name__ == "__main__":
    main()
