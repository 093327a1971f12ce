"""Deciding between two runs (DESIGN 9): `dispute`, `judge`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.context import ExecutionContext
from tallystick.devices.find import context_on
from tallystick.disk.files import write_file
from tallystick.disk.regular import read_file
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement
from tallystick.protocol.judge import judge as judge_evidence
from tallystick.protocol.verdict import Event, Verdict
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.prover.prover import Prover

PARTIES = ("A", "B")


@dataclass(frozen=True)
class Dispute:
    """A finished game between two runs: its verdict, and the evidence that `judge` takes."""

    verdict: Verdict
    evidence: bytes

    @property
    def convicted(self) -> tuple[str, ...]:
        """The convicted ones of the runs "A" and "B"."""
        return tuple(PARTIES[c.party] for c in self.verdict.convicted)


def dispute(
    run_a: PathLike,
    run_b: PathLike,
    job: Job | Terms | PathLike,
    *,
    out: PathLike | None = None,
    arity: int = 20,
    as_attack: Sequence[str] = (),
    keys: tuple[PrivateKey | PathLike | None, PrivateKey | PathLike | None] = (None, None),
    threads: int | None = None,
    device: str = "cpu",
    on_event: Callable[[Event], None] | None = None,
) -> Dispute:
    """Let two runs of one job answer a referee, to a verdict.

    `job` is the referee's own copy: its job.json and program.txt are enough. The evidence is
    written to `out`. `keys` sign for runs that do not keep theirs. A run plays honestly unless
    `as_attack` names it ("A", "B"); then it plays the cheat that its directory declares. `on_event`
    receives each finding on the way. The runs answer on `device`, as in `train`.

    Raises UsageError for runs of two jobs, for an unknown party and for a wrong key. Raises
    CannotCheckError for an unfinished run or a machine that fails; that convicts no party. Raises
    CounterpartyError for damaged files, StorageError.
    """
    strangers = set(as_attack) - set(PARTIES)
    if strangers:
        raise UsageError(f"There is no party {sorted(strangers)[0]!r}.", "Name A or B.")
    terms = given.terms(job)
    context = context_on(device, lambda: terms.commitment.contract, threads)
    with ExitStack() as stack:
        provers = [
            stack.enter_context(_party(given.path(run), key, context, threads, name in as_attack))
            for name, run, key in zip(PARTIES, (run_a, run_b), keys, strict=True)
        ]
        played = play(terms, provers, arity, on_event)
    found = Dispute(played.verdict, played.evidence.to_bytes())
    if out is not None:
        write_file(given.path(out), [found.evidence])
    return found


def _party(
    run: Path,
    key: PrivateKey | PathLike | None,
    context: ExecutionContext,
    threads: int | None,
    cheats: bool,
) -> Prover:
    """A run that answers in `context`; a declared cheat, which changes arrays on the host, on the
    processor."""
    where = ExecutionContext(threads) if cheats else context
    return party_of(run, given.private(key), where, as_attack=cheats)


def judge(
    evidence: bytes | PathLike,
    job: Job | Terms | PathLike,
    *,
    trust: Sequence[PublicKey | PathLike] | None = None,
    trust_referees: Sequence[PublicKey | PathLike] = (),
) -> Judgement:
    """Play the game in `evidence` (its bytes or its file) again, and return its verdict.

    The judge believes no statement in it. `job` is your own copy of the job: its job.json and
    program.txt are enough. `trust` are the signers of runs that you know. `trust_referees` are the
    referees that you believe about a silence. Raises CorruptFileError for refused evidence,
    CannotCheckError for a silence that rests on a referee whom you did not name, StorageError.
    """
    if isinstance(evidence, bytes):
        data = evidence
    else:
        data = read_file(given.path(evidence), LIMITS.evidence_bytes, "evidence file")
    return judge_evidence(
        given.terms(job), data, given.publics(trust), given.publics(trust_referees) or ()
    )
