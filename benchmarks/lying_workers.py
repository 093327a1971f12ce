"""Distributed runs in which one worker lies: who is convicted, and where.

    python benchmarks/lying_workers.py [--models mlp gpt2 resnet50] [--workers 2 3]
        [--contracts ordered/1 rounded/1] [--out docs/proofs/lying-workers.md] [--rows FILE ...]

Each model is trained by one worker, by several who check all of each other's shares, by several of
whom one lies in one step, and by several who go on without the liar (docs/adr/0024). The workers
are threads of this process, connected in its memory; `tests/e2e/test_check_workers.py` has
processes. Every evidence is judged in a process of its own where torch cannot be imported. Exit
code 1 if a liar is not convicted, if anyone else is, or if honest workers, or those who go on, give
another run root. No times are taken.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tallystick.devices.context import ExecutionContext
from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.prover import lying_worker, shares
from tallystick.run.cheats.workers import FalseBytes, FalseGradient
from tallystick.run.distributed.checks import Hand, ShareChecks
from tallystick.run.distributed.claims import WorkerConvictedError
from tallystick.run.distributed.going_on import GoingOn
from tallystick.run.execute.trainer import Options, train_job
from tallystick_bench.local_team import train_in_threads

PARTS, STEPS, INTERVAL = 6, 4, 2
SETTINGS = {
    "mlp": {"features": "6", "classes": "3", "records": "64", "hidden": "8", "batch_size": "12",
            "dropout": "0.25", "optimizer": "adamw", "clip_norm": "1.0"},
    "gpt2": {"n_layer": "1", "n_head": "2", "n_embd": "16", "block_size": "8", "batch_size": "6",
             "dropout": "0.1", "warmup": "2"},
    "resnet50": {"size": "tiny", "batch_size": "12", "records": "48"},
}  # fmt: skip
PLACES = ((0, PARTS - 1), (STEPS - 1, PARTS // 2))  # (step, micro-batch) of a lie
CONVICTING = ("false-gradient", "false-bytes", "false-check")
_JUDGE = """
import sys
sys.modules["torch"] = None
from tallystick.cli.main import run
sys.exit(run(sys.argv[1:]))
"""
Row = dict[str, Any]


def make_job(model: str, contract: str, directory: Path) -> Job:
    """A job of six micro-batches: no power of two."""
    text = directory / "text.txt"
    text.write_bytes(b"the quick brown fox jumps over the lazy dog; " * 200)
    sources = Sources(text=text) if model == "gpt2" else None
    pairs = {**SETTINGS[model], "micro_batches": str(PARTS)}
    return new_job(
        model, directory / "job", pairs, sources, steps=STEPS, checkpoint_interval=INTERVAL,
        contract=contract, evaluate_every=0,
    )  # fmt: skip


def owner(part: int, workers: int) -> int:
    """The worker that executes a micro-batch."""
    size, more = divmod(PARTS, workers)
    ends = [(r + 1) * size + min(r + 1, more) for r in range(workers)]
    return next(r for r, end in enumerate(ends) if part < end)


def judged(directory: Path) -> tuple[int, Row]:
    """The exit code and words of `judge` where torch cannot be imported."""
    command = ["judge", directory / "evidence", "--job", directory / "job", "--json"]
    done = subprocess.run(
        [sys.executable, "-c", _JUDGE, *map(str, command)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = {}
    return done.returncode, found if isinstance(found, dict) else {}


def lie(job: Job, out: Path, workers: int, kind: str, step: int, part: int) -> Row:
    """A run with a liar."""
    who = owner(part, workers)
    row: Row = {"workers": workers, "lie": kind, "step": step, "part": part, "liar": who}
    what: Row = {"rank": who, "kind": kind, "step": step}
    if kind != "false-check":
        what["part"] = part
    fraction = 1.0 if kind in CONVICTING else 1e-9
    checking = lying_worker.checking_of(fraction, job.directory, out, what)
    try:
        train_in_threads(
            job, out, workers, checking,
            lambda rank: lying_worker.hand_of({"rank": rank, "lie": what}), lying_worker.answer,
        )  # fmt: skip
    except WorkerConvictedError as error:
        code, found = judged(out.parent / f"{out.name}-false-share-step-{step}")
        row |= {"message": str(error), "judge": code, "phase": found.get("phase")}
        row |= {"case": found.get("case"), "operator": found.get("operator")}
        signers = [c["signer"] for c in found.get("convicted", [])]
        named = [
            f"Convicted: worker {who} (key {signer[:16]})," in str(error) for signer in signers
        ]
        row["good"] = kind in CONVICTING and code == 1 and named == [True]
    except TallystickError as error:
        row |= {"message": str(error), "judge": None}
        row["good"] = kind not in CONVICTING and f"worker {who} sent in step {step}" in str(error)
    else:
        row |= {"message": "nothing was noticed", "judge": None, "good": False}
    return row


@dataclass
class FirstTeamAlone(FalseGradient):
    """It lies in a team of `size` workers."""

    size: int = 0

    def before_claim(self, checks: ShareChecks) -> None:
        if checks.transport.size == self.size:
            super().before_claim(checks)


def goes_on(job: Job, out: Path, workers: int, root: bytes, always: bool) -> Row:
    """A run that goes on without whoever computes one micro-batch falsely in one step: in the first
    team, or `always`, in each."""
    kind, step, part = "false-bytes" if always else "false-gradient", STEPS - 1, PARTS // 2
    sizes = range(workers, 1, -1) if always else [workers]
    expected = [(owner(part, size), size, step) for size in sizes]
    left = workers - len(expected)
    row: Row = {"workers": workers, "lie": kind, "step": step, "part": part, "goes_on": left}
    row["liar"] = ", then ".join(str(who) for who, _, _ in expected)

    def hand(rank: int) -> Hand:
        if rank == 0:
            return Hand()
        return FalseBytes(step, part) if always else FirstTeamAlone(step, part, size=workers)

    checking = shares.checking_of(1.0, job.directory, out)
    how = GoingOn(convictions=True)
    try:
        found = train_in_threads(job, out, workers, checking, hand, lying_worker.answer, how)
    except TallystickError as error:
        return row | {"message": str(error), "judge": None, "good": False}
    row["good"] = (found.finished, found.run_root) == (True, root)
    row["good"] &= [(c.worker, c.workers, c.step) for c in found.convicted] == expected
    for convicted in found.convicted:
        code, words = judged(convicted.evidence.parent)
        row |= {"judge": code, "phase": words.get("phase"), "case": words.get("case")}
        row["operator"] = words.get("operator")
        signers = [c["signer"] for c in words.get("convicted", [])]
        row["good"] &= (code, signers) == (1, [convicted.key])
    return row


def rows_of(model: str, contract: str, workers: list[int]) -> Iterator[Row]:
    """All runs of one job."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        job = make_job(model, contract, directory)
        about = {"model": model, "contract": job.commitment.contract}
        root = train_job(job, directory / "one", Options(ExecutionContext(1))).run_root
        for count in workers:
            out = directory / f"honest-{count}"
            checking = shares.checking_of(1.0, job.directory, out)
            found = train_in_threads(job, out, count, checking).run_root
            yield {**about, "workers": count, "lie": "none", "good": found == root}
            for number, (step, part) in enumerate(PLACES):
                for kind in lying_worker.LIES:
                    if number and kind not in ("false-gradient", "false-bytes"):
                        continue
                    if kind == "false-check" and count > 2:
                        continue  # which worker checks is drawn
                    out = directory / f"{kind}-{count}-{step}"
                    yield {**about, **lie(job, out, count, kind, step, part)}
            for always in (False, True):
                out = directory / f"goes-on-{count}-{always}"
                yield {**about, **goes_on(job, out, count, root, always)}


def page(rows: list[Row], command: str) -> str:
    """The record of the runs."""
    bad = [row for row in rows if not row["good"]]
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    told = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(told, capture_output=True, text=True).stdout.strip()
    went_on = sum("goes_on" in row for row in rows)
    convicted = sum(row["lie"] in CONVICTING for row in rows)
    named, honest = (sum(row["lie"] == kind for row in rows) for kind in ("other-bytes", "none"))
    lines = [
        "# Workers that lie",
        "",
        f"`{command}`, version {tallystick_version()}, {commit}, {date} (`--rows`: what calls with "
        "`--models` of one model each have printed). "
        f"Jobs of {PARTS} micro-batches and {STEPS} steps; all shares are computed again. The "
        "workers are threads of one process over connections in its memory. "
        "`tests/e2e/test_check_workers.py` (with `--exhaustive`) plays the same lies between "
        "processes, over gloo, and a run that cheats as a whole against one that two workers made: "
        "phase 3 convicts it, in a process where torch cannot be imported.",
        "",
        f"{len(rows)} runs, {len(bad)} with another outcome than they should have: {convicted} "
        f"with a false share, of which {went_on} went on by themselves, {named} with bytes that "
        f"are not those signed, {honest} of honest workers. "
        "In every run with a false share its worker, and nobody else, was convicted before the "
        "update, and `judge` said the same in a process where torch cannot be imported. Bytes that "
        "are not signed name their sender and convict nobody. Honest workers gave the root of one "
        "worker, and so did those who went on without each liar (`--on-conviction continue`), "
        "through the false share of one team or of every team.",
        "",
        "| model | contract | workers | lie | step | micro-batch | liar | phase, case | operator "
        "| goes on with | as it should be |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        phase = f"{row['phase']}, {row['case'] or '—'}" if row.get("judge") == 1 else "—"
        cells = [
            row["model"], row["contract"], row["workers"], row["lie"], row.get("step", "—"),
            row.get("part", "—"), row.get("liar", "—"), phase, row.get("operator") or "—",
            row.get("goes_on", "—"), "yes" if row["good"] else "NO",
        ]  # fmt: skip
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--contracts", nargs="+", default=["ordered/1", "rounded/1"])
    parser.add_argument("--workers", nargs="+", type=int, default=[2, 3])
    parser.add_argument("--out", type=Path, help="the page to write")
    parser.add_argument("--rows", nargs="*", type=Path, default=[], help="output of other calls")
    given = parser.parse_args()
    rows: list[Row] = []
    for path in given.rows:
        lines = path.read_text(encoding="utf-8").splitlines()
        rows += [json.loads(line) for line in lines if line.startswith("{")]
    for model in given.models:
        for contract in given.contracts:
            for row in rows_of(model, contract, given.workers):
                rows.append(row)
                print(json.dumps(row), flush=True)
    command = " ".join(["python benchmarks/lying_workers.py", *sys.argv[1:]])
    if given.out is not None:
        given.out.write_text(page(rows, command), encoding="utf-8")
    return 0 if all(row["good"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
