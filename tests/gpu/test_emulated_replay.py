"""Bounded `replay/1` on a GPU (NUMERICS 14): its kernels in the emulation follow the processor's
logs and the reverse, find forged entries, and write logs of the same form."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check.replay import wrong_logs
from device_calls import there
from emulated_gpu import EmulatedDriver, emulated_gpu, planted
from micro_samples import ROWS, micro_inputs, micro_step
from reference.orders import LeftToRight, Perturbed, Shuffled
from test_rounded_vectors import BOUNDED_LOGS
from unit.rounding.recorded import JOB, Run, elements_of_mm, mm, nasty_mm, program, same
from unit.rounding.test_bounded import every_operator, everything

from tallystick.contracts.replay.bounded import cuda_log as device_log
from tallystick.contracts.replay.bounded.cuda_log import DeviceLog, LogOutcome, logs_differ
from tallystick.contracts.replay.entries import Entries, decode
from tallystick.contracts.replay.sections import LoggedProgram
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.devices.context import ExecutionContext
from tallystick.devices.cpu import CPU
from tallystick.devices.cuda.device import Cuda
from tallystick.devices.device import Device
from tallystick.errors import EnvironmentRefusedError, MachineFaultError
from tallystick.numerics.contracts import find_contract
from tallystick.products.cuda import dots
from tallystick.products.cuda.dots import PartSizes
from tallystick.program.build import Builder
from tallystick.program.expand import expand
from tallystick.program.sectioned import SectionedExecutor
from tallystick.run.logs.reader import expected_of, open_log
from tallystick.run.logs.writer import LogDirectory

# Of a few elements, so that small operands are cut in every way.
SMALL = PartSizes(results=700, patches=900, blocks=12, shortest=16, longest=48)


@pytest.fixture(autouse=True)
def unforced() -> Iterator[None]:
    yield
    dots.LIMITS_OF[0] = PartSizes()


def checked(device: Any) -> None:
    assert isinstance(device.driver, EmulatedDriver)
    device.driver.check()


@pytest.mark.parametrize("case", BOUNDED_LOGS["cases"], ids=lambda c: f"{c['op']} {c['contract']}")
def test_vectors(case: dict[str, Any]) -> None:
    """The values that a log gives, and its forged entries (NUMERICS 14.4, 14.5, 14.7)."""
    device = emulated_gpu(len(case["logs"]))
    for count in (False, True):
        assert wrong_logs(device, [case], count) == (len(case["logs"]), [])
    checked(device)


def test_a_log_that_gives_other_values_is_seen() -> None:
    """The comparison above would say so."""
    case = copy.deepcopy(BOUNDED_LOGS["cases"][0])
    at = case["logs"][1]["forged"].pop()
    case["logs"][0]["values"][at] = "3f800000"
    _, wrong = wrong_logs(emulated_gpu(), [case])
    assert len(wrong) == 2 and "values" in wrong[0] and "forged" in wrong[1]


@pytest.mark.sample(3)
@pytest.mark.parametrize("limits", [PartSizes(), SMALL], ids=["whole", "in parts"])
@pytest.mark.parametrize("bits", [32, 28, 20])
def test_each_follows_the_other(tmp_path: Path, bits: int, limits: PartSizes) -> None:
    """NUMERICS 14.5, 14.6: every rounded operator, both ways."""
    dots.LIMITS_OF[0] = limits
    batch, gpu = everything(bits, bits), emulated_gpu(bits)
    made = program(bits, batch, every_operator)
    there = Run(tmp_path / "there", made, batch, device=gpu)
    here = Run(tmp_path / "here", made, batch, Shuffled(bits))
    logged = [len(there.entries(n)) for n in range(len(there.expected.sections))]
    # As test_bounded has it: the plain convolution and single elements may need none.
    assert all(logged[n] for n in (4, 5, 6, 7, 9, 12, 13, 14, 15)), logged
    assert not same(there.outputs, here.outputs)
    dots.LIMITS_OF[0] = PartSizes() if limits is SMALL else SMALL
    for how in ({}, {"count_taken": True}):
        for recorded in (there, here):
            for device in (gpu, None):
                at: Any = {} if device is None else {"device": device}
                follower, outputs, digest = recorded.follow(
                    engine=Perturbed(3), digest=recorded.digest, **at, **how
                )
                assert not follower.findings, follower.findings.kept
                assert same(outputs, recorded.outputs)
                assert digest == recorded.digest
    checked(gpu)


@pytest.mark.sample(3)
@pytest.mark.parametrize("limits", [PartSizes(), SMALL], ids=["whole", "in parts"])
@pytest.mark.parametrize("bits", [32, 25])
def test_any_log_gives_the_processors_values(tmp_path: Path, bits: int, limits: PartSizes) -> None:
    """Entries at a third of all elements, most of them forged or without effect: the values, the
    findings and the follower's own log are the processor's (NUMERICS 14.5, 14.7). The bound of
    every operator shows here, for it decides which entries have an effect."""
    batch, gpu = everything(100 + bits, bits), emulated_gpu(7)
    made = program(bits, batch, every_operator)
    recorded = Run(tmp_path / "a", made, batch)
    rng = np.random.default_rng(bits)

    def change(number: int, entries: Entries) -> Entries:
        size = recorded.expected.sections[number].elements
        some = np.flatnonzero(rng.random(size) < 0.3)
        at = np.union1d(some, entries.positions)
        return Entries(at, rng.integers(0, 2, len(at), dtype=np.uint8))

    path = recorded.forge(tmp_path / "b", change)
    here, expected, digest = recorded.follow(path, LeftToRight(), count_taken=True)
    dots.LIMITS_OF[0] = limits
    for count in (False, True):
        there, outputs, own = recorded.follow(path, device=gpu, count_taken=count)
        assert same(outputs, expected)
        assert own == digest
        assert there.findings.count == here.findings.count > 100
        order = [(f.node, f.output, f.element, f.direction) for f in there.findings.kept]
        assert order == sorted(order)  # type: ignore[type-var]
        if here.findings.count <= 1000:
            assert set(there.findings.kept) == set(here.findings.kept)
        if count:
            assert there.choices.taken == here.choices.taken > 0
    assert isinstance(gpu.driver, EmulatedDriver)
    assert ("replay_tap_squares" in gpu.driver.launched) == (limits is SMALL)
    checked(gpu)


@pytest.mark.parametrize(("bits", "seed"), [(32, 11), (31, 12), (26, 13), (20, 14)])
def test_every_forged_entry_is_found_and_no_other(tmp_path: Path, bits: int, seed: int) -> None:
    """NUMERICS 14.7, against plain fractions, in both directions at every element."""
    made, batch = nasty_mm(bits, seed)
    recorded, gpu = Run(tmp_path / "a", made, batch), emulated_gpu(seed)
    elements = elements_of_mm(batch, bits)
    every = np.arange(len(elements))
    for number, directions in enumerate((every % 2, (every + 1) % 2)):
        log = Entries(every, directions.astype(np.uint8))
        path = recorded.forge(tmp_path / str(number), lambda _, __, log=log: log)
        follower, outputs, _ = recorded.follow(path, device=gpu)
        forged = [at for at in every if elements[at].forged(int(directions[at]))]
        assert [f.element for f in follower.findings.kept] == forged
        want = [e.value(int(d)) for e, d in zip(elements, directions, strict=True)]
        assert outputs[0].reshape(-1).view(np.uint32).tolist() == want


def test_what_is_doubtful_and_has_no_entry_is_summed_exactly(tmp_path: Path) -> None:
    """NUMERICS 14.5: nobody is blamed for it."""
    made, batch = nasty_mm(32, 21)
    recorded, gpu = Run(tmp_path / "a", made, batch, Shuffled(3, 5)), emulated_gpu(21)
    path = recorded.forge(tmp_path / "b", lambda _, __: Entries.none())
    follower, outputs, _ = recorded.follow(path, device=gpu)
    assert not follower.findings and not same(outputs, recorded.outputs)
    want = [e.value(None) for e in elements_of_mm(batch, 32)]
    assert outputs[0].reshape(-1).view(np.uint32).tolist() == want


@pytest.mark.parametrize(("bits", "seed"), [(32, 1), (28, 4), (20, 5)])
def test_a_trainers_values_are_the_clauses(tmp_path: Path, bits: int, seed: int) -> None:
    """NUMERICS 14.5 to 14.7: every element of a product recorded there, and every entry."""
    made, batch = nasty_mm(bits, seed)
    dots.LIMITS_OF[0] = SMALL
    recorded = Run(tmp_path, made, batch, device=emulated_gpu(seed))
    found = recorded.entries()
    entry = dict(zip(found.positions.tolist(), found.directions.tolist(), strict=True))
    patterns = recorded.outputs[0].reshape(-1).view(np.uint32).tolist()
    for at, element in enumerate(elements_of_mm(batch, bits)):
        direction = entry.get(at)
        assert patterns[at] == element.value(direction), at
        assert direction is None or not element.forged(direction), at
    assert len(entry) > 10


def test_terms_that_are_not_finite(tmp_path: Path) -> None:  # NUMERICS 13.4, 14.5, 14.7
    _, batch = nasty_mm(32, 31)
    a, b = batch["a"].copy(), batch["b"].copy()
    a[0, 3], a[1, 4], b[7, 2] = np.nan, np.inf, -np.inf
    a[1, 7], b[4, 5] = 0.0, 0.0
    batch = {"a": a, "b": b}

    def emit(builder: Builder, x: Any) -> Any:
        products = builder.emit("aten.mm", [x["a"], x["b"]])
        sums = builder.emit("aten.sum.dim_IntList", [x["a"]], dim=(1,), keepdim=False)
        return [*products, *sums]

    made, gpu = program(32, batch, emit), emulated_gpu(31)
    recorded = Run(tmp_path / "a", made, batch, device=gpu)
    with np.errstate(all="ignore"):
        results = a.astype(np.float64) @ b.astype(np.float64), a.astype(np.float64).sum(1)
    wild = [~np.isfinite(x.reshape(-1)) for x in results]
    logs = [Entries(np.flatnonzero(w), np.ones(int(w.sum()), np.uint8)) for w in wild]
    for number, log in enumerate(logs):
        assert not np.isin(recorded.entries(number).positions, log.positions).any()
    path = recorded.forge(tmp_path / "b", lambda number, _: logs[number])
    for count in (False, True):
        here, expected, _ = recorded.follow(path)
        there, outputs, _ = recorded.follow(path, device=gpu, count_taken=count)
        assert same(outputs, expected)
        assert set(there.findings.kept) == set(here.findings.kept)
        assert there.findings.count == sum(map(len, logs))


def test_bounds_below_the_units_of_terms(tmp_path: Path) -> None:
    """NUMERICS 13.5, 14.5: products down to 2^-298, where a bound has digits below any term's."""
    rng = np.random.default_rng(6)
    size = np.exp2(rng.integers(-149, -110, (9, 13))) * rng.choice([-1, 1], (9, 13))
    a = size.astype(np.float32)
    b = np.float32(np.exp2(rng.integers(-149, 60, (13, 7))))
    batch = {"a": a, "b": b}
    made, gpu = program(32, batch, mm), emulated_gpu(6)
    recorded = Run(tmp_path / "a", made, batch, device=gpu)
    elements = elements_of_mm(batch, 32)
    for direction in (0, 1):
        log = Entries(np.arange(63), np.full(63, direction, np.uint8))
        path = recorded.forge(tmp_path / str(direction), lambda _, __, log=log: log)
        follower, outputs, _ = recorded.follow(path, device=gpu, count_taken=True)
        want = [e.value(direction) for e in elements]
        assert outputs[0].reshape(-1).view(np.uint32).tolist() == want
        forged = [at for at, e in enumerate(elements) if e.forged(direction)]
        assert [f.element for f in follower.findings.kept] == forged


def test_a_planted_fault_is_seen(tmp_path: Path) -> None:
    made, batch = nasty_mm(32, 41)
    gpu = emulated_gpu(1)
    gpu.prepare(find_contract(made.contract))  # its probe would refuse the device
    with planted("one bit"):
        recorded = Run(tmp_path, made, batch, device=gpu)
    _, outputs, _ = recorded.follow()
    assert not same(outputs, recorded.outputs)


class Deaf(EmulatedDriver):
    """A driver that does not start one kernel."""

    deaf_to = ""

    def launch(self, kernel: str, *how: Any) -> None:
        if kernel != self.deaf_to:
            super().launch(kernel, *how)


@pytest.mark.parametrize(
    "kernel", ["replay_decide_lines", "replay_sum_end", "replay_compact", "replay_spread"]
)
def test_a_device_that_makes_other_logs_is_refused(kernel: str) -> None:
    """Before its first step: its log would convict an honest trainer."""
    for bits in (32, 20):
        contract = find_contract(f"replay/1;b={bits};form=bounded")
        assert not logs_differ(Cuda(Deaf(1)), bits)
        driver = Deaf(2)
        driver.deaf_to = kernel
        with pytest.raises(EnvironmentRefusedError, match="a rounding log with other bits"):
            Cuda(driver).prepare(contract)


def random_log(seed: int, sizes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Counts and words of all blocks of sections of these sizes; some are full, most are empty."""
    rng, counts, words = np.random.default_rng(seed), [], []
    for size in sizes:
        for begin in range(0, size, 4096):
            there = min(4096, size - begin)
            share = [0, 0.003, 0.02, 1][rng.choice(4, p=[0.5, 0.3, 0.1, 0.1])]
            places = np.flatnonzero(rng.random(there) < share)
            counts.append(len(places))
            words.append(2 * places + rng.integers(0, 2, len(places)))
    return np.array(counts, "<u2"), np.concatenate(words).astype("<u2")


@pytest.mark.parametrize("sizes", [[1], [5, 0, 4096, 4097, 0, 9000], [3, 40000, 4_400_000]])
def test_a_log_there_and_back(sizes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """COMMITMENTS 10.2; more blocks than the threads that number their words."""
    for room in (1 << 20, 300_000 if sum(sizes) > 100_000 else 700):
        monkeypatch.setattr(device_log, "least_room", lambda _blocks, room=room: room)
        gpu = emulated_gpu(room)
        log = DeviceLog(gpu, sizes)
        for seed in range(2):
            counts, words = random_log(seed, sizes)
            log.follow(counts, words, False)
            found = log.recorded()
            assert np.array_equal(found[0], counts) and np.array_equal(found[1], words)
            assert log.followed() == LogOutcome(len(words), 0, 0)
        checked(gpu)
    log.follow(counts, words, False)
    with planted("missing barrier"), pytest.raises(MachineFaultError, match="miscounted"):
        log.recorded()


def test_a_log_larger_than_its_room_crosses_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No entry is lost and nobody is blamed: neither of a trainer's log nor of a followed one."""
    made, batch = nasty_mm(20, 51, (40, 45, 33))
    whole = Run(tmp_path / "whole", made, batch, device=emulated_gpu(2))
    monkeypatch.setattr(device_log, "least_room", lambda _blocks: 7)
    gpu = emulated_gpu(3)
    small = Run(tmp_path / "small", made, batch, device=gpu)
    assert isinstance(gpu.driver, EmulatedDriver)
    assert gpu.driver.launched["replay_compact"] > 3
    assert len(small.entries()) > 21 and small.digest == whole.digest
    paths = [tmp_path / side / "0000000000.log" for side in ("whole", "small")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    follower, outputs, digest = small.follow(device=gpu)
    assert not follower.findings and same(outputs, small.outputs) and digest == small.digest
    assert gpu.driver.launched["replay_spread"] > 3
    checked(gpu)


def test_micro_batches_have_their_own_entries(tmp_path: Path) -> None:
    """A recorded micro-batch marks the outputs of its own nodes (PROGRAM 6.7)."""
    parts, steps, gpu = 3, 4, emulated_gpu(12)
    made = replace(micro_step(), contract=find_contract("replay/1;b=20").text)
    whole = expand(made, parts)
    logged = LoggedProgram(whole)
    logs = LogDirectory(tmp_path, JOB, logged.sections)
    expected = expected_of(logged, JOB)

    def executed(on: Device, log: LoggedSteps) -> list[bytes]:
        log.move_to(on)
        executor = SectionedExecutor(made, parts, ExecutionContext(device=on), log.kernels)
        state = {name: there(on, array) for name, array in micro_inputs(parts)[0].items()}
        found = []
        for step in range(steps):
            # A column of each micro-batch adds up to a tie of the grid, another column in each.
            x = np.zeros((parts, ROWS, 4), np.float32)
            for part in range(parts):
                x[part, :2, (part + step) % 4] = 1, 2.0**-12
            x = x.reshape(-1, 4)
            with executor.context.entered():
                log.begin(step)
                executor.run_step(state, {"x": x}, {"lr": 0.25}, np.array([5, step]))
                found.append(log.finish())
        return found + [on.host(tensor).tobytes() for tensor in state.values()]

    recorded = executed(gpu, LoggedSteps(whole, sink=logs.writer))
    means = [n for n, op in enumerate(logged.operators) if op == "aten.mean.dim"]
    assert len(means) == parts
    for step in range(steps):
        with open_log(tmp_path, step, expected) as log:
            read = [decode(logged.sections[n], log.bounded(n))[0] for n in means]
        assert [e.positions.tolist() for e in read] == [[(p + step) % 4] for p in range(parts)]
    for device in (CPU, gpu):
        follower = LoggedSteps(whole, lambda step: open_log(tmp_path, step, expected))
        assert executed(device, follower) == recorded
        assert not follower.findings
