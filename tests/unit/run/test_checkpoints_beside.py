"""Checkpoints hashed and stored beside the next step: the same journal, nothing lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from format_two import make_micro_job
from journals import records

from tallystick.commit.tensor import tensor_digest
from tallystick.devices.cpu import CPU
from tallystick.disk import files
from tallystick.disk.snapshot import Snapshot
from tallystick.errors import MismatchError, StorageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.program.state import State
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute import checkpoints
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.fsck import fsck
from tallystick.run.store.journal import SESSION, read_journal
from tallystick.run.store.stored_states import StorePolicy

THREAD = "tallystick-checkpoints"


def _of_thread() -> bool:
    return threading.current_thread().name == THREAD


def _journal(run: Path) -> list[tuple[int, bytes]]:
    return [record for record in records(run / "journal") if record[0] != SESSION]


# --- the journal ----------------------------------------------------------------------------------
@pytest.fixture
def in_line(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, checkpoints are hashed and stored between two steps."""
    return lambda: monkeypatch.setattr(type(CPU), "hashes_beside", False)


def test_the_journal_is_that_of_a_trainer_that_hashes_between_steps(
    mlp_job: Job, logreg_job: Job, tmp_path: Path, in_line: Callable[[], None]
) -> None:
    """Byte for byte but for the sessions, whose ends say how long they took."""
    hashed: list[bool] = []
    kinds = (("mlp", mlp_job), ("logreg", logreg_job), ("micro", make_micro_job(tmp_path / "j", 4)))
    whole: dict[str, list[tuple[int, bytes]]] = {}
    with pytest.MonkeyPatch.context() as patch:
        honest = CPU.digest

        def digest(self: object, tensor: np.ndarray) -> bytes:
            hashed.append(_of_thread())
            return honest(tensor)

        patch.setattr(type(CPU), "digest", digest)
        patch.setattr(checkpoints.StateDigests, "finish", _by_the_thread)
        for name, job in kinds:
            run = train_job(job, tmp_path / name, Options(trace=(2, 4)))
            assert run.finished and fsck(run.directory).clean
            whole[name] = _journal(run.directory)
    assert any(hashed)
    in_line()
    for name, job in kinds:
        run = train_job(job, tmp_path / f"{name}-in-line", Options(trace=(2, 4)))
        assert _journal(run.directory) == whole[name]
        stored = [
            sorted((tmp_path / n / "checkpoints").iterdir()) for n in (name, f"{name}-in-line")
        ]
        assert stored[0][-1].read_bytes() == stored[1][-1].read_bytes()


def _by_the_thread(self: checkpoints.StateDigests) -> dict[str, bytes]:
    """As `finish`, without help: the other thread hashes everything."""
    with self._turn:
        assert self._turn.wait_for(lambda: len(self.found) == len(self._tensors), 20)
    return {name: self.found[name] for name in self._tensors}


RECIPES = {
    "resnet50": {"size": "tiny", "width": "4", "image": "16", "batch_size": "2", "records": "16"},
    "mlp": {"features": "4", "classes": "2", "records": "16", "hidden": "4", "batch_size": "4",
            "optimizer": "adamw", "clip_norm": "1.0"},
}  # fmt: skip


@pytest.mark.parametrize("recipe", [*RECIPES, "micro"])
def test_nothing_of_the_state_changes_before_the_engine_says_so(
    recipe: str, tmp_path: Path
) -> None:
    if recipe == "micro":
        job = make_micro_job(tmp_path / "job", 4)
    else:
        job = new_job(
            recipe, tmp_path / "job", RECIPES[recipe], steps=3, checkpoint_interval=1,
            evaluate_every=0,
        )  # fmt: skip
    engine = Engine(job, job.genesis())
    called: list[bytes] = []
    engine.before_write = lambda: called.append(engine.state.root())
    for traced in (False, False, True):
        before = engine.state.root()
        engine.run(traced)
        assert called == [before] and engine.state.root() != before
        called.clear()


# --- two under way, and faults --------------------------------------------------------------------
class Gate(files.OsCalls):  # type: ignore[misc]
    """The thread's writes wait until `opened`; the n-th may fail."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.fails: Exception | None = None

    def write(self, descriptor: int, data: memoryview) -> int:  # type: ignore[override]
        if _of_thread():
            assert self.opened.wait(20)
            if self.fails is not None:
                raise self.fails
        return super().write(descriptor, data)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(files, "OS", made)
    yield made
    made.opened.set()


class Opening(Override):
    """An honest run that notes what the directory holds before step `step`, and opens the gate."""

    def __init__(self, step: int, look: Callable[[], None]) -> None:
        self.step, self.look = step, look

    def before(self, step: int, state: State) -> None:
        if step == self.step:
            self.look()


def _wide_job(path: Path, steps: int = 12, interval: int = 2) -> Job:
    pairs = {"features": "8", "classes": "3", "records": "64", "hidden": "32", "batch_size": "8"}
    return new_job("mlp", path, pairs, steps=steps, checkpoint_interval=interval, evaluate_every=0)


def test_steps_and_checkpoints_go_on_while_a_file_is_written(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not written is copied; the next checkpoint is hashed by the steps' own thread."""
    monkeypatch.setattr(checkpoints, "spare_memory", lambda: 1 << 30)
    monkeypatch.setattr(StorePolicy, "worth", lambda _: False)
    out, seen = tmp_path / "run", []
    job = _wide_job(tmp_path / "job")
    stored = out / "checkpoints"

    def look() -> None:
        seen.append(sorted(p.name for p in stored.iterdir()))
        assert [s for s, _ in read_journal(out / "journal").checkpoints] == [0, 2, 4]
        gate.opened.set()

    # The first state of keep=3 is stored at step 4, none at 6.
    run = train_job(job, out, Options(keep=3, maker=Cheat(Opening(5, look))))
    assert seen == [["step-00000004.safetensors.part"]] or seen == [[]]
    assert "step-00000004.safetensors" in {p.name for p in stored.iterdir()}
    assert run.finished and fsck(out).clean
    assert run.run_root == train_job(job, tmp_path / "plain").run_root


def test_without_memory_for_a_copy_the_step_waits(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "spare_memory", lambda: 0)
    job = _wide_job(tmp_path / "job")
    timer = threading.Timer(0.3, gate.opened.set)
    timer.start()
    run = train_job(job, tmp_path / "run", Options(keep=3))
    timer.join()
    assert run.finished and fsck(tmp_path / "run").clean


def test_a_disk_that_fills_beside_the_steps_is_told_and_the_same_command_goes_on(
    tmp_path: Path, gate: Gate
) -> None:
    job = _wide_job(tmp_path / "job")
    gate.fails = OSError(28, "No space left on device")
    gate.opened.set()
    with pytest.raises(StorageError, match="disk is full"):
        train_job(job, tmp_path / "run", Options(keep=3))
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert fsck(tmp_path / "run").clean
    gate.fails = None
    assert train_job(job, tmp_path / "run", Options(keep=3)).finished


def test_a_fault_of_hashing_is_raised_by_the_next_step(
    mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = CPU.digest

    def digest(self: object, tensor: np.ndarray) -> bytes:
        if _of_thread():
            raise MemoryError
        return honest(tensor)

    with monkeypatch.context() as patch:
        patch.setattr(type(CPU), "digest", digest)
        # The steps' own thread takes nothing here, so that the other one surely does.
        patch.setattr(checkpoints.StateDigests, "finish", _waiting)
        with pytest.raises(MemoryError):
            train_job(mlp_job, tmp_path / "run")
    assert threading.active_count() == len([t for t in threading.enumerate() if t.name != THREAD])
    assert train_job(mlp_job, tmp_path / "run").finished


def _waiting(self: checkpoints.StateDigests) -> dict[str, bytes]:
    with self._turn:
        self._turn.wait_for(lambda: self.error is not None)
    assert self.error is not None
    raise self.error


def test_an_error_of_a_step_loses_no_checkpoint_before_it(
    mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step after checkpoint 5 fails before it calls `before_write`."""
    honest = Engine.run

    def run(self: Engine, trace: bool = False) -> object:
        if self.step == 5:
            raise OSError("broken")
        return honest(self, trace)

    monkeypatch.setattr(Engine, "run", run)
    with pytest.raises(OSError, match="broken"):
        train_job(mlp_job, tmp_path / "run", Options(keep=3))
    assert [s for s, _ in read_journal(tmp_path / "run" / "journal").checkpoints] == [0, 5]
    assert [p.name for p in (tmp_path / "run" / "checkpoints").iterdir()] == [
        "step-00000005.safetensors"
    ]


def test_another_root_after_a_restart_is_named_with_its_interval(
    mlp_job: Job, tmp_path: Path
) -> None:
    """The bit that flips changes no loss before the checkpoint, only its root."""
    out = tmp_path / "run"
    train_job(mlp_job, out, Options(stop_before=9))
    for path in (out / "checkpoints").iterdir():
        path.unlink()

    class Flip(Override):
        def after(self, step: int, state: State) -> None:
            if step == 4:
                state.slots["param.0.weight"].view("u4").reshape(-1)[0] ^= 1

    with pytest.raises(MismatchError, match="Repeating steps 0 to 5"):
        train_job(mlp_job, out, Options(maker=Cheat(Flip())))


def test_a_thread_that_is_late_is_not_waited_for(
    mlp_job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps' thread hashes what nobody has begun."""
    began = threading.Event()

    def late(self: checkpoints.PendingCheckpoint) -> None:
        began.wait(20)
        honest(self)

    honest = checkpoints.PendingCheckpoint.run
    monkeypatch.setattr(checkpoints.PendingCheckpoint, "run", late)
    opened = Opening(8, began.set)
    run = train_job(mlp_job, tmp_path / "run", Options(keep=1, maker=Cheat(opened)))
    assert run.run_root == train_job(mlp_job, tmp_path / "plain").run_root


# --- a snapshot -----------------------------------------------------------------------------------
def _tensors() -> dict[str, np.ndarray]:
    big = np.arange(5 << 20, dtype=np.float32)  # 20 MiB: three pieces
    return {"big": big, "empty": np.zeros((0, 3), np.float32), "small": np.arange(7)}


@pytest.mark.parametrize("taken", range(5))
def test_a_detached_snapshot_has_the_values_of_before(taken: int) -> None:
    tensors = _tensors()
    names = ["small", "empty", "big"]
    expected = b"".join(tensors[n].tobytes() for n in names)
    snapshot = Snapshot(tensors)
    pieces, found = snapshot.pieces(names), b""
    for _ in range(taken):
        found += next(pieces).tobytes()
    if taken:  # the piece in hand is given back when the next is asked for, here by hand
        snapshot._reading = False
    snapshot.detach(lambda _: True)
    for tensor in tensors.values():
        tensor[...] = 0
    assert found + b"".join(piece.tobytes() for piece in pieces) == expected
    assert snapshot.left == 0


def test_a_snapshot_that_may_not_copy_waits_for_its_reader() -> None:
    tensors, found = _tensors(), []
    snapshot = Snapshot(tensors)
    begun = threading.Event()

    def read() -> None:
        for piece in snapshot.pieces(list(tensors)):
            begun.set()
            found.append(piece.tobytes())

    reader = threading.Thread(target=read)
    expected = b"".join(tensor.tobytes() for tensor in tensors.values())
    reader.start()
    assert begun.wait(20)
    snapshot.detach(lambda _: False)
    assert snapshot.left == 0
    tensors["big"][...] = 0
    reader.join()
    assert b"".join(found) == expected


def test_a_reader_that_stops_early_keeps_nobody_waiting() -> None:
    tensors = _tensors()
    snapshot = Snapshot(tensors)
    next(snapshot.pieces(["big"]))
    snapshot.forget()
    snapshot.detach(lambda _: False)
    assert tensor_digest(tensors["small"])
