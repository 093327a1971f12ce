"""A referee's directory as one table, from its log alone: nothing is judged, no step is executed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tallystick.delegation.account import Account, GameAccount
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    CONVICTED,
    NO_RESULT,
    NO_VERDICT,
    NONE_ACCEPTED,
    UNCONTESTED,
    UNDECIDED,
)
from tallystick.delegation.rules import NO_OFFER
from tallystick.disk.entry_log import EntryLog
from tallystick.errors import CorruptFileError
from tallystick.service.archive import commitment_digest

RESULTS = {
    NONE_ACCEPTED: "no claim is accepted",
    CONTESTED: "accepted, contested",
    UNCONTESTED: "accepted, uncontested",
    ALONE: "one party alone, compared with nothing",
    NO_RESULT: "no result: a game could not be decided",
}
VERDICTS = {CONVICTED: "convicted", UNDECIDED: "undecided", NO_VERDICT: "without a verdict"}


def inspect_archive(directory: Path) -> dict[str, Any]:
    """The session in a referee's directory; times are in milliseconds (PROTOCOL 11.1).

    It says what the referee has signed. `damage` says why the log ends before its last file, and is
    None if it does not. Raises UsageError where there is no log, CorruptFileError where not even
    its first entry can be read.
    """
    log, account = EntryLog(directory), Account()
    damage = None
    for index in range(len(log)):
        try:
            account.take(log.read(index))
        except CorruptFileError as error:
            if not account.length:
                raise
            damage = error.message
            break
    rules = account.rules
    return {
        "kind": "session",
        "session": account.session,
        "job_digest": rules.job_digest,
        "referee": rules.referee.key_id,
        "state": account.state,
        "finished": account.result is not None,
        "entries": account.length,
        "damage": damage,
        "began": account.began,
        "last": account.time,
        "returns": account.returns,
        "rules": {
            "arity": rules.arity,
            "most_parties": rules.most,
            "sealing": rules.sealing,
            "opening": rules.opening,
            "budget": rules.budget,
            "step": rules.step,
            "steps": rules.steps,
            "extension": rules.extension,
            "allowed": [key.key_id for key in rules.allowed],
            "offer": None if rules.offer == NO_OFFER else rules.offer,
        },
        "parties": _parties(account),
        "sides": [
            {"run_root": side[0].run.run_root, "steps": side[0].run.final_step,
             "final_state_root": side[0].run.final_state_root,
             "signers": [member.key.key_id for member in side]}
            for side in account.sides
        ],
        "rounds": max((game.round for game in account.games), default=0),
        "games": [_game(number, game) for number, game in enumerate(account.games)],
        "result": _result(account),
    }  # fmt: skip


def _parties(account: Account) -> list[dict[str, Any]]:
    return [
        {"key_id": key.key_id, "sealed": party.sealed, "opened": party.opened,
         "run_root": party.run.run_root if party.run else None, "removed": party.removed or None}
        for key, party in sorted(account.parties.items(), key=lambda item: item[0].raw)
    ]  # fmt: skip


def _game(number: int, game: GameAccount) -> dict[str, Any]:
    ending = game.ending
    ids = [key.key_id for key in game.begun.keys]
    return {
        "game": number,
        "round": game.round,
        "parties": ids,
        "outcome": "goes on" if ending is None else VERDICTS.get(ending.outcome, "unknown"),
        "convicted": [ids[p] for p in (0, 1) if ending is not None and ending.convicted >> p & 1],
        "forfeited": [ids[p] for p in sorted(game.forfeits)],
        "questions": list(game.questions),
        "used": [clock.used for clock in game.clocks],
        "began": game.time,
        "ended": game.ended,
    }


def _result(account: Account) -> dict[str, Any] | None:
    result = account.result
    if result is None:
        return None
    accepted = next(
        (p for p in account.parties.values() if commitment_digest(p.commitment) == result.accepted),
        None,
    )
    return {
        "outcome": RESULTS.get(result.outcome, "unknown"),
        "run_root": accepted.run.run_root if accepted and accepted.run else None,
        "signer": accepted.seal.key.key_id if accepted and accepted.run else None,
    }
