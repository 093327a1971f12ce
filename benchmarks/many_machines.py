"""One run root for any number of workers, resized and killed: mlp, gpt2, resnet.

    python benchmarks/many_machines.py [--only NAME] [--contract C] [--workers 1 2 3 4 8]
        [--steps 200] [--work DIR] [--out FILE] [--page FILE] [--seed 0]

Each job computes its batches in 8 micro-batches. It is trained without a break by each number of
workers, and once by many: killed by SIGKILL three times (a worker, worker 0, a worker), stopped and
taken up twice with another number of workers, each time by the same command. `--page` writes what
came out, of this call and of files that `--joined` names.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.store.directory import RunStore
from tallystick_bench.machine import machine

PARTS = 8
JOBS: dict[str, tuple[str, dict[str, str]]] = {
    "mlp": ("mlp", {"hidden": "64", "batch_size": "32", "dropout": "0.1", "clip_norm": "1.0",
                    "optimizer": "adamw"}),
    "gpt2": ("gpt2", {"n_layer": "2", "n_head": "2", "n_embd": "32", "block_size": "16",
                      "batch_size": "8", "text_bytes": "20000"}),
    "resnet": ("resnet50", {"size": "tiny", "batch_size": "16", "records": "128"}),
}  # fmt: skip
CONTRACTS = ("ordered/1", "rounded/1")
# Sessions of the run that is disturbed: (workers, what ends it). A pause is Ctrl-C.
SESSIONS = (
    (3, "kill a worker"), (2, "pause"), (8, "kill worker 0"), (4, "kill a worker"), (1, "pause"),
    (3, ""),
)  # fmt: skip


def command(job: Job, out: Path, workers: int) -> list[str]:
    start = [sys.executable, "-m", "tallystick", "train", str(job.directory), "--out", str(out)]
    return [*start, "--workers", str(workers), "--threads", "1", "--quiet", "--json"]


def plain(job: Job, out: Path, workers: int) -> dict[str, Any]:
    """Train without a break."""
    began = time.perf_counter()
    done = subprocess.run(command(job, out, workers), stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)
    return {"workers": [workers], "run_root": found["run_root"], "ends": ["complete"],
            "seconds": time.perf_counter() - began}  # fmt: skip


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(words[1]) == pid:
                found.append(int(entry.name))
    return found


def disturbed(job: Job, out: Path, rng: random.Random) -> dict[str, Any]:
    """Train in `SESSIONS`, each ended at a random place of its own sixth of the steps."""
    began, ends = time.perf_counter(), []
    root, journal = "", out / "journal"
    for number, (workers, end) in enumerate(SESSIONS):
        share = job.steps / len(SESSIONS)
        place = int(share * number + rng.uniform(0.3, 0.9) * share)
        process = subprocess.Popen(
            command(job, out, workers), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        while end and process.poll() is None:
            done = len(RunStore(out).journal(job).losses) if journal.exists() else 0
            if done >= place:
                others = children(process.pid)
                kill = end.startswith("kill")
                target = rng.choice(others) if end == "kill a worker" else process.pid
                os.kill(target, signal.SIGKILL if kill else signal.SIGINT)
                break
            time.sleep(0.02)
        said, error = process.communicate(timeout=600)
        code = process.returncode
        expected = {"": 0, "pause": 2, "kill a worker": 2, "kill worker 0": -signal.SIGKILL}[end]
        named = end != "kill a worker" or b"was killed by SIGKILL" in error
        if code != expected or not named:
            raise SystemExit(f"session {number} ended with {code}: {error.decode()}")
        done = len(RunStore(out).journal(job).losses)
        ends.append(f"{workers}: {end or 'complete'} at {done}")
        if not end:
            root = json.loads(said)["run_root"]
    return {"workers": [w for w, _ in SESSIONS], "run_root": root, "ends": ends,
            "seconds": time.perf_counter() - began}  # fmt: skip


def row(name: str, contract: str, args: argparse.Namespace, work: Path) -> dict[str, Any]:
    """The runs of one job."""
    recipe, settings = JOBS[name]
    label = f"{name}-{contract.partition('/')[0]}"
    given = {**settings, "micro_batches": str(PARTS)}
    job = new_job(recipe, work / label, given, steps=args.steps, contract=contract,
                  checkpoint_interval=20)  # fmt: skip
    size = sum(t.numel for n, t in job.program.state_types.items() if n.startswith("param."))
    runs = []
    for workers in args.workers:
        runs.append(plain(job, work / f"{label}-{workers}", workers))
        print(label, workers, runs[-1]["run_root"][:16], f"{runs[-1]['seconds']:.0f} s", flush=True)
    runs.append(disturbed(job, work / f"{label}-disturbed", random.Random(args.seed)))
    print(label, runs[-1]["ends"], runs[-1]["run_root"][:16], flush=True)
    return {"name": name, "contract": contract, "parameters": size, "steps": args.steps,
            "runs": runs}  # fmt: skip


def page(found: dict[str, Any]) -> str:
    rows = found["rows"]
    runs = sum(len(r["runs"]) for r in rows)
    one = all(len({x["run_root"] for x in r["runs"]}) == 1 for r in rows)
    verdict = "one root each" if one else "ROOTS DIFFER"
    lines = [
        "# Many machines: one run root",
        "",
        "`benchmarks/many_machines.py` trains small jobs of 8 micro-batches with any number of",
        "workers (processes that gloo connects): each number once without a break, and once in six",
        "sessions. Of those, three end by SIGKILL and two by Ctrl-C, and the same command takes",
        "the run up with another number of workers. Every run of a job must have one root.",
        "",
        "## Command",
        "",
        *(f"    {line}" for line in found["command"]),
        "",
        f"Recorded on {found['date']} at {found['commit']}; {found['machine']}.",
        "",
        "## Result",
        "",
        f"**{len(rows)} jobs, {runs} runs: {verdict}.**",
        "",
        "| job | contract | parameters | steps | workers | disturbed run: sessions | run root |",
        "|---|---|--:|--:|---|---|---|",
    ]
    for r in rows:
        roots = sorted({x["run_root"] for x in r["runs"]})
        alone = ", ".join(str(x["workers"][0]) for x in r["runs"][:-1])
        lines.append(
            f"| {r['name']} | {r['contract']} | {r['parameters']:,} | {r['steps']} | {alone} | "
            f"{'; '.join(r['runs'][-1]['ends'])} | {' '.join(f'`{x}`' for x in roots)} |"
        )
    lines += ["", "Not covered: several machines, GPUs, full-size models.", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--contract", choices=CONTRACTS, action="append")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 3, 4, 8])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--joined", type=Path, nargs="*", default=[])
    args = parser.parse_args()
    names = [] if args.joined else args.only or list(JOBS)
    told = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(told, capture_output=True, text=True)
    about = {key: value for key, value in machine().items() if key != "threads"}
    here = ", ".join(f"{key} {value}" for key, value in about.items())
    found: dict[str, Any] = {
        "command": ["python " + " ".join(sys.argv)],
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"torch {version('torch')}, {here}",
        "rows": [],
    }
    for file in args.joined:
        part = json.loads(file.read_text())
        rows = [*found["rows"], *part["rows"]]
        found = {**part, "rows": rows, "command": [*found["command"][1:], *part["command"]]}
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        for name in names:
            for contract in args.contract or CONTRACTS:
                found["rows"].append(row(name, contract, args, work))
                if args.out:
                    args.out.write_text(json.dumps(found, indent=1) + "\n")
    if args.page:
        args.page.write_text(page(found))
    return int(any(len({x["run_root"] for x in r["runs"]}) != 1 for r in found["rows"]))


if __name__ == "__main__":
    sys.exit(main())
