"""A sample of `make matrix` and of the random sessions (docs/proofs/sessions.md), and their finds.

Each cell checks PROTOCOL P1 to P5, P7, P9 and P10 (adversary/sessions.py says where).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from adversary.games import MOST_ROUNDS, STEPS
from adversary.many_sessions import play_many
from adversary.members import Member
from adversary.session_matrix import (
    CROWDS,
    SEATS,
    SIZES,
    Cell,
    Cheats,
    Small,
    cheat_cells,
    crowd,
    session_cells,
)
from adversary.sessions import (
    REFEREE,
    Seat,
    Table,
    honest_provider,
    keys,
    make_rules,
    session_attacks,
)

from tallystick.delegation.entries import Forfeited, open_entry
from tallystick.run.cheats.attacks import attacks_directory


@pytest.fixture(scope="module")
def cheats(tmp_path_factory: pytest.TempPathFactory) -> Cheats:
    """Cheating runs, made when asked for."""
    return Cheats(tmp_path_factory.mktemp("cheats"))


def sampled() -> Iterator[Cell]:
    """One cell of each attack and variant; sizes and seats in turn."""
    number = 0
    for name, attack in session_attacks().items():
        for variant in attack.variants:
            sizes = SIZES[1:] if attack.claim == "true" else SIZES
            yield Cell(name, variant, sizes[number % len(sizes)], SEATS[number // 3 % 2])
            number += 1


@pytest.mark.parametrize(
    "cell", list(sampled()), ids=lambda c: f"{c.row}-{c.k}-{c.seat}".replace(" ", "-")
)
def test_attacks_on_sessions(small: Small, cell: Cell) -> None:
    ended = small.play(cell)
    attack = session_attacks()[cell.attack]
    played = {ended.fate(seat) for seat in ended.table.seats if seat.make is attack.provider}
    assert played <= set(attack.ends), "attacks/README.md says another end"


@pytest.mark.parametrize("name", ("lie-output", "silent", "patched-commitments"))
def test_cheating_runs(cheats: Cheats, name: str) -> None:
    ended = cheats.play(Cell(name, "", 5, 1))
    assert ended is not None and len(ended.session.matches) == 4


@pytest.mark.parametrize("name", CROWDS)
def test_crowds(small: Small, name: str, is_exhaustive: bool) -> None:
    """PROTOCOL 10.7: Sybils on one claim, on many, on the honest one; 64 parties."""
    if name == "idle" and not is_exhaustive:
        pytest.skip("64 parties: with --exhaustive, and in `make matrix`")
    sybils = 31 if is_exhaustive else 5
    ended = crowd(small, name, crash=0.01, sybils=sybils)
    session = ended.session
    own = [m for m in session.matches if ended.table.seats[0].key in {x.key for x in m.members}]
    if name == "many-claims":
        assert len(own) <= (sybils + 1 - 1).bit_length()  # ⌈log₂(s + 1)⌉
    if name == "one-claim":
        assert len(session.matches) == session.rounds == sybils
    if name == "throwers":
        assert len(own) <= 1  # it plays when the Sybils before it have lost, against one liar


def test_every_cell_is_there() -> None:
    assert len(list(session_cells())) >= 6 * 25
    assert len(list(cheat_cells())) == 6 * 25


def test_random_sessions() -> None:
    """`many_sessions.py` plays 100,000 games; here are a few."""
    found = play_many(24, 5, lies=4)
    assert found["honest_convicted"] == 0 and found["referee_crashes"] > 0
    assert len(found["clauses"]) > 5


# --- found by these -------------------------------------------------------------------------------
@pytest.mark.parametrize("early", range(4))
def test_a_deadline_between_two_looks_at_the_clock(small: Small, early: int) -> None:
    """PROTOCOL 12.4: the clock moves while the referee takes a message. It once wrote the message
    with a time after a deadline, and so convicted itself."""
    provider = session_attacks()["last-second"].provider
    a, b = keys(2)

    class Table_(Table):  # noqa: N801
        def _deadline(self, seat: Seat) -> int:
            return super()._deadline(seat) - early

    seats = [
        Seat(Member(small.honest, a), True, honest_provider()),
        Seat(Member(small.lies[0][0], b), False, provider),
    ]
    rules = make_rules(small.job.digest, STEPS, 2)
    ended = Table_(small.job.terms, rules, seats, MOST_ROUNDS, drift=1).play()
    ended.check()


def test_an_ended_game_has_no_deadline(small: Small) -> None:
    """PROTOCOL 11.5: one party equivocates while the other owes an answer, and another game of the
    round goes on. No forfeit follows in the game that has ended."""
    provider, attacks = honest_provider(), session_attacks()
    sent = attacks["two-answers"].provider

    class Late(provider):  # type: ignore[misc, valid-type]
        def answer(self, query: bytes) -> Any:
            return [type(s)(s.data, 4_000) for s in super().answer(query)]

    below, above = small.lies[0], small.lies[1]
    claims = sorted((*below[:2], *above[:2]), key=lambda f: f.run.run_root)
    made = keys(5)
    seats = [
        Seat(Member(claims[0], made[0]), False, sent),  # against a silent one
        Seat(Member(claims[1], made[1]), False, attacks["silence"].provider, "phase-0"),
        Seat(Member(claims[2], made[2]), False, Late),  # its game lasts longer
        Seat(Member(claims[3], made[3]), False, Late),
    ]
    seats += [Seat(Member(small.honest, made[4]), True, provider)]
    seats.sort(key=lambda seat: seat.member.run.run_root)
    rules = make_rules(small.job.digest, STEPS, 5, extension=20_000)
    ended = Table(small.job.terms, rules, seats, MOST_ROUNDS).play()
    ended.check()
    events = [open_entry(m, REFEREE.public).event for m in ended.table.log.signed]
    lost = {(e.game, e.party) for e in events if isinstance(e, Forfeited)}
    for match in ended.session.matches:
        assert set(match.forfeits) == {party for game, party in lost if game == match.number}
        assert not match.forfeits or match.referee.verdict.forfeit


# --- the table of attacks/README.md ---------------------------------------------------------------
ROW = re.compile(r"^\| \[([a-z-]+)\]\(sessions/[a-z-]+\.py\) \|[^|]*\| ([^|]*?) \|", re.M)


def test_the_readme_says_what_becomes_of_each() -> None:
    text = (Path(attacks_directory()) / "README.md").read_text()
    rows = {name: set(ends.split(", ")) for name, ends in ROW.findall(text)}
    assert rows == {name: set(attack.ends) for name, attack in session_attacks().items()}
