"""The manifests of format 3 in vectors/program: one written by hand, and what is not read as one.

Nothing of tallystick is imported; digests are made by the plain reference of COMMITMENTS. Every
refused manifest has digests that fit what it says: one rule of 7.7 is broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import make_commit_vectors as commit
from job_2_texts import CHECK, STEP, STOP, good_manifest, program_digest
from job_texts import C, Change, Manifest, dumped, put, self_digest
from make_job_3_vectors import job_digest_3

_SCALAR = ("input state control.stop bool[]\n", STOP + "input scalar scalar.lr f64[]\n")
# The step's last batch is one micro-batch of one record, and a pass reads one by one.
SHORT = STEP
CHECK_SHORT = CHECK.replace("batch.x f32[3,2]", "batch.x f32[1,2]")
TEXTS = (STEP, SHORT, CHECK, CHECK_SHORT)


def good_manifest_3(texts: Sequence[str] = TEXTS) -> Manifest:
    """An epoch of five records in batches of two, then a pass over seven in batches of three."""
    body = good_manifest(())
    c = body["commitment"]
    c["data"] = [{**d, "order": order} for d, order in zip(
        c["data"], ("shuffled", "sequential"), strict=True)]  # fmt: skip
    c["streams"] = [
        {
            "name": "step",
            "data": 0,
            "batch_size": 2,
            "by_pass": False,
            "epoch_records": 5,
            "first": 0,
        },
        {
            "name": "check",
            "data": 1,
            "batch_size": 3,
            "by_pass": True,
            "epoch_records": 7,
            "first": 0,
        },
    ]
    names = [
        ("step", 0, 2, 2),
        ("step-short", 0, 1, 1),
        ("check", 1, 3, 1),
        ("check-short", 1, 1, 1),
    ]
    c["programs"] = [
        {"batch_size": size, "digest": program_digest(text), "micro_batches": v, "name": name,
         "stream": stream}
        for text, (name, stream, size, v) in zip(texts, names, strict=False)
    ]  # fmt: skip
    c["schedule"] = [{"program": p, "steps": n} for p, n in ((0, 2), (1, 1), (2, 2), (3, 1))]
    c |= {"format_version": 3, "steps": 18}
    return {**body, "format": "tallystick-job/3"}


def sealed(body: Manifest, keep: Sequence[str] = ()) -> bytes:
    """The file: scalars, job and self-digest made anew, but those of `keep`."""
    c = body["commitment"]
    if "scalars" not in keep:
        c["scalars_digest"] = commit.scalars(body["scalars"]).hex()
    if "job" not in keep:
        body["job_digest"] = job_digest_3(commit.PRIMITIVES, c).hex()
    return dumped({**body, "manifest_digest": self_digest(body)})


def _each(*changes: Change) -> Change:
    def change(body: Manifest) -> None:
        for one in changes:
            one(body)

    return change


def _without(path: str, name: str) -> Change:
    def change(body: Any) -> None:
        for part in path.strip("/").split("/"):
            body = body[int(part) if isinstance(body, list) else part]
        del body[name]

    return change


def _turns(*pairs: tuple[int, int]) -> Change:
    return put(C + "schedule", [{"program": p, "steps": n} for p, n in pairs])


def _as_format_2(body: Manifest) -> None:
    """All that format 2 can say, in the words of format 3."""
    c = body["commitment"]
    c["data"][1]["order"] = "shuffled"
    for s in c["streams"]:
        s["epoch_records"] = None
    c["programs"] = [c["programs"][0], {**c["programs"][2], "stream": 1}]
    c["schedule"] = [{"program": 0, "steps": 4}, {"program": 1, "steps": 2}]


def _alone(body: Manifest) -> None:
    """The step alone, sequential, its batches running on."""
    c = body["commitment"]
    c["data"] = [{**c["data"][0], "order": "sequential"}]
    c["streams"] = [{**c["streams"][0], "epoch_records": None}]
    c["programs"], c["schedule"] = c["programs"][:1], [{"program": 0, "steps": 1}]
    body["schemas"] = body["schemas"][:1]


S0, S1 = C + "streams/0/", C + "streams/1/"
P0, P1, P2, P3 = (C + f"programs/{n}/" for n in range(4))
D0, D1 = C + "data/0/", C + "data/1/"
BOTH = ("scalars", "job")
_EPOCH = ((0, 2), (1, 1))
_PASS = ((2, 2), (3, 1))

# Read as a job: (name, clause, change, texts that it has).
GOOD: list[tuple[str, str, Change, Sequence[int]]] = [
    ("a job", "7.7", lambda b: None, range(4)),
    ("a sequential data set", "7.7.1", put(D0 + "order", "sequential"), range(4)),
    ("a step alone whose order is its own", "7.7.1", _alone, [0]),
    ("a step alone that drops", "7.7.4", _each(_alone, put(S0 + "epoch_records", 4)), [0]),
    ("a stream of another name than its program", "7.7.1",
     _each(_alone, put(D0 + "order", "shuffled"), put(S0 + "name", "s")), [0]),
    ("a stream that begins inside an epoch", "7.7.5",
     _each(put(S0 + "first", 4), _turns((0, 1), (1, 1), (0, 1), *_PASS)), range(4)),
    ("a stream that begins late", "7.7.1", put(S0 + "first", 3 * ((1 << 40) // 3) - 9), range(4)),
    ("two epochs in a cycle", "7.7.5", _turns(*_EPOCH, *_PASS, *_EPOCH), range(4)),
    ("one cycle of no whole epochs", "7.7.5",
     _each(_turns(*_EPOCH, *_PASS, (0, 1)), put(C + "steps", 7)), range(4)),
    ("a run that ends before a batch of another size", "7.7.5",
     _each(_turns((0, 4), *_PASS, (1, 1)), put(C + "steps", 2)), range(4)),
    ("a pass that ends before the short batch", "7.7.4",
     _turns(*_EPOCH, *_PASS, (0, 2), (1, 1), (2, 1)), range(4)),
    ("a pass of one batch, and then one beside it", "7.7.3",
     _turns(*_EPOCH, (2, 1), *_PASS), range(4)),
    ("an epoch that leaves records out", "7.7.4", put(D0 + "record_count", 1 << 40), range(4)),
    ("fewer records than a batch", "7.7.4",
     _each(put(D0 + "record_count", 1), put(S0 + "epoch_records", 1),
           _turns((1, 3), (2, 2), (3, 1), (0, 1)), put(C + "steps", 6)), range(4)),
]  # fmt: skip

# (name, clause, change, digests that are left as they were)
REFUSED: list[tuple[str, str, Change, tuple[str, ...]]] = [
    ("order changed under the job digest", "7.7.2", put(D0 + "order", "sequential"), ("job",)),
    ("end changed under the job digest", "7.7.2",
     _each(_alone, put(S0 + "epoch_records", 4)), ("job",)),
    ("format version 2", "7.7.1", put(C + "format_version", 2), ()),
    ("format version 4", "7.7.1", put(C + "format_version", 4), ()),
    ("format 2 over this commitment", "7.7.7", put("format", "tallystick-job/2"), ()),
    ("format 4", "7.7.7", put("format", "tallystick-job/4"), ()),
    ("what format 2 can say", "7.7.1", _as_format_2, ()),
    ("a data set without an order", "7.7.7", _without(D0, "order"), BOTH),
    ("an order of another word", "7.7.7", put(D0 + "order", "reversed"), BOTH),
    ("an order that is a number", "7.7.7", put(D0 + "order", 0), BOTH),
    ("no streams", "7.7.1", put(C + "streams", []), ()),
    ("streams missing", "7.7.7", _without(C, "streams"), BOTH),
    ("a member of a stream missing", "7.7.7", _without(S0, "epoch_records"), BOTH),
    ("a member of a stream too many", "7.7.7", put(S0 + "order", "shuffled"), ()),
    ("an epoch of true records", "7.7.7", put(S0 + "epoch_records", True), ()),
    ("an epoch that is a word", "7.7.7", put(S0 + "epoch_records", "short"), BOTH),
    ("two streams of one name", "7.7.1", put(S1 + "name", "step"), ()),
    ("a stream's name in upper case", "7.7.1", put(S1 + "name", "Check"), ()),
    ("two streams alike", "7.7.1",
     lambda b: b["commitment"].update(streams=[b["commitment"]["streams"][0]] * 2), ()),
    ("streams in another order", "7.7.1",
     lambda b: (b["commitment"]["streams"].reverse(),
                [p.update(stream=1 - p["stream"]) for p in b["commitment"]["programs"]]), ()),
    ("a stream without a program", "7.7.1",
     lambda b: b["commitment"]["streams"].append({**b["commitment"]["streams"][0], "name": "o"}),
     ()),
    ("a program of a stream that is none", "7.7.1", put(P3 + "stream", 2), ()),
    ("a program of the stream -1", "7.7.1", put(P0 + "stream", -1), BOTH),
    ("a program of the stream true", "7.7.7", put(P3 + "stream", True), ()),
    ("a program that names data", "7.7.7", put(P0 + "data", 0), ()),
    ("a data set that is none", "7.7.1", put(S1 + "data", 2), ()),
    ("a stream's batch of none", "7.7.1", put(S0 + "batch_size", 0), ()),
    ("a stream's batch over 2^20", "7.7.1", put(S0 + "batch_size", (1 << 20) + 1), ()),
    ("a batch that its stream has not", "7.7.5", put(P0 + "batch_size", 4), ()),
    ("a pass that begins later", "7.7.1", put(S1 + "first", 1), ()),
    ("an end without records", "7.7.1",
     _each(_alone, put(S0 + "data", None), put(S0 + "epoch_records", 1)), ()),
    ("an epoch of more records than there are", "7.7.1",
     _each(_alone, put(S0 + "epoch_records", 6)), ()),
    ("an epoch of no records", "7.7.1", put(S0 + "epoch_records", 0), ()),
    ("a set of no records", "7.7.1", put(D0 + "record_count", 0), ()),
    ("last batch over 2^40", "7.7.1", put(S0 + "first", 3 * ((1 << 40) // 3) - 6), ()),
    ("first batch over 2^40", "7.7.1", put(S0 + "first", (1 << 40) + 1), ()),
    # 7.7.5
    ("a long batch where the short one is", "7.7.5", _turns((0, 3), *_PASS, (1, 1), (0, 2)), ()),
    ("a short batch where a long one is", "7.7.5", _turns((0, 1), (1, 2), *_PASS), ()),
    ("a short batch at the beginning", "7.7.5", _turns((1, 1), (0, 2), *_PASS), ()),
    ("a stream that begins inside an epoch, and turns that do not", "7.7.5",
     put(S0 + "first", 1), ()),
    ("a cycle of no whole epochs that is repeated", "7.7.5",
     _turns(*_EPOCH, *_PASS, (0, 1)), ()),
    ("one step more than a cycle of no whole epochs", "7.7.5",
     _each(_turns(*_EPOCH, *_PASS, (0, 1)), put(C + "steps", 8)), ()),
    ("a pass whose last batch is long", "7.7.5", _turns(*_EPOCH, (2, 3), *_PASS), ()),
    ("a pass that goes on behind its last batch", "7.7.4", _turns(*_EPOCH, *_PASS, (2, 1)), ()),
    ("a pass of short batches", "7.7.5", _turns(*_EPOCH, (2, 1), (3, 2)), ()),
    ("a pass over more records than there are, in a turn that no run has", "7.7.4",
     _each(_turns(*_EPOCH, *_PASS, (0, 2), (1, 1), (2, 4)), put(C + "steps", 6)), ()),
    ("a pass of whole batches over more records than there are", "7.7.4",
     _each(put(S1 + "epoch_records", None), put(P3 + "batch_size", 3),
           _turns(*_EPOCH, *_PASS)), ()),
    # 7.6.9
    ("a field of another shape", "7.6.9", put("schemas/0/0/shape", [3]), ()),
    ("a text of the other size", "7.6.9",
     _each(put(P2 + "digest", program_digest(CHECK_SHORT))), ()),
]  # fmt: skip

# (name, rows of the table of the two steps, good): both programs read the table of their stream.
TABLES = [
    ("a table of as many steps as the stream has", 9, True),
    ("a table of as many steps as its first program has", 6, False),
    ("a table of as many steps as the job has", 18, False),
]


def job_3_cases() -> list[dict[str, Any]]:
    """Cases in the order above: a manifest, and the texts of its programs."""
    cases: list[dict[str, Any]] = []

    def add(name: str, clause: str, data: bytes, good: bool, texts: Sequence[str]) -> None:
        body: dict[str, Any] = {"name": name, "clause": f"COMMITMENTS {clause}"}
        body |= {"text": data.decode(), "programs": list(texts)}
        said = {"digest": data.decode().split('"job_digest":"')[1][:64]} if good else {}
        cases.append(body | (said or {"refused": True}))

    for name, clause, change, has in GOOD:
        manifest = good_manifest_3()
        change(manifest)
        add(name, clause, sealed(manifest), True, [TEXTS[n] for n in has])
    for name, clause, change, keep in REFUSED:
        manifest = good_manifest_3()
        sealed(manifest)  # the digests that are kept are those of the good one
        change(manifest)
        texts = TEXTS[: len(manifest["commitment"]["programs"])]
        add(name, clause, sealed(manifest, keep), False, texts)
    for name, rows, good in TABLES:
        read = [text.replace(*_SCALAR) for text in (STEP, SHORT)]
        manifest = good_manifest_3((*read, CHECK, CHECK_SHORT))
        manifest["scalars"] = {"lr": ["0x0.0p+0"] * rows}
        add(name, "7.7.6", sealed(manifest), good, (*read, CHECK, CHECK_SHORT))
    return cases
