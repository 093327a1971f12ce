"""The findings of a run in the logs that it follows: journal records, and a report.

`{"what": "log", "step", "left", "taken", "findings", "unnamed"}` is what the log that step followed
has: choices (NUMERICS 14.8), and findings, forged entries and files that could not be followed;
`{"what": "state", "step", "interval", "slot", "committed", "computed"}` is the first checkpoint
at which the other run's state is not the one computed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tallystick.contracts.replay.findings import Finding, LogCorruptError
from tallystick.contracts.replay.step import LoggedStep

if TYPE_CHECKING:  # the journal checks its records with this module
    from tallystick.run.store.journal import JournalContent

# Findings of one step that are written down one by one; a forger of more is found out anyway.
FINDINGS_PER_STEP = 64

Found = dict[str, Any]
_NAMES = ("kind", "operator", "detail")
_NUMBERS = ("step", "node", "output", "element", "direction")
_LOG = {"what", "step", "left", "taken", "findings", "unnamed"}
_STATE = {"what", "step", "interval", "slot", "committed", "computed"}


def log_record(step: int, findings: list[Found], left: int = 0, taken: int = 0) -> Found:
    """The record of a step's followed log."""
    return {
        "what": "log",
        "step": step,
        "left": left,
        "taken": taken,
        "findings": findings[:FINDINGS_PER_STEP],
        "unnamed": len(findings[FINDINGS_PER_STEP:]),
    }


def step_record(step: LoggedStep) -> Found:
    """The record of the followed log of a step that has just ended."""
    found, choices = step.findings, step.choices
    record = log_record(
        step.number, [finding_dict(f) for f in found.kept], choices.left, choices.taken
    )
    record["unnamed"] += found.count - len(found.kept)
    return record


def finding_dict(finding: Finding) -> Found:
    """A finding of a follower as it is journaled and printed."""
    return {
        "kind": finding.kind,
        "step": finding.step,
        "node": finding.node,
        "operator": finding.operator,
        "output": finding.output,
        "element": finding.element,
        "direction": finding.direction,
        "detail": finding.detail,
    }


def state_record(step: int, before: int, slot: str | None, committed: bytes, root: bytes) -> Found:
    """The record of a checkpoint whose state differs, the one at `before` being equal."""
    return {
        "what": "state",
        "step": step,
        "interval": [before, step],
        "slot": slot,
        "committed": committed.hex(),
        "computed": root.hex(),
    }


def damaged_log(step: int, error: Exception) -> Found:
    """A log that is missing or damaged, as a finding."""
    named = error if isinstance(error, LogCorruptError) else None
    return {
        "kind": f"{named.fault if named else 'unreadable'} log",
        "step": step,
        "node": named and named.node,
        "operator": named and named.operator,
        "output": named and named.output,
        "element": None,
        "direction": None,
        "detail": str(error),
    }


def found_problem(value: Any) -> str:
    """Why `value` is no such record; empty if it is one."""
    bad = "what was found in a followed run is malformed"
    if not isinstance(value, dict):
        return bad
    if value.get("what") == "state":
        interval = value.get("interval")
        fine = set(value) == _STATE and isinstance(interval, list) and len(interval) == 2
        numbers = [value.get("step"), *(interval if isinstance(interval, list) else ())]
        names = [value.get("committed"), value.get("computed"), _or_empty(value.get("slot"))]
    else:
        findings = value.get("findings")
        fine = set(value) == _LOG and isinstance(findings, list) and value["what"] == "log"
        fine = fine and all(_is_finding(f) for f in findings or ())
        numbers = [value.get(name) for name in ("step", "left", "taken", "unnamed")]
        names = []
    fine = fine and all(_is_number(n) for n in numbers) and all(isinstance(n, str) for n in names)
    return "" if fine else bad


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _or_empty(name: Any) -> Any:
    """A name may be null. A zero, a false and an empty list are neither name nor null."""
    return "" if name is None else name


def _is_finding(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {*_NAMES, *_NUMBERS}:
        return False
    numbers = [value[name] for name in _NUMBERS if value[name] is not None]
    names = [value["kind"], _or_empty(value["operator"]), value["detail"]]
    there = _is_number(value["step"])
    return there and all(map(_is_number, numbers)) and all(isinstance(n, str) for n in names)


def finding_sentence(found: Mapping[str, Any]) -> str:
    """One finding, for a person."""
    where = f"step {found['step']}"
    if found["node"] is not None:
        where += f", node {found['node']} ({found['operator']})"
    if found["output"] is not None:
        where += f", output {found['output']}"
    if found["element"] is not None:
        where += f", element {found['element']}"
    detail = f": {found['detail']}" if found["detail"] else ""
    return f"{found['kind']}: {where}{detail}"


@dataclass(frozen=True)
class FollowReport:
    """What a run that followed another's logs has found in it.

    `left` and `taken` count choices (NUMERICS 14.8); `findings` name forged or unfit entries and
    logs that are missing or damaged; `difference` is the first checkpoint whose state differs.
    """

    run_root: str
    left: int = 0
    taken: int = 0
    findings: list[dict[str, Any]] = field(default_factory=list)
    unnamed: int = 0
    difference: dict[str, Any] | None = None

    @property
    def accepted(self) -> bool:
        """True if nothing speaks against the followed run."""
        return not self.findings and self.difference is None

    def as_dict(self) -> dict[str, Any]:
        """The object `followed` of `train --json`."""
        difference = self.difference
        if difference is not None:
            difference = {k: v for k, v in difference.items() if k != "what"}
        return {
            "accepted": self.accepted,
            "run_root": self.run_root,
            "choices": {"left": self.left, "taken": self.taken},
            "findings": self.findings,
            "findings_not_listed": self.unnamed,
            "difference": difference,
        }


def follow_report(journal: JournalContent) -> FollowReport | None:
    """What the journal of a run says of the run that it follows, None if it follows none."""
    root = next((s["replay"] for s in reversed(journal.sessions) if s.get("replay")), None)
    if root is None:
        return None
    left = taken = unnamed = 0
    findings: list[dict[str, Any]] = []
    difference: dict[str, Any] | None = None
    for (_, what), found in sorted(journal.followed.items()):
        if what == "state":
            difference = difference or found
        else:
            left, taken = left + found["left"], taken + found["taken"]
            findings += found["findings"]
            unnamed += found["unnamed"]
    return FollowReport(str(root), left, taken, findings, unnamed, difference)
