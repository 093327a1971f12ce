"""`tallystick demo`: train, audit on another code path, catch and convict cheats, sample.

The disputes are those of a cheating run against the honest one, judged without torch.
"""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tallystick import _core
from tallystick.api.disputes import Disputing, playing
from tallystick.api.training import Training, train_as
from tallystick.cli.attack import train_cheat
from tallystick.cli.output import MISMATCH, finish, json_option, print_json, say
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.devices.environment import check_environment
from tallystick.disk.files import make_directory, write_file
from tallystick.disk.regular import is_directory, names, present
from tallystick.errors import TallystickError, UsageError
from tallystick.job.job import DATA, Job
from tallystick.job.job_file import load_terms
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.report.dispute_page import dispute_page
from tallystick.report.facts import read_dispute, read_run
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.evaluation import Draw, sample_tokens
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.show.estimate import human_seconds
from tallystick.run.store.directory import RunStore, checkpoint_name
from tallystick.run.store.export import export_model, verify_model
from tallystick.run.store.fsck import fsck
from tallystick.run.store.unsigned import Declaration
from tallystick.terminal.progress import Reporter

# The judge is a process of its own in which importing torch fails.
_JUDGE = (
    "import sys; sys.modules['torch'] = None\n"
    "from tallystick.cli.main import run\n"
    "sys.exit(run(['judge', *sys.argv[1:], '--json']))"
)


@dataclass(frozen=True)
class DemoSettled:
    """The end of a dispute of the demo, in the judge's own words."""

    case: str
    convicted: list[str]
    accepted: str | None
    sentence: str


def settle(job: Path, honest: Path, cheat: Path, out: Path, name: str) -> DemoSettled:
    """Let `honest` (A) and `cheat` (B) answer a referee; write evidence and page; judge offline."""
    terms = load_terms(job)
    with playing(Disputing(as_attack=("B",)), (honest, cheat), terms) as (played, parties):
        again = sum(party.executed_steps for party in parties)
    evidence, page = out / f"{name}.evidence", out / f"{name}.html"
    write_file(evidence, [played.evidence.to_bytes()])
    found = _judged(evidence, job)
    v = played.verdict
    place = v.place
    say(
        f"    step {place.step}, node {place.node} ({place.operator}), {place.side} "
        f"{place.operand}, element {place.element}"
    )
    for party, text in zip("AB", v.claimed, strict=True):
        say(f"    {party} claims {text}")
    say(f"    it is    {v.value}")
    for convicted in found["convicted"]:
        say(f"    CONVICTED {convicted['party']}, case {found['case']}: {convicted['sentence']}")
        say(f"      (PROTOCOL {convicted['clause']}; confirmed offline by a judge without torch)")
    say(
        f"    {v.rounds} rounds, {v.received:,} bytes; the referee executed {v.terms} terms, both "
        f"runs together {again} steps again"
    )
    dispute = read_dispute(evidence, terms, None, [read_run(honest), read_run(cheat)])
    write_file(page, [dispute_page(dispute).encode("utf-8")])
    say(f"    report: {page}")
    return DemoSettled(
        found["case"],
        [one["party"] for one in found["convicted"]],
        found["accepted_party"],
        "; ".join(one["sentence"] for one in found["convicted"]),
    )


def _judged(evidence: Path, job: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _JUDGE, str(evidence), "--job", str(job)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode not in (0, 1):
        say(f"    the judge could not check: {done.stderr.strip()}")
        return {"case": "", "convicted": [], "accepted_party": None}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


STEPS = 600
CHEAT_STEP = 33
SETTINGS = {"n_layer": "2", "n_head": "4", "n_embd": "64", "block_size": "64", "batch_size": "16",
            "lr": "0.01", "dropout": "0.1", "text_bytes": "400000"}  # fmt: skip
PROMPT = "Return the "
_MADE = (
    "job", "run", "run-weight-bit", "run-batch-bit", "run-poisoned", "run-falsified",
    "poisoned.html", "poisoned.evidence", "falsified.html", "falsified.evidence",
    "model.safetensors",
)  # fmt: skip


def other_path() -> ExecutionContext:
    """A context with an instruction set and a number of threads that are not in use."""
    here = _core.isa()
    others = [isa for isa in _core.supported_isas() if isa not in (here, "scalar")]
    return ExecutionContext(1 if _core.threads() > 1 else 2, others[-1] if others else "scalar")


def flip_bit(path: Path, tensor: str, byte: int, bit: int) -> None:
    """Flip one bit of one tensor in a safetensors file, in place."""
    with path.open("r+b") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        begin, end = json.loads(file.read(size))[tensor]["data_offsets"]
        assert 0 <= byte < end - begin
        position = 8 + size + begin + byte
        file.seek(position)
        old = file.read(1)[0]
        file.seek(position)
        file.write(bytes([old ^ (1 << bit)]))


def copy_of(run: Path, name: str) -> Path:
    """A private copy of a run directory beside it."""
    target = run.parent / name
    shutil.copytree(run, target)
    return target


def _fresh(out: Path) -> None:
    there = names(out)
    if there:
        strangers = sorted(name for name in there if name not in _MADE)
        if strangers or not present(out / "job" / "job.json"):
            what = f" ({strangers[0]})" if strangers else ""
            raise UsageError(
                f"{out} already contains other files{what}.", "Choose another directory with --out."
            )
        for name in _MADE:  # only files of a demo, never another directory
            path = out / name
            if is_directory(path) and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    make_directory(out)


class Demo:
    """The scenes in order. Each prints its findings and returns them."""

    def __init__(self, out: Path, text: Path | None, steps: int, quiet: bool) -> None:
        self.out, self.text, self.steps, self.quiet = out, text, steps, quiet
        self.found: dict[str, object] = {}
        self.scene = 0

    def title(self, text: str) -> None:
        self.scene += 1
        say()
        say(f"[{self.scene}] {text}")

    def make_job(self) -> Job:
        self.title("A job: a small GPT-2 with dropout, on the text every Python carries")
        job = new_job(
            "gpt2", self.out / "job", SETTINGS, Sources(text=self.text), steps=self.steps, seed=1
        )
        parameters = sum(
            t.numel for name, t in job.program.state_types.items() if name.startswith("param.")
        )
        say(
            f"    {parameters:,} parameters, {len(job.program.nodes)} operators a step, "
            f"{job.steps} steps, checkpoints every {job.interval}"
        )
        say(f"    job digest  {job.digest.hex()}")
        return job

    def train(self, job: Job) -> Path:
        self.title(f"Train it: {_core.isa()}, {_core.threads()} threads")
        run = self.out / "run"
        with Reporter("train", self.quiet) as reporter:
            result = train_as(Training(run), job, reporter)
        say(
            f"    loss {result.losses[0]:.3f} -> {result.losses[-1]:.3f}, "
            f"validation {result.validation[-1][1]:.3f}, {human_seconds(result.seconds)}"
        )
        say(f"    run root    {result.run_root.hex()}")
        self.found["run_root"] = result.run_root.hex()
        self.found["train_seconds"] = result.seconds
        return run

    def audit(self, job: Job, run: Path) -> AuditReport:
        context = other_path()
        self.title(f"Audit it on another code path: {context.isa}, {context.threads} thread(s)")
        return self._audit(job, run, context=context)

    def _audit(
        self,
        job: Job | None,
        run: Path,
        steps: tuple[int, int] | None = None,
        context: ExecutionContext = DEFAULT,
    ) -> AuditReport:
        with Reporter("audit", self.quiet) as reporter:
            report = audit_run(run, job, steps, context=context, listener=reporter)
        if report.difference is None:
            say(
                f"    MATCH: {report.checkpoints_compared} checkpoints and "
                f"{report.losses_compared} losses are equal to the bit"
            )
        else:
            say(f"    MISMATCH: {report.difference.sentence}")
        return report

    def weight_bit(self, job: Job, run: Path) -> bool:
        self.title("Flip one bit of one stored weight in a copy of the run")
        bad = copy_of(run, "run-weight-bit")
        store = RunStore(bad)
        step = store.stored_steps()[-1]
        slot = "param.h.0.mlp.c_fc.weight"
        flip_bit(bad / "checkpoints" / checkpoint_name(step), slot, 4001, 6)
        problems = fsck(bad).problems
        for problem in problems:
            say(f"    fsck: {problem.path}: {problem.message}")
        report = self._audit(job, bad, (step - 1, step))
        return bool(problems) and report.difference is not None

    def batch_bit(self, job: Job, run: Path) -> bool:
        self.title("Flip one bit of one batch in a copy of the run")
        bad = copy_of(run, "run-batch-bit")
        timetable = job.commitment.timetable
        record = int(timetable.indices(timetable.at(0))[0])
        flip_bit(bad / "job" / DATA, "tokens", record * (job.columns["tokens"][0].nbytes) + 80, 0)
        try:
            self._audit(None, bad)
        except TallystickError as error:
            say(f"    audit: {error.message}")
            return True
        return False

    def cheat(self, job: Job, attack: str, run: str, trace: bool = False) -> Path:
        """A signed run made by an attack that begins at CHEAT_STEP."""
        directory = self.out / run
        declared = Declaration(attack, {"step": CHEAT_STEP})
        steps = (CHEAT_STEP, CHEAT_STEP + 1) if trace else None
        with Reporter("train", self.quiet) as reporter:
            train_cheat(job, directory, declared, reporter, trace=steps)
        return directory

    def poisoned(self, job: Job) -> bool:
        self.title(f"A trainer poisons the data from step {CHEAT_STEP} on, then signs; an audit")
        run = self.cheat(job, "data-poisoning", "run-poisoned", trace=True)
        difference = self._audit(job, run).difference
        return difference is not None and difference.step == CHEAT_STEP

    def poisoned_dispute(self, job: Job, run: Path) -> bool:
        self.title("The same without repeating it all: a referee between the two runs")
        found = settle(job.directory, run, self.out / "run-poisoned", self.out, "poisoned")
        return (found.case, found.convicted, found.accepted) == ("2c", ["B"], "A")

    def falsified_dispute(self, job: Job, run: Path) -> bool:
        self.title("A trainer falsifies one number of one operator; the referee computes it")
        bad = self.cheat(job, "lie-output", "run-falsified")
        found = settle(job.directory, run, bad, self.out, "falsified")
        return (found.case, found.convicted, found.accepted) == ("3", ["B"], "A")

    def model(self, job: Job, run: Path) -> None:
        self.title("Export the model, bound to the run, and let it write")
        path = self.out / "model.safetensors"
        export_model(run, path)
        report = verify_model(path, run)
        say(f"    {report.tensors} tensors are the weights committed at step {report.step}")
        store = RunStore(run)
        root = store.journal().roots[report.step]
        state = store.load_state(job, report.step, root)
        text = bytes(sample_tokens(job, state.slots, PROMPT.encode(), 160, Draw(), 0)).decode(
            "utf-8", "replace"
        )
        for line in (PROMPT + text).split("\n"):
            say("    " + line)
        self.found["sample"] = text

    def run(self) -> bool:
        """All scenes; True if everything honest matched and everything else was caught."""
        began = time.monotonic()
        job = self.make_job()
        run = self.train(job)
        honest = self.audit(job, run).accepted
        caught = {
            "weight_bit": self.weight_bit(job, run),
            "batch_bit": self.batch_bit(job, run),
            "poisoned_training": self.poisoned(job),
            "poisoned_dispute": self.poisoned_dispute(job, run),
            "falsified_dispute": self.falsified_dispute(job, run),
        }
        self.model(job, run)
        self.title("Where everything lies")
        for name, what in (
            ("job", "the job: program, initial state, data, order"),
            ("run", "the honest run: journal, checkpoints, signed commitment"),
            ("run-weight-bit", "copy with one bit of one weight flipped"),
            ("run-batch-bit", "copy with one bit of one record flipped"),
            ("run-poisoned", "trained on poisoned data"),
            ("run-falsified", "trained with one false number"),
            ("poisoned.html", "report of the first dispute (poisoned.evidence)"),
            ("falsified.html", "report of the second dispute (falsified.evidence)"),
            ("model.safetensors", "the exported model"),
        ):
            say(f"    {self.out / name!s:40} {what}")
        seconds = time.monotonic() - began
        good = honest and all(caught.values())
        verdict = "the honest run matched, every cheat was caught" if good else "SOMETHING IS WRONG"
        say()
        say(f"{verdict} ({human_seconds(seconds)})")
        self.found |= {"honest_match": honest, "caught": caught, "seconds": seconds}
        return good


@click.command()
@click.option(
    "--out",
    default="demo-out",
    show_default=True,
    type=click.Path(),
    help="Directory for everything that the demo writes.",
)
@click.option(
    "--text", type=click.Path(), help="Train on this text file. Default: Python's documentation."
)
@click.option(
    "--steps",
    type=click.IntRange(60, 100_000),
    default=STEPS,
    show_default=True,
    help="Number of training steps.",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@json_option
def demo(out: str, text: str | None, steps: int, quiet: bool, as_json: bool) -> None:
    """Train a small GPT-2, audit it on another code path, catch cheats and convict two of them."""
    check_environment()
    directory = Path(out)
    _fresh(directory)
    shown = Demo(directory, Path(text) if text else None, steps, quiet)
    good = shown.run()
    if as_json:
        print_json(shown.found)
    if not good:
        finish(MISMATCH)
