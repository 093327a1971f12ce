"""The facts of a page, read and checked before a word of it is written."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tallystick.commit.encoding import sha256
from tallystick.commit.signing import Envelope, PublicKey, RunCommitment, verify_run
from tallystick.devices.environment import exact_environment
from tallystick.disk.regular import read_file
from tallystick.errors import CorruptFileError, DigestMismatchError, StorageError, UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.program.ir import Program
from tallystick.program.terms import Terms
from tallystick.protocol.evidence import Evidence
from tallystick.protocol.judge import Judgement, judge
from tallystick.protocol.verdict import Verdict
from tallystick.report.answer_meanings import Work, work_of
from tallystick.report.revealed import Revealed, revealed
from tallystick.run.show.inspect import inspect_run
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import read_metrics

MOST_METRICS = 12
_GREATEST = 2.0**128


@dataclass(frozen=True)
class Curve:
    """Losses of a run: one for each step, and (step, loss) of each validation."""

    name: str
    training: tuple[float, ...]
    validation: tuple[tuple[int, float], ...] = ()
    quantity: str = "loss"  # the name of the vertical axis


@dataclass(frozen=True)
class RunFacts:
    """A run. `found` is what `run.show.inspect` gives; `trusted` is None where no key was named."""

    name: str
    job: Job
    found: dict[str, Any]
    trusted: bool | None = None
    metrics: tuple[Curve, ...] = ()  # the numbers that a step reports beside its loss

    @property
    def curve(self) -> Curve:
        """The run's losses."""
        validation = tuple((v["step"], v["loss"]) for v in self.found["validation"])
        return Curve(self.name, tuple(self.found["loss"]), validation)


@dataclass(frozen=True)
class DisputeFacts:
    """A dispute whose verdict has been judged, not read.

    It has three facts for each party: its signed commitment, whether the reader trusts its signer
    (None where the reader named no key), and its losses if its run directory was given. `name`,
    `size` and `digest` are the evidence file's.
    """

    name: str
    size: int
    digest: bytes
    terms: Terms
    runs: tuple[RunCommitment, RunCommitment]
    verdict: Verdict
    arity: int
    trusted: tuple[bool | None, bool | None] = (None, None)
    curves: tuple[Curve | None, Curve | None] = (None, None)
    referee: str | None = None  # key id of the believed referee that signed the forfeit
    # What the evidence shows of the text, where the job is no training.
    reveals: Revealed | None = None

    @cached_property
    def work(self) -> Work:
        """What the job is the work of."""
        return work_of(self.terms)

    @property
    def program(self) -> Program:
        """The program of the disputed step."""
        return self.terms.program_at(self.verdict.place.step or 0)


@exact_environment()
def read_run(
    directory: Path, job: Job | None = None, trust: Sequence[PublicKey] | None = None
) -> RunFacts:
    """The run at `directory`; `job` is the reader's own copy of its job.

    A finished run's journal, commitment and job are checked against each other. Raises
    CounterpartyError where they do not belong together or the signer is not in `trust`,
    CannotCheckError where a file is missing.
    """
    store = RunStore(directory)
    own = job or store.job()
    trusted = None
    if store.envelope() is not None:
        trusted = read_claim(store, own, trust).trusted
    elif store.job().digest != own.digest:
        raise DigestMismatchError(
            f"{directory} is a run of another job.", "Name the job that it is of."
        )
    name = os.path.basename(os.path.realpath(directory))
    metrics = tuple(Curve(name, values, (), metric) for metric, values in _metrics(store))
    return RunFacts(name, own, inspect_run(directory), trusted, metrics)


def _metrics(store: RunStore) -> list[tuple[str, tuple[float, ...]]]:
    """The metrics of the steps that report them, by name. The file is for people: one that cannot
    be read draws nothing."""
    try:
        lines = read_metrics(store.metrics_path)
    except (CorruptFileError, StorageError):
        return []
    names = sorted({name for line in lines for name in line} - {"step", "loss"})[:MOST_METRICS]
    return [
        (name, tuple(_drawable(line[name]) for line in lines if name in line)) for name in names
    ]


def _drawable(value: float | None) -> float:
    """A metric as a number that has a place in a drawing; another one breaks the line."""
    return float(value) if value is not None and abs(value) <= _GREATEST else math.nan


@exact_environment()
def read_dispute(
    path: Path,
    terms: Terms,
    trust: Sequence[PublicKey] | None = None,
    runs: Sequence[RunFacts] = (),
    trust_referees: Sequence[PublicKey] = (),
) -> DisputeFacts:
    """The evidence at `path`, judged under `terms`; `runs` lend their losses.

    Raises CorruptFileError for refused evidence, CannotCheckError for a forfeit by a referee
    outside of `trust_referees`, UsageError for a run of neither party.
    """
    data = read_file(path, LIMITS.evidence_bytes, "evidence file")
    judgement = judge(terms, data, trust, trust_referees)
    return judged_dispute(path.name, data, terms, judgement, runs)


def judged_dispute(
    name: str, data: bytes, terms: Terms, judgement: Judgement, runs: Sequence[RunFacts] = ()
) -> DisputeFacts:
    """The evidence in `data`, called `name`, whose judgement under `terms` is at hand.

    Raises UsageError for a run of neither party.
    """
    evidence = Evidence.from_bytes(data)
    first, second = (verify_run(Envelope.from_bytes(c))[0] for c in evidence.commitments)
    curves: list[Curve | None] = [None, None]
    for run in runs:
        root, signer = run.found["run_root"], run.found["signer"]
        parties = [p for p in (0, 1) if judgement.run_roots[p] == root]
        # Equal runs have one root, so the signers tell them apart, unless both have the same one.
        parties = [p for p in parties if judgement.signers[p] == signer] or parties
        if not parties:
            raise UsageError(
                f"The run {run.name} is of neither party.", "Name the directory of a party's run."
            )
        for party in parties:
            curves[party] = run.curve
    return DisputeFacts(
        name,
        len(data),
        sha256(data),
        terms,
        (first, second),
        judgement.verdict,
        evidence.arity,
        judgement.trusted,
        (curves[0], curves[1]),
        judgement.referee,
        None if work_of(terms) is Work.TRAINING else revealed(terms, evidence),
    )
