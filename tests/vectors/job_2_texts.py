"""The manifests of format 2 in vectors/program: one written by hand, and what is not read as one.

Nothing of tallystick is imported; digests are made by the plain reference of COMMITMENTS. Every
refused manifest has digests that fit what it says: one rule of 7.6 is broken.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from typing import Any

import make_commit_vectors as commit
from job_texts import C, Change, Manifest, dumped, put, self_digest
from make_job_2_vectors import job_digest_2

_SCHEMA = [{"dtype": "f32", "name": "x", "shape": [2]}]
STOP = "input state control.stop bool[]\n"
# A step of two nodes that repeat and three that do not.
STEP = """\
tallystick program 2
contract ordered/1-draft.1
input batch batch.x f32[1,2]
input state buffer.n f32[1,2]
input state control.stop bool[]
micro 2
carry buffer.n %0
%0 = aten.add.Tensor(@buffer.n, @batch.x){alpha=0x1.0000000000000p+0} : f32[1,2]
%1 = aten.mean(%0) : f32[]
%2 = tallystick.fold(%1){mean=true} : f32[]
%3 = tallystick.commit(%0, @control.stop) : none
output buffer.n %0
output control.stop @control.stop
output loss %2
end
"""
CHECK = """\
tallystick program 1
contract ordered/1-draft.1
input batch batch.x f32[3,2]
input state buffer.n f32[1,2]
input state control.stop bool[]
%0 = aten.mean(@batch.x) : f32[]
%1 = tallystick.commit(@buffer.n, @control.stop) : none
output buffer.n @buffer.n
output control.stop @control.stop
output loss %0
end
"""


def program_digest(text: str) -> str:
    version = 2 if text.startswith("tallystick program 2") else 1
    return hashlib.sha256(b"tallystick/program/%d\0" % version + text.encode()).hexdigest()


def good_manifest(texts: Sequence[str] = (STEP, CHECK)) -> Manifest:
    """Four steps of two micro-batches, then a pass over held-out records."""
    held = [bytes(8)] * 7
    names = [("step", 0, 2, 2, False), ("check", 1, 3, 1, True)]
    return {
        "about": {},
        "commitment": {
            "checkpoint_interval": 5,
            "continues": None,
            "contract": "ordered/1-draft.1",
            "data": [
                {"name": "train", "order_seed": "18446744073709551615", "record_count": 5,
                 "root": commit.data_root(_SCHEMA, held[:5]).hex()},
                {"name": "held-out", "order_seed": "0", "record_count": 7,
                 "root": commit.data_root(_SCHEMA, held).hex()},
            ],
            "format_version": 2,
            "genesis_root": commit.h(b"not opened by who has no state").hex(),
            "programs": [
                {"batch_size": size, "by_pass": by_pass, "data": data,
                 "digest": program_digest(text), "first": 0, "micro_batches": v, "name": name}
                for text, (name, data, size, v, by_pass) in zip(texts, names, strict=False)
            ],
            "rng_seed": "9223372036854775807",
            "scalars_digest": "",
            "schedule": [{"program": 0, "steps": 4}, {"program": 1, "steps": 2}],
            "steps": 16,
            "stop_on_non_finite": True,
            "stop_on_slot": True,
        },
        "evaluation": None,
        "fills": {},
        "format": "tallystick-job/2",
        "forward": None,
        "job_digest": "",
        "recipe": None,
        "scalars": {},
        "schemas": [copy.deepcopy(_SCHEMA), copy.deepcopy(_SCHEMA)],
    }  # fmt: skip


def sealed(body: Manifest, keep: Sequence[str] = ()) -> bytes:
    """The file: scalars, job and self-digest made anew, but those of `keep`."""
    c = body["commitment"]
    if "scalars" not in keep:
        c["scalars_digest"] = commit.scalars(body["scalars"]).hex()
    if "job" not in keep:
        body["job_digest"] = job_digest_2(commit.PRIMITIVES, c).hex()
    return dumped({**body, "manifest_digest": self_digest(body)})


def _each(*changes: Change) -> Change:
    def change(body: Manifest) -> None:
        for one in changes:
            one(body)

    return change


def _drop(path: str) -> Change:
    def change(body: Any) -> None:
        *outer, last = path.split("/")
        for name in outer:
            body = body[int(name) if isinstance(body, list) else name]
        del body[int(last) if isinstance(body, list) else last]

    return change


def _many_sets(body: Manifest) -> None:
    first = body["commitment"]["data"]
    body["commitment"]["data"] = [{**first[n > 0], "name": f"d{n}"} for n in range(65)]
    body["schemas"] = [copy.deepcopy(_SCHEMA) for _ in range(65)]


P0, P1, D0 = C + "programs/0/", C + "programs/1/", C + "data/0/"
T0, T1 = C + "schedule/0/", C + "schedule/1/"
BOTH = ("scalars", "job")

# Read as a job: (name, clause, change).
GOOD: list[tuple[str, str, Change]] = [
    ("a job", "7.6", lambda b: None),
    ("no steps", "7.6.1", put(C + "steps", 0)),
    ("2^40 steps", "7.6.1", put(C + "steps", 1 << 40)),
    ("a run that does not stop by a slot", "7.6.7", put(C + "stop_on_slot", False)),
    (
        "neither stop rule",
        "7.6.7",
        _each(put(C + "stop_on_slot", False), put(C + "stop_on_non_finite", False)),
    ),
    ("a continued run", "7.6.8", put(C + "continues", "ab" * 32)),
    ("a step that begins later", "7.6.3", put(P0 + "first", (1 << 40) - 12)),
    ("a pass as long as its records", "7.6.1", put(C + "data/1/record_count", 6)),
    (
        "a data set that no program reads",
        "7.6.1",
        _each(
            lambda b: b["commitment"]["data"].append({**b["commitment"]["data"][0], "name": "o"}),
            lambda b: b["schemas"].append(copy.deepcopy(_SCHEMA)),
        ),
    ),
    ("a name of 40 characters", "7.6.1", put(P0 + "name", "a" + "9-" * 19 + "z")),
    (
        "turns of one program beside each other",
        "7.6.1",
        put(C + "schedule", [{"program": p, "steps": 1} for p in (0, 0, 1, 1, 0)]),
    ),
    (
        "1024 turns",
        "7.6.1",
        put(C + "schedule", [{"program": n % 2, "steps": 1} for n in range(1024)]),
    ),
    ("a cycle of 2^40 steps", "7.6.1", put(T0 + "steps", (1 << 40) - 2)),
]

# (name, clause, change, digests that are left as they were)
REFUSED: list[tuple[str, str, Change, tuple[str, ...]]] = [
    ("seed changed under the job digest", "7.6.2", put(C + "rng_seed", "4"), ("job",)),
    ("format version 1", "7.6.1", put(C + "format_version", 1), ()),
    ("format version 3", "7.6.1", put(C + "format_version", 3), ()),
    ("format 1 over this commitment", "7.6.10", put("format", "tallystick-job/1"), ()),
    ("format 3", "7.6.10", put("format", "tallystick-job/3"), ()),
    ("schema in the place of schemas", "7.6.10",
     lambda b: b.update(schema=b.pop("schemas")[0]), ()),
    ("schemas in an object", "7.6.10", put("schemas", {}), ()),
    ("a schema too few", "7.6.10", _drop("schemas/1"), ()),
    ("a schema too many", "7.6.10", lambda b: b["schemas"].append(copy.deepcopy(_SCHEMA)), ()),
    ("a schema without a field", "8.1", put("schemas/1", []), ()),
    ("a record of more than 2^30 bytes", "8.1", put("schemas/1/0/shape", [(1 << 28) + 1]), ()),
    ("member of the commitment missing", "7.6.10", _drop(C + "stop_on_slot"), BOTH),
    ("member of the commitment too many", "7.6.10", put(C + "order_seed", "0"), ()),
    ("member of a data set missing", "7.6.10", _drop(D0 + "order_seed"), BOTH),
    ("member of a data set too many", "7.6.10", put(D0 + "size", 1), ()),
    ("member of a program missing", "7.6.10", _drop(P0 + "first"), BOTH),
    ("member of a program too many", "7.6.10", put(P0 + "device", "cpu"), ()),
    ("member of a turn missing", "7.6.10", _drop(T0 + "steps"), BOTH),
    ("member of a turn too many", "7.6.10", put(T0 + "name", "step"), ()),
    ("random seed of 2^63", "7.6.1", put(C + "rng_seed", str(1 << 63)), ()),
    ("order seed of 2^64", "7.6.1", put(D0 + "order_seed", str(1 << 64)), BOTH),
    ("order seed that is a number", "7.6.10", put(D0 + "order_seed", 0), ()),
    ("records over 2^40", "7.6.1", put(D0 + "record_count", (1 << 40) + 1), ()),
    ("records that are true", "7.6.10", put(D0 + "record_count", True), ()),
    ("data root in upper case", "1.1", put(D0 + "root", "AB" * 32), ()),
    ("a data set that is a list", "7.6.10", put(C + "data/0", []), BOTH),
    ("data sets in an object", "7.6.10", put(C + "data", {}), BOTH),
    ("65 data sets", "7.6.1",
     _many_sets, ()),
    ("no programs", "7.6.1",
     _each(put(C + "programs", []), put(C + "schedule", [])), ()),
    ("no turns", "7.6.1", put(C + "schedule", []), ()),
    ("1025 turns", "7.6.1",
     put(C + "schedule", [{"program": n % 2, "steps": 1} for n in range(1025)]), ()),
    ("a program without a turn", "7.6.1", _drop(C + "schedule/1"), ()),
    ("a turn of no steps", "7.6.1", put(T0 + "steps", 0), ()),
    ("a turn of a program that is none", "7.6.1", put(T0 + "program", 2), ()),
    ("a turn of a negative program", "7.6.1", put(T1 + "program", -1), BOTH),
    ("a turn of the program true", "7.6.10", put(T1 + "program", True), ()),
    ("a cycle over 2^40", "7.6.1", put(T0 + "steps", (1 << 40) - 1), ()),
    ("a data set that is none", "7.6.1", put(P1 + "data", 2), ()),
    ("a data set -1", "7.6.1", put(P1 + "data", -1), BOTH),
    ("a data set that is false", "7.6.10", put(P0 + "data", False), ()),
    ("batch of none", "7.6.1", put(P0 + "batch_size", 0), ()),
    ("batch over 2^20", "7.6.1", put(P0 + "batch_size", (1 << 20) + 2), ()),
    ("no micro-batches", "7.6.1", put(P0 + "micro_batches", 0), ()),
    ("micro-batches over 2^16", "7.6.1",
     _each(put(P0 + "batch_size", 1 << 17), put(P0 + "micro_batches", 1 << 17)), ()),
    ("micro-batches that do not divide the batch", "7.6.1", put(P0 + "micro_batches", 3), ()),
    ("micro-batches that are true", "7.6.10", put(P1 + "micro_batches", True), ()),
    ("by_pass that is a number", "7.6.10", put(P1 + "by_pass", 1), ()),
    ("first batch over 2^40", "7.6.1", put(P0 + "first", (1 << 40) + 1), ()),
    ("last batch over 2^40", "7.6.1", put(P0 + "first", (1 << 40) - 11), ()),
    ("a set of no records for a program that goes on", "7.6.1", put(D0 + "record_count", 0), ()),
    ("a pass that begins later", "7.6.1", put(P1 + "first", 1), ()),
    ("a pass over more records than there are", "7.6.1", put(C + "data/1/record_count", 5), ()),
    ("two programs of one name", "7.6.1", put(P1 + "name", "step"), ()),
    ("two data sets of one name", "7.6.1", put(C + "data/1/name", "train"), ()),
    ("a name with an upper-case letter", "7.6.1", put(P0 + "name", "Step"), ()),
    ("a name that begins with a digit", "7.6.1", put(P0 + "name", "1step"), ()),
    ("a name with a slash", "7.6.1", put(P0 + "name", "a/b"), ()),
    ("a name with an underscore", "7.6.1", put(D0 + "name", "held_out"), ()),
    ("a name with a line feed", "7.6.1", put(D0 + "name", "train\n"), ()),
    ("an empty name", "7.6.1", put(D0 + "name", ""), ()),
    ("a name of 41 characters", "7.6.1", put(P0 + "name", "a" * 41), ()),
    ("a name that is a number", "7.6.10", put(P0 + "name", 1), BOTH),
    ("stop rule that is null", "7.6.10", put(C + "stop_on_slot", None), BOTH),
    ("stop rule that is a number", "7.6.10", put(C + "stop_on_slot", 1), ()),
    ("continues that is zeros, and no null", "7.6.10", put(C + "continues", "00" * 32), ()),
    ("continues that is empty", "7.6.10", put(C + "continues", ""), ()),
    ("continues that is false", "7.6.10", put(C + "continues", False), ()),
    # 7.6.9
    ("another contract", "7.6.9", put(C + "contract", "rounded/1-draft.1"), ()),
    ("program of another digest", "7.6.9", put(P1 + "digest", "00" * 32), ()),
    ("micro-batches of other records", "7.6.9",
     _each(put(P0 + "batch_size", 8), put(P0 + "micro_batches", 2)), ()),
    ("a text 1 in micro-batches", "7.6.9",
     _each(put(P1 + "batch_size", 6), put(P1 + "micro_batches", 2), put(T1 + "steps", 1)), ()),
    ("a batch for a program without data", "7.6.9", put(P1 + "data", None), ()),
    ("a field of another shape", "7.6.9", put("schemas/1/0/shape", [3]), ()),
    ("a scalar too many", "7.6.9", put("scalars", {"lr": "0x0.0p+0"}), ()),
]  # fmt: skip

_TABLE = (
    "input state control.stop bool[]\nmicro",
    "input state control.stop bool[]\ninput scalar scalar.lr f64[]\nmicro",
)
# (name, clause, (program, old, new) changes of the texts, table of `lr` or None, good)
TEXTS: list[tuple[str, str, list[tuple[int, str, str]], int | None, bool]] = [
    ("a table of as many steps as the program has", "7.6.5", [(0, *_TABLE)], 12, True),
    ("a table of as many steps as the job has", "7.6.5", [(0, *_TABLE)], 16, False),
    ("a table for a pass", "7.6.5", [(1, STOP, STOP + "input scalar scalar.lr f64[]\n")], 2, True),
    ("a table that is too long for a pass", "7.6.5",
     [(1, STOP, STOP + "input scalar scalar.lr f64[]\n")], 4, False),
    ("a table that two programs read, and fits one", "7.6.5",
     [(0, *_TABLE), (1, STOP, STOP + "input scalar scalar.lr f64[]\n")], 12, False),
    ("a slot that only one program has", "7.6.9",
     [(1, "buffer.n f32[1,2]", "buffer.m f32[1,2]"), (1, "@buffer.n, ", "@buffer.m, "),
      (1, "output buffer.n @buffer.n", "output buffer.m @buffer.m")], None, False),
    ("a slot of two types", "7.6.9",
     [(1, "input state buffer.n f32[1,2]", "input state buffer.n f32[2,1]")], None, False),
    ("a slot that stops, of another type", "7.6.7",
     [(0, STOP, STOP.replace("bool", "i64")), (1, STOP, STOP.replace("bool", "i64"))],
     None, False),
    ("a program without a loss", "7.6.9", [(1, "output loss %0", "output lost %0")], None, False),
    ("a text 2 whose fold has two operands", "7.6.9",
     [(0, "fold(%1)", "fold(%1, %1)")], None, False),
]  # fmt: skip


def _changed(texts: list[str], changes: list[tuple[int, str, str]]) -> list[str]:
    for number, old, new in changes:
        assert texts[number].count(old) == 1, (old, texts[number].count(old))
        texts[number] = texts[number].replace(old, new)
    return texts


def job_2_cases() -> list[dict[str, Any]]:
    """Cases in the order above: a manifest, and the texts of its programs."""
    cases: list[dict[str, Any]] = []

    def add(name: str, clause: str, data: bytes, good: bool, texts: Sequence[str] = ()) -> None:
        body: dict[str, Any] = {"name": name, "clause": f"COMMITMENTS {clause}"}
        body |= {"text": data.decode(), "programs": list(texts or (STEP, CHECK))}
        said = {"digest": data.decode().split('"job_digest":"')[1][:64]} if good else {}
        cases.append(body | (said or {"refused": True}))

    for name, clause, change in GOOD:
        manifest = good_manifest()
        change(manifest)
        add(name, clause, sealed(manifest), True)
    for name, clause, change, keep in REFUSED:
        manifest = good_manifest()
        sealed(manifest)  # the digests that are kept are those of the good one
        change(manifest)
        add(name, clause, sealed(manifest, keep), False)
    for name, clause, changes, rows, good in TEXTS:
        texts = _changed([STEP, CHECK], changes)
        manifest = good_manifest(texts)
        if rows is not None:
            manifest["scalars"] = {"lr": ["0x0.0p+0"] * rows}
        add(name, clause, sealed(manifest), good, texts)
    add("a program too few", "7.6.9", sealed(good_manifest()), False, (STEP,))
    return cases
