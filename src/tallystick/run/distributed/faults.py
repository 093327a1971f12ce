"""What can go wrong between the workers of a run."""

from __future__ import annotations

from tallystick.errors import MachineFaultError

RESUME = (
    "Nothing that was journaled is lost: the same command goes on from the last stored "
    "checkpoint, with any number of workers."
)


class WorkerError(MachineFaultError):
    """A worker of the run ended, fell silent, or does not fit the others.

    `rank` is the worker that ended the session or says so; None where that is not known. `begun`
    says that the session was in the run's journal by then; `accuses`, that one worker says it of
    another's bytes, which proves nothing about either; `lasts`, that its worker's state is spoiled,
    so that the next attempt at the step ends alike."""

    rank: int | None = None
    begun: bool = False
    accuses: bool = False
    lasts: bool = False

    def of(self, rank: int) -> WorkerError:
        """The same error, of worker `rank`."""
        self.rank = rank
        return self


class PeerLostError(WorkerError):
    """The connection to worker `rank` is gone; None where it may be any of them."""

    def __init__(self, rank: int | None, why: str) -> None:
        who = "Another worker" if rank is None else f"Worker {rank}"
        super().__init__(f"{who} ended or fell silent ({why.splitlines()[0][:200]}).", RESUME)
        self.rank = rank


class OtherBytesError(WorkerError):
    """Bytes from a worker are not those that it has signed."""

    accuses = True


class TransportFaultError(WorkerError):
    """Bytes from worker `rank` arrived other than they were sent."""

    accuses = True

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(
            f"The {what} from worker {rank} do not fit the checksum that it sent with them: its "
            "memory, its network or this machine's is faulty.",
            f"Check the machine of worker {rank} and its network. {RESUME}",
        )
        self.rank = rank
