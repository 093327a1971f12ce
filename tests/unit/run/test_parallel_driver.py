"""What becomes of an audit in parallel whose workers die, fail, are slow or disagree, and how an
audit that was broken off is taken up again."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from parallel_audits import Inline, found

from tallystick.disk.manifest import load_manifest, manifest_bytes
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    MachineFaultError,
    StorageError,
    TallystickError,
    UsageError,
)
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.parallel import audit as parallel
from tallystick.run.parallel.audit import ParallelOptions, audit_in_parallel
from tallystick.run.parallel.driver import ATTEMPTS, AuditDriver, Watcher
from tallystick.run.parallel.processes import AttemptEnded, AttemptProgress, Died, Event, Processes
from tallystick.run.parallel.task import Segment, Task, error_json, error_of, makespan
from tallystick.run.show.audit_report import Difference, StretchOutcome, outcome_of

SEGMENTS = [Segment(10 * i, 10 * i + 10) for i in range(6)]


def outcome(segment: Segment, **members: Any) -> StretchOutcome:
    return StretchOutcome(
        segment.first, segment.last, 1, segment.steps, 1, "scalar", 1, 1.0, **members
    )


def differs(segment: Segment) -> StretchOutcome:
    difference = Difference("state", (segment.first, segment.last), "They differ.")
    return outcome(segment, difference=difference)


def ended(
    number: int, given: StretchOutcome | TallystickError, where: str = "there"
) -> AttemptEnded:
    if isinstance(given, TallystickError):
        return AttemptEnded(number, {"error": error_json(given)}, where)
    return AttemptEnded(number, json.loads(json.dumps({"outcome": given.as_json()})), where)


@dataclass
class Scripted:
    """Workers that do what `act` says when an attempt has been begun: (attempt, segment, how many
    times this segment was begun before) to an event, or None for nothing yet."""

    act: Callable[[int, Segment, int], Event | None]
    workers: int = 2
    kind: str = "processes"
    begun: list[Segment] = field(default_factory=list)
    live: dict[int, Segment] = field(default_factory=dict)
    most: int = 0
    now: float = 0.0
    queued: list[Event] = field(default_factory=list)
    stopped: list[Segment] = field(default_factory=list)

    def start(self, attempt: int, segment: Segment) -> None:
        self.live[attempt] = segment
        self.most = max(self.most, len(self.live))
        event = self.act(attempt, segment, self.begun.count(segment))
        self.begun.append(segment)
        if event is not None:
            self.queued.append(event)

    def events(self, timeout: float) -> list[Event]:
        self.now += 1.0
        assert self.now < 1000, "the driver waits for nothing"
        given, self.queued = self.queued[:1], self.queued[1:]
        for event in given:
            if not isinstance(event, AttemptProgress):
                self.live.pop(event.attempt, None)
        return given

    def stop(self, attempt: int) -> None:
        self.stopped.append(self.live.pop(attempt))

    def close(self) -> None:
        self.live = {}


class Notes(Watcher):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def notice(self, text: str) -> None:
        self.notes.append(text)


def driven(
    act: Callable[[int, Segment, int], Event | None], workers: int = 2
) -> tuple[list[StretchOutcome | TallystickError], AuditDriver, Scripted, list[str]]:
    executor, watcher = Scripted(act, workers), Notes()
    driver = AuditDriver(executor, SEGMENTS, watcher, clock=lambda: executor.now)
    return driver.run(), driver, executor, watcher.notes


def agrees(number: int, segment: Segment, _: int) -> Event:
    return ended(number, outcome(segment))


def test_all_agree() -> None:
    results, driver, executor, notes = driven(agrees)
    assert results == [outcome(s) for s in SEGMENTS]
    assert sorted(executor.begun) == SEGMENTS and not notes and not driver.retries


def test_the_longest_go_first() -> None:
    lengths = [3, 9, 1, 7]
    segments, at = [], 0
    for length in lengths:
        segments.append(Segment(at, at + length))
        at += length
    executor = Scripted(agrees)
    AuditDriver(executor, segments).run()
    assert [s.steps for s in executor.begun] == [9, 7, 3, 1]
    assert makespan(segments, 2) == 10 and makespan(segments, 9) == 9
    assert makespan(segments, 1) == 20


@pytest.mark.parametrize("bad", range(6))
def test_the_first_difference_decides_whenever_it_arrives(bad: int) -> None:
    """All from `bad` on differ; the later ones are found first."""

    def act(number: int, segment: Segment, _: int) -> Event:
        index = SEGMENTS.index(segment)
        return ended(number, outcome(segment) if index < bad else differs(segment))

    executor = Scripted(act, workers=6)
    executor_events = executor.events

    def last_first(timeout: float) -> list[Event]:
        executor.queued.sort(key=lambda e: -e.attempt)
        return executor_events(timeout)

    executor.events = last_first  # type: ignore[method-assign]
    results = AuditDriver(executor, SEGMENTS).run()
    assert len(results) == bad + 1
    assert results[-1] == differs(SEGMENTS[bad])


def test_no_later_segment_is_begun_after_a_difference() -> None:
    def act(number: int, segment: Segment, _: int) -> Event:
        return ended(number, differs(segment) if segment == SEGMENTS[1] else outcome(segment))

    results, _, executor, _ = driven(act, workers=1)
    assert len(results) == 2 and executor.begun == SEGMENTS[:2]


def test_an_error_decides_in_its_place_as_in_a_serial_audit() -> None:
    fault = StorageError("It cannot be read.", "Look.")

    def act(number: int, segment: Segment, _: int) -> Event:
        if segment == SEGMENTS[2]:
            return ended(number, fault)
        return ended(number, differs(segment) if segment == SEGMENTS[4] else outcome(segment))

    results, *_ = driven(act, workers=6)
    assert len(results) == 3 and isinstance(results[2], StorageError)
    assert str(results[2]) == str(fault) and results[2].exit_code == 2


@pytest.mark.parametrize("memory", [False, True])
def test_a_dead_worker_is_no_mismatch(memory: bool) -> None:
    def act(number: int, segment: Segment, before: int) -> Event:
        if segment == SEGMENTS[3] and before < ATTEMPTS - 1:
            return Died(number, "signal 9", memory)
        return ended(number, outcome(segment))

    results, driver, _, notes = driven(act)
    assert results == [outcome(s) for s in SEGMENTS]
    assert driver.retries == ATTEMPTS - 1
    assert len(notes) == 2 and "Steps 30:40: a worker died (signal 9)" in notes[0]
    assert ("with 1 workers" in notes[0]) == memory, "less beside it, where memory may be short"


@pytest.mark.parametrize("how", ["died", "fault"])
def test_a_worker_that_always_fails_ends_in_a_machine_fault(how: str) -> None:
    def act(number: int, segment: Segment, before: int) -> Event:
        if segment != SEGMENTS[3]:
            return ended(number, outcome(segment))
        if how == "died":
            return Died(number, "signal 9", True)
        return ended(number, MachineFaultError("There is not enough memory.", "Use less."))

    results, _, executor, _ = driven(act)
    assert executor.begun.count(SEGMENTS[3]) == ATTEMPTS
    assert isinstance(results[-1], MachineFaultError) and results[-1].exit_code == 2
    assert len(results) == 4 and "says nothing about the run" in results[-1].message


def test_a_bug_is_no_verdict() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        driven(lambda number, *_: AttemptEnded(number, {"bug": "ZeroDivisionError"}, "there"))


def test_a_straggler_is_repeated_by_an_idle_worker() -> None:
    """Segment 5 gets nowhere with its first worker; the second one's result counts."""

    def act(number: int, segment: Segment, before: int) -> Event | None:
        if segment == SEGMENTS[5] and before == 0:
            return AttemptProgress(number, 1)
        return ended(number, outcome(segment))

    results, driver, executor, notes = driven(act)
    assert results == [outcome(s) for s in SEGMENTS]
    assert driver.stragglers == 1 and executor.begun.count(SEGMENTS[5]) == 2
    assert "another worker repeats them too" in notes[0]
    assert not driver.retries


def test_one_that_waits_for_its_turn_is_no_straggler() -> None:
    """As on a cluster that has lost a node: a second attempt would wait as long."""
    waiting: list[int] = []

    def act(number: int, segment: Segment, _: int) -> Event | None:
        if segment == SEGMENTS[5]:
            waiting.append(number)
            return None
        return ended(number, outcome(segment))

    executor = Scripted(act)
    events = executor.events

    def in_the_end(timeout: float) -> list[Event]:
        if executor.now > 100 and waiting:
            executor.queued.append(ended(waiting.pop(), outcome(SEGMENTS[5])))
        return events(timeout)

    executor.events = in_the_end  # type: ignore[method-assign]
    driver = AuditDriver(executor, SEGMENTS, clock=lambda: executor.now)
    assert driver.run() == [outcome(s) for s in SEGMENTS] and not driver.stragglers


def test_one_that_is_as_fast_as_the_others_is_no_straggler() -> None:
    """Six workers begin at once and each result takes a tick longer: nobody is slow."""
    _, driver, executor, _ = driven(agrees, workers=6)
    assert not driver.stragglers and sorted(executor.begun) == SEGMENTS


@pytest.mark.parametrize("same", [True, False])
def test_two_results_of_one_segment_must_agree(same: bool) -> None:
    first = {}

    def act(number: int, segment: Segment, before: int) -> Event | None:
        if segment == SEGMENTS[0] and before == 0:
            first[segment] = number  # slow, and no straggler yet
            return AttemptProgress(number, 0)
        if segment == SEGMENTS[0]:
            executor.queued.append(ended(number, outcome(segment), "machine 2"))
            other = replace(outcome(segment), isa="avx2", seconds=3.0)
            late = other if same else differs(segment)
            executor.queued.append(ended(first[segment], late, "machine 1"))
            return None
        if segment == SEGMENTS[5]:
            # Keeps the audit under way until both have answered.
            return ended(number, outcome(segment)) if before else AttemptProgress(number, 0)
        return ended(number, outcome(segment))

    executor = Scripted(act, workers=3)
    driver = AuditDriver(executor, SEGMENTS, Notes(), clock=lambda: executor.now)
    if same:
        assert driver.run() == [outcome(s) for s in SEGMENTS]
        return
    with pytest.raises(MachineFaultError, match="machine 2 and by machine 1") as caught:
        driver.run()
    assert "the run was not judged" in caught.value.message


def test_outcomes_and_errors_survive_the_way() -> None:
    found_entries = [{"kind": "forged entry", "step": 3, "node": None, "detail": "ü"}]
    for one in (
        differs(SEGMENTS[1]),
        outcome(SEGMENTS[0], choices=(7, 2), findings=found_entries, unnamed=4),
    ):
        assert outcome_of(json.loads(json.dumps(one.as_json()))) == one
    fault = error_of(json.loads(json.dumps(error_json(DigestMismatchError("a", "b")))))
    assert type(fault) is DigestMismatchError and (fault.message, fault.next_action) == ("a", "b")
    assert type(error_of({"kind": "Foreign", "message": "a", "next_action": ""})).exit_code == 2


# ---- real workers -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def run(mlp_job: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An honest run of 3 segments. Never change it: copy it."""
    out = tmp_path_factory.mktemp("driver-run") / "run"
    train_job(mlp_job, out, Options(keep=100))
    return out


def test_a_killed_process_is_made_again(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = []

    class Killing(Processes):
        def events(self, timeout: float) -> list[Event]:
            if not killed:
                killed.extend(self.pids())
                os.kill(killed[0], signal.SIGKILL)
            return super().events(timeout)

    monkeypatch.setattr(parallel, "Processes", Killing)
    notes: list[str] = []
    listener = Silent()
    listener.notice = notes.append  # type: ignore[method-assign]
    options = ParallelOptions(workers=1, threads=1)
    report = audit_in_parallel(run, options=options, listener=listener)
    assert found(report) == found(audit_run(run))
    assert report.segments is not None and report.segments.retries == 1
    assert any("signal 9" in note for note in notes)


def test_a_process_that_cannot_begin_says_why(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TALLYSTICK_ISA", "nonsense")
    with pytest.raises(TallystickError) as caught:
        audit_in_parallel(run, options=ParallelOptions(workers=1, threads=1))
    assert caught.value.exit_code == 2 and "nonsense" in caught.value.message


# ---- taken up again -----------------------------------------------------------------------------
class Broken(Inline):
    """Dies, as the auditor's process may, when one segment is done."""

    def __init__(self, task: Task, workers: int) -> None:
        super().__init__(task, 1)
        self.done = 0

    def events(self, timeout: float) -> list[Event]:
        self.done += 1
        if self.done > 1:
            raise KeyboardInterrupt
        return super().events(timeout)


OPTIONS = ParallelOptions(workers=1, threads=1)


def broken_off(run: Path, state: Path, **members: Any) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parallel, "Processes", Broken)
        with pytest.raises(KeyboardInterrupt):
            audit_in_parallel(run, options=replace(OPTIONS, state=state, **members))


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "Processes", Inline)


@pytest.mark.usefixtures("_inline")
def test_finished_segments_are_not_repeated(run: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    broken_off(run, state)
    kept = sorted(p.name for p in state.iterdir())
    assert kept == ["audit.json", "lock", "segment-0-5.json"]
    assert state.stat().st_mode & 0o777 == 0o700
    report = audit_in_parallel(run, options=replace(OPTIONS, state=state))
    assert found(report) == found(audit_run(run))
    assert report.segments is not None and report.segments.resumed == 1
    assert [p.name for p in state.iterdir()] == ["lock"], "a verdict ends the state"
    again = audit_in_parallel(run, options=replace(OPTIONS, state=state))
    assert again.segments is not None and again.segments.resumed == 0


@pytest.mark.usefixtures("_inline")
def test_a_sample_that_is_taken_up_has_its_secret(run: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    broken_off(run, state, sample=2)
    secret = load_manifest(state / "audit.json", "state", "tallystick-audit/1")["secret"]
    with pytest.raises(UsageError, match="another sample"):
        audit_in_parallel(run, options=replace(OPTIONS, state=state))
    with pytest.raises(UsageError, match="another"):
        changed = replace(OPTIONS, state=state, sample=2, secret=bytes(32))
        audit_in_parallel(run, options=changed)
    report = audit_in_parallel(run, options=replace(OPTIONS, state=state, sample=2))
    assert report.secret == secret
    assert report.segments is not None and report.segments.resumed == 1


def _as_another_run(state: Path) -> None:
    body = load_manifest(state / "audit.json", "state", "tallystick-audit/1")
    (state / "audit.json").write_bytes(manifest_bytes({**body, "binding": "00" * 32}))


def _other_segments(state: Path) -> None:
    body = load_manifest(state / "audit.json", "state", "tallystick-audit/1")
    (state / "audit.json").write_bytes(manifest_bytes({**body, "segments": [[0, 12]]}))


def _manifest_byte(state: Path) -> None:
    data = bytearray((state / "audit.json").read_bytes())
    data[30] ^= 1
    (state / "audit.json").write_bytes(data)


def _entry_byte(state: Path) -> None:
    data = bytearray((state / "segment-0-5.json").read_bytes())
    data[60] ^= 1
    (state / "segment-0-5.json").write_bytes(data)


def _entry_of_another_audit(state: Path) -> None:
    body = load_manifest(state / "segment-0-5.json", "state", "tallystick-audit-segment/1")
    (state / "segment-0-5.json").write_bytes(manifest_bytes({**body, "binding": "00" * 32}))


def _entry_of_another_segment(state: Path) -> None:
    shutil.copy(state / "segment-0-5.json", state / "segment-5-10.json")


def _entry_that_differs(state: Path) -> None:
    body: Any = load_manifest(state / "segment-0-5.json", "state", "tallystick-audit-segment/1")
    body["outcome"]["difference"] = differs(Segment(0, 5)).as_json()["difference"]
    (state / "segment-0-5.json").write_bytes(manifest_bytes(body))


def _stranger(state: Path) -> None:
    (state / "notes.txt").write_text("hello")


def _for_all(state: Path) -> None:
    state.chmod(0o777)


def _entry_for_all(state: Path) -> None:
    (state / "segment-0-5.json").chmod(0o666)


def _entry_link(state: Path) -> None:
    (state / "segment-0-5.json").rename(state.parent / "elsewhere.json")
    (state / "segment-0-5.json").symlink_to(state.parent / "elsewhere.json")


@pytest.mark.usefixtures("_inline")
@pytest.mark.parametrize(
    ("damage", "error", "words"),
    [
        (_as_another_run, UsageError, "another run"),
        (_other_segments, UsageError, "other segments"),
        (_manifest_byte, (CorruptFileError, DigestMismatchError), "audit.json"),
        (_entry_byte, (CorruptFileError, DigestMismatchError), "segment-0-5.json"),
        (_entry_of_another_audit, CorruptFileError, "segment-0-5.json"),
        (_entry_of_another_segment, CorruptFileError, "segment-5-10.json"),
        (_entry_that_differs, CorruptFileError, "segment-0-5.json"),
        (_stranger, UsageError, "notes.txt"),
        (_for_all, UsageError, "Other users"),
        (_entry_for_all, UsageError, "Other users"),
        (_entry_link, StorageError, "not a regular file"),
    ],
)
def test_a_state_that_is_damaged_or_foreign_is_refused(
    run: Path, tmp_path: Path, damage: Callable[[Path], None], error: Any, words: str
) -> None:
    state = tmp_path / "state"
    broken_off(run, state)
    damage(state)
    with pytest.raises(error, match=words):
        audit_in_parallel(run, options=replace(OPTIONS, state=state))


@pytest.mark.usefixtures("_inline")
def test_a_segment_that_did_not_agree_is_repeated(run: Path, tmp_path: Path) -> None:
    """The file that made it differ was mended: the verdict is today's."""
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    path = copy / "checkpoints" / "step-00000010.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:-70] + bytes([whole[-70] ^ 4]) + whole[-69:])
    state = tmp_path / "state"
    assert not audit_in_parallel(copy, options=replace(OPTIONS, state=state)).accepted
    path.write_bytes(whole)
    assert audit_in_parallel(copy, options=replace(OPTIONS, state=state)).accepted


def test_the_run_is_no_place_for_the_state(run: Path) -> None:
    with pytest.raises(UsageError, match="is inside the run"):
        audit_in_parallel(run, options=replace(OPTIONS, state=run / "state"))
