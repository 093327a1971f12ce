"""Following bounded logs that are not honest (NUMERICS 14.7), against plain fractions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference.logs import order
from reference.orders import LeftToRight, Perturbed, Shuffled
from reference.rounded import rounded_sum
from unit.rounding.recorded import ENGINES, JOB, Run, elements_of_mm, mm, nasty_mm, program, same

from tallystick.contracts.replay import entries as blocks
from tallystick.contracts.replay.entries import Entries
from tallystick.contracts.replay.findings import KEPT
from tallystick.run.logs.reader import open_log
from tallystick.run.logs.writer import LogDirectory, log_path


@pytest.mark.parametrize(("bits", "seed"), [(32, 11), (31, 12), (26, 13)])
@pytest.mark.parametrize("engine", ENGINES[2:], ids=lambda e: e.name)
def test_every_forged_entry_is_found_and_no_other(
    tmp_path: Path, bits: int, seed: int, engine: Any
) -> None:
    # NUMERICS 14.7, in both directions at every element; the honest ones among them are kept.
    made, batch = nasty_mm(bits, seed)
    recorded = Run(tmp_path / "a", made, batch)
    elements = elements_of_mm(batch, bits)
    every = np.arange(len(elements))
    for seeded, directions in enumerate((every % 2, (every + 1) % 2, every * 0, every * 0 + 1)):
        which = every if seeded < 2 else every[::3]
        log = Entries(which, directions[which].astype(np.uint8))
        path = recorded.forge(tmp_path / str(seeded), lambda _, __, log=log: log)
        follower, outputs, digest = recorded.follow(path, engine)
        entry = dict(zip(log.positions.tolist(), log.directions.tolist(), strict=True))
        forged = [at for at, d in entry.items() if elements[at].forged(d)]
        assert [f.element for f in follower.findings.kept] == forged
        assert {f.kind for f in follower.findings.kept} == {"forged entry"}
        assert all(f.direction == entry[f.element or 0] for f in follower.findings.kept)
        lost = set(forged)
        patterns = outputs[0].reshape(-1).view(np.uint32).tolist()
        want = [e.value(entry.get(at)) for at, e in enumerate(elements)]
        assert patterns == want
        # Its own log is the followed one without them, and honest.
        rest = np.array([at not in lost for at in entry])
        cleaned = recorded.forge(
            tmp_path / f"clean-{seeded}", lambda _, __, log=log, rest=rest: log.select(rest)
        )
        again, following, same_digest = recorded.follow(cleaned, Perturbed(9))
        assert not again.findings and same(following, outputs) and same_digest == digest


def test_entries_that_are_left_out_give_true_values(tmp_path: Path) -> None:  # NUMERICS 14.5
    made, batch = nasty_mm(32, 21)
    recorded = Run(tmp_path / "a", made, batch, Shuffled(3, 5))
    path = recorded.forge(tmp_path / "b", lambda _, __: Entries.none())
    follower, outputs, _ = recorded.follow(path)
    assert not follower.findings and not same(outputs, recorded.outputs)
    want = [e.value(None) for e in elements_of_mm(batch, 32)]
    assert outputs[0].reshape(-1).view(np.uint32).tolist() == want


def test_the_other_direction_is_a_choice_or_has_no_effect(tmp_path: Path) -> None:
    made, batch = nasty_mm(32, 22)
    recorded = Run(tmp_path / "a", made, batch)
    path = recorded.forge(tmp_path / "b", lambda _, e: Entries(e.positions, 1 - e.directions))
    follower, outputs, _ = recorded.follow(path, LeftToRight(), count_taken=True)
    elements = elements_of_mm(batch, 32)
    entries = recorded.entries()
    patterns = outputs[0].reshape(-1).view(np.uint32).tolist()
    taken = 0
    for at, d in zip(entries.positions.tolist(), entries.directions.tolist(), strict=True):
        assert patterns[at] == elements[at].value(1 - d)
        taken += order(patterns[at]) != elements[at].nearest
    assert follower.choices.taken == taken > 0


def test_terms_that_are_not_finite(tmp_path: Path) -> None:  # NUMERICS 13.4, 14.5, 14.7
    _, batch = nasty_mm(32, 31)
    a, b = batch["a"].copy(), batch["b"].copy()
    a[0, 3], a[1, 4], b[7, 2] = np.nan, np.inf, -np.inf
    a[1, 7], b[4, 5] = 0.0, 0.0
    batch = {"a": a, "b": b}
    made = program(32, batch, mm)
    recorded = Run(tmp_path / "a", made, batch)
    with np.errstate(all="ignore"):
        wild = ~np.isfinite(a.astype(np.float64) @ b.astype(np.float64)).reshape(-1)
    assert not set(recorded.entries().positions.tolist()) & set(np.flatnonzero(wild).tolist())
    want = [
        [rounded_sum([float(x) * float(y) for x, y in zip(row, column, strict=True)], 32)]
        for row in a[:2]
        for column in b.T
    ]
    got = recorded.outputs[0][:2].reshape(-1, 1).view(np.uint32).tolist()
    assert [g for g, w in zip(got, wild, strict=False) if w] == [
        g for g, w in zip(want, wild, strict=False) if w
    ]
    log = Entries(np.flatnonzero(wild), np.ones(int(wild.sum()), np.uint8))
    path = recorded.forge(tmp_path / "b", lambda _, __: log)
    follower, outputs, _ = recorded.follow(path)
    assert [f.element for f in follower.findings.kept] == log.positions.tolist()
    assert outputs[0].reshape(-1)[wild].tobytes() == recorded.outputs[0].reshape(-1)[wild].tobytes()


def test_impossible_entries_and_malformed_blocks(tmp_path: Path) -> None:
    # COMMITMENTS 10.2 and NUMERICS 14.7: what no output has, and what is no block.
    made, batch = nasty_mm(32, 41)
    recorded = Run(tmp_path / "a", made, batch)
    section = recorded.expected.sections[0]
    given = blocks.encode(section, recorded.entries())

    def write(name: str, words: list[int]) -> Path:
        logs = LogDirectory(tmp_path / name, JOB, recorded.expected.sections)
        writer = logs.writer(0)
        changed = np.concatenate([given.words, np.array(words, blocks.WORD)])
        writer.bounded(0, blocks.Blocks(np.array([len(changed)], blocks.WORD), changed))
        writer.finish()
        return tmp_path / name

    follower, outputs, digest = recorded.follow(write("b", [2 * 4000 + 1]))
    (finding,) = follower.findings.kept
    assert (finding.kind, finding.element, finding.direction) == ("impossible entry", 4000, 1)
    assert finding.operator == "aten.mm" and "node 0 (aten.mm)" in str(finding)
    assert same(outputs, recorded.outputs) and digest == recorded.digest
    for name, words in (("c", [8192]), ("d", [0])):
        follower, outputs, _ = recorded.follow(write(name, words))
        assert [f.kind for f in follower.findings.kept] == ["malformed block"]
        want = [e.value(None) for e in elements_of_mm(batch, 32)]
        assert outputs[0].reshape(-1).view(np.uint32).tolist() == want


def test_a_missing_or_damaged_log_is_a_finding_and_the_step_goes_on(tmp_path: Path) -> None:
    made, batch = nasty_mm(32, 51)
    recorded = Run(tmp_path, made, batch)
    path = log_path(tmp_path, 0)
    whole = path.read_bytes()
    want = [e.value(None) for e in elements_of_mm(batch, 32)]
    with open_log(tmp_path, 0, recorded.expected) as log:
        in_section = log.index[0].offset + 5
    changes: list[tuple[bytes | None, int | None]] = [
        (None, None),
        (whole[:-1], None),
        (whole[:in_section] + bytes([whole[in_section] ^ 1]) + whole[in_section + 1 :], 0),
    ]
    for data, node in changes:
        path.unlink() if data is None else path.write_bytes(data)
        follower, outputs, _ = recorded.follow(engine=LeftToRight())
        (finding,) = follower.findings.kept
        assert (finding.kind, finding.step, finding.node) == ("log", 0, node)
        assert outputs[0].reshape(-1).view(np.uint32).tolist() == want
        path.write_bytes(whole)


def test_a_flood_of_forged_entries_is_counted_and_the_first_are_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(81)
    a, b = rng.standard_normal((60, 8)), rng.standard_normal((8, 50))
    batch = {"a": a.astype(np.float32), "b": b.astype(np.float32)}
    recorded = Run(tmp_path / "a", program(32, batch, mm), batch)
    log = Entries(np.arange(3000), rng.integers(0, 2, 3000, dtype=np.uint8))
    follower, outputs, _ = recorded.follow(recorded.forge(tmp_path / "b", lambda _, __: log))
    elements = elements_of_mm(batch, 32)
    forged = [at for at, e in enumerate(elements) if e.forged(int(log.directions[at]))]
    assert follower.findings.count == len(forged) > KEPT
    assert [f.element for f in follower.findings.kept] == forged[:KEPT]
    assert same(outputs, recorded.outputs)
