"""The dispute over a share of a step, between two workers of a distributed run (docs/adr/0024).

Worker 0 is the referee. Each of the two workers writes the run that it has signed, as an ordinary
run directory of the share job, and answers from it, over the connections of the workers. The
verdict and its evidence are those of any other dispute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tallystick.disk.files import make_directory, write_file
from tallystick.disk.regular import present
from tallystick.errors import CannotCheckError, MachineFaultError, TallystickError
from tallystick.limits import LIMITS
from tallystick.protocol.verdict import Verdict
from tallystick.prover.local import Party, play
from tallystick.prover.prover import Prover
from tallystick.run.distributed.checks import ShareChecks
from tallystick.run.distributed.claims import (
    ConvictedWorker,
    FalseShareError,
    WorkerConvictedError,
)
from tallystick.run.distributed.launch import Checking
from tallystick.run.distributed.messages import Round, as_bytes
from tallystick.run.distributed.transport import PeerLostError, Transport
from tallystick.run.distributed.worker import main
from tallystick.run.store.claim import write_share_run

_ANSWER, _FAULT = 0, 1
# What a worker's prover is made by: of its checks, and the directory of its run.
ProverOf = Callable[[ShareChecks, Path], Prover]


def honest_prover(checks: ShareChecks, run: Path) -> Prover:
    """The prover of an honest worker."""
    return Prover(run, checks.key, checks.context)


# -- messages: a number, a length, and so many bytes -----------------------------------------------
def _send(transport: Transport, to: int, number: int, data: bytes) -> None:
    first, second = Round(transport, "length"), Round(transport, "words of a dispute")
    first.send([as_bytes(np.array([number, len(data)], np.int64))], [to])
    if data:
        second.send([np.frombuffer(data, np.uint8)], [to])
    first.finish(_raise)
    second.finish(_raise)


def _receive(transport: Transport, source: int, limit: int) -> tuple[int, bytes]:
    first = Round(transport, "length")
    first.expect(16, source)
    number, length = (int(n) for n in first.finish(_raise)[source].view(np.int64))
    if not 0 <= length <= limit:
        raise MachineFaultError(
            f"Worker {source} announced {length} bytes.", "Train without that worker."
        )
    if not length:
        return number, b""
    second = Round(transport, "words of a dispute")
    second.expect(length, source)
    return number, second.finish(_raise)[source].tobytes()


def _raise(error: TallystickError) -> None:
    raise error


# -- the workers who answer ------------------------------------------------------------------------
@contextmanager
def _own_party(checks: ShareChecks, prover_of: ProverOf) -> Iterator[Prover]:
    """The prover of what this worker has signed about the disputed share."""
    false = checks.false
    assert false is not None
    claim = checks.signed[false.number, checks.rank == false.checker]
    task, host = checks.task(false.tree), checks.context.device.host
    state = {name: host(checks.state[name]) for name in task.share.reads}
    envelope = claim.envelope(task, checks.key.public)
    with TemporaryDirectory(prefix="tallystick-share-") as place:
        run = write_share_run(task, Path(place) / "share", state, claim.made, envelope, checks.key)
        with prover_of(checks, run) as prover:
            yield prover


def answer(checks: ShareChecks, prover_of: ProverOf = honest_prover) -> None:
    """Answer worker 0 in the dispute that `checks` has found, if this worker is a party to it."""
    false = checks.false
    if false is None or checks.rank not in (false.owner, false.checker):
        return
    transport = checks.transport
    with ExitStack() as stack:
        prover: Prover | None = None
        while True:
            try:
                _, query = _receive(transport, 0, LIMITS.query_bytes)
                if not query:
                    return
                if prover is None:
                    prover = stack.enter_context(_own_party(checks, prover_of))
                found, number = prover.answer(query), _ANSWER
            except PeerLostError:
                raise
            except (TallystickError, MemoryError, OSError) as error:
                # This machine's fault, which convicts nobody (PROTOCOL 2.8).
                found, number = (str(error) or type(error).__name__).encode()[:8000], _FAULT
            _send(transport, 0, number, found)


class _Remote:
    """A party that answers over the connection to its worker."""

    def __init__(self, transport: Transport, rank: int, commitment: bytes) -> None:
        self._transport, self._rank, self.commitment = transport, rank, commitment

    def answer(self, query: bytes) -> bytes:
        _send(self._transport, self._rank, _ANSWER, query)
        number, found = _receive(self._transport, self._rank, LIMITS.answer_bytes)
        if number == _ANSWER:
            return found
        raise MachineFaultError(
            f"Worker {self._rank}: {found.decode(errors='replace')}", "Look at its machine."
        )

    def end(self) -> None:
        _send(self._transport, self._rank, _ANSWER, b"")


# -- worker 0 --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class SettledShare:
    """A dispute's end: the verdict, the workers that it convicts, and where the evidence and the
    share job lie, which `judge` takes."""

    verdict: Verdict
    convicted: tuple[int, ...]
    keys: tuple[str, ...]
    evidence: Path
    job: Path


def settle(
    checks: ShareChecks, directory: Path, prover_of: ProverOf = honest_prover
) -> SettledShare:
    """Referee the dispute that `checks` of worker 0 has found, and write job and evidence into
    `directory`, which is made. Every other worker calls `answer` at the same time.

    Raises CannotCheckError where a machine fails, which convicts no worker; StorageError.
    """
    false = checks.false
    assert false is not None and checks.rank == 0
    task, host = checks.task(false.tree), checks.context.device.host
    pair = (false.owner, false.checker)
    signed = (checks.claims[false.number], checks.checked[false.number])
    remote: list[_Remote] = []
    with ExitStack() as stack:
        try:
            state = {name: host(checks.state[name]) for name in task.share.reads}
            make_directory(directory)
            job = task.write(directory / "job", state)
            parties: list[Party] = []
            for rank, claim in zip(pair, signed, strict=True):
                if rank:
                    envelope = claim.envelope(task, checks.publics[rank])
                    remote.append(_Remote(checks.transport, rank, envelope.to_bytes()))
                    parties.append(remote[-1])
                else:
                    parties.append(stack.enter_context(_own_party(checks, prover_of)))
            played = play(job.terms, parties)
        finally:
            ends = [rank for rank in pair if rank and rank not in {r._rank for r in remote}]
            remote += [_Remote(checks.transport, rank, b"") for rank in ends]
            for party in remote:
                party.end()
    evidence = directory / "evidence"
    write_file(evidence, [played.evidence.to_bytes()])
    convicted = tuple(pair[c.party] for c in played.verdict.convicted)
    keys = tuple(checks.publics[rank].key_id for rank in convicted)
    return SettledShare(played.verdict, convicted, keys, evidence, directory / "job")


def conviction(
    found: SettledShare, false: FalseShareError, workers: int, go_on: str
) -> TallystickError:
    """The error that ends the run of `workers` workers: who was convicted, by what, and how to go
    on."""
    if not found.convicted:
        return CannotCheckError(f"{false.message} The dispute convicts neither.", go_on)
    who = " and ".join(
        f"worker {rank} (key {key[:16]})"
        for rank, key in zip(found.convicted, found.keys, strict=True)
    )
    verdict = found.verdict
    case = f", case {verdict.case}" if verdict.case else ""
    return WorkerConvictedError(
        f"{false.message} Convicted: {who}, in phase {verdict.phase}{case}. The evidence is "
        f"{found.evidence}; anyone checks it with `tallystick judge {found.evidence} --job "
        f"{found.job}`.",
        go_on,
        [
            ConvictedWorker(
                worker=rank,
                workers=workers,
                key=key,
                step=false.step,
                phase=verdict.phase,
                case=verdict.case,
                evidence=found.evidence,
                job=found.job,
            )
            for rank, key in zip(found.convicted, found.keys, strict=True)
        ],
    )


def checking_of(
    fraction: float,
    job: Path,
    out: Path,
    prover_of: ProverOf = honest_prover,
    module: str = "tallystick.prover.shares",
    extra: Mapping[str, Any] | None = None,
    called: str = "",
) -> Checking:
    """What `train_by` needs to check `fraction` of the shares of the workers who train the job at
    `job` into `out`, which the user calls `called`. Evidence goes beside `out`.

    Raises UsageError for another fraction."""

    def end(checks: ShareChecks) -> TallystickError:
        false = checks.false
        assert false is not None
        base = f"{out.name}-false-share-step-{false.step}"
        place = next(p for p in _places(out.parent, base) if not present(p))
        found = settle(checks, place, prover_of)
        workers = checks.transport.size
        less = workers - len(set(found.convicted))
        rest = f" --workers {less} --check-workers {fraction}" if less > 1 else ""
        go_on = (
            "Nothing of that step was used. Go on without it: "
            f"`tallystick train {job} --out {called or out}{rest}`."
        )
        if fraction < 1 and false.step:
            go_on += (
                " Shares of it before that step which were not drawn may be false, and stand in "
                "the run: audit the run, or begin anew (--overwrite)."
            )
        return conviction(found, false, workers, go_on)

    def answering(checks: ShareChecks) -> None:
        answer(checks, prover_of)

    return Checking(fraction, module, end, answering, extra or {})


def _places(directory: Path, name: str) -> Iterator[Path]:
    """Where evidence may go: never over other evidence."""
    yield directory / name
    for number in count(2):
        yield directory / f"{name}-{number}"


if __name__ == "__main__":
    main(answer)
