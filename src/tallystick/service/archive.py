"""A referee's directory: its log, and the evidence of each game that has ended.

The log is the only state (PROTOCOL 12). `game-NNN.evidence` follows from it, and so does
`result.json`, which is for people and programs and is believed by no command.
"""

from __future__ import annotations

from pathlib import Path

from tallystick.delegation.account import Account, GameAccount
from tallystick.delegation.entries import Answered, Forfeited, open_entry
from tallystick.disk.entry_log import LOCK, LOG, EntryLog
from tallystick.disk.regular import is_directory
from tallystick.protocol.evidence import Evidence

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
