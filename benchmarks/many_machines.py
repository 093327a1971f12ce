"""One run root for any number of workers, resized and killed: mlp, gpt2, resnet.

    python benchmarks/many_machines.py [--only NAME] [--contract C] [--workers 1 2 3 4 8]
        [--steps 200] [--work DIR] [--out FILE] [--page FILE] [--seed 0]

Each job computes its batches in 8 micro-batches. It is trained without a break by each number of
workers, and once by many: killed by SIGKILL three times (a worker, worker 0, a worker), stopped and
taken up twice with another number of workers, each time by the same command. `--page` writes what
came out, of this call and of files that `--joined` names. `--out` gets every run as it ends, and
the same call takes it up: runs that it has are not repeated. The models of full size (`--only
gpt2-full`, `--only resnet-full`, with `--steps 10`) are trained without a break only.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
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
# Of full size: GPT-2 124M, and ResNet-50 at 224x224.
FULL: dict[str, tuple[str, dict[str, str]]] = {
    "gpt2-full": ("gpt2", {"n_layer": "12", "n_head": "12", "n_embd": "768", "block_size": "128",
                           "vocab_size": "50257", "batch_size": "8", "text_bytes": "200000",
                           "validation": "0"}),
    "resnet-full": ("resnet50", {"size": "50", "stem": "imagenet", "image": "224",
                                 "batch_size": "16", "records": "32"}),
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
        said, error = process.communicate(timeout=7200)
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


def row(name: str, contract: str, args: argparse.Namespace, work: Path, found: Found) -> None:
    """The runs of one job: those that `found` does not have yet."""
    recipe, settings = {**JOBS, **FULL}[name]
    label = f"{name}-{contract.partition('/')[0]}"
    given = {**settings, "micro_batches": str(PARTS)}
    kept = next((r for r in found.rows if (r["name"], r["contract"]) == (name, contract)), None)
    wanted = [str(w) for w in args.workers] + ([] if name in FULL else ["disturbed"])
    has = set() if kept is None else {run_name(run) for run in kept["runs"]}
    missing = [one for one in wanted if one not in has]
    if not missing:
        print(label, "is there already", flush=True)
        return
    shutil.rmtree(work / label, ignore_errors=True)
    job = new_job(recipe, work / label, given, steps=args.steps, contract=contract,
                  checkpoint_interval=20)  # fmt: skip
    if kept is None:
        size = sum(t.numel for n, t in job.program.state_types.items() if n.startswith("param."))
        kept = {"name": name, "contract": contract, "parameters": size, "steps": args.steps,
                "seed": args.seed, "job": job.digest.hex(), "runs": []}  # fmt: skip
        found.rows.append(kept)
    if (kept["job"], kept["steps"], kept["seed"]) != (job.digest.hex(), args.steps, args.seed):
        raise SystemExit(f"{args.out} has runs of another job, other steps or another seed.")
    for one in missing:
        out = work / f"{label}-{one}"
        shutil.rmtree(out, ignore_errors=True)
        if one == "disturbed":
            run = disturbed(job, out, random.Random(args.seed))
        else:
            run = plain(job, out, int(one))
        shutil.rmtree(out)
        kept["runs"].append(run)
        found.save()
        ends = "" if one != "disturbed" else " " + "; ".join(run["ends"])
        stands = f"{run['run_root'][:16]} {run['seconds']:.0f} s"
        print(time.strftime("%H:%M:%S"), label, one, stands + ends, flush=True)
    kept["runs"].sort(key=lambda run: wanted.index(run_name(run)) if run_name(run) in wanted else 0)
    found.save()


def run_name(run: dict[str, Any]) -> str:
    return "disturbed" if len(run["ends"]) > 1 else str(run["workers"][0])


@dataclass
class Found:
    """What there is so far, which `path` keeps."""

    about: dict[str, Any]
    path: Path | None
    rows: list[dict[str, Any]] = field(default_factory=list)

    def save(self) -> None:
        if self.path is None:
            return
        beside = self.path.with_suffix(".new")
        beside.write_text(json.dumps({**self.about, "rows": self.rows}, indent=1) + "\n")
        beside.replace(self.path)


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
        alone = ", ".join(str(x["workers"][0]) for x in r["runs"] if run_name(x) != "disturbed")
        broken = [x["ends"] for x in r["runs"] if run_name(x) == "disturbed"]
        lines.append(
            f"| {r['name']} | {r['contract']} | {r['parameters']:,} | {r['steps']} | {alone} | "
            f"{'; '.join(broken[0]) if broken else 'none'} | "
            f"{' '.join(f'`{x}`' for x in roots)} |"
        )
    full = any(r["name"] in FULL for r in rows)
    lines += ["", f"Not covered: several machines, GPUs{'' if full else ', full-size models'}.", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=[*JOBS, *FULL], action="append")
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
    parts = {key: value for key, value in machine().items() if key != "threads"}
    here = ", ".join(f"{key} {value}" for key, value in parts.items())
    about: dict[str, Any] = {
        "command": ["python " + " ".join(sys.argv)],
        "commit": commit.stdout.strip(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"torch {version('torch')}, {here}",
    }
    found = Found(about, args.out)
    if args.out and args.out.exists() and not args.joined:
        kept = json.loads(args.out.read_text())
        found.rows = kept.pop("rows")
        found.about = kept
    commands: list[str] = []
    for file in args.joined:
        part = json.loads(file.read_text())
        found.rows += part.pop("rows")
        commands += [f"{line}   # at {part['commit']}" for line in part["command"]]
        found.about = {**part, "command": commands, "commit": "the commits named there"}
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        for name in names:
            for contract in args.contract or CONTRACTS:
                row(name, contract, args, work, found)
    if args.page:
        args.page.write_text(page({**found.about, "rows": found.rows}))
    return int(any(len({x["run_root"] for x in r["runs"]}) != 1 for r in found.rows))


if __name__ == "__main__":
    sys.exit(main())
