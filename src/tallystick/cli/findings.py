"""Findings against a run's rounding logs, for a person; `audit` and `train --replay` print them."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.cli.output import say
from tallystick.contracts.replay.findings import UNFIT
from tallystick.run.logs.report import Found, finding_sentence

_SAID = 10  # findings that are printed; --json has more


def say_findings(findings: Sequence[Found], unnamed: int) -> None:
    """Print the first findings, and the number of the others, `unnamed` ones among them."""
    for found in findings[:_SAID]:
        say(f"FINDING     {finding_sentence(found)}")
    more = len(findings[_SAID:]) + unnamed
    if more:
        say(f"            and {more} more")
    if any(found["kind"] == UNFIT for found in findings):
        say("note        An unfit entry proves no lie: the published form allows it where a sum's")
        say("            terms cancel. `tallystick dispute` convicts a party, or ends undecided")
        say("            (NUMERICS 14.9.2).")
