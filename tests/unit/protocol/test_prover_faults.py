"""A prover whose disk, memory or machine fails says nothing false (PROTOCOL 2.8.1, 2.8.2)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from unit.protocol.scenarios import ADDMM, COMMIT, MM, STEP
from unit.protocol.simulator import Party

from tallystick.commit.tensor import Array
from tallystick.disk import files
from tallystick.errors import (
    DigestMismatchError,
    MachineFaultError,
    TallystickError,
)
from tallystick.job.job import Job
from tallystick.opening.views import View
from tallystick.protocol import queries as q
from tallystick.protocol.messages import open_answer
from tallystick.prover import states as prover_states
from tallystick.prover.cheating import CheatingProver
from tallystick.prover.prover import Prover
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore


def asked(prover: Prover, query: q.Query) -> bytes:
    return prover.answer(q.encode_query(query))


def test_a_damaged_stored_state_is_not_used(
    honest: Party, honest_run: Path, tmp_path: Path
) -> None:
    """P2: a disk that rots does not make an honest party lie."""
    run = tmp_path / "run"
    shutil.copytree(honest_run, run)
    for path in sorted((run / "checkpoints").iterdir()):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    query = q.encode_query(q.States((11,)))
    with Prover(run, honest.key) as prover:
        assert prover.answer(query) == honest.answer(query)
        assert prover.executed_steps == 11


def test_damaged_data_or_journal_is_not_answered_from(
    honest: Party, honest_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(honest_run, run)
    path = run / "job" / "data" / "train.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with Prover(run, honest.key) as prover:
        for query in (q.States((5,)), q.Record(0), q.Nodes(STEP)):
            with pytest.raises(DigestMismatchError, match="train"):
                asked(prover, query)
    journal = RunStore(run).journal_path
    journal.write_bytes(journal.read_bytes()[:-200])  # the end, and the last root
    with pytest.raises(TallystickError, match="journal"):
        Prover(run, honest.key)


@pytest.mark.parametrize("room", ["none", "no files", "read-only"])
def test_without_scratch_states_the_answers_are_the_same(
    room: str, honest: Party, honest_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> str:
        raise PermissionError("read-only")

    if room == "none":
        monkeypatch.setattr(prover_states, "free_bytes", lambda _: 0)
    elif room == "no files":
        monkeypatch.setattr(prover_states, "SCRATCH_FILES", 0)
    else:
        monkeypatch.setattr(files.tempfile, "mkdtemp", refuse)
    with Prover(honest_run, honest.key) as prover:
        for step in (7, 6, 5):
            query = q.encode_query(q.States((step,)))
            assert prover.answer(query) == honest.answer(query)
        assert prover.executed_steps == 3 + 2 + 1


def test_a_step_that_breaks_off_is_unable(game_job: Job, tmp_path: Path) -> None:
    """PROTOCOL 2.8: what refuses to execute gives nothing to say, and an honest answer before."""

    def broken(step: int, state: object) -> None:
        batch_lie.armed = step == STEP and batch_lie.repeating

    class BatchLie(Override):
        armed = repeating = False

        def before(self, step: int, state: object) -> None:
            broken(step, state)

        def batch(self, step: int, batch: dict) -> None:
            if self.armed:
                batch["y"][:] = 99

    batch_lie = BatchLie()
    train_job(game_job, tmp_path / "run", Options(maker=Cheat(batch_lie)))
    batch_lie.repeating = True
    with CheatingProver(tmp_path / "run", override=batch_lie) as prover:
        signer = prover.run.signer
        assert open_answer(asked(prover, q.States((STEP,))), signer).status == 0
        for query in (q.Nodes(STEP), q.States((STEP + 1,)), q.Opening(STEP, MM, 0, (0,))):
            answer = open_answer(asked(prover, query), signer)
            assert (answer.status, answer.body) == (1, b"")
        assert open_answer(asked(prover, q.Nodes(STEP - 1)), signer).status == 0


def wrong_once(
    monkeypatch: pytest.MonkeyPatch, column: str, change: Callable[[Array], Array]
) -> set[int]:
    """Steps whose batch the machine reads wrongly, once for all that the test puts in."""
    real, wrong = Engine.batch, set[int]()

    def batch(self: Engine, step: int) -> dict[str, Array]:
        found = real(self, step)
        if step in wrong:
            wrong.clear()
            found[column] = change(found[column])
        return found

    monkeypatch.setattr(Engine, "batch", batch)
    return wrong


def test_a_machine_that_breaks_off_once_signs_nothing(
    honest: Party, honest_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL 2.8.1: a flipped bit in an index is no step that cannot be executed."""
    wrong = wrong_once(monkeypatch, "y", lambda y: np.full_like(y, 1 << 40))
    for asks in (q.Nodes(STEP), q.States((STEP + 1,))):
        expected = honest.answer(q.encode_query(asks))
        with Prover(honest_run, honest.key) as prover:
            wrong.add(STEP)
            with pytest.raises(MachineFaultError, match="Nothing was signed"):
                asked(prover, asks)
            assert not wrong and asked(prover, asks) == expected


def test_an_operand_that_a_machine_made_otherwise_is_not_opened(
    honest: Party, honest_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PROTOCOL 2.8.1: a step is executed again for a node's operands; they are those stated."""
    wrong = wrong_once(monkeypatch, "x", lambda x: x + np.float32(1))
    for asks in (
        q.Leaf(STEP, ADDMM, q.INPUT, 1, 0),
        q.Leaf(STEP, ADDMM, q.OUTPUT, 0, 0),
        q.Opening(STEP, ADDMM, 1, (0,)),
        q.Leaf(STEP, COMMIT, q.INPUT, 0, 0),
        q.Values(STEP, ADDMM, 0, 0, (), View("needs")),
    ):
        expected = honest.answer(q.encode_query(asks))
        with Prover(honest_run, honest.key) as prover:
            asked(prover, q.Nodes(STEP))
            wrong.add(STEP)
            with pytest.raises(MachineFaultError, match="Nothing was signed"):
                asked(prover, asks)
            assert not wrong and asked(prover, asks) == expected
