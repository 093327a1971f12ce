"""A session for people and as JSON, for `referee` (docs/INTERFACE.md)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tallystick.cli.output import CANNOT_CHECK, MISMATCH, note, say, shown
from tallystick.cli.verdicts import say_verdict
from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import RESULTS, UNCONTESTED, VERDICTS
from tallystick.delegation.match import Match
from tallystick.delegation.session import EXCLUDED, LOST, Session
from tallystick.protocol.forfeit import open_forfeit
from tallystick.protocol.judge import Judgement
from tallystick.report.answer_meanings import work_of
from tallystick.run.show.estimate import human_seconds
from tallystick.service.archive import evidence_name
from tallystick.service.driver import Driver, Seat

_PLAIN_SECONDS = 10.0


def convicted_keys(session: Session) -> list[PublicKey]:
    """The keys that a signed statement or silence in a game has convicted."""
    return [key for key, why in session.removed.items() if why in (EXCLUDED, LOST)]


def exit_code(session: Session) -> int:
    """0 for a claim on which all agree, 1 where a party is convicted, 2 without a decision."""
    if convicted_keys(session):
        return MISMATCH
    result = session.result
    return 0 if result is not None and result.outcome == UNCONTESTED else CANNOT_CHECK


def _judgement(match: Match) -> Judgement | None:
    """A game's verdict, for the words of `dispute`."""
    if match.referee is None or match.referee.verdict is None:
        return None
    first, second = (m.run for m in match.members)
    verdict = match.referee.verdict
    word = (
        open_forfeit(next(iter(match.forfeits.values()))).referee.key_id if match.forfeits else None
    )
    return Judgement(
        verdict,
        (first.run_root, second.run_root),
        (first.signer.key_id, second.signer.key_id),
        (None, None),
        word,
    )


def session_json(session: Session, seats: list[Seat]) -> dict[str, Any]:
    """The documented keys of `referee --json` that follow from the log."""
    result, sides = session.result, session.sides
    assert result is not None
    words = RESULTS[result.outcome]
    claim = sides[0][0].run if words.accepts else None
    urls = {seat.key: seat.link.url for seat in seats if seat.key is not None}
    return {
        "session": session.session,
        "job_digest": session.terms.digest,
        "outcome": words.name,
        "accepted": claim.run_root if claim else None,
        "final_state_root": claim.final_state_root if claim else None,
        "why": None if words.accepts else words.sentence,
        "convicted": [key.key_id for key in convicted_keys(session)],
        "parties": [_party_json(session, key, urls.get(key)) for key in _keys(session, seats)],
        "games": [_game_json(match) for match in session.matches],
        "rounds": session.rounds,
        "entries": session.length,
    }


def _keys(session: Session, seats: list[Seat]) -> list[PublicKey]:
    found = dict.fromkeys(seat.key for seat in seats if seat.key is not None)
    return sorted({**found, **dict.fromkeys(session.seals)}, key=lambda key: key.raw)


def _party_json(session: Session, key: PublicKey, url: str | None) -> dict[str, Any]:
    member = session.members.get(key)
    if key in session.removed:
        state = session.removed[key]
    elif key not in session.seals:
        state = "never sealed"
    else:
        state = "left"
    root = member.run.run_root if member else None
    return {"url": url, "key_id": key.key_id, "run_root": root, "state": state}


def _game_json(match: Match) -> dict[str, Any]:
    ending, verdict = match.ending, match.referee.verdict if match.referee else None
    return {
        "game": match.number,
        "parties": [m.key.key_id for m in match.members],
        "run_roots": [m.run.run_root for m in match.members],
        "outcome": "open" if ending is None else VERDICTS[ending.outcome],
        "convicted": [m.key.key_id for p, m in enumerate(match.members)
                      if ending is not None and ending.convicted >> p & 1],
        "forfeit": bool(verdict and verdict.forfeit),
        "case": verdict.case if verdict else None,
        "clause": verdict.convicted[0].clause if verdict and verdict.convicted else None,
        "step": verdict.place.step if verdict else None,
        "rounds": match.referee.rounds if match.referee else 0,
        "received_bytes": match.referee.received if match.referee else 0,
        "seconds": [clock.used / 1000 for clock in match.clocks],
        "evidence": evidence_name(match.number),
    }  # fmt: skip


def say_session(session: Session, seats: list[Seat], out: Path) -> None:
    """The games, the parties and the result in words."""
    for match in session.matches:
        say(f"game {match.number}")
        found = _judgement(match)
        if found is not None:
            say_verdict(found, work_of(session.terms))
        elif match.why:
            say(f"NO VERDICT  {match.why}")
        say(f"evidence    {out / evidence_name(match.number)}")
    urls = {seat.key: seat.link.url for seat in seats if seat.key is not None}
    for key in _keys(session, seats):
        party = _party_json(session, key, urls.get(key))
        say(f"party       {key.key_id[:16]}  {party['state']:12}  {party['url'] or ''}")
    result, sides = session.result, session.sides
    assert result is not None
    words = RESULTS[result.outcome]
    say(f"RESULT      {words.name}: {words.sentence}")
    if words.accepts:
        say(f"ACCEPTED    run root {sides[0][0].run.run_root.hex()}")
    say(f"log         {out / 'log'} ({session.length} entries)")


class Show:
    """Progress of a session on standard error: a live table on a terminal, else lines."""

    def __init__(self, quiet: bool) -> None:
        self._console = Console(stderr=True)
        self._quiet = quiet
        self._live: Live | None = None
        self._spoke, self._said = 0.0, ""

    def __enter__(self) -> Show:
        if not self._quiet and self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, driver: Driver) -> None:
        """Show where the session is."""
        if self._quiet:
            return
        session = driver.arbiter.session
        open_games = sum(m.begun and m.ending is None for m in session.matches)
        head = f"{session.state}: {len(session.seals)} sealed, {len(session.members)} opened"
        if session.matches:
            head += f", game {len(session.matches)}, {open_games} open"
        if self._live is not None:
            self._live.update(_table(head, driver), refresh=True)
        elif head != self._said or time.monotonic() - self._spoke > _PLAIN_SECONDS:
            self._said, self._spoke = head, time.monotonic()
            note(head)
            if session.matches:
                for row in _rows(driver):
                    note("  " + "  ".join(row))


def _rows(driver: Driver) -> list[tuple[str, str, str, str]]:
    rows = []
    for seat in driver.seats:
        key = seat.key.key_id[:16] if seat.key else "?"
        left = "" if seat.left is None else f"{human_seconds(max(0, seat.left) / 1000)} left"
        rows.append((shown(seat.link.url), key, left, shown(seat.doing)))
    return rows


def _table(head: str, driver: Driver) -> Table:
    table = Table(title=head, title_justify="left", box=None, show_header=False)
    for _ in range(4):
        table.add_column(overflow="ellipsis", no_wrap=True)
    for row in _rows(driver):
        table.add_row(*(_plain(cell) for cell in row))
    return table


def _plain(text: str) -> str:
    return text.replace("[", "\\[")  # no markup of another party's
