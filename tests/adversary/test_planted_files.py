"""Files that nobody signed, planted in or taken from an honest run's directory: it answers as
before, or not at all, and is never convicted (P2, PROTOCOL 1.4)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from journals import rewrite, with_log, with_loss, with_pause, with_root
from unit.run.replay_tools import replay_job

from tallystick.commit.encoding import canonical_json
from tallystick.errors import TallystickError, UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.state import State
from tallystick.protocol import queries as q
from tallystick.prover.cheating import party_of
from tallystick.prover.local import play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.attacks import attack_names, load_attack
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.unsigned import Declaration

STEPS, INTERVAL = 12, 4
CHEAT = Declaration("lie-output", {"step": 6})


@dataclass
class World:
    """A job, an honest run of it and a cheat."""

    job: Job
    honest: Path
    cheat: Path


def _world(job: Job, directory: Path) -> World:
    train_job(job, directory / "honest", Options(keep=3))
    train_job(job, directory / "cheat", Options(maker=declared_cheat(job, CHEAT)))
    return World(job, directory / "honest", directory / "cheat")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("planted")
    pairs = {"records": "60", "batch_size": "4", "hidden": "8", "dropout": "0.1"}
    job = new_job(
        "mlp", directory / "job", pairs, steps=STEPS, checkpoint_interval=INTERVAL, evaluate_every=0
    )
    return _world(job, directory)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp("planted-logs")
    job = replay_job(directory / "job", steps=STEPS, interval=INTERVAL)
    train_job(job, directory / "honest", Options(keep=3))
    train_job(job, directory / "follower", Options(replay=directory / "honest"))
    return World(job, directory / "honest", directory / "follower")


def _queries(job: Job, logs: bool) -> Iterator[q.Query]:
    yield q.Checkpoints(tuple(range(1 + -(-job.steps // job.interval))))
    yield q.States((5, 6, 7))
    for step in (0, 5, 6, STEPS - 1):
        yield q.Loss(step)
    yield q.Nodes(6)
    yield q.Slot(6, "chain.loss")
    if logs:
        yield q.Log(6)


def _answers(world: World, run: Path, logs: bool = False) -> list[bytes]:
    with Prover(run) as prover:
        return [prover.answer(q.encode_query(query)) for query in _queries(world.job, logs)]


def _planted(world: World, out: Path, change: Callable[[RunStore], object]) -> Path:
    shutil.copytree(world.honest, out)
    change(RunStore(out))
    return out


def _convicted(world: World, run: Path) -> list[int]:
    """Who is convicted in the game of the honest run (party 0) against the cheat."""
    with Prover(run) as good, party_of(world.cheat, as_attack=True) as bad:
        played = play(world.job.terms, [good, bad])
    return [conviction.party for conviction in played.verdict.convicted]


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", attack_names())
def test_a_planted_declaration_is_a_stranger(name: str, world: World, tmp_path: Path) -> None:
    """Whoever may write to the directory does not thereby sign: 19 of 28 once convicted it."""
    try:
        load_attack(name).make(world.job, {})
    except UsageError:
        pytest.skip(f"{name} has nothing to do in a job without logs")

    def plant(store: RunStore) -> None:
        store.override_path.write_bytes(Declaration(name).to_bytes())

    run = _planted(world, tmp_path / "run", plant)
    assert _answers(world, run) == _answers(world, world.honest)
    assert _convicted(world, run) == [1]


def test_fsck_and_audit_name_a_declaration(world: World, tmp_path: Path) -> None:
    def plant(store: RunStore) -> None:
        store.override_path.write_bytes(canonical_json({"attack": "silent", "params": {}}))
        (store.checkpoints_path / "notes.txt").write_text("mine")
        shutil.copy(store.checkpoint_path(STEPS), store.checkpoint_path(7))  # at no checkpoint
        (store.nodes_path / "step-00000099.bin").write_bytes(b"of no step")

    run = _planted(world, tmp_path / "run", plant)
    named = {problem.path for problem in fsck(run).problems}
    foreign = {"checkpoints/step-00000007.safetensors", "nodes/step-00000099.bin"}
    assert named == {"override.json", "checkpoints/notes.txt", *foreign}
    report = audit_run(run)
    assert report.accepted
    for name in named:
        assert any(name in notice for notice in report.notices), report.notices


# --- what the signed roots do not cover -----------------------------------------------------------
def _falsify_pause(store: RunStore) -> None:
    """A state of step 6 that no step made, and a journal that knows its root."""
    job = store.job()
    genesis = job.genesis()
    false = State(genesis.slots, genesis.loss_chain, genesis.log_chain)
    store.store_state(6, false)
    rewrite(store.journal_path, with_pause(6, false.root()))


def _falsify_state(store: RunStore) -> None:
    """A stored state that has not the root, and one that is no state."""
    stored = store.stored_steps()
    store.checkpoint_path(stored[0]).write_bytes(store.checkpoint_path(stored[-1]).read_bytes())
    store.checkpoint_path(stored[-1]).write_bytes(b"nothing")


CHANGES: dict[str, Callable[[RunStore], object]] = {
    "pause": _falsify_pause,
    "states": _falsify_state,
    "loss": lambda s: rewrite(s.journal_path, with_loss(5, 0x3F800000)),
    "first loss": lambda s: rewrite(s.journal_path, with_loss(0, 0x3F800000)),
    "last loss": lambda s: rewrite(s.journal_path, with_loss(STEPS - 1, 0x7F800000)),
    "root": lambda s: rewrite(s.journal_path, with_root(8, bytes(32))),
    "torn journal": lambda s: s.journal_path.write_bytes(s.journal_path.read_bytes()[:300]),
    "no journal": lambda s: s.journal_path.unlink(),
    "foreign journal": lambda s: s.journal_path.write_bytes(b"nothing of it"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_damage_costs_execution_and_not_the_game(name: str, world: World, tmp_path: Path) -> None:
    run = _planted(world, tmp_path / "run", CHANGES[name])
    assert _answers(world, run) == _answers(world, world.honest)
    assert _convicted(world, run) == [1]
    assert not list(run.glob("scratch-*"))


def test_what_is_not_used_is_named(world: World, tmp_path: Path) -> None:
    told: list[str] = []
    run = _planted(world, tmp_path / "run", CHANGES["states"])
    with Prover(run, notice=told.append) as prover:
        prover.answer(q.encode_query(q.States((5, 6))))
    assert any("step-" in text or "step " in text for text in told), told
    told.clear()
    run = _planted(world, tmp_path / "other", CHANGES["root"])
    with Prover(run, notice=told.append):
        assert any("journal" in text and "signed run root" in text for text in told), told


def test_a_state_that_changes_after_it_was_read(world: World, tmp_path: Path) -> None:
    """It is hashed each time: a disk that rots in the middle of a game convicts nobody."""
    run = _planted(world, tmp_path / "run", lambda _: None)
    store = RunStore(run)
    queries = [q.States((5,)), q.Nodes(9), q.States((6,)), q.Nodes(5)]
    with Prover(world.honest) as prover:
        wanted = [prover.answer(q.encode_query(query)) for query in queries]
    with Prover(run) as prover:
        said = [prover.answer(q.encode_query(query)) for query in queries[:2]]
        for step in store.stored_steps():
            path = store.checkpoint_path(step)
            data = bytearray(path.read_bytes())
            data[-40] ^= 1
            path.write_bytes(data)
        for path in run.glob("scratch-*/*"):
            data = bytearray(path.read_bytes())
            data[-40] ^= 1
            path.write_bytes(data)
        said += [prover.answer(q.encode_query(query)) for query in queries[2:]]
    assert said == wanted


# --- logs -----------------------------------------------------------------------------------------
def test_log_digests_are_those_of_the_chain(logged: World, tmp_path: Path) -> None:
    """A journal with another digest, and with it no file: the files' own digests fit the chain."""

    def change(store: RunStore) -> None:
        rewrite(store.journal_path, with_log(5, bytes(32)))

    run = _planted(logged, tmp_path / "run", change)
    assert _answers(logged, run, True) == _answers(logged, logged.honest, True)


def test_a_swapped_log_is_never_signed(logged: World, tmp_path: Path) -> None:
    """Another run's log with the journal made to fit: the chain does not."""
    other = tmp_path / "other"
    job = replace(logged.job)
    train_job(job, other, Options())

    def change(store: RunStore) -> None:
        path = store.log_path(5)
        path.write_bytes(path.read_bytes()[:-100] + bytes(100))
        rewrite(store.journal_path, with_log(5, bytes(32)))

    run = _planted(logged, tmp_path / "run", change)
    with pytest.raises(TallystickError):
        _answers(logged, run, True)
