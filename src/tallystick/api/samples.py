"""Many answers at once, of which some are executed: those that a seed draws (ANSWERS 8.8).

How likely such a draw finds false ones is `run.parallel.sample.confidence`, as for segments of a
run.
"""

from __future__ import annotations

import stat
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.answers.files import RECEIPT, AnswerFiles, receipt_bytes
from tallystick.answers.words import Said
from tallystick.api import given
from tallystick.api.checking import AnswerChecks
from tallystick.api.given import PathLike
from tallystick.commit.encoding import Writer, sha256, tag
from tallystick.commit.signing import PublicKey
from tallystick.disk.regular import entries, is_directory
from tallystick.errors import CorruptFileError, CounterpartyError, StorageError, UsageError
from tallystick.limits import LIMITS
from tallystick.run.parallel.sample import Confidence, confidence, new_secret

SEED_BYTES = 32
_SET, _DRAW = tag("answer-set/1"), tag("answer-draw/1")


def receipt_digest(data: bytes) -> bytes:
    """What stands for a receipt in a set (ANSWERS 8.8.1)."""
    return sha256(data)


def set_digest(receipts: Collection[bytes]) -> bytes:
    """The digest of a set of receipt digests (ANSWERS 8.8.1)."""
    ordered = sorted(set(receipts))
    out = Writer(_SET).u64(len(ordered))
    for digest in ordered:
        out.hash(digest, "receipt digest")
    return out.digest()


def drawn(seed: bytes, receipts: Collection[bytes], count: int) -> list[bytes]:
    """The receipts that a seed draws, ascending by rank (ANSWERS 8.8.2). Raises UsageError for a
    seed of another size, and for more receipts than there are."""
    if len(seed) != SEED_BYTES:
        raise UsageError(
            f"A seed has {SEED_BYTES} bytes, not {len(seed)}.", "Pass 64 hexadecimal digits."
        )
    whole = set(receipts)
    if not 1 <= count <= len(whole):
        raise UsageError(
            f"There are {len(whole)} receipts, so {count} cannot be drawn.",
            f"Draw 1 to {len(whole)}.",
        )
    among = set_digest(whole)

    def rank(digest: bytes) -> bytes:
        return Writer(_DRAW).hash(seed, "seed").hash(among).hash(digest).digest()

    return sorted(whole, key=rank)[:count]


_MOST_DEPTH = 16


@dataclass(frozen=True)
class SampleProblem:
    """What speaks against the answer at `path`. `kind` is `contradiction`, `difference`, `finding`
    or `refused`; `clause` is of ANSWERS, and empty where the files were refused. `receipt` is the
    digest of the receipt, None where it cannot be read."""

    path: str
    receipt: bytes | None
    kind: str
    clause: str
    sentence: str


@dataclass(frozen=True)
class SampleReport:
    """What the check of many answers has found. `accepted` is true if nothing contradicts any.

    `receipts` are the digests of the set, ascending, `set_digest` is that of the set. `drawn` are
    those that `seed` draws, and `executed` how many of them needed the model. `notes` has what is
    not proved, or was not compared, and of how many answers. `confidence` says how likely a set
    with false answers would have been found out.
    """

    answers: int
    receipts: tuple[bytes, ...]
    set_digest: bytes
    seed: bytes
    drawn: tuple[bytes, ...]
    executed: int
    problems: tuple[SampleProblem, ...]
    notes: tuple[tuple[Said, int], ...]
    confidence: tuple[Confidence, ...]
    seconds: float

    @property
    def accepted(self) -> bool:
        return not self.problems


def check_sample(
    directory: PathLike,
    model: PathLike,
    sample: int,
    *,
    seed: bytes | None = None,
    statement: PathLike | None = None,
    trust: Sequence[PublicKey | PathLike] | None = None,
    threads: int | None = None,
    device: str = "cpu",
    adapter: PathLike | None = None,
) -> SampleReport:
    """Check every answer below a directory, and execute some of them on the model.

    Of all answers signatures, digests, the receipts' words, prompts and texts are checked as
    `check` does, and that their statements are of the model in `model`. `sample` of them are
    executed: those that a `seed` of 32 bytes draws from the set of receipts, so that whoever has
    the seed and the receipts draws the same. Without one the seed is random. A server must not know
    it before its last receipt.

    The report's `accepted` is true if nothing speaks against any answer. Its `confidence` says how
    likely the sample would have had a false answer in it, if 1, 5 or 10 % of them were false. Its
    `set_digest` commits to the receipts. `statement`, `trust`, `threads`, `device` and `adapter`
    are as in `check`.

    Raises UsageError where there are no answers, or fewer than are to be drawn; StorageError,
    CorruptFileError for a directory that cannot be read, RefusedModelError, CannotCheckError.
    """
    began = time.monotonic()
    root, place = given.path(directory), None if statement is None else given.path(statement)
    beside = None if adapter is None else given.path(adapter)
    checks = AnswerChecks(given.path(model), place, given.publics(trust), threads, device, beside)
    problems: list[SampleProblem] = []
    found: dict[Path, bytes] = {}
    for answer in _answers(root):
        try:
            found[answer] = receipt_digest(receipt_bytes(answer))
        except CounterpartyError as error:
            problems.append(_refused(root, answer, None, error))
    if not found:
        raise UsageError(f"{root} contains no answers.", "Name a directory of answers.")
    secret = new_secret() if seed is None else seed
    chosen = drawn(secret, found.values(), sample)
    left, executed = set(chosen), 0
    notes: dict[Said, int] = {}
    for answer, digest in found.items():
        try:
            files = _files(answer)
            report = checks.report(files, execute=digest in left)
        except CounterpartyError as error:
            problems.append(_refused(root, answer, digest, error))
            continue
        left.discard(digest)
        executed += report.executed
        for note in report.notes:
            notes[note] = notes.get(note, 0) + 1
        path = _name(root, answer)
        said = [("contradiction", one) for one in report.contradictions]
        if report.state_differs:
            why = "The signed state is not that of the model's answer."
            told = report.difference.sentence if report.difference else why
            said.append(("difference", Said("8.5", told)))
        said += [("finding", one) for one in report.findings]
        problems += [SampleProblem(path, digest, k, one.clause, one.sentence) for k, one in said]
    receipts = tuple(sorted(set(found.values())))
    return SampleReport(
        len(found),
        receipts,
        set_digest(receipts),
        secret,
        tuple(chosen),
        executed,
        tuple(problems),
        tuple(notes.items()),
        confidence(len(receipts), len(chosen)),
        time.monotonic() - began,
    )


def _files(answer: Path) -> AnswerFiles:
    """The files of an answer. CorruptFileError also where one is missing: its sender has left it
    out."""
    try:
        return AnswerFiles.read(answer)
    except StorageError as error:
        raise CorruptFileError(error.message, error.next_action) from error


def _answers(root: Path) -> Iterator[Path]:
    """The directories with a receipt in and below `root`, in the order of their names. Links are
    not followed. Raises UsageError, StorageError, CorruptFileError."""
    if not is_directory(root):
        raise UsageError(f"{root} is not a directory of answers.", "Name a directory of answers.")
    waiting = [(root, 0)]
    while waiting:
        directory, depth = waiting.pop()
        inside = entries(directory, None if directory == root else root)
        if any(entry.name == RECEIPT for entry in inside):
            yield directory
            continue
        below = [directory / entry.name for entry in inside if stat.S_ISDIR(entry.mode)]
        if below and depth == _MOST_DEPTH:
            raise CorruptFileError(f"{directory} is nested too deeply below {root}.", "Move it up.")
        waiting += [(path, depth + 1) for path in sorted(below, reverse=True)]
        if len(waiting) > LIMITS.directory_entries:
            raise CorruptFileError(
                f"{root} contains too many directories.", "Split it into several directories."
            )


def _refused(
    root: Path, answer: Path, receipt: bytes | None, error: CounterpartyError
) -> SampleProblem:
    return SampleProblem(_name(root, answer), receipt, "refused", "", error.message)


def _name(root: Path, answer: Path) -> str:
    return str(answer.relative_to(root)) if answer != root else "."
