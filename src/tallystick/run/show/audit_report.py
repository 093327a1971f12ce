"""The report of an audit: where a run first differs from its repetition, and what one execution
found, in a form that goes from one process to another.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tallystick.run.logs.report import Found
from tallystick.visible import Tabled


@dataclass(frozen=True)
class Difference:
    """The first difference between a run and its repetition.

    `interval` is (s_prev, s]: checkpoint s_prev agreed, and s did not. `step`, `node` and
    `operator` are known where the run has node digests. `kind`: "state", "loss", "checkpoint" (a
    stored file), "trace", "log" (a file or an entry of it), "end".
    """

    kind: str
    interval: tuple[int, int]
    sentence: str
    step: int | None = None
    node: int | None = None
    operator: str | None = None
    slot: str | None = None
    committed: str = ""
    computed: str = ""


@dataclass(frozen=True)
class Segments:
    """The segments of an audit in parallel or of a sample (docs/adr/0021-parallel-audit.md).

    `total` segments has the audited part; `repeated` are those with a result, as (first, last), of
    which `resumed` are from an earlier call. `retries` counts attempts after a worker's death,
    `stragglers` second attempts beside a slow one. `executor`: "processes", "ray".
    """

    total: int
    repeated: tuple[tuple[int, int], ...]
    resumed: int
    workers: int
    retries: int
    stragglers: int
    executor: str


@dataclass(frozen=True)
class Chance:
    """A run of which at least `false_segments` segments are false, `share` of all (None: one
    segment), is caught by the sample with `probability`; `exact` is that as a fraction."""

    share: str | None
    false_segments: int
    probability: float
    exact: str


@dataclass(repr=False)
class AuditReport(Tabled):
    """The outcome of an audit. `accepted` means that every compared bit was equal and that no entry
    of a rounding log was forged. `choices` (left, taken: NUMERICS 14.8) is None under a contract
    without logs.

    After a sample (`sampled`) "accepted" speaks about the drawn segments alone, and `confidence`
    says how much that is; `secret` repeats the draw. `segments` is None for one execution of the
    whole."""

    accepted: bool
    run: Path
    job_digest: bytes
    contract: str
    run_root: bytes
    signer: str
    trusted: bool | None
    first_step: int  # the step at which the execution began: genesis or a stored checkpoint
    last_step: int
    whole: bool
    checkpoints_compared: int
    losses_compared: int
    stored_compared: int
    isa: str
    threads: int
    seconds: float
    difference: Difference | None = None
    notices: list[str] = field(default_factory=list)
    choices: tuple[int, int] | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    unnamed: int = 0  # the number of findings that the report only counts
    sampled: bool = False
    segments: Segments | None = None
    confidence: tuple[Chance, ...] | None = None
    secret: str | None = None

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        found = self.difference
        said: dict[str, object] = {} if found is None else {"difference": found.sentence}
        how = "accepted" if self.accepted else "not accepted"
        of = " of a sample" if self.sampled else ""
        return f"Audit{of}: {how}", {
            "run": self.run,
            "steps": f"{self.first_step} to {self.last_step}",
            "run root": self.run_root,
            "signer": self.signer,
            "trusted": self.trusted,
            **said,
            "contract": self.contract,
            "checkpoints compared": self.checkpoints_compared,
        }


@dataclass(frozen=True)
class StretchOutcome:
    """The steps `first` to `last` - 1, executed and compared.

    `difference` is the first difference, if there was one; `at_start` says that it is the stored
    state from which the execution was to begin, so that no step was executed. `choices` are (left,
    taken) of NUMERICS 14.8, None under a contract without logs. `findings` are forged entries.
    """

    first: int
    last: int
    checkpoints: int
    losses: int
    stored: int
    isa: str
    threads: int
    seconds: float
    difference: Difference | None = None
    at_start: bool = False
    choices: tuple[int, int] | None = None
    findings: list[Found] = field(default_factory=list)
    unnamed: int = 0

    @property
    def agreed(self) -> bool:
        """True if every compared bit was equal. Forged entries are looked at in the report."""
        return self.difference is None

    def judged(self) -> StretchOutcome:
        """What another repetition of the same steps must find too, on whatever machine: all but
        the machine's own figures and the choices, of which a machine may see more or fewer."""
        return replace(self, isa="", threads=0, seconds=0.0, choices=None)

    def as_json(self) -> dict[str, Any]:
        """Plain JSON values; `outcome_of` reads them."""
        return {**asdict(self), "seconds": round(1000 * self.seconds)}


def outcome_of(value: dict[str, Any]) -> StretchOutcome:
    """The outcome in `value`, which `as_json` made. Raises TypeError, KeyError, ValueError."""
    found = dict(value)
    difference, choices = found.pop("difference"), found.pop("choices")
    if difference is not None:
        first, last = difference["interval"]
        difference = Difference(**{**difference, "interval": (int(first), int(last))})
    if choices is not None:
        left, taken = choices
        choices = (int(left), int(taken))
    seconds = int(found.pop("seconds")) / 1000
    return StretchOutcome(**found, seconds=seconds, difference=difference, choices=choices)
