"""Golden vectors of `rounded/1`, and of what logs make of results under both forms of `replay/1`
(NUMERICS 13, 14; COMMITMENTS 10)."""

from __future__ import annotations

import json
import struct
from typing import Any

import kernel_format as fmt
import make_rounded_vectors as maker
import numpy as np
import pytest
from replay_cases import BOUNDED_FORMAT, PUBLISHED_FORMAT

from tallystick import _core
from tallystick.commit.log import BLOCK_ELEMENTS, BOUNDED, Section
from tallystick.contracts.replay import entries as blocks
from tallystick.contracts.replay.entries import Blocks, Entries, pack, unpack
from tallystick.contracts.replay.steps import LoggedSteps
from tallystick.errors import CorruptFileError
from tallystick.kernels.evaluate import evaluate
from tallystick.numerics.grid import Grid, reach_of
from tallystick.numerics.registry import all_ops
from tallystick.numerics.types import type_of
from tallystick.program.build import Builder
from tallystick.program.executor import Executor

KINDS = {name: {k: a.kind for k, a in spec.attrs.items()} for name, spec in all_ops().items()}
ISAS = list(_core.supported_isas())
Case = dict[str, Any]


def index(name: str, form: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((maker.ROOT / name).read_text())
    assert found["format"] == form
    return found


BOUNDED_LOGS = index("bounded.json", BOUNDED_FORMAT)
PUBLISHED_LOGS = index("published.json", PUBLISHED_FORMAT)


def f32(patterns: list[str]) -> np.ndarray:
    return np.array([int(p, 16) for p in patterns], np.uint32).view(np.float32)


def f64(bits: str) -> float:
    return float(struct.unpack(">d", bytes.fromhex(bits))[0])


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.reshape(-1).view(np.uint32).tolist() == b.reshape(-1).view(np.uint32).tolist()


@pytest.mark.parametrize("group", sorted(maker.CONTRACTS))
def test_rounded_operators(group: str) -> None:
    """NUMERICS 13.2 to 13.4."""
    contract = maker.CONTRACTS[group]
    cases = fmt.load(group, KINDS, maker.ROOT, contract)
    assert {case.op for case in cases} == set(maker.OPERATORS)
    wrong = []
    for ordinal, case in enumerate(cases):
        for isa in ISAS:
            _core.set_isa(isa)
            got = evaluate(case.op, *case.inputs, contract=contract, **dict(case.attrs))
            made = got if isinstance(got, tuple) else (got,)
            if len(made) != len(case.outputs) or not all(
                fmt.same_bits(np.asarray(x), y) for x, y in zip(made, case.outputs, strict=True)
            ):
                wrong.append(f"{group}[{ordinal}] {case.op} {dict(case.attrs)} on {isa}")
    assert not wrong, "\n".join(wrong[:20])


def test_the_grid_is_seen_in_the_vectors() -> None:
    """A grid that is not kept would not pass: B = 27 gives other bits than B = 32."""
    contract = maker.CONTRACTS["grid-27"]
    cases = fmt.load("grid-27", KINDS, maker.ROOT, contract)
    assert any(
        not same(np.asarray(evaluate(c.op, *c.inputs, contract="rounded/1", **c.attrs)), y)
        for c in cases
        if len(c.outputs) == 1 and (y := c.outputs[0]).dtype == np.float32
    )


class Held:
    """A log of one section, as a follower reads it."""

    def __init__(self, data: bytes) -> None:
        words = np.frombuffer(data, blocks.WORD)
        self._blocks = Blocks(np.array([len(words)], blocks.WORD), words)

    def bounded(self, number: int) -> Blocks:
        assert number == 0
        return self._blocks

    def close(self) -> None:
        pass


@pytest.mark.parametrize("case", BOUNDED_LOGS["cases"], ids=lambda c: f"{c['op']} {c['contract']}")
def test_bounded_logs(case: Case) -> None:
    """The values that a log gives, and its forged entries (NUMERICS 14.4, 14.5, 14.7)."""
    batch = {f"x{n}": f32(x["bits"]).reshape(x["shape"]) for n, x in enumerate(case["inputs"])}
    kinds = KINDS[case["op"]]
    attrs = {k: fmt.attr_from_json(v, kinds[k]) for k, v in case["attrs"].items()}
    builder = Builder(case["contract"])
    inputs = [builder.batch(name, type_of(x)) for name, x in batch.items()]
    (value,) = builder.emit(case["op"], inputs, **attrs)
    program = builder.finish({"grad.0": value})
    for log in case["logs"]:
        held: Any = Held(bytes.fromhex(log["block"]))
        follower = LoggedSteps(program, lambda _step, held=held: held)
        executor = Executor(program, kernels=follower.kernels)
        follower.begin(0)
        result = executor.run_step({}, batch)
        follower.finish()
        assert same(result.outputs["grad.0"], f32(log["values"])), log["entries"]
        found = [(f.element, f.direction) for f in follower.findings.kept]
        entry = dict(log["entries"])
        assert sorted(found) == [(at, entry[at]) for at in log["forged"]]
        assert follower.findings.count == len(log["forged"])
        assert {f.kind for f in follower.findings.kept} <= {"forged entry", "impossible entry"}


def test_bounded_vectors_have_entries_of_every_kind() -> None:
    logs = [log for case in BOUNDED_LOGS["cases"] for log in case["logs"]]
    assert any(log["forged"] for log in logs)
    assert any(len(log["forged"]) < len(log["entries"]) for log in logs)
    for case in BOUNDED_LOGS["cases"]:
        # An entry changes a value: what is without an entry is not what every entry gives.
        assert len({tuple(log["values"]) for log in case["logs"]}) > 1, case["op"]


@pytest.mark.parametrize("case", BOUNDED_LOGS["blocks"], ids=lambda c: c["name"])
def test_blocks(case: Case) -> None:
    """COMMITMENTS 10.2."""
    data = bytes.fromhex(case["bytes"])
    if case.get("refused"):
        with pytest.raises(CorruptFileError):
            blocks.decode_block(0, data)
        return
    entries = blocks.decode_block(0, data)
    pairs = zip(entries.positions.tolist(), entries.directions.tolist(), strict=True)
    assert [list(pair) for pair in pairs] == case["entries"]
    positions = np.array([p for p, _ in case["entries"]], np.int64)
    directions = np.array([d for _, d in case["entries"]], np.uint8)
    section = Section(0, 0, BLOCK_ELEMENTS, BOUNDED)
    assert blocks.encode(section, Entries(positions, directions)).block(0) == data


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("bits", (32, 27, 20))
def test_published_values(bits: int, isa: str) -> None:
    """rev(x, c), a zero keeping its sign or, of a rounded operator, being +0 (NUMERICS 14.9)."""
    _core.set_isa(isa)
    cases = [c for c in PUBLISHED_LOGS["values"] if c["b"] == bits]
    x = np.array([f64(c["x"]) for c in cases])
    for c in (0, 1, 2):
        want = f32([case["values"][c] for case in cases])
        packed = np.frombuffer(pack(np.full(x.size, c, np.uint8)), np.uint8)
        for plus in (False, True):
            out = np.empty(x.size, np.float32)
            _core.published_follow(x, packed, bits, plus, out)
            assert same(out, np.where(want == 0, np.float32(0), want) if plus else want)


def test_published_entries() -> None:
    """A party's own entries and their bytes (NUMERICS 14.9; COMMITMENTS 10.3)."""
    every = {
        b: [c["x"] for c in PUBLISHED_LOGS["values"] if c["b"] == b] for b in (32, 27, 20)
    }  # fmt: skip
    for case in PUBLISHED_LOGS["entries"]:
        x = np.array([f64(v) for v in (every[case["b"]] if case["x"] == "all" else case["x"])])
        data = bytes.fromhex(case["bytes"])
        for isa in ISAS:
            _core.set_isa(isa)
            out, packed = np.empty(x.size, np.float32), np.empty(len(data), np.uint8)
            decimal = case["scale"] == "decimal"
            _core.published_log(x, case["T"], decimal, case["b"], False, out, packed)
            assert packed.tobytes() == data, (case["b"], case["scale"], case["T"], isa)
        assert "".join(map(str, unpack(data, x.size).tolist())) == case["entries"]
    assert {"0", "1", "2"} <= set("".join(c["entries"] for c in PUBLISHED_LOGS["entries"]))


@pytest.mark.parametrize("case", PUBLISHED_LOGS["packed"], ids=lambda c: c["bytes"] or "nothing")
def test_packed_entries(case: Case) -> None:
    """COMMITMENTS 10.3."""
    data, count = bytes.fromhex(case["bytes"]), case["elements"]
    if case.get("refused"):
        with pytest.raises(CorruptFileError):
            unpack(data, count)
        return
    entries = unpack(data, count)
    assert "".join(map(str, entries.tolist())) == case["entries"]
    assert pack(entries) == data


def test_published_reach() -> None:
    """V(c) and forged entries (NUMERICS 14.10)."""
    for case in PUBLISHED_LOGS["reach"]:
        grid = Grid(case["b"])
        reach = reach_of(grid, f64(case["x"]), f64(case["E"]))
        for c, ends in enumerate(case["V"]):
            assert list(reach.ends(c)) == [grid.index(v) for v in f32(ends)], (case, c)
        assert [c for c in (0, 1, 2) if reach.forged(c)] == case["forged"], case
    assert any(c["forged"] for c in PUBLISHED_LOGS["reach"])


def test_stored_vectors_are_the_reference() -> None:
    for name, data in maker.files().items():
        assert (maker.ROOT / name).read_bytes() == data, name
