"""Accuracy and time of the products of `exact/1` (NUMERICS 17, ADR 0015).

    python benchmarks/exact_accuracy.py [--json FILE] [--quick]

Errors are Frobenius norms against binary64, of ordered/1, of exact/1 for each b and some lengths of
a block, and of TF32 and bf16 (operands rounded, sums in binary64). Operands: Gaussian, heavy tails,
and the products of one training step of a small GPT-2 after some steps. Times are processor time on
one thread, so that other work on the machine hardly enters: medians of ratios to ordered/1.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallystick import _core, evaluate
from tallystick.contracts.exact import BLOCK_LENGTHS
from tallystick.contracts.exact.cpu.integers import ENGINES, using
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.run.execute.trainer import Options, train_job

F32 = np.float32
LENGTHS = (256, 1024, 2048)
TEXT = Path(__file__).resolve().parents[1] / "spec" / "NUMERICS.md"


def narrowed(x: np.ndarray, bits: int) -> np.ndarray:
    """x rounded to `bits` significant bits, ties to even (TF32: 11, bf16: 8)."""
    drop = 24 - bits
    u: np.ndarray = x.view(np.uint32).astype(np.uint64)
    u = (u + np.uint64((1 << (drop - 1)) - 1) + (u >> drop & 1)) >> drop << drop
    return u.astype(np.uint32).view(F32)


def in_integers(x: np.ndarray, b: int, length: int) -> np.ndarray:
    """The elements of rows x f64[R,K] as 17.4 has them, for any length of a block."""
    out = np.zeros(x.shape)
    for k in range(0, x.shape[1], length):
        part = x[:, k : k + length]
        e = np.frexp(np.abs(part).max(axis=1, keepdims=True))[1]
        m = np.rint(np.ldexp(part, b - 1 - e))
        out[:, k : k + length] = np.ldexp(np.minimum(m, 127) if b == 8 else m, e - (b - 1))
    return out


def errors(a: np.ndarray, b: np.ndarray) -> dict[str, float]:
    """Relative errors of a·b by arithmetic."""
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    true = wide_a @ wide_b
    norm = float(np.linalg.norm(true)) or 1.0

    def of(found: Any) -> float:
        return float(np.linalg.norm(np.asarray(found, np.float64) - true)) / norm

    made = {"ordered/1": of(evaluate("aten.mm", a, b))}
    for name, bits in (("tf32", 11), ("bf16", 8)):
        made[name] = of(narrowed(a, bits).astype(np.float64) @ narrowed(b, bits))
    for width in BLOCK_LENGTHS:
        made[f"b={width}"] = of(evaluate("aten.mm", a, b, contract=f"exact/1;b={width}"))
        for length in LENGTHS:
            found = in_integers(wide_a, width, length) @ in_integers(wide_b.T, width, length).T
            made[f"b={width} blocks of {length}"] = of(found)
    return made


def drawn(quick: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Operands of known distributions."""
    rng, k = np.random.default_rng(7), 1024 if quick else 8192
    shapes = ((96, k), (k, 96))

    def pair(make: Any) -> tuple[np.ndarray, np.ndarray]:
        a, b = (np.ascontiguousarray(make(s), F32) for s in shapes)
        return a, b

    yield "gaussian", *pair(rng.standard_normal)
    yield "student t, 2 degrees", *pair(lambda s: rng.standard_t(2, s))
    yield (
        "lognormal, sigma 3",
        *pair(lambda s: np.exp(3 * rng.standard_normal(s)) * rng.choice([-1, 1], s)),
    )
    a, b = pair(rng.standard_normal)
    a[:, ::97] *= 50
    yield "gaussian, outlier columns", a, b


def trained(quick: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """The largest products of the last step of a small GPT-2, forward and backward."""
    steps, found = (3 if quick else 40), list[tuple[np.ndarray, np.ndarray]]()
    true_mm, true_addmm = _core.mm, _core.addmm

    def mm(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        found.append((a.copy(), b.copy()))
        true_mm(a, b, out)

    def addmm(c: Any, a: np.ndarray, b: np.ndarray, *rest: Any) -> None:
        found.append((a.copy(), b.copy()))
        true_addmm(c, a, b, *rest)

    sizes = {"n_layer": "2", "n_head": "4", "n_embd": "128", "block_size": "64", "batch_size": "8"}
    with tempfile.TemporaryDirectory() as scratch:
        job = new_job("gpt2", Path(scratch) / "job", sizes, Sources(text=TEXT), steps=steps, seed=3)
        for name, observed in (("mm", mm), ("addmm", addmm)):
            setattr(_core, name, observed)
        try:
            train_job(job, Path(scratch) / "run", Options())
        finally:
            for name, true in (("mm", true_mm), ("addmm", true_addmm)):
                setattr(_core, name, true)
    last = found[-len(found) // steps :]
    for number, (a, b) in enumerate(last):
        if min(a.shape) and b.shape[1] and (not quick or number < 4):
            yield f"gpt2 step {steps}, product {number} {a.shape}x{b.shape}", a, b


def times(quick: bool) -> dict[str, float]:
    """Medians of the time relative to ordered/1, by engine and b."""
    rng, made = np.random.default_rng(1), dict[str, float]()
    _core.set_threads(1)
    for m, k, n in ((256, 256, 256),) if quick else ((512, 768, 768), (1024, 1024, 1024)):
        a, b = (rng.standard_normal(s).astype(F32) for s in ((m, k), (k, n)))
        for width in BLOCK_LENGTHS:
            for engine in ENGINES:
                ratios = []
                with using(engine):  # the first call probes and takes memory
                    _seconds(a, b, f"exact/1;b={width}")
                for _ in range(3 if quick else 9):
                    ordered = _seconds(a, b, "ordered/1")
                    with using(engine):
                        ratios.append(_seconds(a, b, f"exact/1;b={width}") / ordered)
                made[f"mm/{m}x{k}x{n}/b={width}/{engine}"] = round(statistics.median(ratios), 2)
    return made


def _seconds(a: np.ndarray, b: np.ndarray, contract: str) -> float:
    start = time.thread_time()
    evaluate("aten.mm", a, b, contract=contract)
    return time.thread_time() - start


def main() -> None:
    """Measure, print, and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="small sizes, for a first look")
    given = parser.parse_args()
    found: dict[str, Any] = {"errors": {}, "isa": _core.isa(), "threads": _core.threads()}
    for name, a, b in drawn(given.quick):
        found["errors"][name] = errors(a, b)
    real = [errors(a, b) for _, a, b in trained(given.quick)]
    for label, pick in (("median", statistics.median), ("worst", max)):
        found["errors"][f"gpt2 training step, {label} of {len(real)} products"] = {
            key: pick([row[key] for row in real]) for key in real[0]
        }
    for name, row in found["errors"].items():
        print(name, {k: f"{v:.1e}" for k, v in row.items()}, flush=True)
    found["time over ordered/1"] = times(given.quick)
    print(found["time over ordered/1"])
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
