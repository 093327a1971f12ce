"""A referee's directory: its log, the evidence of each game that has ended, and a check of both.

The log is the only state (PROTOCOL 12). `game-NNN.evidence` follows from it, and so does
`result.json`, which is for people and programs and is believed by no command.

Without the job, a check looks at the entries' signatures and links, and holds the evidence against
the log. With the job the log is played again, and a referee that deviates is named (PROTOCOL 12.5).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tallystick.delegation.account import Account, GameAccount
from tallystick.delegation.entries import CONVICTED, Answered, DeviationError, Forfeited, open_entry
from tallystick.delegation.watch import contradiction, replayed
from tallystick.disk.entry_log import LOCK, LOG, NEXT, EntryLog
from tallystick.disk.files import TEMPORARY_SUFFIX
from tallystick.disk.regular import is_directory, names, present, read_file, size_of
from tallystick.errors import CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.evidence import Evidence
from tallystick.run.store.fsck import Checker, FsckReport

RESULT = "result.json"


def evidence_name(game: int) -> str:
    """The file of a game's evidence in its referee's directory."""
    return f"game-{game:03d}.evidence"


def is_archive(directory: Path) -> bool:
    """Whether `directory` holds a referee's log. Raises StorageError."""
    return is_directory(directory / LOG)


def own_names(account: Account) -> set[str]:
    """The names that a referee's directory may have in it."""
    ended = (number for number, game in enumerate(account.games) if game.ending is not None)
    return {LOG, LOCK, RESULT, *map(evidence_name, ended)}


def evidence_of_game(log: EntryLog, account: Account, game: GameAccount) -> Evidence:
    """The evidence of a game (PROTOCOL 8.1), from the log's entries alone. Raises as `read`."""
    rules = account.rules
    messages: list[tuple[int, bytes]] = []
    forfeits: dict[int, bytes] = {}
    for index in game.entries:
        event = open_entry(log.read(index), rules.referee).event
        if isinstance(event, Answered):
            messages.append((event.party, event.message))
        elif isinstance(event, Forfeited):
            forfeits[event.party] = event.message
    first, second = (account.parties[key].commitment for key in game.begun.keys)
    return Evidence(
        rules.job_digest,
        rules.arity,
        (first, second),
        tuple(messages),
        tuple(forfeits[party] for party in sorted(forfeits)),
    )


# -- the check -------------------------------------------------------------------------------------
RESUME = "Run the same `tallystick referee` command again: it goes on from the log."
REWRITE = "Remove it. It follows from the log, and `tallystick referee` writes it again."


@dataclass(frozen=True)
class ArchiveReport(FsckReport):
    """What fsck found in a referee's directory.

    `deviation` convicts the referee. It is None where the referee followed its rules, and where no
    job was given, `replayed` being False.
    """

    entries: int = 0
    replayed: bool = False
    deviation: DeviationError | None = None


def fsck_archive(
    directory: Path, terms: Terms | None = None, copy: Path | None = None
) -> ArchiveReport:
    """Check the referee's directory; with the job's `terms`, play its log again.

    `copy` is another person's copy of the log, in a directory with `log` in it: where both hold an
    entry with one index and different bytes, the referee has contradicted itself (12.5.1). A
    damaged log is reported as far as it can be read.

    Raises UsageError where it holds no log, and where the log is about another job;
    CorruptFileError for a copy that is damaged or of another session.
    """
    directory = Path(directory)
    if not is_archive(directory):
        raise UsageError(
            f"{directory} contains no referee's log.",
            "Name a directory that `tallystick referee` wrote.",
        )
    checker = Checker(directory)
    account = Account()
    log: list[EntryLog] = []
    deviation = None
    if checker.guard(directory, lambda: log.append(EntryLog(directory))):
        whole = _check_entries(checker, log[0], account)
        _check_evidence(checker, log[0], account)
        if terms is not None:
            deviation = _replay(checker, log[0], terms)
        if copy is not None:
            deviation = _compare(checker, log[0], account.length, copy) or deviation
        _check_strangers(checker, log[0], account if whole else None)
    return ArchiveReport(
        directory,
        tuple(checker.problems),
        tuple(checker.checked),
        account.result is not None,
        account.length,
        terms is not None,
        deviation,
    )


def _check_entries(checker: Checker, log: EntryLog, account: Account) -> bool:
    """Whether all entries are signed and linked; without one of them no later one is."""
    if log.torn is not None:
        why = "It is cut off, so it was not written (PROTOCOL 12.3.1)."
        checker.add(log.torn, why, RESUME)
    for index in range(len(log)):
        if not checker.guard(log.path(index), lambda i=index: account.take(log.read(i))):  # type: ignore[misc]
            return False
    if not account.length:
        checker.add(log.directory, "Its log has no entry yet.", RESUME)
    return bool(account.length)


def _replay(checker: Checker, log: EntryLog, terms: Terms) -> DeviationError | None:
    """Play the log again, up to an entry that the checks of single entries have named."""
    try:
        replayed(terms, log)
    except CorruptFileError:
        return None
    except DeviationError as error:
        checker.add(log.path(error.index), error.message, error.next_action)
        return error
    return None


def _compare(checker: Checker, log: EntryLog, length: int, copy: Path) -> DeviationError | None:
    """Compare the entries that are signed and linked with another copy of them."""
    own = (log.read(index) for index in range(length))
    found = contradiction(own, EntryLog(copy))
    if found is not None:
        checker.add(log.path(found.index), found.message, found.next_action)
    return found


def _check_evidence(checker: Checker, log: EntryLog, account: Account) -> None:
    """The evidence files against the log that they follow from.

    A reader's copy of a log, which no referee has written (it has no lock), needs none.
    """
    own = present(log.directory / LOCK)
    for number, game in enumerate(account.games):
        path = log.directory / evidence_name(number)
        if game.ending is None:
            continue
        if not present(path):
            if own and account.result is not None and game.ending.outcome == CONVICTED:
                checker.add(path, f"The evidence of game {number} is missing.", RESUME)
            continue

        def check(path: Path = path, number: int = number) -> None:
            data = read_file(path, LIMITS.evidence_bytes, "evidence", log.directory)
            if data != evidence_of_game(log, account, account.games[number]).to_bytes():
                raise CorruptFileError("It is not the evidence that the log gives.", REWRITE)

        checker.guard(path, check)


def _check_strangers(checker: Checker, log: EntryLog, account: Account | None) -> None:
    """Files that belong to no session. Without an account no game's number is a stranger."""
    for path in _listed(checker, log):
        checker.add(path, "It is no entry of the log.", "Remove it.")
    directory = log.directory
    for name in sorted(checker.listed(directory, lambda: names(directory))):
        path = directory / name
        if name in (NEXT, NEXT + TEMPORARY_SUFFIX) or name.endswith(TEMPORARY_SUFFIX):
            checker.add(path, "It was left by an interrupted write.", RESUME)
        elif account is not None and name not in own_names(account):
            checker.add(path, "It does not belong here.", "Remove it.")
    if present(directory / LOCK) and checker.listed(
        directory / LOCK, lambda: [size_of(directory / LOCK, "lock file", directory)]
    ) not in ([0], []):
        checker.add(directory / LOCK, "The lock file is not empty.", "Empty it.")
    if present(directory / RESULT):
        checker.listed(
            directory / RESULT, lambda: [size_of(directory / RESULT, "result", directory)]
        )


def _listed(checker: Checker, log: EntryLog) -> list[Path]:
    """Files among the log's that are no entries: as many as the limit lets a report name."""
    found: list[Path] = []
    try:
        for path in log.strangers():
            if len(found) == LIMITS.strays_named:
                checker.add(log.directory, "More files are no entries of the log.", "Remove them.")
                break
            found.append(path)
    except TallystickError as error:
        checker.add(log.directory, error.message, error.next_action)
    return found
