"""What can go wrong between the workers of a run."""

from __future__ import annotations

from tallystick.errors import MachineFaultError

RESUME = (
    "Nothing that was journaled is lost: the same command goes on from the last stored "
    "checkpoint, with any number of workers."
)


class WorkerError(MachineFaultError):
    """A worker of the run ended, fell silent, or does not fit the others.

    `rank` is the worker that ended the session or says so; None where that is not known."""

    rank: int | None = None

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


class TransportFaultError(WorkerError):
    """Bytes from worker `rank` arrived other than they were sent."""

    def __init__(self, rank: int, what: str) -> None:
        super().__init__(
            f"The {what} from worker {rank} do not have the digest that it sent with them: its "
            "memory, its network or this machine's is faulty.",
            f"Check the machine of worker {rank} and its network. {RESUME}",
        )
        self.rank = rank
