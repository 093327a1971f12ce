"""Prints a program digest per model: run it under several torch versions and compare the lines.

    PYTHONPATH=src:tests/model python tests/model/capture_digests.py [meta]

With `meta` the modules are built without weights; the digests must be the same.
"""

from __future__ import annotations

import contextlib
import sys

import torch
from capture_models import CASES, Case, Gpt, Mlp, classify, next_token, transformers_cases

from tallystick.program.capture import capture
from tallystick.program.optimizers import SGD, AdamW, Optimizer

DROPOUT = {
    "mlp-dropout": Case(lambda: Mlp(0.1), classify, CASES["mlp"].batch),
    "gpt-dropout": Case(lambda: Gpt(dropout=0.1), next_token, CASES["gpt"].batch),
}
OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": SGD(0.1, momentum=0.9),
    "adamw": AdamW("warmup", no_decay=("bias", "norm", "ln")),
}


def digests(on_meta: bool, only: tuple[str, ...] = ()) -> dict[str, str]:
    """Hexadecimal program digest by `model/optimizer`; of all, or of those in `only`."""
    cases = {**CASES, **DROPOUT}
    with contextlib.suppress(ImportError):
        cases |= transformers_cases()
    found: dict[str, str] = {}
    for name, case in cases.items():
        wanted = [k for k in OPTIMIZERS if not only or f"{name}/{k}" in only]
        if not wanted:
            continue
        with torch.device("meta") if on_meta else contextlib.nullcontext():
            module = case.build()
        for kind in wanted:
            step = capture(module, case.loss, case.schema(), OPTIMIZERS[kind], clip_norm=1.0)
            found[f"{name}/{kind}"] = step.program.digest().hex()
    return found


if __name__ == "__main__":
    print(f"# torch {torch.__version__}", file=sys.stderr)
    for name, digest in digests("meta" in sys.argv[1:]).items():
        print(f"{name:24} {digest}")
