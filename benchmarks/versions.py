"""Two checkouts beside each other: steps, an audit and a dispute, in pairs, with a null.

    python benchmarks/versions.py --old TREE --new TREE [--pairs 30] [--json] [CASE ...]

Each tree has its native module in src/tallystick (or is installed for the interpreter that runs
this). A worker process of each tree, and a second one of the old tree, wait for their turns. In a
round each does the same work once, in an order that changes from round to round. So the old tree
beside itself says what this machine's noise is, and old beside new what the change costs. Figures
are medians of the ratios of a round.

    step-ordered       a step of GPT-2 124M (8 x 64 tokens) under ordered/1
    step-rounded       the same under rounded/1, by stock binary64 products
    small-ordered      ten steps of a small GPT-2 under ordered/1; small-rounded likewise
    train              20 steps of the small GPT-2 with all that a run keeps
    workers            20 steps of an MLP in four micro-batches, by two worker processes
    audit              an audit of 20 steps of the small GPT-2
    dispute            a local dispute about one element of a product in the small GPT-2

Each worker's largest memory in MiB stands beside its seconds; that of `workers` is its children's.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

CASES = (
    "step-ordered", "step-rounded", "small-ordered", "small-rounded", "train", "workers", "audit",
    "dispute",
)  # fmt: skip

# What a worker runs: only what both trees have under the same names.
WORKER = r"""
import os, resource, shutil, sys, time
from pathlib import Path
import numpy as np
case, threads = sys.argv[1], int(sys.argv[2])
import tallystick
from tallystick import _core
_core.set_threads(threads)
kind, _, how = case.partition("-")
contract = (how or "ordered") + "/1"
where = Path(os.environ["TALLYSTICK_SCRATCH"])
small = {"n_layer": "4", "n_head": "4", "n_embd": "128", "block_size": "64", "batch_size": "8"}
text = where / "text.txt"
text.write_bytes(np.random.default_rng(0).integers(97, 123, 20000, dtype=np.uint8).tobytes())


def small_job(steps):
    from tallystick.job.recipes import new_job
    from tallystick.job.recipes.base import Sources
    return new_job("gpt2", where / "job", small, Sources(text=text), steps=steps,
                   contract=contract, checkpoint_interval=10, evaluate_every=0)


if kind in ("step", "small"):
    from tallystick.job.recipes.gpt2 import Gpt2Settings, build
    from tallystick.program.executor import Executor
    sizes = (12, 12, 768, 50257) if kind == "step" else (4, 4, 128, 256)
    settings = Gpt2Settings(**dict(zip(("n_layer", "n_head", "n_embd", "vocab_size"), sizes)),
                            dropout=0.1, block_size=64, batch_size=8, lr=6e-4,
                            schedule="constant", warmup=0)
    from dataclasses import replace
    from tallystick.numerics.contracts import resolve_contract
    built = build(settings, {}, 100, 0)
    state = {name: array.copy() for name, array in built.initial_state.items()}
    executor = Executor(replace(built.captured.program, contract=resolve_contract(contract)))
    batch = np.random.default_rng(0).integers(0, sizes[3], (8, 65))
    taken = iter(range(1 << 30))

    def work():
        for _ in range(1 if kind == "step" else 10):
            executor.run_step(state, {"tokens": batch}, {"lr": 6e-4}, (0, next(taken)))
elif kind in ("train", "workers"):
    if kind == "train":
        job, more = small_job(20), {}
    else:
        from tallystick.job.recipes import new_job
        settings = {"features": "256", "hidden": "1024", "batch_size": "256", "micro_batches": "4"}
        job, more = new_job("mlp", where / "job", settings, steps=20), {"workers": 2}

    def work():
        shutil.rmtree(where / "again", ignore_errors=True)
        tallystick.train(job, where / "again", **more)
else:
    job = small_job(20)
    tallystick.train(job, where / "run")
    if kind == "audit":
        def work():
            assert tallystick.audit(where / "run").accepted
    else:
        from tallystick.run.cheats.training import declared_cheat
        from tallystick.run.execute.trainer import Options, train_job
        try:
            from tallystick.run.store.unsigned import Declaration
        except ImportError:  # before 2026-11-30
            from tallystick.run.store.declaration import Declaration
        lie = declared_cheat(job, Declaration("lie-output", {"step": 13}))
        train_job(job, where / "cheat", Options(maker=lie))

        def work():
            found = tallystick.dispute(where / "run", where / "cheat", job, as_attack=["B"])
            assert found.convicted == ("B",)

for _ in range(2):
    work()
print("ready", flush=True)
who = resource.RUSAGE_CHILDREN if kind == "workers" else resource.RUSAGE_SELF
for line in sys.stdin:
    began = time.perf_counter()
    work()
    print(time.perf_counter() - began, resource.getrusage(who).ru_maxrss, flush=True)
"""


class Worker:
    """A process over the tree at `tree` that does the work of `case` when it is told to."""

    def __init__(self, tree: Path, case: str, threads: int, shim: Path) -> None:
        self._tree, self._scratch = tree, tempfile.TemporaryDirectory()
        self.mebibytes = 0.0  # the most memory so far
        environment = {
            **os.environ,
            "PYTHONPATH": f"{shim}{os.pathsep}{tree / 'src'}",
            "TALLYSTICK_TREE": str(tree / "src"),
            "TALLYSTICK_SCRATCH": self._scratch.name,
        }
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, case, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        if self._read() != "ready":
            raise SystemExit(f"The worker of {tree} has not begun as it should.")

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The worker of {self._tree} has ended; its error stands above.")
        return line.strip()

    def seconds(self) -> float:
        """The seconds of one turn."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        seconds, kibibytes = self._read().split()
        self.mebibytes = int(kibibytes) / 1024
        return float(seconds)

    def close(self) -> None:
        self._process.communicate()
        self._scratch.cleanup()


# An editable installation would win over PYTHONPATH.
_SHIM = """import os, sys
sys.meta_path[:] = [f for f in sys.meta_path if "skbc" not in type(f).__module__]
sys.path.insert(0, os.environ["TALLYSTICK_TREE"])
"""


def measured(case: str, trees: dict[str, Path], pairs: int, threads: int) -> dict[str, Any]:
    """The row of a case: medians in seconds, and the median ratios null and new over old."""
    shim = Path(__file__).resolve().parents[1] / "build" / "versions"
    shim.mkdir(parents=True, exist_ok=True)
    (shim / "sitecustomize.py").write_text(_SHIM)
    workers: dict[str, Worker] = {}
    taken: dict[str, list[float]] = {name: [] for name in trees}
    order = random.Random(0)
    with ExitStack() as stack:
        for name, tree in trees.items():
            workers[name] = Worker(tree, case, threads, shim)
            stack.callback(workers[name].close)
        for _ in range(pairs):
            for name in order.sample(list(workers), len(workers)):
                taken[name].append(workers[name].seconds())

    def ratio(name: str) -> float:
        return statistics.median(a / b for a, b in zip(taken[name], taken["old"], strict=True))

    return {
        "case": case,
        "pairs": pairs,
        "threads": threads,
        "seconds": {name: round(statistics.median(s), 4) for name, s in taken.items()},
        "mebibytes": {name: round(worker.mebibytes) for name, worker in workers.items()},
        "null": round(ratio("null"), 4),
        "new": round(ratio("new"), 4),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--old", type=Path, required=True)
    parser.add_argument("--new", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("case", nargs="*")
    given = parser.parse_args()
    trees = {"old": given.old, "null": given.old, "new": given.new}
    trees = {name: tree.resolve() for name, tree in trees.items()}
    for tree in {trees["old"], trees["new"]}:
        # A worker process of a tree without bytecode would compile all that it imports.
        subprocess.run([sys.executable, "-m", "compileall", "-q", tree / "src"], check=True)
    rows = [measured(case, trees, given.pairs, given.threads) for case in given.case or CASES]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    for row in rows:
        print(
            f"{row['case']:14} null {row['null']:.3f}  new {row['new']:.3f}  {row['seconds']} s "
            f"{row['mebibytes']} MiB"
        )


if __name__ == "__main__":
    main()
