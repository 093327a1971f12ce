"""Writes docs/OVT.md and docs/images/ovt-*.png from the raw results of `tallystick bench ovt`.

    python benchmarks/ovt_page.py DIR [--docs docs]

DIR is the --out directory. Every figure on the page comes from there; only the words are here.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tallystick_bench.ovt.results.plots import draw
from tallystick_bench.ovt.results.rows import PARTS, can_show
from tallystick_bench.ovt.results.store import PartFile, read_all
from tallystick_bench.ovt.results.tables import TABLES
from tallystick_bench.papers import plots

HEAD = """# The same bits from stock kernels: `replay/1` and `rounded/1`

*Written by `benchmarks/ovt_page.py` from the results of `tallystick bench ovt`; do not edit.*

"Optimistic Verifiable Training" (Srivastava, Arora, Boneh 2024) trains in float64, rounds every
output to float32 and logs the roundings, so that an auditor on other hardware rounds the same way.
`replay/1` has two forms. The published form is that method. The bounded form logs only the elements
that no bound decides. `rounded/1` decides those elements exactly and needs no log
([NUMERICS 13 and 14](../spec/NUMERICS.md)). Other legal orders of the same sums stand for other
hardware here: other instruction sets, libraries' settings and splits of the contraction. The
paper's figures are from three NVIDIA GPUs, so they stand beside ours and are no yardstick.
"""
TEXTS = {
    "divergence": (
        "Divergence",
        "The l2 distance of the weights of two runs of one job on two kinds of hardware (the "
        "paper's Figure 5). *Equal states* compares every bit of weights, moments and buffers.",
    ),
    "storage": (
        "Storage",
        "Bytes of one step's log. The paper logs the outputs and input gradients of layers. The "
        "published form here logs every computed output, parameter gradients and optimizer state "
        "included. So compare *forward and input gradients* with the paper's figures. The last "
        "line gives the bytes of each step's weights, if these were stored instead.",
    ),
    "corrections": (
        "Corrections",
        "Roundings that the auditor had to correct, by bits kept. The paper's Table 3 is of "
        "GPT-2 and ResNet-50 at full size on GPUs; the models here are smaller and have the same "
        "operators.",
    ),
    "thresholds": (
        "Thresholds",
        "Algorithm 4 over outputs of the kinds of hardware, b = 32 (the paper's Table 4). Elements "
        "that round apart lie next to a boundary, so by powers of two every τ is just below 0.5. "
        "By powers of ten, as in the authors' code, τ depends on the size of the elements, from "
        "0.25 up. Where no element rounded apart, no measurement speaks against the largest τ.",
    ),
    "escalation": (
        "Elements summed exactly",
        "Elements of rounded operators whose rounding the float64 product does not decide.",
    ),
    "time": (
        "Time",
        "Sides take turns in one process, on the same number of threads. A turn is two steps, and "
        "the second counts. The figures are medians.",
    ),
    "memory": ("Memory", "Peak resident memory, each side in a process of its own."),
}


def about(part: PartFile) -> str:
    """The conditions of a part's measurement, as lines of a list."""
    lines = []
    for key, value in part.about.items():
        if isinstance(value, dict):
            value = "; ".join(f"{k}: {v}" for k, v in value.items())
        lines.append(f"- {key}: {value}")
    return "\n".join(lines) + "\n"


def page(parts: dict[tuple[str, str], PartFile], images: set[str]) -> str:
    """The whole page."""
    blocks = [HEAD]
    for name in PARTS:
        found = {
            model: part for (kind, model), part in parts.items() if kind == name and can_show(part)
        }
        if not found:
            continue
        title, text = TEXTS[name]
        blocks.append(f"## {title}\n\n{text}\n")
        for model, part in found.items():
            blocks.append(f"### {model}\n")
            image = f"ovt-{name}-{model}.png"
            if image in images:
                blocks.append(f"![{title}, {model}](images/{image})\n")
            blocks += [make(part) for make in TABLES[name]]
            blocks.append(about(part))
    blocks.append(
        "## Repeat it\n\n"
        "    tallystick bench ovt --out DIR --text tinyshakespeare.txt --cifar10 CIFAR10\n"
        "    python benchmarks/ovt_page.py DIR\n"
    )
    return "\n".join(blocks)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--docs", type=Path, default=Path(__file__).parents[1] / "docs")
    given = parser.parse_args()
    parts = read_all(given.directory)
    pictures = given.docs / "images"
    drawn = plots(draw, parts, pictures)
    images = drawn or {path.name for path in pictures.glob("ovt-*.png")}
    (given.docs / "OVT.md").write_text(page(parts, images), encoding="utf-8")


if __name__ == "__main__":
    main()
