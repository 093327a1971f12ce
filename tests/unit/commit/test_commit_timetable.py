"""Timetables against a plain loop over the steps; parts of records (COMMITMENTS 7.6, 8.6)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tallystick.commit import merkle
from tallystick.commit.data import DataSchema, Field
from tallystick.commit.records import (
    PartProof,
    is_long,
    leaf_hashes,
    part_bytes,
    part_count,
    parts,
    place_of,
    prove_part,
    records_root,
)
from tallystick.commit.stream import DataSet, JobProgram
from tallystick.commit.tensor import DTYPES, Array
from tallystick.commit.timetable import ScheduleTurn, Timetable, program_seed
from tallystick.errors import CounterpartyError, UsageError
from tallystick.limits import LIMITS

ZERO = bytes(32)
Loop = list[tuple[int, int]]


@st.composite
def timetables(draw: st.DrawFn) -> Timetable:
    """Any that is allowed, with few steps in a turn."""
    sets = tuple(
        DataSet(f"d{i}", ZERO, draw(st.integers(1, 40)), draw(st.integers(0, 2**64 - 1)))
        for i in range(draw(st.integers(0, 3)))
    )
    count = draw(st.integers(1, 4))
    order = draw(st.permutations([*range(count), *draw(st.lists(st.integers(0, count - 1)))]))
    turns = tuple(ScheduleTurn(p, draw(st.integers(1, 5))) for p in order)
    programs = []
    for number in range(count):
        by_pass = draw(st.booleans())
        data = draw(st.none() | st.integers(0, len(sets) - 1)) if sets else None
        v, rows = draw(st.integers(1, 3)), draw(st.integers(1, 3))
        longest = max(t.steps for t in turns if t.program == number)
        if by_pass and data is not None:
            assume(longest * v * rows <= sets[data].record_count)
        first = 0 if by_pass else draw(st.sampled_from([0, 1, 17, 2**40]))
        programs.append(JobProgram.alone(f"p{number}", ZERO, data, v * rows, v, by_pass, first))
    return Timetable(tuple(programs), sets, turns)


def loop(t: Timetable, steps: int) -> Loop:
    """(program, batch number) of each step, one turn after the other (7.6.3)."""
    found: Loop = []
    done = [0] * len(t.programs)
    while len(found) < steps:
        for program, length in t.turns:
            for inside in range(length):
                entry = t.programs[program]
                found.append((program, inside if entry.by_pass else entry.first + done[program]))
                done[program] += 1
    return found[:steps]


@settings(deadline=None)
@given(timetables(), st.integers(0, 120))
def test_steps_against_a_loop(t: Timetable, steps: int) -> None:
    plain = loop(t, steps)
    assert [tuple(t.at(step)) for step in range(steps)] == plain
    for number, program in enumerate(t.programs):
        count = sum(p == number for p, _ in plain)
        assert t.count(number, steps) == count
        lengths = [turn.steps for turn in t.turns if turn.program == number]
        assert t.rows(number, steps) == (max(lengths) if program.by_pass else count)
        for step in range(steps):
            if plain[step][0] == number:
                assert 0 <= t.row(t.at(step)) < t.rows(number, steps)


@settings(deadline=None)
@given(timetables(), st.integers(0, 40))
def test_steps_for_completes_the_cycle(t: Timetable, count: int) -> None:
    """The least number of steps with `count` of a program, and what follows them to the next step
    of it or the cycle's end."""
    for number in range(len(t.programs)):
        steps = t.steps_for(number, count)
        assert t.count(number, steps) == count
        long = loop(t, steps + t.cycle)
        # No step less has as many, but for steps of other programs.
        if count:
            last = max(s for s in range(steps) if long[s][0] == number)
            assert t.count(number, last) == count - 1


@settings(deadline=None)
@given(timetables(), st.integers(1, 40))
def test_training_steps_are_those_of_no_pass(t: Timetable, count: int) -> None:
    """Whichever of the programs that train executes them; a pass behind the last one is counted."""
    trains = [not program.by_pass for program in t.programs]
    assume(any(trains))
    steps = t.training_steps(count)
    long = loop(t, steps + t.cycle)
    assert t.trained(steps) == count == sum(trains[program] for program, _ in long[:steps])
    last = max(s for s in range(steps) if trains[long[s][0]])
    assert t.trained(last) == count - 1
    if count % t.trained(t.cycle) == 0:
        assert steps % t.cycle == 0


@settings(deadline=None)
@given(timetables(), st.integers(0, 2**40), st.integers(0, 60))
def test_a_late_step_is_an_early_one_cycles_later(t: Timetable, cycles: int, step: int) -> None:
    near, far = t.at(step), t.at(step + cycles * t.cycle)
    assert far.program == near.program
    moved = 0 if t.programs[near.program].by_pass else cycles
    assert far.number == near.number + moved * t.count(near.program, t.cycle)


@settings(deadline=None)
@given(timetables(), st.integers(0, 200))
def test_a_record_is_that_of_its_place(t: Timetable, step: int) -> None:
    at = t.at(step)
    data = t.data_of(at.program)
    assume(data is not None and t.programs[at.program].first < 100)
    assert data is not None
    indices = t.indices(at).tolist()
    assert len(indices) == t.programs[at.program].batch_size
    assert [t.record(at, place) for place in range(len(indices))] == indices
    assert all(0 <= index < data.record_count for index in indices)


@settings(deadline=None)
@given(timetables())
def test_a_pass_reads_its_records_in_their_order(t: Timetable) -> None:
    read: list[int] = []
    for step in range(t.cycle):
        at = t.at(step)
        if t.programs[at.program].by_pass and t.data_of(at.program) is not None:
            read = [] if at.number == 0 else read
            read += t.indices(at).tolist()
            assert read == [*range(len(read))]


@settings(deadline=None)
@given(timetables(), st.integers(0, 2**63 - 1))
def test_programs_have_random_seeds_of_their_own(t: Timetable, seed: int) -> None:
    seeds = [program_seed(seed, t, n) for n in range(len(t.programs))]
    assert seeds[0] == seed
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**63 for s in seeds)


def test_a_timetable_that_does_not_fit_is_refused() -> None:
    step, data = JobProgram.alone("step", ZERO, 0, 2), DataSet("train", ZERO, 4, 0)
    for programs, sets, turns in (
        ((), (data,), (ScheduleTurn(0, 1),)),
        ((step,), (data,), ()),
        ((step,), (), (ScheduleTurn(0, 1),)),
        ((step, step), (data,), (ScheduleTurn(0, 1), ScheduleTurn(1, 1))),
        ((step,), (data, data), (ScheduleTurn(0, 1),)),
        ((step,), (data,), (ScheduleTurn(1, 1),)),
        ((step,), (data,), (ScheduleTurn(0, 0),)),
        ((step,), (data,), (ScheduleTurn(0, 1 << 40), ScheduleTurn(0, 1))),
        ((step, JobProgram.alone("idle", ZERO, None, 1)), (data,), (ScheduleTurn(0, 1),)),
        ((JobProgram.alone("step", ZERO, 0, 2, by_pass=True),), (data,), (ScheduleTurn(0, 3),)),
    ):
        with pytest.raises(UsageError):
            Timetable(programs, sets, turns)


# -- 8.6 -------------------------------------------------------------------------------------------

DTYPE = st.sampled_from(["f32", "f64", "i64", "i32", "u8", "bool"])


@st.composite
def schemas(draw: st.DrawFn) -> DataSchema:
    """Records of more than 1 MiB, or of less, of fields of odd sizes."""
    fields = []
    for i in range(draw(st.integers(1, 4))):
        dtype = draw(DTYPE)
        per = LIMITS.record_part_bytes // DTYPES[dtype].itemsize
        size = draw(st.sampled_from([0, 1, 3, per - 1, per, per + 1, 2 * per + 7]))
        fields.append(Field(f"f{draw(st.integers(0, 9))}{i}", dtype, (size,)))
    if draw(st.booleans()):
        fields.append(Field("wide", "u8", (LIMITS.record_bytes + draw(st.integers(-9, 70000)),)))
    assume(sum(f.header.nbytes for f in fields) > 0)
    return DataSchema(tuple(fields), LIMITS.long_record_bytes)


def columns_of(schema: DataSchema, count: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {
        f.name: rng.integers(0, 2, (count, *f.shape)).astype(DTYPES[f.dtype]) for f in schema.fields
    }


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@settings(deadline=None, max_examples=15)
@given(schemas(), st.integers(1, 5), st.data())
def test_a_part_proves_its_values_and_no_other(
    schema: DataSchema, count: int, data: st.DataObject
) -> None:
    columns = columns_of(schema, count, count)
    hashes = leaf_hashes(schema, columns)
    root, tree = records_root(schema, columns), merkle.Tree(hashes)
    index = data.draw(st.integers(0, count - 1))
    values = {name: np.asarray(column[index]) for name, column in columns.items()}
    field = data.draw(st.sampled_from([f for f in schema.fields if f.header.elements]))
    element = data.draw(st.sampled_from([0, field.header.elements // 2, field.header.elements - 1]))
    place = place_of(schema, field, element)
    proof = prove_part(schema, values, tree, index, place.part)
    assert len(proof.data) == part_bytes(schema, place.part)
    got = proof.value(schema, count, root, index, field, element)
    assert got == values[field.name].reshape(-1)[element]
    whole = parts(schema, values) if is_long(schema) else [proof.data]
    assert len(whole) == part_count(schema)
    assert b"".join(whole) == b"".join(values[f.name].tobytes() for f in schema.fields)
    size = DTYPES[field.dtype].itemsize
    assert proof.data[place.offset : place.offset + size] == got.tobytes()

    altered = [
        PartProof(flipped(proof.data, place.offset), proof.inner, proof.path),
        PartProof(flipped(proof.data, len(proof.data) - 1), proof.inner, proof.path),
        PartProof(proof.data[:-1], proof.inner, proof.path),
        PartProof(proof.data + b"\0", proof.inner, proof.path),
        PartProof(b"", proof.inner, proof.path),
        PartProof(proof.data, (*proof.inner, ZERO), proof.path),
        PartProof(proof.data, proof.inner, (*proof.path, ZERO)),
    ]
    altered += [PartProof(proof.data, proof.inner[1:], proof.path)] if proof.inner else []
    altered += [PartProof(proof.data, proof.inner, proof.path[1:])] if proof.path else []
    altered += [PartProof(proof.data, proof.path, proof.inner)] if proof.inner != proof.path else []
    other = data.draw(st.integers(0, part_count(schema) - 1))
    if other != place.part:
        elsewhere = prove_part(schema, values, tree, index, other)
        altered += [elsewhere, PartProof(proof.data, elsewhere.inner, proof.path)]
    for wrong in altered:
        with pytest.raises(CounterpartyError):
            wrong.value(schema, count, root, index, field, element)
    beside = (index + 1) % count
    leaves = [hashes[32 * i : 32 * i + 32] for i in (index, beside)]
    if leaves[0] != leaves[1]:
        with pytest.raises(CounterpartyError):
            proof.value(schema, count, root, beside, field, element)
    with pytest.raises(CounterpartyError):
        proof.value(schema, count + 1, root, index, field, element)
    with pytest.raises(CounterpartyError):
        proof.value(schema, count, ZERO, index, field, element)


def test_a_part_with_values_that_are_none_is_refused() -> None:
    """COMMITMENTS 3.3: the record is under the job's root, and still has no such value."""
    schema = DataSchema(
        (Field("x", "f32", (3,)), Field("z", "u8", (1 << 20,))), LIMITS.long_record_bytes
    )
    x = np.array([[1, 2, 3]], np.float32)
    x.view(np.uint32)[0, 1] = 0x7FC00001
    columns = {"x": x, "z": np.zeros((1, 1 << 20), np.uint8)}
    tree = merkle.Tree(leaf_hashes(schema, columns))
    values = {name: column[0] for name, column in columns.items()}
    proof = prove_part(schema, values, tree, 0, 0)
    with pytest.raises(CounterpartyError):
        proof.value(schema, 1, records_root(schema, columns), 0, schema.fields[0], 0)
