"""The referee against every lie of scenarios.py, two liars, and odd tensors (PROTOCOL 3 to 6)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from unit.protocol.scenarios import (
    ADDMM,
    ENDINGS,
    MM,
    SCENARIOS,
    STEP,
    WRONG,
    WRONG_NODE,
    WRONG_PART,
    Lie,
    Scenario,
    answering,
    liar,
    put,
    signalling,
    tampering,
)
from unit.protocol.simulator import Party, judged

from tallystick.commit.tensor import TensorHeader, tensor_digest
from tallystick.errors import CannotCheckError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.opening import quantity
from tallystick.opening.quantity import Local, RefusedOperandsError, Site, Source
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import HashesBody
from tallystick.protocol.game import Guilty
from tallystick.protocol.referee import Referee
from tallystick.protocol.tensors import first_element


def check(job: Job, honest: Party, scenario: Scenario, seat: int, arity: int) -> None:
    cheat = liar(job, scenario)
    parties = (cheat, honest) if seat == 0 else (honest, cheat)
    verdict = judged(job, parties, arity)
    if scenario.zero_only and seat == 1:  # then the cheat is not asked, and convicted otherwise
        assert [c.party for c in verdict.convicted] == [1]
        assert verdict.accepted == 0
        return
    assert [(c.party, c.clause) for c in verdict.convicted] == [(seat, scenario.clause)]
    assert verdict.accepted == 1 - seat
    assert verdict.case == scenario.case
    assert not verdict.agreement and not verdict.forfeit
    if scenario.phase is not None:
        assert verdict.phase == scenario.phase


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_lie_convicts_the_liar_alone(game_job: Job, honest: Party, name: str, seat: int) -> None:
    check(game_job, honest, SCENARIOS[name], seat, 20)


@pytest.mark.parametrize("arity", [2, 3, 256])
@pytest.mark.parametrize("name", ["a wrong product", "only a middle checkpoint"])
def test_any_arity(game_job: Job, honest: Party, name: str, arity: int) -> None:
    check(game_job, honest, SCENARIOS[name], 1, arity)


@pytest.mark.parametrize("seat", [0, 1])
@pytest.mark.parametrize("name", ENDINGS)
def test_different_ends(diverging_job: Job, name: str, seat: int) -> None:
    """PROTOCOL 4.7 to 4.10, at a checkpoint and between two."""
    honest = Party(diverging_job)
    assert honest.run.final_step == 2
    check(diverging_job, honest, ENDINGS[name], seat, 2)


def test_random_key(mlp_job: Job) -> None:
    """PROTOCOL 5.6.4 for the rng input."""
    cheat = Lie(random_key=lambda step, key: (key[0] + 1, key[1]) if step == STEP else key)
    verdict = judged(mlp_job, (Party(mlp_job), Party(mlp_job, cheat)))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "5.6.4")]
    assert (verdict.case, verdict.place.step) == ("2d", STEP)


def test_agreement(game_job: Job, honest: Party) -> None:
    verdict = judged(game_job, (honest, Party(game_job)))
    assert verdict.agreement and verdict.accepted is None and verdict.convicted == ()


def test_the_place_is_known(game_job: Job, honest: Party) -> None:
    verdict = judged(game_job, (honest, liar(game_job, SCENARIOS["a wrong product"])))
    place = verdict.place
    assert place.interval == (4, 8)
    assert (place.step, place.node, place.operator) == (STEP, MM, "aten.mm")
    assert (place.side, place.operand, place.element) == ("output", 0, 1350)
    assert place.quantity == "element" and verdict.terms == 1 and verdict.phase == 3
    assert verdict.claimed[0] == verdict.value != verdict.claimed[1]


# -- both lie (P11) ------------------------------------------------------------------------------


def test_both_have_another_structure_before_the_dispute(game_job: Job) -> None:
    """PROTOCOL 5.6.2: the producing node is in both trees, and in no honest one."""
    odd = tampering(0, operator="aten.t")
    worse = tampering(ADDMM, inputs=put(2))
    parties = (
        Party(game_job, Lie(), odd),
        Party(game_job, Lie(**WRONG_NODE), lambda s, i, b: worse(s, i, odd(s, i, b))),
    )
    verdict = judged(game_job, parties)
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "5.6.2"), (1, "5.6.2")]
    assert verdict.accepted is None and verdict.case == "1"


def test_both_agree_on_an_operand_that_is_not_canonical(game_job: Job) -> None:
    """PROTOCOL 6.5."""

    def batch(step: int, given: dict) -> None:
        if step == STEP:
            signalling(given["x"])

    def node(step: int, index: int, _: object, outputs: list) -> None:
        if (step, index) == (STEP, MM):  # everything else of this step is NaN by now
            outputs[0][1, 650] = 1

    worse = Lie(batch=batch, node=node, answer=WRONG_PART)
    parties = (Party(game_job, Lie(batch=batch)), Party(game_job, worse))
    verdict = judged(game_job, parties)
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.5"), (1, "6.5")]


def test_neither_is_right(game_job: Job, honest: Party) -> None:
    def other(step: int, index: int, node: object, outputs: list) -> None:
        if (step, index) == (STEP, MM):
            outputs[0][1, 650] += 2

    parties = (liar(game_job, SCENARIOS["a wrong product"]), Party(game_job, Lie(node=other)))
    verdict = judged(game_job, parties)
    assert [c.party for c in verdict.convicted] == [0, 1] and verdict.accepted is None


def test_an_operand_that_refers_outside_convicts_both(
    game_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL 6.5: an index that no kernel takes is in no honest run."""

    def rule(site: Site) -> Local:
        def compute(source: Source, _: object) -> object:
            return source.read(1, source.read(0, np.array([0])).astype(np.int64) + (1 << 40))

        return Local("element", "f32", compute)

    monkeypatch.setitem(quantity.opening.table, "aten.mm", rule)
    other = Lie(**WRONG_NODE)
    verdict = judged(game_job, (Party(game_job), Party(game_job, other)))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.5"), (1, "6.5")]


def test_an_operand_that_the_operator_refuses_convicts_both(
    game_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL 6.5: an index outside of an axis, which may be inside of the tensor."""

    def rule(site: Site) -> Local:
        def compute(source: Source, _: object) -> object:
            raise RefusedOperandsError(site.op, f"index {source.read(0, np.array([0]))[0]}")

        return Local("element", "f32", compute)

    monkeypatch.setitem(quantity.opening.table, "aten.mm", rule)
    verdict = judged(game_job, (Party(game_job), Party(game_job, Lie(**WRONG_NODE))))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "6.5"), (1, "6.5")]


# -- what this build cannot judge, and odd tensors -----------------------------------------------


def test_a_rule_that_is_missing_or_fails_convicts_nobody(
    game_job: Job, honest: Party, cheat: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(site: Site) -> Local:
        return Local("element", "f32", lambda source, needs: 1 // 0)

    monkeypatch.setitem(quantity.opening.table, "aten.mm", broken)
    with pytest.raises(CannotCheckError, match="fails"):
        judged(game_job, (honest, cheat))
    monkeypatch.delitem(quantity.opening.table, "aten.mm")
    with pytest.raises(CannotCheckError, match="no opening rule"):
        judged(game_job, (honest, cheat))


def test_a_label_of_the_batch(game_job: Job, honest: Party) -> None:
    """A field that is not the first of its record, and integers."""

    def batch(step: int, given: dict) -> None:
        if step == STEP:
            given["y"][1] ^= 1

    verdict = judged(game_job, (Party(game_job, Lie(batch=batch)), honest))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(0, "5.6.3")]
    assert verdict.place.element == 1 and verdict.value in ("0", "1")
    assert set(verdict.claimed) == {"0", "1"} and verdict.claimed[1] == verdict.value


def test_a_tensor_of_many_leaves_is_descended_in_rounds(tmp_path: Path) -> None:
    """157 leaves: PROTOCOL 2.4 splits them twice, and lies below are found there."""
    pairs = {"features": "40000", "classes": "2", "records": "16", "batch_size": "2"}
    job = new_job("logreg", tmp_path / "job", pairs, steps=1, evaluate_every=0)

    def batch(step: int, given: dict) -> None:
        given["x"][0, 39_999] += 1

    def below(query: q.TensorHashes, body: HashesBody) -> HashesBody:
        return body if query.first == 0 else HashesBody((WRONG, *body.hashes[1:]))

    honest, other = Party(job), Party(job, Lie(batch=batch))
    verdict = judged(job, (honest, other))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "5.6.3")]
    assert verdict.place.element == 39_999
    false = Party(job, Lie(batch=batch, answer=answering(q.TensorHashes, below)))
    verdict = judged(job, (honest, false))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(1, "6.1")]


@pytest.mark.parametrize("seat", [0, 1])
def test_a_whole_other_tensor_is_not_the_stated_one(
    game_job: Job, honest: Party, seat: int
) -> None:
    """PROTOCOL 6.1: leaves that fit each other, and even are the true ones, are not enough."""
    kinds = (q.TensorHashes, q.Leaf)
    cheat = Party(
        game_job, Lie(**WRONG_NODE, answer=lambda k, b: honest.body(k) if type(k) in kinds else b)
    )
    verdict = judged(game_job, (cheat, honest) if seat == 0 else (honest, cheat))
    assert [(c.party, c.clause) for c in verdict.convicted] == [(seat, "6.1")]
    assert verdict.accepted == 1 - seat


def test_an_empty_tensor_has_one_digest(game_job: Job, game: Referee) -> None:
    """PROTOCOL 6.1: its type gives its digest, whatever was stated."""
    header = TensorHeader("f32", (0, 3))
    true = tensor_digest(np.zeros((0, 3), np.float32))
    for digests, wrong in (
        ((true, WRONG), [1]),
        ((WRONG, true), [0]),
        ((WRONG, bytes(32)), [0, 1]),
    ):
        with pytest.raises(Guilty) as ended:
            next(first_element((0, 0), q.OUTPUT, 0, header, digests))
        assert list(ended.value.guilt) == wrong
