"""Deciding between two runs (DESIGN 9): `dispute`, `judge`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.context import ExecutionContext, context_on
from tallystick.disk.files import write_file
from tallystick.disk.keys import load_private_key
from tallystick.disk.regular import present, read_file
from tallystick.errors import UsageError
from tallystick.job.carried import PageJudgement, judge_carried
from tallystick.job.job import Job
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement
from tallystick.protocol.judge import judge as judge_evidence
from tallystick.protocol.verdict import PARTIES, Event, Verdict
from tallystick.prover.cheating import party_of
from tallystick.prover.local import Played, play
from tallystick.prover.prover import Prover
from tallystick.run.store.directory import RunStore
from tallystick.visible import Tabled


@dataclass(frozen=True, repr=False)
class Dispute(Tabled):
    """A finished game between two runs: its verdict, and the evidence that `judge` takes."""

    verdict: Verdict
    evidence: bytes

    @property
    def convicted(self) -> tuple[str, ...]:
        """The convicted ones of the runs "A" and "B"."""
        return tuple(PARTIES[c.party] for c in self.verdict.convicted)

    def facts_for_people(self) -> tuple[str, dict[str, object]]:
        _, facts = self.verdict.facts_for_people()
        return f"Dispute: {self.verdict.ending}", {
            **facts,
            "bytes of evidence": len(self.evidence),
        }


@dataclass(frozen=True)
class Disputing:
    """What `dispute` is asked for, beside the runs and the job, by the names of its keywords;
    `referee_key` signs that a party was silent. Raises UsageError for an unknown party."""

    arity: int = 20
    as_attack: Sequence[str] = ()
    keys: tuple[PrivateKey | Path | None, PrivateKey | Path | None] = (None, None)
    referee_key: PrivateKey | None = None
    threads: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        strangers = set(self.as_attack) - set(PARTIES)
        if strangers:
            raise UsageError(f"There is no party {sorted(strangers)[0]!r}.", "Use A or B.")


@contextmanager
def playing(
    asked: Disputing,
    runs: tuple[Path, Path],
    terms: Terms,
    on_event: Callable[[Event], None] | None = None,
    on_fault: Callable[[int, str], None] = lambda _party, _why: None,
    notice: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[Played, Sequence[Prover]]]:
    """The finished game between two runs, and its parties, who answer for as long as the context
    lasts. `on_fault` and `notice` receive what a party could not answer yet, and what it says.
    Errors: see `dispute`."""
    context = context_on(asked.device, lambda: terms.commitment.contract, asked.threads)
    with ExitStack() as stack:
        parties = [
            stack.enter_context(_party(asked, index, run, context, notice))
            for index, run in enumerate(runs)
        ]
        yield play(terms, parties, asked.arity, on_event, asked.referee_key, on_fault), parties


def _party(
    asked: Disputing,
    index: int,
    run: Path,
    context: ExecutionContext,
    notice: Callable[[str], None],
) -> Prover:
    """The run that answers as party `index`. It plays the cheat that its directory declares only if
    it is asked to, and on the processor then: a cheat changes arrays on the host."""
    name, key = PARTIES[index], asked.keys[index]
    cheats, declared = name in asked.as_attack, RunStore(run).override_path
    if not cheats and present(declared):
        notice(f"{name}: {declared} is not honoured. To play its cheat, pass --as-attack {name}.")
    return party_of(
        run,
        load_private_key(key) if isinstance(key, Path) else key,
        ExecutionContext(asked.threads) if cheats else context,
        as_attack=cheats,
        notice=lambda text: notice(f"{name}: {text}"),
    )


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
    key_a, key_b = keys
    signing = given.private(key_a), given.private(key_b)
    asked = Disputing(arity, as_attack, signing, threads=threads, device=device)
    runs = given.path(run_a), given.path(run_b)
    with playing(asked, runs, given.terms(job), on_event) as (played, _):
        found = Dispute(played.verdict, played.evidence.to_bytes())
    if out is not None:
        write_file(given.path(out), [found.evidence])
    return found


def judge_page(
    page: bytes | PathLike,
    job: Job | Terms | PathLike | None = None,
    *,
    trust: Sequence[PublicKey | PathLike] | None = None,
    trust_referees: Sequence[PublicKey | PathLike] = (),
) -> PageJudgement:
    """As `judge`, of the evidence that a page of `report --with-judge` carries.

    Nothing else in the page counts, its judge included. `job` is your own copy of the job; without
    it the job that came with the page is taken. Raises as `judge`, and CorruptFileError,
    DigestMismatchError or UnsupportedVersionError for a page that carries none.
    """
    if isinstance(page, bytes):
        data = page
    else:
        data = read_file(given.path(page), LIMITS.page_bytes, "page")
    own = None if job is None else given.terms(job)
    return judge_carried(data, own, given.publics(trust), given.publics(trust_referees) or ())


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
