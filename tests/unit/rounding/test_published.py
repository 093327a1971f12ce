"""The published method over whole training steps (NUMERICS 14.9, 14.10)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from reference.steps import Steps, under
from unit.rounding.recorded import mm, program
from unit.rounding.recorded import run as one_step

pytest.importorskip("torch", reason="the published form runs on torch")

from tallystick import _core
from tallystick.commit.log import PUBLISHED, Section
from tallystick.contracts.replay.entries import pack, unpack
from tallystick.contracts.replay.findings import KEPT, UNFIT
from tallystick.contracts.replay.published import kernels
from tallystick.contracts.replay.published.follow import (
    LoggedCall,
    PublishedFollow,
    PublishedRecord,
    clean,
    entries_at,
    true_values,
)
from tallystick.contracts.replay.published.kernels import PublishedKernels
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.step import DigestOnly, LoggedStep
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.contracts.replay.stock.emulated import Hardware, kind_named, kinds
from tallystick.contracts.replay.stock.stock import Stock
from tallystick.errors import EnvironmentRefusedError, UnsupportedOperatorError, UsageError
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.products.engines import DEFAULT
from tallystick.program.ir import Program, op_spec
from tallystick.run.logs.reader import LogReader, expected_of, open_log
from tallystick.run.logs.writer import LogDirectory
from tallystick_bench.ovt.parties.unlogged import Float32, Unlogged

JOB_DIGEST = b"\x01" * 32
STEPS = 20
HERE = [kind for kind in kinds() if kind.is_here]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """Two small jobs of 20 steps."""
    home = tmp_path_factory.mktemp("published")
    text = home / "text.txt"
    text.write_bytes(b"pack my box with five dozen liquor jugs. " * 60)
    gpt2 = {"n_layer": "1", "n_head": "2", "n_embd": "32", "block_size": "8", "batch_size": "2"}
    mlp = {"features": "16", "classes": "4", "records": "64", "hidden": "32", "batch_size": "16"}
    more = {"dropout": "0.25", "optimizer": "adamw", "weight_decay": "0.1", "clip_norm": "1.0"}
    return {
        "gpt2": new_job("gpt2", home / "gpt2", gpt2, Sources(text=text), steps=STEPS, seed=1),
        "mlp": new_job("mlp", home / "mlp", {**mlp, **more}, steps=STEPS, seed=7),
    }


@pytest.fixture(autouse=True)
def one_thread() -> None:
    _core.set_threads(1)


def recorded(job: Job, contract: str, directory: Path, kind: Hardware) -> tuple[LoggedSteps, Steps]:
    program = under(job.program, contract)
    logs = LogDirectory(directory, JOB_DIGEST, LoggedProgram(program).sections, PUBLISHED)
    steps = LoggedSteps(program, sink=logs.writer, stock=kind.stock())
    return steps, Steps(job, program, steps)


def followed(
    recorder: LoggedSteps, job: Job, directory: Path, kind: Hardware
) -> tuple[LoggedSteps, Steps]:
    def source(step: int) -> LogReader:
        return open_log(directory, step, expected_of(recorder.logged, JOB_DIGEST))

    program = recorder.logged.program
    steps = LoggedSteps(program, source, stock=kind.stock())
    return steps, Steps(job, program, steps)


def test_float32_and_rounding_alone_diverge(made: dict[str, Job]) -> None:
    """What the paper's figure 2 shows, on kinds of this machine's own making."""
    job = made["gpt2"]
    for is_float32 in (True, False):
        ends = []
        for kind in HERE:
            stock = kind.stock()
            stock = Float32(order=stock.order) if is_float32 else stock
            steps = Steps(job, job.program, Unlogged(job.program, stock))
            steps.run(0, STEPS)
            ends.append(steps)
        for i in range(len(ends)):
            for j in range(i):
                assert ends[i].distance(ends[j]) > 0, (is_float32, HERE[i], HERE[j])


@pytest.mark.parametrize("name", ("gpt2", "mlp"))
@pytest.mark.parametrize("contract", ("", ";b=28;scale=decimal"))
def test_a_follower_on_other_hardware_stays_at_distance_zero(
    made: dict[str, Job], tmp_path: Path, name: str, contract: str
) -> None:
    job = made[name]
    recorder, trainer = recorded(job, "replay/1;form=published" + contract, tmp_path, HERE[0])
    states: dict[int, bytes] = {}
    trainer.run(0, STEPS, lambda step: states.setdefault(step, digest(trainer)))
    for kind in HERE[1:]:
        follower, auditor = followed(recorder, job, tmp_path, kind)

        def same(step: int, auditor: Steps = auditor) -> None:
            assert digest(auditor) == states[step], step

        auditor.run(0, STEPS, same)
        assert auditor.distance(trainer) == 0
        assert auditor.digests == trainer.digests
        assert follower.findings.count == 0
        corrections = follower.corrections
        assert len(corrections.forward) == len(corrections.backward) == STEPS
        if name == "gpt2":
            assert sum(corrections.forward) > 0


def digest(steps: Steps) -> bytes:
    return b"".join(x.tobytes() for _, x in sorted(steps.state.items()))


Change = Callable[[np.ndarray], None]


class Forging(PublishedRecord):
    """A trainer that changes the entries of one section, and follows them itself or does not."""

    def __init__(self, logged: LoggedProgram, number: int, change: Change, obeys: bool) -> None:
        super().__init__(logged.contract)
        self.bits, self.number, self.change, self.obeys = (
            logged.contract.bits, number, change, obeys
        )  # fmt: skip

    def settle(
        self, step: LoggedStep, call: LoggedCall, x: np.ndarray, out: np.ndarray, packed: np.ndarray
    ) -> None:
        super().settle(step, call, x, out, packed)
        if call.number == self.number:
            entries = unpack(packed.tobytes(), x.size)
            self.change(entries)
            packed[:] = np.frombuffer(pack(entries), np.uint8)
            if self.obeys:
                _core.published_follow(x, packed, self.bits, self.plus(call), out)


def recording(program: Program, logs: LogDirectory, record: PublishedRecord) -> LoggedSteps:
    """Steps of a trainer that records as `record` does."""
    steps = LoggedSteps(program, sink=logs.writer)
    assert isinstance(steps.form, PublishedKernels)
    steps.form.record = record
    return steps


def forge(
    job: Job, directory: Path, operator: str, change: Change, obeys: bool
) -> tuple[Section, Steps]:
    """The section that is forged, and the steps of the trainer that does it."""
    logged = LoggedProgram(under(job.program, "replay/1;form=published"))
    logs = LogDirectory(directory, JOB_DIGEST, logged.sections, PUBLISHED)
    number = logged.operators.index(operator)
    steps = recording(logged.program, logs, Forging(logged, number, change, obeys))
    return logged.sections[number], Steps(job, logged.program, steps)


def swapped(entries: np.ndarray) -> None:
    entries[:] = 2 - entries


@pytest.mark.parametrize("operator", ("aten.addmm", "aten.mm"))
@pytest.mark.parametrize("obeys", (True, False))
def test_entries_that_no_admissible_kernel_explains_are_found(
    made: dict[str, Job], tmp_path: Path, operator: str, obeys: bool
) -> None:
    """Every entry of one product says the wrong side; its values are the right ones again."""
    job = made["mlp"]
    recorder, _ = recorded(job, "replay/1;form=published", tmp_path / "honest", HERE[0])
    _, honest = recorded(job, "replay/1;form=published", tmp_path / "honest", HERE[0])
    honest.run(0, 2)
    section, trainer = forge(job, tmp_path / "forged", operator, swapped, obeys)
    trainer.run(0, 2)
    follower, auditor = followed(recorder, job, tmp_path / "forged", HERE[1])
    auditor.run(0, 1)
    found = follower.findings
    kinds_found = {f.kind for f in found.kept}
    assert kinds_found == {UNFIT} and found.count > section.elements // 3
    first = found.kept[0]
    assert (first.step, first.node, first.operator) == (0, section.node, operator)
    assert {f.direction for f in found.kept} <= {0, 2}
    if not obeys:
        assert auditor.digests == honest.digests[:1], "its own log is what an honest party's is"
    auditor.run(1, 2)
    assert auditor.distance(honest) == 0
    assert (auditor.distance(trainer) > 0) == obeys


@pytest.mark.parametrize("operator", ("tallystick.adamw_step", "tallystick.cross_entropy_backward"))
@pytest.mark.parametrize("obeys", (True, False))
def test_forged_entries_of_other_operators_are_found(
    made: dict[str, Job], tmp_path: Path, operator: str, obeys: bool
) -> None:
    """NUMERICS 14.10: no x within the element's bound rounds to what they say; at the 16th that is
    found the follower goes on with entries of its own."""
    job = made["mlp"]
    _, honest = recorded(job, "replay/1;form=published", tmp_path / "honest", HERE[0])
    honest.run(0, 1)
    section, trainer = forge(job, tmp_path / "forged", operator, swapped, obeys)
    trainer.run(0, 1)
    recorder, _ = recorded(job, "replay/1;form=published", tmp_path / "none", HERE[0])
    follower, auditor = followed(recorder, job, tmp_path / "forged", HERE[1])
    auditor.run(0, 1)
    assert 1 <= follower.findings.count <= 16
    assert {(f.kind, f.node) for f in follower.findings.kept} == {(UNFIT, section.node)}
    assert auditor.distance(honest) == 0
    assert (auditor.distance(trainer) > 0) == obeys


def test_a_missing_log_and_a_malformed_one_are_findings(
    made: dict[str, Job], tmp_path: Path
) -> None:
    job = made["mlp"]
    recorder, honest = recorded(job, "replay/1;form=published", tmp_path / "honest", HERE[0])
    honest.run(0, 1)
    follower, auditor = followed(recorder, job, tmp_path / "nothing", HERE[0])
    auditor.run(0, 1)
    assert [f.kind for f in follower.findings.kept] == ["log"]
    assert auditor.digests == honest.digests, "without a log to follow it records its own"

    class Malformed(PublishedRecord):
        def settle(
            self,
            step: LoggedStep,
            call: LoggedCall,
            x: np.ndarray,
            out: np.ndarray,
            packed: np.ndarray,
        ) -> None:
            super().settle(step, call, x, out, packed)
            if call.number == 0:
                packed[0] = 250
            if call.number == 1 and x.size % 5:
                packed[-1] = 0

    logged = recorder.logged
    logs = LogDirectory(tmp_path / "bad", JOB_DIGEST, logged.sections, PUBLISHED)
    malformed = recording(logged.program, logs, Malformed(logged.contract))
    Steps(job, logged.program, malformed).run(0, 1)
    follower, auditor = followed(recorder, job, tmp_path / "bad", HERE[0])
    auditor.run(0, 1)
    assert {f.kind for f in follower.findings.kept} == {"malformed block"}


def test_terms_that_are_not_finite_are_nobodys_forgery(tmp_path: Path) -> None:  # NUMERICS 14.10
    """A choice in one element makes the whole output be looked at: NaN and infinity stay out."""
    a, b = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32)
    a[0] = (1, 2.0**-24, 0, 0)  # v* is a boundary: both of its neighbours are in V
    a[1, 2], a[2, 1] = np.nan, np.inf
    batch = {"a": a, "b": b}
    made = under(program(32, batch, mm), "replay/1;form=published")
    logged = LoggedProgram(made)
    logs = LogDirectory(tmp_path, JOB_DIGEST, logged.sections, PUBLISHED)

    def up(entries: np.ndarray) -> None:
        entries[0] = 2

    trainer = recording(made, logs, Forging(logged, 0, up, True))
    outputs, digest_ = one_step(trainer, batch, 0, DEFAULT)
    assert outputs[0][0, 0] == 1 + 2.0**-23 and outputs[0][0, 1] == 1
    assert np.isnan(outputs[0][1]).all() and np.isinf(outputs[0][2]).all()
    expected = expected_of(logged, JOB_DIGEST)
    follower = LoggedSteps(made, lambda step: open_log(tmp_path, step, expected))
    followed_outputs, own = one_step(follower, batch, 0, DEFAULT)
    assert not follower.findings, follower.findings.kept
    assert own == digest_ and followed_outputs[0].tobytes() == outputs[0].tobytes()
    call = LoggedCall(op_spec("aten.mm"), 0, 0, {}, [a, b], outputs)
    values = np.full(9, 7, np.float32)
    true = true_values(call, np.arange(9), values, np.ones(9, np.int64), made.contract)
    assert not true[:3].any() and true[3:].all()


def following(program: Program) -> tuple[PublishedFollow, LoggedStep]:
    """A follower, and a step whose log nobody reads."""
    logged = LoggedProgram(program)
    step = LoggedStep(0, logged, DigestOnly(0, logged.sections), True)
    return PublishedFollow(logged, PublishedRecord(logged.contract)), step


def test_a_follower_takes_no_step_from_an_exact_result() -> None:
    """NUMERICS 14.10: every result is a number of the grid. A kernel that lies within the bound on
    the entry's side of it makes its neighbour of the entry; nobody's result rounds to that."""
    a, b = np.full((2, 2), 0.5, np.float32), np.eye(2, dtype=np.float32)
    made = under(program(32, {"a": a, "b": b}, mm), "replay/1;form=published")
    for entry, side in ((0, -1), (2, 1)):
        follow, step = following(made)
        follow.begin()
        out, packed = np.empty((2, 2), np.float32), np.full(1, 121, np.uint8)
        call = LoggedCall(op_spec("aten.mm"), 0, 0, {}, [a, b], [out])
        entries = np.array([1, entry, entry, 1], np.uint8)
        packed[:] = np.frombuffer(pack(entries), np.uint8)
        x = np.full((2, 2), 0.5) + side * np.array([[1, 0], [1, 1]]) * 2.0**-53
        follow.settle(step, call, x, out, packed)
        assert (out == 0.5).all(), "and not a step off"
        # Of the kernel that hits the result the entry changes nothing, and stays.
        assert unpack(packed.tobytes(), 4).tolist() == [1, entry, 1, 1]
        assert [(f.element, f.direction) for f in step.findings.kept] == [(2, entry)]
        assert true_values(call, np.arange(1), out[0, :1], np.array([entry]), made.contract).all()
        off = np.nextafter(out[0, :1], np.float32(side))
        for said in (0, 1, 2):
            assert not true_values(call, np.arange(1), off, np.array([said]), made.contract)[0]


def test_entries_are_read_out_of_their_bytes() -> None:
    entries = np.random.default_rng(0).integers(0, 3, 1003).astype(np.uint8)
    packed, at = np.frombuffer(pack(entries), np.uint8), np.array([0, 1, 4, 5, 500, 999, 1002])
    assert np.array_equal(entries_at(packed, at), entries[at])


def test_malformed_bytes_beyond_what_is_kept_are_counted(made: dict[str, Job]) -> None:
    program_ = under(made["mlp"].program, "replay/1;form=published")
    _, step = following(program_)
    step.logged.sections = (Section(0, 0, 5 * (KEPT + 7), PUBLISHED),)
    clean(step, 0, np.full(KEPT + 7, 250, np.uint8))
    assert len(step.findings.kept) == KEPT and step.findings.count == KEPT + 7


@pytest.mark.parametrize("model", ("mlp", "gpt2"))
def test_large_calls_are_cut_without_a_trace(
    made: dict[str, Job], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    """Optimizer steps and elementwise operators; one that broadcasts is left whole."""
    job = made[model]
    _, whole = recorded(job, "replay/1;form=published", tmp_path / "whole", HERE[0])
    whole.run(0, 2)
    monkeypatch.setattr(kernels, "ELEMENTS_AT_ONCE", 35)
    _, cut = recorded(job, "replay/1;form=published", tmp_path / "cut", HERE[0])
    cut.run(0, 2)
    assert cut.digests == whole.digests and cut.distance(whole) == 0


def test_kinds_say_what_they_are() -> None:
    names = [kind.name for kind in kinds()]
    assert len(set(names)) == len(names) >= 3 and len(HERE) >= 3
    assert "seed 1" in kind_named("split-k").settings
    with pytest.raises(UsageError, match="split-k"):
        kind_named("abacus")
    elsewhere = [kind for kind in kinds() if not kind.is_here]
    for kind in elsewhere:
        with pytest.raises(UsageError, match="ATEN_CPU_CAPABILITY"):
            kind.stock()


def test_a_restricted_kind_is_a_process_with_other_kernels() -> None:
    kind = kind_named("sse")
    code = (
        "from tallystick.contracts.replay.stock.emulated import kind_named\n"
        "import torch, zlib\n"
        "kind_named('sse').stock()\n"
        "x = torch.arange(5000, dtype=torch.float64).sin()\n"
        "print(torch.backends.cpu.get_cpu_capability(), zlib.crc32(x.numpy().tobytes()))"
    )
    environment = {**os.environ, **kind.environment}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "DEFAULT"


def test_an_operator_without_a_stock_form_is_refused_with_its_node(
    made: dict[str, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tallystick.contracts.replay.stock.stock import has_form, stock_form

    assert has_form("aten.mm")
    monkeypatch.delitem(stock_form.table, "aten.mm")
    program = under(made["mlp"].program, "replay/1;form=published")
    with pytest.raises(UnsupportedOperatorError, match=r"Node \d+: Operator 'aten.mm'"):
        LoggedSteps(program)


def test_a_step_that_cannot_begin_leaves_no_file(made: dict[str, Job], tmp_path: Path) -> None:
    """Where torch's threads are refused (NUMERICS 1.7), the step has opened its log already."""

    class Refused(Stock):
        def prepare(self) -> None:
            raise EnvironmentRefusedError("Threads of torch flush subnormals to zero.", "")

    job = made["mlp"]
    program = under(job.program, "replay/1;form=published")
    logs = LogDirectory(tmp_path / "logs", JOB_DIGEST, LoggedProgram(program).sections, PUBLISHED)
    steps = LoggedSteps(program, sink=logs.writer, stock=Refused())
    with pytest.raises(EnvironmentRefusedError):
        steps.begin(0)
    assert list((tmp_path / "logs").iterdir()) == []
