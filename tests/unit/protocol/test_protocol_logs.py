"""The referee about rounding logs: lies, and honest parties that differ (PROTOCOL 6.10 to 6.13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.protocol.log_scenarios import (
    BOUNDED,
    COMMIT,
    FALSE,
    PLAIN,
    PRODUCT,
    PUBLISHED,
    SCALED,
    STEP,
    TIE,
    UP,
    WIDE,
    LogScenario,
    entry,
    lie,
    value,
)
from unit.protocol.log_simulator import LogParty, make_log_job
from unit.protocol.scenarios import WRONG, Lie, answering, put, tampering
from unit.protocol.simulator import judged

from tallystick.commit import merkle
from tallystick.commit.tensor import Array
from tallystick.job.job import Job
from tallystick.program.ir import COMMIT as COMMIT_OP
from tallystick.program.ir import Node
from tallystick.protocol import phase_log
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import LogBody, NodeBody, RootsBody
from tallystick.protocol.game import Guilty
from tallystick.protocol.judge import judge
from tallystick.protocol.referee import Referee
from tallystick.protocol.results import DisputedLogs, DisputedStep, DisputedTrees
from tallystick.prover.local import play

WIDTH = 9000  # two rows: five blocks of a bounded log, more leaves than one answer has hashes


@pytest.fixture(scope="module")
def bounded(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return make_log_job(tmp_path_factory.mktemp("bounded") / "job", wide=WIDTH)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Job:
    path = tmp_path_factory.mktemp("published") / "job"
    return make_log_job(path, form="published", wide=12000)


def test_the_nodes_are_where_the_scenarios_say(bounded: Job, published: Job) -> None:
    for job in (bounded, published):
        assert job.program.nodes[PRODUCT].op == "aten.mm"
        assert job.program.nodes[COMMIT].op == COMMIT_OP


def down(*_: int) -> int:
    """Where V has two values, the lesser one, which is logged."""
    return 0


def drift(step: int, state: Any) -> None:
    """A state that the step's nodes do not make."""
    if step == STEP:
        state.slots["param.head.weight"][0, 0] += 1


def never_was(step: int, root: bytes) -> bytes:
    return WRONG[:-1] + bytes([step]) if step > STEP else root


def check(job: Job, scenario: LogScenario, seat: int, choose: bool) -> None:
    cheat = LogParty(job, lie(scenario), choose=down if choose else None)
    follows = cheat if choose and scenario.clause is not None else None
    honest = LogParty(job, choose=down if choose else None, follows=follows)
    parties = (cheat, honest) if seat == 0 else (honest, cheat)
    played = play(job.terms, parties)
    verdict = played.verdict
    assert not verdict.agreement and not verdict.forfeit
    assert judge(job.terms, played.evidence.to_bytes()).verdict == verdict
    if scenario.clause is None:
        assert verdict.undecided and verdict.accepted is None and not verdict.convicted
    else:
        assert not verdict.undecided
        assert [c.party for c in verdict.convicted] == [seat]
        assert verdict.accepted == 1 - seat
        if scenario.zero_only and seat == 1:
            return
        assert (verdict.convicted[0].clause, verdict.case) == (scenario.clause, scenario.case)
        assert scenario.says in verdict.convicted[0].sentence
    if scenario.choices is not None:
        assert verdict.choices == scenario.choices


@pytest.mark.sample(3)
@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", BOUNDED)
def test_lies_about_bounded_logs(bounded: Job, name: str, seat: int) -> None:
    check(bounded, BOUNDED[name], seat, choose=True)


@pytest.mark.sample(3)
@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", PUBLISHED)
def test_lies_about_published_logs(published: Job, name: str, seat: int) -> None:
    check(published, PUBLISHED[name], seat, choose=False)


def test_followers_agree_and_others_cannot_be_decided(bounded: Job) -> None:
    """1.5.1: two honest trainers of their own choices; a follower has the trainer's bits."""
    up = LogParty(bounded, choose=lambda *_: 1)
    low = LogParty(bounded, choose=down)
    nearest = LogParty(bounded)
    assert judged(bounded, (up, LogParty(bounded, follows=up))).agreement
    for parties, choices in (
        ((up, low), (1, 1)),
        ((nearest, up), (1, 1)),
        ((low, nearest), (1, 0)),
    ):
        verdict = judged(bounded, parties)
        assert verdict.undecided and not verdict.convicted and verdict.accepted is None
        assert verdict.choices == choices
        assert verdict.place.step == 0


# What a liar whose log of EARLY is withheld may do: who follows it has no entries there.
EARLY = 0  # SCALED is a node whose output `ordered/1` gives
WITHHELD: dict[str, tuple[str, dict[str, Any]]] = {
    "a value that its own entry denies": (
        "6.13",
        {"entries": entry(PRODUCT, TIE, 1)},
    ),
    "a false value of a logged output, later": ("6.11", FALSE),
    "a false value of another output, later": ("6.5", {"node": value(SCALED, 0, 1.0)}),
    "a false loss, later": ("5.8", {"loss": lambda step, bits: bits + (step == STEP)}),
    "a false state, later": ("5.3", {"after": drift}),
    "a false value in the last step": ("6.11", {"node": value(PRODUCT, PLAIN, 1.0, step=4)}),
    "a root that never was": ("6.14", {"root": never_was}),
}


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", WITHHELD)
def test_a_withheld_log_hides_no_lie(bounded: Job, name: str, seat: int) -> None:
    """6.13, 6.14: the honest auditor could not read the liar's log of one step, and its own log of
    it is another one. Values are judged by each party's own log, and past it the search goes on."""
    clause, hooks = WITHHELD[name]
    cheat = LogParty(bounded, Lie(**hooks), choose=down)
    unread = STEP if "entries" in hooks else EARLY
    honest = LogParty(bounded, follows=cheat, withheld={unread})
    assert cheat.entries[unread] != honest.entries[unread]
    played = play(bounded.terms, (cheat, honest) if seat == 0 else (honest, cheat))
    verdict = played.verdict
    assert not verdict.undecided and [c.party for c in verdict.convicted] == [seat]
    assert verdict.convicted[0].clause == clause and verdict.accepted == 1 - seat
    assert judge(bounded.terms, played.evidence.to_bytes()).verdict == verdict


@pytest.mark.parametrize("seat", [0, 1])
def test_another_log_chain_goes_in_past_a_withheld_log(bounded: Job, seat: int) -> None:
    """6.14: the logs differ, so each party's COMMIT must read the log chain of its own state."""
    chain = len(bounded.program.state_types) + 2  # after the slots, the loss and the loss chain

    def tamper(step: int, index: int, body: NodeBody) -> NodeBody:
        there = (step, index) == (STEP, COMMIT)
        return replace(body, inputs=put(chain)(body.inputs)) if there else body

    false_loss = Lie(loss=lambda step, bits: bits + (step == STEP))
    cheat = LogParty(bounded, false_loss, choose=down, tamper=tamper)
    honest = LogParty(bounded, follows=cheat, withheld={EARLY})
    verdict = judged(bounded, (cheat, honest) if seat == 0 else (honest, cheat))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(seat, "5.6.1")]
    assert "not the one in its state" in verdict.convicted[0].sentence


@pytest.mark.parametrize("seat", [0, 1])
def test_a_checkpoint_past_a_withheld_log_is_proved(tmp_path: Path, seat: int) -> None:
    """6.14 pins a checkpoint by its proof (3.3). Halving to step 0 left that of step 8 out."""
    job = make_log_job(tmp_path / "job", steps=17)
    late = Lie(
        node=value(PRODUCT, PLAIN, float(2 * UP), step=5),
        answer=answering(
            q.Checkpoints,
            lambda query, body: RootsBody((WRONG,), body.proof) if query.indices == (4,) else body,
        ),
    )
    cheat = LogParty(job, late, choose=down)
    honest = LogParty(job, follows=cheat, withheld={EARLY})
    played = play(job.terms, (cheat, honest) if seat == 0 else (honest, cheat), arity=2)
    assert [(c.party, c.clause) for c in played.verdict.convicted] == [(seat, "3.3")]


@pytest.mark.parametrize("seat", [0, 1])
def test_two_sound_runs_of_which_one_had_no_log_to_follow(bounded: Job, seat: int) -> None:
    """6.12, 6.14: undecided, whether the step without a log has equal values or a choice taken."""
    for choose, choices in ((down, (1, 0)), (lambda *_: 1, (1, 1))):
        first = LogParty(bounded, choose=choose)
        second = LogParty(bounded, follows=first, withheld={EARLY})
        verdict = judged(bounded, (first, second) if seat == 0 else (second, first))
        assert verdict.undecided and not verdict.convicted
        assert verdict.choices == choices and verdict.place.step == EARLY


@pytest.mark.parametrize("seat", [0, 1])
def test_what_does_not_open_past_a_withheld_log(bounded: Job, seat: int) -> None:
    """6.14: a slot that is not in the party's own state, and a signed refusal."""
    for change, clause in (
        (lambda _, body: replace(body, digest=WRONG), "6.14"),
        (lambda _, body: replace(body, proof=body.proof[1:]), "6.14"),
        (lambda *_: None, "2.8"),
    ):
        cheat = LogParty(bounded, Lie(**FALSE, answer=answering(q.Slot, change)), choose=down)
        honest = LogParty(bounded, follows=cheat, withheld={EARLY})
        verdict = judged(bounded, (cheat, honest) if seat == 0 else (honest, cheat))
        assert [(c.party, c.clause) for c in verdict.convicted] == [(seat, clause)]


def test_both_have_another_node_where_their_logs_differ(bounded: Job) -> None:
    """6.13: two liars who agree on a node that is not the program's are both convicted."""
    tamper = tampering(PRODUCT, operator="aten.bmm")

    def at(step: int, index: int, body: object) -> object:
        return tamper(6, index, body) if step == STEP else body  # type: ignore[arg-type]

    first = LogParty(bounded, Lie(entries=BOUNDED["an entry that says nothing"].hooks["entries"]))
    second = LogParty(bounded, Lie())
    for party in (first, second):
        party.tamper = at  # type: ignore[assignment]
    verdict = judged(bounded, (first, second))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.13"), (1, "6.13")]
    assert verdict.case == "1"


def test_both_state_a_value_that_is_not_canonical(bounded: Job) -> None:
    """6.13: the entry is about a value that no honest party has; both parties have stated it."""

    def odd_nan(step: int, index: int, _: Node, outputs: Sequence[Array]) -> None:
        if (step, index) == (STEP, WIDE):
            outputs[0].reshape(-1).view(np.uint32)[9000] = 0xFFC00001

    first = LogParty(bounded, Lie(node=odd_nan, entries=entry(WIDE, 9000, 0)))
    second = LogParty(bounded, Lie(node=odd_nan))
    verdict = judged(bounded, (first, second))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.13"), (1, "6.13")]
    assert verdict.case == "3" and "not canonical" in verdict.convicted[0].sentence


def test_two_forgers(bounded: Job) -> None:
    """6.13 decides on the first difference; the other liar is then not shown wrong."""
    first = LogParty(bounded, lie(BOUNDED["a forged entry, not followed"]))
    second = LogParty(bounded, lie(BOUNDED["an entry in one of many blocks"]))
    verdict = judged(bounded, (first, second))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.13")]
    assert verdict.accepted == 1


def test_an_empty_section_has_one_digest(bounded: Job) -> None:
    """6.13: of an output without elements the program alone says what its section is."""
    honest, cheat = LogParty(bounded), LogParty(bounded, Lie(**BOUNDED["an entry less"].hooks))
    referee = Referee(bounded.terms, (honest.commitment, cheat.commitment))
    game = referee._game
    empty = replace(game.facts.sections[0], elements=0)
    game.facts.__dict__["sections"] = (empty,)
    body = LogBody(WRONG, (), (empty.digest(merkle.EMPTY_ROOT),), ())
    trees = DisputedTrees(DisputedStep(0), (WRONG, WRONG), ())
    given = DisputedLogs(trees, (body, replace(body, sections=(WRONG,))))
    with pytest.raises(Guilty) as caught:
        next(phase_log.entries(game, given))
    assert {p: clause for p, (clause, _) in caught.value.guilt.items()} == {1: "6.13"}
