"""What speaks against a run's rounding logs, for a person; `audit` and `train --replay` say it."""

from __future__ import annotations

from collections.abc import Sequence

from tallystick.cli.output import say
from tallystick.run.logs.report import Found, finding_sentence

_SAID = 10  # findings that are printed; --json has more


def say_findings(findings: Sequence[Found], unnamed: int) -> None:
    """The first findings, and how many more there are, `unnamed` ones among them."""
    for found in findings[:_SAID]:
        say(f"FINDING     {finding_sentence(found)}")
    more = len(findings[_SAID:]) + unnamed
    if more:
        say(f"            and {more} more")
