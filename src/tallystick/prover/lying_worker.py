"""A worker of a distributed run that lies about its shares, for tests and proofs.

`checking_of` of this module starts the workers of a run so that one of them lies as declared: an
honest worker's code over one override (`run.cheats.workers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tallystick.errors import UsageError
from tallystick.prover import shares
from tallystick.prover.cheating import CheatingProver
from tallystick.prover.prover import Prover
from tallystick.run.cheats.workers import FalseBytes, FalseCheck, FalseGradient, OtherBytes
from tallystick.run.distributed.checks import Hand, ShareChecks
from tallystick.run.distributed.launch import Checking
from tallystick.run.distributed.worker import main

LIES: dict[str, type[Hand]] = {
    "false-gradient": FalseGradient,
    "false-bytes": FalseBytes,
    "false-check": FalseCheck,
    "other-bytes": OtherBytes,
}


def hand_of(given: Mapping[str, Any]) -> Hand:
    """The hand of a worker by its arguments: that of the declared lie, or an honest one's."""
    lie = dict(given["lie"])
    if lie.pop("rank") != given["rank"]:
        return Hand()
    kind = lie.pop("kind")
    if kind not in LIES:
        raise UsageError(f"There is no lie {kind!r}.", f"Choose one of: {', '.join(LIES)}.")
    return LIES[kind](**lie)


def prover_of(checks: ShareChecks, run: Path) -> Prover:
    """The prover of a worker, which stays with its lie if it has one."""
    hand = checks.hand
    if isinstance(hand, FalseGradient) and hand.override is not None:
        return CheatingProver(run, checks.key, checks.context, hand.override)
    return shares.honest_prover(checks, run)


def checking_of(fraction: float, job: Path, out: Path, lie: Mapping[str, Any]) -> Checking:
    """`shares.checking_of` for a run in which worker `lie["rank"]`, not 0, lies as `lie` says: its
    `kind`, a key of LIES, and the fields of that class."""
    module = "tallystick.prover.lying_worker"
    return shares.checking_of(fraction, job, out, module=module, extra={"lie": dict(lie)})


def answer(checks: ShareChecks) -> None:
    """`shares.answer` of a worker that stays with its lie if it has one."""
    shares.answer(checks, prover_of)


if __name__ == "__main__":
    main(answer, hand_of)
