"""A store that fails is no missing file: nobody executes for hours because of it, or is blamed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'tallystick[objects]'")

from unit.objects.stores import ADDRESS, filled
from unit.run.replay_tools import replay_job

from tallystick.disk.objects.opening import opened_objects
from tallystick.disk.objects.store import Found, Objects
from tallystick.errors import CannotCheckError, StoreError
from tallystick.protocol import queries as q
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.summary import RunSummary
from tallystick.run.store.fsck import fsck


class Failing(Objects):
    """Gives none of the objects whose names begin with `away`: retries end with 503."""

    def __init__(self, directory: Path) -> None:
        super().__init__(ADDRESS, filled(directory)._store)
        self.away: tuple[str, ...] = ()
        self.asked: list[str] = []

    def read(self, name: str, start: int, stop: int, expected: Found) -> memoryview:
        if name.startswith(self.away):
            self.asked.append(name)
            raise StoreError("The store failed to read it: 503.", "Check the network.")
        return super().read(name, start, stop, expected)


@pytest.fixture
def run(whole_run: RunSummary, copied: Callable[[Path], Path]) -> Path:
    """12 steps; states after steps 5, 10 and 12."""
    return copied(whole_run.directory)


@contextmanager
def _prover(store: Failing, key: Path, notices: list[str]) -> Iterator[Prover]:
    from tallystick.disk.keys import load_private_key

    with (
        opened_objects(store) as directory,
        Prover(directory, load_private_key(key), notice=notices.append) as made,
    ):
        yield made


def test_a_prover_executes_nothing_for_a_state_that_is_out_of_reach(run: Path) -> None:
    store, notices = Failing(run), list[str]()
    query = q.encode_query(q.States((11,)))
    with Prover(run) as local:
        wanted = local.answer(query)
    store.away = ("checkpoints/",)
    with _prover(store, run / "signer.pem", notices) as prover:
        for _ in range(2):
            with pytest.raises(StoreError, match="503") as caught:
                prover.answer(query)
            assert "Check the network." in caught.value.next_action
            assert "copy of the run without that file" in caught.value.next_action
        assert prover.executed_steps == 0 and not notices
        store.away = ()
        assert prover.answer(query) == wanted
        assert prover.executed_steps == 1  # from the stored state of step 10
    assert store.asked == ["checkpoints/step-00000010.safetensors"] * 2


def test_a_prover_needs_the_journal_and_does_not_train_again_for_it(run: Path) -> None:
    store, notices = Failing(run), list[str]()
    store.away = ("journal",)
    with (
        pytest.raises(StoreError, match="503"),
        _prover(store, run / "signer.pem", notices),
    ):
        pytest.fail("there is no prover")
    assert not notices
    (run / "journal").unlink()  # one that is missing is another matter
    with Prover(run, notice=notices.append) as prover:
        assert prover.executed_steps == 12


def test_a_damaged_state_is_executed_again_as_before(run: Path) -> None:
    path = run / "checkpoints" / "step-00000010.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    notices = list[str]()
    with _prover(Failing(run), run / "signer.pem", notices) as prover:
        prover.answer(q.encode_query(q.States((11,))))
        assert prover.executed_steps == 6
    assert "executed again" in notices[0]


def test_a_game_against_a_store_that_is_away_has_no_verdict(run: Path, tmp_path: Path) -> None:
    """Another run of the same job: the parties disagree, and the honest one's store is away."""
    from tallystick.run.cheats.training import declared_cheat
    from tallystick.run.store.directory import RunStore
    from tallystick.run.store.unsigned import Declaration

    job, store = RunStore(run).job(), Failing(run)
    cheat = declared_cheat(job, Declaration("wrong-learning-rate", {}))
    train_job(job, tmp_path / "bad", Options(keep=6, maker=cheat))
    faults: list[tuple[int, str]] = []
    with ExitStack() as stack:
        honest = stack.enter_context(_prover(store, run / "signer.pem", []))
        bad = stack.enter_context(Prover(tmp_path / "bad"))

        def fault(party: int, why: str) -> None:
            faults.append((party, why))

        store.away = ("job/data", "checkpoints/")
        with pytest.raises(CannotCheckError) as caught:
            play(job.terms, (honest, bad), on_fault=fault)
        assert caught.value.next_action.startswith("No party is convicted by that. Check the net")
        assert [party for party, _ in faults] == [0, 0, 0] and "503" in faults[0][1]
        store.away = ()
        verdict = play(job.terms, (honest, bad)).verdict
        assert [c.party for c in verdict.convicted] == [1]


def test_a_followed_log_that_is_out_of_reach_is_no_finding(tmp_path: Path) -> None:
    job = replay_job(tmp_path / "job", steps=4, interval=2)
    first = train_job(job, tmp_path / "first")
    store = Failing(tmp_path / "first")
    with opened_objects(store) as directory:
        store.away = ("logs/0000000002",)
        with pytest.raises(StoreError, match="503"):
            train_job(job, tmp_path / "own", Options(replay=directory))
        store.away = ()
        made = train_job(job, tmp_path / "own", Options(replay=directory))
    assert made.followed is not None and made.followed.accepted
    assert made.run_root == first.run_root


def test_fsck_of_a_store_that_fails_midway_lists_nothing(run: Path) -> None:
    store = Failing(run)
    for name in ("run.json", "job/program.txt", "commitment.json", "checkpoints/"):
        store.away = (name,)
        with opened_objects(store) as directory, pytest.raises(StoreError, match="503"):
            fsck(directory)
    shutil.rmtree(run)
