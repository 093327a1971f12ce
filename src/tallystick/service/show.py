"""A referee's directory, from its log alone: nothing is judged, and no step is executed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tallystick.commit.encoding import sha256
from tallystick.delegation.account import Account, GameAccount
from tallystick.delegation.entries import RESULTS, VERDICTS
from tallystick.delegation.rules import NO_OFFER
from tallystick.disk.entry_log import EntryLog
from tallystick.errors import CorruptFileError
from tallystick.job.numbers import moment


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
        "outcome": "open" if ending is None else VERDICTS.get(ending.outcome, "unknown"),
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
    words = RESULTS.get(result.outcome)
    accepts = words is not None and words.accepts
    accepted = next(
        (p for p in account.parties.values()
         if accepts and sha256(p.commitment) == result.accepted),
        None,
    )  # fmt: skip
    return {
        "outcome": words.name if words else "unknown",
        "run_root": accepted.run.run_root if accepted and accepted.run else None,
        "signer": accepted.seal.key.key_id if accepted and accepted.run else None,
        "why": words.sentence if words and not accepts else None,
    }


def session_lines(found: dict[str, Any]) -> Iterator[str]:
    """What `inspect_archive` has found, in lines for a person."""
    yield f"session     {found['session'].hex()}"
    yield f"job         {found['job_digest'].hex()}"
    yield f"referee     {found['referee']}"
    yield f"state       {found['state']}, {found['entries']} entries, {found['returns']} returns"
    yield f"time        {moment(found['began'])} to {moment(found['last'])}"
    yield "rules       " + ", ".join(f"{k}={_cell(v)}" for k, v in found["rules"].items())
    for party in found["parties"]:
        root = party["run_root"].hex()[:16] if party["run_root"] else "not opened"
        yield f"party       {party['key_id'][:16]}  {root:16}  {party['removed'] or 'left'}"
    for side in found["sides"]:
        signers = ", ".join(key[:16] for key in side["signers"])
        yield f"side        {side['run_root'].hex()[:16]} after {side['steps']} steps: {signers}"
    for game in found["games"]:
        yield _game_line(game)
    result = found["result"]
    if result is not None:
        why = result["why"]
        yield f"RESULT      {result['outcome']}" + (f": {why}" if why else "")
        if result["run_root"]:
            yield f"ACCEPTED    run root {result['run_root'].hex()}"


def _game_line(game: dict[str, Any]) -> str:
    pair = " against ".join(key[:16] for key in game["parties"])
    out = ", ".join(key[:16] for key in game["convicted"])
    time = " and ".join(f"{used / 1000:g}" for used in game["used"])
    asked = " and ".join(map(str, game["questions"]))
    how = " by silence" if game["forfeited"] else ""
    return (
        f"game        {game['game']} in round {game['round']}: {pair}: {game['outcome']}{how} {out}"
        f" ({asked} questions, {time} s used)"
    )


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return value.hex()
    return str(len(value)) if isinstance(value, list) else str(value)
