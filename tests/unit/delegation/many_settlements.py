"""Settlements of many random worlds, with every property of test_settlement_properties.py.

    PYTHONPATH=tests python tests/unit/delegation/many_settlements.py [--worlds N] [--first SEED]

Prints how many worlds of each kind there were. docs/proofs/settlements.md has a run's result.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

import unit.delegation.test_settlement_properties as properties


def checks() -> list[Callable[[int], None]]:
    """The property tests, each as a function of a world's seed."""
    found: list[Any] = [t for name, t in vars(properties).items() if name.startswith("test_")]
    return [t.hypothesis.inner_test for t in found if hasattr(t, "hypothesis")]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--worlds", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    seen: Counter[str] = Counter()
    tests = checks()
    for seed in range(given.first, given.first + given.worlds):
        for test in tests:
            try:
                test(seed)
            except BaseException:
                print(f"seed {seed}: {test.__name__}", flush=True)
                raise
        made, found = properties.played(seed)
        seen.update({t.reason for t in found.transfers})
        seen["transfers"] += len(found.transfers)
        seen["challenge session"] += made.challenge is not None
        first = made.session.accepted if made.session is not None else None
        seen["claim overturned"] += made.challenge is not None and found.accepted != first
    print(f"{given.worlds} worlds, {len(tests)} properties each: all hold")
    for kind, count in sorted(seen.items()):
        print(f"  {kind:<20} {count}")


if __name__ == "__main__":
    main()
