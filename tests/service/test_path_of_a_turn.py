"""A turn over HTTP passes few files on its way to the signed reply (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import http.client
import re
import threading
from pathlib import Path
from types import FrameType
from urllib.parse import urlsplit

from service.parties import REFEREE, A, B, Player, Script
from service.transports import serving
from unit.protocol.simulator import Party

from tallystick.delegation.turns import Message
from tallystick.job.job import Job
from tallystick.protocol.referee import Referee
from tallystick.prover.prover import Prover
from tallystick.prover.registered import Registered
from tallystick.run.execute.trainer import Options, train_job

ROOMS = re.compile(r"/tallystick/((?:service|prover|delegation|protocol)/\w+)\.py$")
PATH = {
    "service/doors", "service/guard", "service/party_app", "service/server",
    "delegation/turns",
    "prover/registered", "prover/sessions", "prover/answers", "prover/prover",
    "protocol/referee", "protocol/queries", "protocol/messages",
}  # fmt: skip


def test_a_turn_passes_twelve_files(small_job: Job, cheat_run: Party, tmp_path: Path) -> None:
    """The first query of a game. A later one adds what it asks about: `prover.states` and such."""
    train_job(small_job, tmp_path / "run", Options(key=A))
    passed, watched = set[str](), threading.Event()

    def watch(frame: FrameType, event: str, _: object) -> None:
        if watched.is_set() and event == "call":
            passed.update(ROOMS.findall(frame.f_code.co_filename))

    before = threading.getprofile()
    threading.setprofile(watch)  # of the server's threads: they begin here
    try:
        with Prover(tmp_path / "run", A) as prover:
            script, pair = Script(small_job), (prover.commitment, Player(cheat_run, B).commitment)
            party = Registered(prover, A, small_job.terms, [REFEREE.public], tmp_path / "sessions")
            seal = party.reply(script.begin())
            assert isinstance(seal, Message)
            party.reply(script.opening(seal.data))
            game = Referee(small_job.terms, pair, 4)
            party.reply(script.play(game, 0, pair, query=b""))  # the game is known
            with serving(party) as url:
                connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port)
                watched.set()
                connection.request("POST", "/v1/turn", script.play(game, 0, pair))
                response = connection.getresponse()
                reply = response.read()
                watched.clear()
                connection.close()
            assert (response.status, reply) == (200, prover.kept(game.pending[0]))
            assert party.close()
    finally:
        threading.setprofile(before)  # type: ignore[arg-type]
    assert passed == PATH
