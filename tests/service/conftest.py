"""One small job and two runs of it, for every test here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from service import parties
from service.parties import A, B, Player, registered
from unit.protocol.simulator import Party

from tallystick.job.job import Job
from tallystick.prover.registered import Registered


@pytest.fixture(scope="session")
def small_job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return parties.make_job(tmp_path_factory.mktemp("service") / "job")


@pytest.fixture(scope="session")
def honest_run(small_job: Job) -> Party:
    return parties.honest(small_job)


@pytest.fixture(scope="session")
def cheat_run(small_job: Job) -> Party:
    return parties.cheat(small_job)


@pytest.fixture
def pair(honest_run: Party, cheat_run: Party) -> Iterator[tuple[Player, Player]]:
    """An honest party and one that cheats."""
    found = Player(honest_run, A), Player(cheat_run, B)
    yield found
    for player in found:
        player.going.set()


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def party(pair: tuple[Player, Player], sessions: Path) -> Registered:
    """The honest party."""
    return registered(pair[0], sessions)


@pytest.fixture
def url(party: Registered) -> Iterator[str]:
    """The address of a server of the honest party."""
    from service.transports import serving  # skips where the extra is not installed

    with serving(party) as found:
        yield found
