"""Hands a cheating run to its auditor without the rounding log of one step.

    python attacks/around/withheld-log.py RUN --step N --out COPY

An auditor that cannot read a log goes on without its entries, so the two runs follow different
logs. The liar keeps the log and opens it in the game. The game once stopped at the differing logs,
undecided from both seats, and never came to the lie behind them.
PROTOCOL 6.13, 6.14: the referee compares values with the party's own opened log, and searches on.
PROTOCOL 6.15: where the liar took a choice in that step, the auditor gets the log and follows it.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tallystick.run.store.directory import RunStore


def main(arguments: list[str] | None = None) -> None:
    """Copy the run without one of its logs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(arguments)
    shutil.copytree(given.run, given.out)
    RunStore(given.out).log_path(given.step).unlink()


if __name__ == "__main__":
    main()
