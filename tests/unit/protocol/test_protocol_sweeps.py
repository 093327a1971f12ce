"""P1 and P2 by sweeps: every operand of every node, and answers with random bytes changed."""

from __future__ import annotations

import random

import pytest
from unit.protocol.scenarios import SCENARIOS as ALL
from unit.protocol.scenarios import STEP, WRONG_LOSS, Lie, liar, put, tampering
from unit.protocol.simulator import Party, play

from tallystick.errors import CorruptFileError
from tallystick.job.job import Job
from tallystick.protocol import queries as q
from tallystick.protocol.messages import ANSWERED, Answer, sign_answer
from tallystick.protocol.referee import Referee

CLAUSES = {"state": "5.6.1", "scalar": "5.6.4", "rng": "5.6.4"}


@pytest.mark.parametrize("seat", [0, 1])
def test_a_false_digest_of_any_operand_convicts(mlp_job: Job, seat: int) -> None:
    """Absent operands, several outputs, pass-throughs, chains: what the program says decides."""
    honest, cheat = Party(mlp_job), Party(mlp_job, Lie(**WRONG_LOSS))
    parties = (cheat, honest) if seat == 0 else (honest, cheat)
    game = Referee(mlp_job.terms, (parties[0].commitment, parties[1].commitment))._game
    swept = 0
    for index in range(len(mlp_job.program.nodes)):
        for at, (operand, source, _) in enumerate(game.facts.operands(index)):
            cheat.tamper = tampering(index, inputs=put(at))
            referee = Referee(mlp_job.terms, (parties[0].commitment, parties[1].commitment), 3)
            play(referee, parties)
            assert referee.verdict is not None
            ((party, clause),) = ((c.party, c.clause) for c in referee.verdict.convicted)
            place = referee.verdict.place
            assert (place.step, place.node, place.operand) == (STEP, index, operand)
            kind = None
            if isinstance(source, str):
                kind = "state"
            elif source.is_input:
                kind = mlp_job.program.inputs[source.out].kind
            # A liar that cannot open the batch tensor it has stated is convicted on the way.
            wanted = {"batch": "6.1", None: "5.6.2"}.get(kind) or CLAUSES[str(kind)]
            assert (party, clause) == (seat, wanted), (index, operand)
            swept += 1
    assert swept > 90


@pytest.mark.parametrize("name", ["a wrong product", "another batch", "another loss in the chain"])
@pytest.mark.parametrize("seat", [0, 1])
def test_random_bytes_never_convict_the_honest(
    game_job: Job, honest: Party, name: str, seat: int
) -> None:
    """P2: a liar with changed, cut or longer bodies; whoever it is, the honest run is accepted."""
    cheat = liar(game_job, ALL[name])
    parties = (cheat, honest) if seat == 0 else (honest, cheat)
    commitments = (parties[0].commitment, parties[1].commitment)
    ends = set()
    for seed in range(40):
        rng = random.Random(seed)
        referee = Referee(game_job.terms, commitments, rng.choice([2, 5, 20]))
        while referee.verdict is None:
            for party, query in referee.pending.items():
                if party == seat and rng.random() < 0.2:
                    referee.receive(party, mutated(cheat, query, rng))
                else:
                    referee.receive(party, parties[party].answer(query))
        assert [c.party for c in referee.verdict.convicted] == [seat]
        assert referee.verdict.accepted == 1 - seat
        ends.add(referee.verdict.convicted[0].clause)
    assert len(ends) > 3  # the changes reach different states


def mutated(party: Party, query: bytes, rng: random.Random) -> bytes:
    """A signed answer whose body has some bytes changed, is cut, or is longer."""
    asked = q.decode_query(query)
    body = party.body(asked)
    data = bytearray(b"" if body is None else asked.layout.encode(body))
    change = rng.randrange(3)
    if change == 0 and data:
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif change == 1:
        data = data[: rng.randrange(len(data) + 1)]
    else:
        data += rng.randbytes(rng.randint(1, 64))
    return sign_answer(
        party.key, Answer(party.job.digest, party.run.run_root, query, ANSWERED, bytes(data))
    )


def test_random_messages_change_nothing(game_job: Job, honest: Party, cheat: Party) -> None:
    """P2: what is not signed by a party is nobody's word."""
    referee = Referee(game_job.terms, (honest.commitment, cheat.commitment))
    rng = random.Random(1)
    good = honest.answer(referee.pending[0])
    for _ in range(200):
        data = bytearray(good)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        with pytest.raises(CorruptFileError):
            referee.receive(0, bytes(data))
    assert referee.verdict is None and referee.transcript == []
