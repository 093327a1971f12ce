"""Writes vectors/kernels from the plain reference: `python tests/vectors/make_kernel_vectors.py`.

The reference and the generator are deterministic, so a second run changes no byte.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parent)]

import kernel_cases as basic  # noqa: E402
import kernel_cases_answer as answer  # noqa: E402
import kernel_cases_attention as attention  # noqa: E402
import kernel_cases_image as image  # noqa: E402
import kernel_cases_index as index  # noqa: E402
import kernel_cases_nn as nn  # noqa: E402
import kernel_cases_quantised as quantised  # noqa: E402
import kernel_cases_read as read  # noqa: E402
import kernel_cases_stored as stored  # noqa: E402
from kernel_format import ROOT, Case, encode  # noqa: E402
from reference.ops import REFERENCE  # noqa: E402

# New calls come after the old ones: what is stored only grows.
GROUPS: dict[str, tuple[Callable[[], Iterable[basic.Call]], ...]] = {
    "dot": (basic.dot, read.dot),
    "reduction": (basic.reduction, read.reduction),
    "scan": (basic.scan,),
    "elementary": (basic.elementary, read.elementary),
    "elementwise": (basic.elementwise, read.elementwise),
    "composite": (nn.composite, read.composite),
    "image": (image.image, read.image),
    "loss": (nn.loss,),
    "random": (nn.random, read.random),
    "scatter": (nn.scatter, read.scatter),
    "move": (nn.move, read.move),
    "select": (index.select,),
    "rank": (index.rank,),
    "whole": (index.whole,),
    "whole-bits": (index.bits,),
    "whole-narrow": (index.narrow,),
    "fold": (index.fold,),
    "answer": (answer.noise, answer.occurrences),
    "attention": (attention.attention,),
    "stored": (stored.stored,),
    "quantised": (quantised.dequantize,),
    "optimizer": (nn.optimizer, read.optimizer),
}


def build(group: str) -> tuple[str, bytes]:
    """(index text, data) of a group, outputs from the reference."""
    cases = [
        Case(op, attrs, tuple(inputs), tuple(REFERENCE[op](attrs, list(inputs))))
        for op, attrs, inputs in chain.from_iterable(calls() for calls in GROUPS[group])
    ]
    return encode(cases, group)


def main() -> None:
    """Write every group, or those named on the command line."""
    ROOT.mkdir(parents=True, exist_ok=True)
    for group in sys.argv[1:] or GROUPS:
        index, data = build(group)
        (ROOT / f"{group}.json").write_text(index)
        (ROOT / f"{group}.bin").write_bytes(data)
        calls = index.count('"op":')
        print(f"{group}: {calls} calls, {len(index)} + {len(data)} bytes")


if __name__ == "__main__":
    main()
