"""The one error tree. Every error names the fault and the person's next action.

`UsageError` is our own caller's mistake. `CounterpartyError` is a fault in another party's message
or file. `CannotCheckError` means that no judgement was possible. The command line maps each class
to the exit code in `exit_code` (DESIGN §9).
"""

from __future__ import annotations

import errno
from pathlib import Path


class TallystickError(Exception):
    """Base of the tree: a sentence about the fault, and the next action."""

    exit_code: int = 2

    def __init__(self, message: str, next_action: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.next_action = next_action

    def __str__(self) -> str:
        return f"{self.message} {self.next_action}".strip()


class UsageError(TallystickError):
    """The caller made a mistake: a bad argument, dtype, shape, option or file name."""

    exit_code = 3


class UnsupportedOperatorError(UsageError):
    """A model uses an operator that no contract defines."""


class RefusedModelError(UsageError):
    """A model directory is of a kind that answers do not support (answers/families.py)."""


class MovingStateError(UsageError):
    """The loss depends on Python state that changes between calls, or traces cannot tell whether it
    does. So no single program describes all calls. If the number of calls is known, the steps can
    be traced one by one (PROGRAM 5.25)."""


class RefusedOperandsError(UsageError):
    """Operands hold values that the operator refuses, such as an index outside of another operand.

    The content is at fault and never the machine: every kernel on every machine refuses such
    operands, so no honest run has them (PROTOCOL 6.5). Shapes, dtypes and attributes that do not
    fit are a plain UsageError.
    """

    def __init__(
        self, op: str, why: str, next_action: str = "Refuse a run that has such operands."
    ) -> None:
        super().__init__(f"{op}: {why}", next_action)


class CannotCheckError(TallystickError):
    """No judgement is possible: missing file, full disk, unsupported machine or version."""

    exit_code = 2


class CallbackError(CannotCheckError):
    """A callback asked for something that the job does not allow. The run ends there, unsigned. It
    can continue from its last stored state."""


class StorageError(CannotCheckError):
    """The disk is full, a directory is not writable, or a file cannot be read."""


class StoreError(StorageError):
    """An object store cannot be reached, refuses access, or gives an impossible answer.

    The error says nothing about what is stored there. The same call may succeed later.
    """


class StoreChangedError(StoreError):
    """An object was replaced after it was listed."""


class StoreConflictError(StoreError):
    """Another process wrote an object that this process was about to write."""


def storage_error(path: Path, error: OSError) -> StorageError:
    """The sentence for a failed write or read of `path`."""
    if error.errno == errno.ENOSPC:
        return StorageError(
            f"The disk is full: {path} could not be written.",
            "Nothing committed is lost. Free some space, then run the same command again.",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(
            f"{path} is not accessible: {error.strerror}.",
            "Choose a directory you can write to, or fix its permissions.",
        )
    return StorageError(
        f"{path}: {error.strerror or error}.", "Check the path and the disk, then try again."
    )


class UnsupportedVersionError(CannotCheckError):
    """A contract, format or file version this build does not know."""


class EnvironmentRefusedError(CannotCheckError):
    """The machine cannot honour the contract (FTZ set, instruction set missing, ...)."""


class MachineFaultError(CannotCheckError):
    """This machine could not carry out the job: memory, threads, files or disk failed.

    The error says nothing about the job or the run. The same call may succeed later, or elsewhere.
    """


class DeviceLostError(MachineFaultError):
    """A GPU failed in a way after which this process cannot use it any more. A new process can.

    What the device held is lost; what was stored is not.
    """


class CounterpartyError(TallystickError):
    """Another party's message or file is malformed, forged, or does not match its digest."""

    exit_code = 2


class CorruptFileError(CounterpartyError):
    """A job, run or evidence file is truncated, corrupt, or exceeds the stated limits."""


class DigestMismatchError(CounterpartyError):
    """Bytes do not hash to the digest that names them."""

    exit_code = 1


class SignatureInvalidError(CounterpartyError):
    """A signature does not verify, or its signer is not the trusted one."""

    exit_code = 1


class MismatchError(CounterpartyError):
    """A repeated computation gives other bits than the committed ones."""

    exit_code = 1
