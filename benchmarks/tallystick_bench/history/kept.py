"""Which figures of which results are kept over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# The content of a benchmark's files by their paths below benchmarks/results.
Contents = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A column of a table. `scale` turns the stored number into the unit of the heading."""

    name: str
    heading: str
    scale: float = 1.0
    form: str = ".2f"


@dataclass(frozen=True)
class Benchmark:
    """A benchmark whose results are kept over time.

    `find` gives the figures of its files, by the figures' names; one that is not in the files is
    left out. `plotted` names the figures of the plot, and is empty where there is none. `axis` is
    what its axis of values says, and `mark` a value with a dashed line.
    """

    name: str
    title: str
    about: str
    command: str
    files: tuple[str, ...]
    figures: tuple[Figure, ...]
    find: Callable[[Contents], dict[str, float]]
    plotted: tuple[str, ...] = ()
    plot_title: str = ""
    axis: str = ""
    mark: float | None = None


def _answers(contents: Contents) -> dict[str, float]:
    (result,) = contents.values()
    cases = {case["case"]: case for case in result["cases"]}
    found = {name: case["ratio"] for name, case in cases.items() if "ratio" in case}
    for side, seconds in cases["decoding"]["seconds"].items():
        found[f"decoding, {side}"] = seconds
    found |= {name: result[name] for name in ("sixteen", "sixteen_of_200") if name in result}
    found |= {"share": result["share"], "copy": result["copy"]}
    found["shared"] = result["shared"]["ratio"]
    for text in result["memory"]:
        found[f"memory of {text['tokens']}"] = text["bytes"]
    return found


def _coverage(contents: Contents) -> dict[str, float]:
    (rows,) = contents.values()
    status = Counter(row["status"] for row in rows)
    found: dict[str, float] = {"rows": len(rows)}
    return found | {name: status[name] for name in ("captured", "refused", "broken", "wrong")}


def _operators(contents: Contents) -> dict[str, float]:
    (result,) = contents.values()
    return {"entries": result["entries"], "share": result["share"], **result["counts"]}


def _units(contents: Contents) -> dict[str, float]:
    (result,) = contents.values()
    units = result["units"]
    found = {
        name: units[name]
        for name in ("fold_bytes_s", "write_bytes_s", "read_bytes_s", "sign_s", "verify_s")
    }
    found |= {f"digest {threads}": value for threads, value in units["digest_bytes_s"].items()}
    found |= {f"checksum {n}": value for n, value in units.get("checksum_bytes_s", {}).items()}
    found["referee"] = units["disputes"]["aten.mm"]["referee_seconds"]
    return found


_WIDTHS = (8, 15, 22)


def _exact(contents: Contents) -> dict[str, float]:
    (result,) = contents.values()
    times, errors = result["time over ordered/1"], result["errors"]["gaussian"]
    found = {f"error, b={b}": errors[f"b={b}"] for b in _WIDTHS}
    return found | {f"time, b={b}": times[f"mm/1024x1024x1024/b={b}/digits"] for b in _WIDTHS}


# Names of files, and how a heading says them.
_PROVED = {"logreg-2^18x1024": "regression", "vgg11": "VGG11"}
_FORMS = {
    "ordered": "`ordered/1`",
    "rounded": "`rounded/1`",
    "replay-bounded": "`replay/1`",
    "replay-published": "`replay/1`, published",
}


def _proof_file(model: str, form: str) -> str:
    return f"paper/paper-proofs-{model}.{form}.json"


def _proofs(contents: Contents) -> dict[str, float]:
    found = {}
    for model in _PROVED:
        for form in _FORMS:
            audit = contents[_proof_file(model, form)]["entries"].get("audit")
            if audit is not None:
                found[f"{model} {form}"] = audit["seconds"]
    return found


BENCHMARKS = (
    Benchmark(
        "answers",
        "Answers of a finished model",
        "SmolLM2-135M in float32 on two threads, under `ordered/1`. The first six figures are our "
        "time over that of transformers in the same minutes: below 1 Tallystick is faster. Several "
        "requests together have prompts of 50 tokens, and answers of 16 or of 200. Their speed is "
        "in tokens a second, beside that of one such request. The copy shows how fast the memory "
        "was in the same run: bytes read and written.",
        "python benchmarks/answers.py MODEL --turns 5 --threads 2",
        ("answers.json",),
        (
            Figure("prefill of 64", "prefill of 64"),
            Figure("prefill of 512", "prefill of 512"),
            Figure("decoding", "decoding"),
            Figure("4 together", "4 together"),
            Figure("16 together", "16 together"),
            Figure("16 of 200", "16 together, of 200"),
            Figure("decoding, tallystick", "ms a token", 1e3, ".1f"),
            Figure("decoding, transformers", "ms a token, transformers", 1e3, ".1f"),
            Figure("sixteen", "speed of 16 / 1"),
            Figure("sixteen_of_200", "speed of 16 / 1, of 200"),
            Figure("copy", "copy, GB/s", 1e-9, ".1f"),
        ),
        _answers,
        ("prefill of 512", "prefill of 64", "16 together", "4 together", "decoding"),
        "Answers of SmolLM2-135M beside transformers",
        "time, Tallystick / transformers",
        1.0,
    ),
    Benchmark(
        "answers-bf16",
        "Answers of a model in bf16",
        "The same weights in bf16, alone: transformers takes no turns. Decoding reads all weights "
        "for each token: the bytes a second, beside those of a copy.",
        "python benchmarks/answers.py MODEL --turns 5 --threads 2 --alone --case decoding",
        ("answers-bf16.json",),
        (
            Figure("decoding, tallystick", "ms a token", 1e3, ".1f"),
            Figure("share", "decoding / copy"),
            Figure("copy", "copy, GB/s", 1e-9, ".1f"),
            Figure("memory of 4000", "memory of 4,000 tokens, MB", 1e-6, ".0f"),
        ),
        _answers,
    ),
    Benchmark(
        "coverage",
        "Models, losses and layers that are captured",
        "A row is captured if its five steps are within float32's own error. These are counts, "
        "which do not depend on the machine.",
        "python benchmarks/coverage.py",
        ("coverage.json",),
        (
            *(Figure(name, name, 1, ".0f") for name in ("rows", "captured", "refused")),
            Figure("broken", "fail in PyTorch", 1, ".0f"),
            Figure("wrong", "wrong", 1, ".0f"),
        ),
        _coverage,
    ),
    Benchmark(
        "coverage_operators",
        "Entries of PyTorch's op_db",
        "These are counts, which do not depend on the machine. The share is of the entries that "
        "compute.",
        "python benchmarks/coverage_operators.py",
        ("coverage_operators.json",),
        (
            *(
                Figure(name, name, 1, ".0f")
                for name in ("entries", "pass", "refused", "wrong", "error")
            ),
            Figure("share", "pass, %", 100, ".1f"),
        ),
        _operators,
    ),
    Benchmark(
        "exact",
        "Products of exact/1",
        "Relative error of a product of Gaussian matrices against binary64 (Frobenius norm), and "
        "processor time of a product of 1,024³ over that of `ordered/1`, sums by digits.",
        "python benchmarks/exact_accuracy.py",
        ("exact.json",),
        (
            *(Figure(f"error, b={b}", f"error, b={b}", 1, ".1e") for b in _WIDTHS),
            *(Figure(f"time, b={b}", f"time, b={b}") for b in _WIDTHS),
        ),
        _exact,
    ),
    Benchmark(
        "units",
        "Unit costs of committing and of disputes",
        "What [SCALE](SCALE.md) counts with: speeds of digests, checksums, sums and the disk, and "
        "the time of a signature, of its check, and of a referee in a dispute over `aten.mm`.",
        "python benchmarks/unit_costs.py --threads 2",
        ("scale/units.json",),
        (
            Figure("digest 1", "digests, 1 thread, GB/s", 1e-9),
            Figure("digest 2", "digests, 2 threads, GB/s", 1e-9),
            Figure("checksum 1", "checksums, 1 thread, GB/s", 1e-9, ".1f"),
            Figure("checksum 2", "checksums, 2 threads, GB/s", 1e-9, ".1f"),
            Figure("fold_bytes_s", "folds, GB/s", 1e-9, ".1f"),
            Figure("write_bytes_s", "disk, written, GB/s", 1e-9),
            Figure("read_bytes_s", "disk, read, GB/s", 1e-9),
            Figure("sign_s", "signature, µs", 1e6, ".0f"),
            Figure("verify_s", "its check, µs", 1e6, ".0f"),
            Figure("referee", "referee, ms", 1e3, ".1f"),
        ),
        _units,
    ),
    Benchmark(
        "audits",
        "Audits beside proofs",
        "Seconds of a whole audit of the runs that [PAPERS](PAPERS.md) puts beside zero-knowledge "
        "proofs, under four contracts: logistic regression of 2^18 × 1,024 for 130 steps, VGG11 "
        "for 20 steps.",
        "tallystick bench paper --part proofs",
        tuple(_proof_file(model, form) for model in _PROVED for form in _FORMS),
        tuple(
            Figure(f"{model} {form}", f"{said}, {contract}, s", 1, ".1f")
            for model, said in _PROVED.items()
            for form, contract in _FORMS.items()
        ),
        _proofs,
    ),
)
