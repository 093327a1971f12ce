"""The game as a state machine: whatever a liar says, in any order (PROTOCOL P1, P2, P4).

TALLYSTICK_GAMES=10000 plays that many; docs/proofs/games.md has what came of it.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import ClassVar

import pytest
from adversary.games import MOVES, Answers, Table, liars, make_job, random_lie
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from unit.protocol.log_scenarios import BOUNDED, lie
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.simulator import Party

from tallystick.job.job import Job

SEEDS = st.integers(0, 2**32 - 1)


class GameMachine(RuleBasedStateMachine):
    """One game: who lies, where it sits, the arity, and every message are drawn."""

    job: ClassVar[Job]
    honest: ClassVar[Answers]
    cheats: ClassVar[list[Answers]]
    ended: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.table: Table | None = None

    @initialize(which=SEEDS, seat=st.sampled_from([0, 1]), arity=st.sampled_from([2, 3, 5, 20]))
    def begin(self, which: int, seat: int, arity: int) -> None:
        cheat = self.cheats[which % len(self.cheats)]
        self.table = Table(self.job, self.honest, cheat, seat, arity)

    @rule()
    def honest_party_answers(self) -> None:
        assert self.table is not None
        if self.table.referee.verdict is None:
            self.table.honest_answers()

    @rule(move=st.sampled_from(("facts",) * 12 + MOVES), seed=SEEDS)
    def liar_sends(self, move: str, seed: int) -> None:
        assert self.table is not None
        if self.table.referee.verdict is None:
            self.table.liar_sends(move, random.Random(seed))

    @rule(seed=SEEDS, really=st.integers(0, 9))
    def liar_repeats(self, seed: int, really: int) -> None:
        assert self.table is not None
        if really == 0:
            self.table.liar_repeats(random.Random(seed))

    @invariant()
    def promises_hold(self) -> None:
        if self.table is not None:
            self.table.check()

    def teardown(self) -> None:
        if self.table is not None:
            self.table.finish(lambda: "facts", random.Random(0))
            verdict = self.table.referee.verdict
            assert verdict is not None
            self.ended[verdict.convicted[0].clause] += 1


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> type[GameMachine]:
    GameMachine.job = make_job(tmp_path_factory.mktemp("machine") / "job")
    honest = Party(GameMachine.job)
    GameMachine.honest = Answers(honest)
    GameMachine.cheats = liars(GameMachine.job, honest, random.Random(5), 25)
    return GameMachine


def test_games_about_logs_and_exact_sums(tmp_path: Path) -> None:
    """The same moves by liars about logs, against followers of theirs, and under `rounded/1` and
    `exact/1`."""
    logs, rng = make_log_job(tmp_path / "logs"), random.Random(9)
    pairs: list[tuple[Job, Answers, Answers]] = []
    for name in (
        "a forged entry, followed",
        "a value without an entry",
        "a forged entry, not followed",
        "words that do not ascend",
        "a log that is not committed",
    ):
        cheat = LogParty(logs, lie(BOUNDED[name]), choose=lambda *_: 0)
        pairs.append((logs, Answers(LogParty(logs, follows=cheat)), Answers(cheat)))
    for number, contract in enumerate(("rounded/1;b=26", "exact/1;b=15")):
        job = make_job(tmp_path / f"other-{number}", contract)
        honest = Party(job)
        told = [random_lie(job, rng) for _ in range(6)]
        pairs += [(job, Answers(honest), Answers(p)) for p in told if p.run != honest.run]
    for number in range(60):
        job, true, false = rng.choice(pairs)
        table = Table(job, true, false, rng.randrange(2), rng.choice([2, 5, 20]))
        odds = (0.0, 0.05, 0.3)[number % 3]

        def choose(odds: float = odds) -> str:
            return rng.choice(MOVES) if rng.random() < odds else "facts"

        table.finish(choose, rng)  # checks P1, P2 and P4 after every message


def test_games(machine: type[GameMachine]) -> None:
    assert len(machine.cheats) > 20
    case = machine.TestCase
    games = int(os.environ.get("TALLYSTICK_GAMES", "60"))
    case.settings = settings(max_examples=games, stateful_step_count=40, deadline=None)
    case("runTest").runTest()
    print(
        sum(machine.ended.values()), "games ended by clause:", dict(sorted(machine.ended.items()))
    )
    assert sum(machine.ended.values()) >= games // 2  # Hypothesis may stop early on few choices
