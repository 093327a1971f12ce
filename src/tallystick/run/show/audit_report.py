"""The report of an audit, and the place where a run first differs from its repetition."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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


@dataclass
class AuditReport:
    """The outcome of an audit. `accepted` means that every compared bit was equal and that no entry
    of a rounding log was forged. `choices` (left, taken: NUMERICS 14.8) is None under a contract
    without logs."""

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
