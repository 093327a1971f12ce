"""The manifests of vectors/program: a job.json written by hand, and what must not be read as one.

Nothing of tallystick is imported; digests are made by the plain reference of COMMITMENTS. Every
refused manifest has digests that fit what it says, where that can be: one rule is broken.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
from collections.abc import Callable
from typing import Any

import make_commit_vectors as commit

Manifest = dict[str, Any]
Change = Callable[[Manifest], None]
_SCHEMA = [{"dtype": "f32", "name": "x", "shape": [3]}]


def good_manifest(program: str) -> Manifest:
    """The job of `program`, a training step on batches f32[2,3] with the scalar `lr`."""
    return {
        "about": {"source": "written by hand"},
        "commitment": {
            "batch_size": 2,
            "checkpoint_interval": 2,
            "contract": "ordered/1-draft.1",
            "data_root": commit.data_root(_SCHEMA, [bytes(12)] * 5).hex(),
            "format_version": 1,
            "genesis_root": commit.h(b"not opened by who has no state").hex(),
            "order_seed": "18446744073709551615",
            "program_digest": program_digest(program),
            "record_count": 5,
            "rng_seed": "9223372036854775807",
            "scalars_digest": "",
            "steps": 3,
            "stop_on_non_finite": True,
        },
        "evaluation": None,
        "fills": {"buffer.kept": "0x0.0p+0"},
        "format": "tallystick-job/1",
        "forward": None,
        "job_digest": "",
        "recipe": {"name": "hand", "settings": {"lr": "0.1"}},
        "scalars": {"lr": "0x1.999999999999ap-4"},
        "schema": copy.deepcopy(_SCHEMA),
    }


def program_digest(text: str) -> str:
    return hashlib.sha256(b"tallystick/program/1\0" + text.encode()).hexdigest()  # PROGRAM 4.1


def dumped(body: Any) -> bytes:
    """Canonical JSON (COMMITMENTS 1.8) of ASCII members."""
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode()


def self_digest(body: Manifest) -> str:
    return commit.h(commit.tag("manifest/1") + commit.blob(dumped(body))).hex()


def sealed(body: Manifest, keep: tuple[str, ...] = ()) -> bytes:
    """The file: scalars, job and self-digest made anew, but those of `keep`."""
    c = body["commitment"]
    if "scalars" not in keep:
        c["scalars_digest"] = commit.scalars(body["scalars"]).hex()
    if "job" not in keep:
        body["job_digest"] = commit.job_digest(c).hex()
    return dumped({**body, "manifest_digest": self_digest(body)})


def put(path: str, value: Any) -> Change:
    """A change: the member at `path`, names joined by a slash, becomes `value`."""

    def change(body: Manifest) -> None:
        *outer, last = path.split("/")
        for name in outer:
            body = body[int(name) if isinstance(body, list) else name]
        body[int(last) if isinstance(body, list) else last] = value

    return change


def drop(path: str) -> Change:
    def change(body: Manifest) -> None:
        *outer, last = path.split("/")
        for name in outer:
            body = body[name]
        del body[last]

    return change


BOTH = ("scalars", "job")
C = "commitment/"
_VALIDATION = {
    "batch_size": 2, "data_root": "00" * 32, "every": 1,
    "program_digest": "00" * 32, "record_count": 2,
}  # fmt: skip

# Read as a job: (name, clause, change).
GOOD_CHANGES: list[tuple[str, str, Change]] = [
    ("seeds of zero", "7.1", lambda b: b["commitment"].update(order_seed="0", rng_seed="0")),
    ("no steps", "7.1", put(C + "steps", 0)),
    ("2^40 steps", "7.1", put(C + "steps", 1 << 40)),
    ("interval of 2^40", "7.1", put(C + "checkpoint_interval", 1 << 40)),
    ("no records", "7.1", put(C + "record_count", 0)),
    ("2^40 records", "7.1", put(C + "record_count", 1 << 40)),
    ("goes on at a loss that is not finite", "7.1", put(C + "stop_on_non_finite", False)),
    ("a table", "7.3", put("scalars/lr", ["0x1.0000000000000p-3", "-0x0.0p+0", "0x0.0p+0"])),
    ("no recipe", "7.1", put("recipe", None)),
    ("a validation", "7.1", put("evaluation", _VALIDATION)),
]

# (name, clause, change, digests that are left as they were)
REFUSED: list[tuple[str, str, Change, tuple[str, ...]]] = [
    # what the digests bind
    ("scalars of another digest", "7.3", put("scalars/lr", "0x1.0000000000000p-3"), ("scalars",)),
    ("another job digest", "7.2", put("job_digest", "00" * 32), ("job",)),
    ("seed changed under the job digest", "7.2", put(C + "order_seed", "4"), ("job",)),
    ("contract changed under the job digest", "7.2",
     put(C + "contract", "rounded/1-draft.1"), ("job",)),
    # ranges of 7.1
    ("random seed of 2^63", "7.1", put(C + "rng_seed", str(1 << 63)), ()),
    ("random seed of 2^64 - 1", "7.1", put(C + "rng_seed", str((1 << 64) - 1)), ()),
    ("order seed of 2^64", "7.1", put(C + "order_seed", str(1 << 64)), BOTH),
    ("order seed negative", "7.1", put(C + "order_seed", "-1"), BOTH),
    ("batch of none", "7.1", put(C + "batch_size", 0), ()),
    ("batch over 2^20", "7.1", put(C + "batch_size", (1 << 20) + 1), ()),
    ("batch negative", "7.1", put(C + "batch_size", -2), BOTH),
    ("records over 2^40", "7.1", put(C + "record_count", (1 << 40) + 1), ()),
    ("records negative", "7.1", put(C + "record_count", -1), BOTH),
    ("steps over 2^40", "7.1", put(C + "steps", (1 << 40) + 1), ()),
    ("steps negative", "7.1", put(C + "steps", -3), BOTH),
    ("interval of none", "7.1", put(C + "checkpoint_interval", 0), ()),
    ("interval over 2^40", "7.1", put(C + "checkpoint_interval", (1 << 40) + 1), ()),
    ("format version 0", "7.1", put(C + "format_version", 0), ()),
    ("format version 2", "7.1", put(C + "format_version", 2), ()),
    ("unknown contract", "7.1", put(C + "contract", "guessed/1"), ()),
    ("abbreviated contract", "7.1", put(C + "contract", "ordered/1"), ()),
    ("empty contract", "7.1", put(C + "contract", ""), ()),
    ("name of a contract over 1024 bytes", "11.1", put(C + "contract", "o" * 1025), ()),
    # types
    ("steps in a string", "7.1", put(C + "steps", "3"), BOTH),
    ("steps that are true", "7.1", put(C + "steps", True), ()),
    ("steps that are null", "7.1", put(C + "steps", None), BOTH),
    ("steps in a list", "7.1", put(C + "steps", [3]), BOTH),
    ("seed that is a number", "7.1", put(C + "order_seed", 3), ()),
    ("seed with a zero", "1.9", put(C + "order_seed", "03"), ()),
    ("seed with a plus", "1.9", put(C + "order_seed", "+3"), ()),
    ("seed with a space", "1.9", put(C + "order_seed", " 3"), ()),
    ("seed with an underscore", "1.9", put(C + "order_seed", "1_0"), ()),
    ("seed in hexadecimal", "1.9", put(C + "order_seed", "0x3"), BOTH),
    ("seed in other digits", "1.9", put(C + "order_seed", "\u0663"), BOTH),
    ("seed that is empty", "1.9", put(C + "order_seed", ""), BOTH),
    ("seed of 5000 digits", "1.9", put(C + "order_seed", "9" * 5000), BOTH),
    ("stop rule that is a number", "7.1", put(C + "stop_on_non_finite", 1), ()),
    ("stop rule in a string", "7.1", put(C + "stop_on_non_finite", "true"), BOTH),
    ("contract that is a number", "7.1", put(C + "contract", 1), BOTH),
    ("digest in upper case", "1.1", put(C + "data_root", "AB" * 32), ()),
    ("digest too short", "1.1", put(C + "data_root", "ab" * 31), BOTH),
    ("digest too long", "1.1", put(C + "data_root", "ab" * 33), BOTH),
    ("digest that is no number", "1.1", put(C + "data_root", "xy" * 32), BOTH),
    ("digest that is null", "1.1", put(C + "genesis_root", None), BOTH),
    ("job digest in upper case", "1.1",
     lambda b: b.update(job_digest=b["job_digest"].upper()), ("job",)),
    ("job digest that is null", "1.1", put("job_digest", None), ("job",)),
    ("forward that is no digest", "1.1", put("forward", "program.txt"), ()),
    ("forward that is false", "1.1", put("forward", False), ()),
    ("commitment that is a list", "7.1", put("commitment", []), BOTH),
    ("commitment that is null", "7.1", put("commitment", None), BOTH),
    ("member of the commitment missing", "7.1", drop(C + "steps"), BOTH),
    ("member of the commitment too many", "7.1", put(C + "device", "cpu"), ()),
    ("member missing", "7.1", drop("fills"), ()),
    ("member too many", "7.1", put("comment", ""), ()),
    # scalars
    ("scalars in a list", "7.3", put("scalars", []), ("scalars",)),
    ("scalars that are null", "7.3", put("scalars", None), ("scalars",)),
    ("scalar in decimal", "1.10", put("scalars/lr", "0.1"), ("scalars",)),
    ("scalar that is an integer", "1.10", put("scalars/lr", 1), ("scalars",)),
    ("scalar that is null", "1.10", put("scalars/lr", None), ("scalars",)),
    ("scalar in short form", "1.10", put("scalars/lr", "0x1p-3"), ()),
    ("scalar in upper case", "1.10", put("scalars/lr", "0X1.999999999999AP-4"), ()),
    ("scalar that is infinite", "7.3", put("scalars/lr", "inf"), ()),
    ("scalar that is not a number", "7.3", put("scalars/lr", "nan"), ()),
    ("table with an infinity", "7.3", put("scalars/lr", ["0x0.0p+0", "-inf", "0x0.0p+0"]), ()),
    ("table with an integer", "1.10", put("scalars/lr", ["0x0.0p+0", 1, "0x0.0p+0"]), ("scalars",)),
    ("table in an object", "7.3", put("scalars/lr", {"0": "0x0.0p+0"}), ("scalars",)),
    ("257 scalars", "11.1", put("scalars", {f"s{n}": "0x0.0p+0" for n in range(257)}), ()),
    ("scalar with a name of 1025 bytes", "11.1", put("scalars", {"s" * 1025: "0x0.0p+0"}), ()),
    # schema
    ("schema in an object", "8.2", put("schema", {}), ()),
    ("schema without a field", "8.1", put("schema", []), ()),
    ("field that is a list", "8.2", put("schema/0", ["f32", "x", [3]]), ()),
    ("field without a shape", "8.2", lambda b: b["schema"][0].pop("shape"), ()),
    ("field with one member too many", "8.2", put("schema/0/unit", "m"), ()),
    ("field of an unknown dtype", "3.1", put("schema/0/dtype", "f16"), ()),
    ("field whose dtype is a list", "3.1", put("schema/0/dtype", ["f32"]), ()),
    ("field whose name is a number", "8.2", put("schema/0/name", 1), ()),
    ("field twice", "8.1", put("schema", _SCHEMA * 2), ()),
    ("field of a negative size", "3.1", put("schema/0/shape", [-3]), ()),
    ("field whose shape is a number", "3.1", put("schema/0/shape", 3), ()),
    ("field whose size is true", "3.1", put("schema/0/shape", [True]), ()),
    ("field whose size is a string", "3.1", put("schema/0/shape", ["3"]), ()),
    ("field of 17 axes", "3.1", put("schema/0/shape", [1] * 17), ()),
    ("record of no bytes", "8.1", put("schema/0/shape", [0]), ()),
    ("record of more than 2^20 bytes", "8.1", put("schema/0/shape", [262145]), ()),
    ("record whose size wraps around", "8.1", put("schema/0/shape", [1 << 40, 1 << 40]), ()),
    ("257 fields", "11.1",
     put("schema", [{"dtype": "u8", "name": f"f{n}", "shape": []} for n in range(257)]), ()),
    # what stands outside of the job digest
    ("fills in a list", "1.10", put("fills", []), ()),
    ("fill in decimal", "1.10", put("fills/buffer.kept", "0.0"), ()),
    ("fill that is an integer", "1.10", put("fills/buffer.kept", 0), ()),
    ("about in a list", "7.1", put("about", []), ()),
    ("recipe that is a string", "7.1", put("recipe", "hand"), ()),
    ("recipe without settings", "7.1", drop("recipe/settings"), ()),
    ("setting that is a number", "7.1", put("recipe/settings/lr", 1), ()),
    ("name of a recipe that is null", "7.1", put("recipe/name", None), ()),
    ("validation that is a list", "7.1", put("evaluation", []), ()),
    ("validation in batches of none", "7.1",
     put("evaluation", {**_VALIDATION, "batch_size": 0}), ()),
    ("validation of a batch that is not full", "7.1",
     put("evaluation", {**_VALIDATION, "record_count": 1}), ()),
    ("validation at negative steps", "7.1", put("evaluation", {**_VALIDATION, "every": -1}), ()),
    ("validation without a program", "7.1",
     put("evaluation", {k: v for k, v in _VALIDATION.items() if k != "program_digest"}), ()),
    # another file
    ("another format", "1.8", put("format", "tallystick-run/1"), ()),
    ("format of the future", "1.8", put("format", "tallystick-job/2"), ()),
    ("format that is a number", "1.8", put("format", 1), ()),
    ("no format", "1.8", drop("format"), ()),
    # 7.4: the parts do not fit together
    ("contract that is not the program's", "7.4", put(C + "contract", "rounded/1-draft.1"), ()),
    ("program of another digest", "7.4", put(C + "program_digest", "00" * 32), ()),
    ("batch that is not the program's", "7.4", put(C + "batch_size", 3), ()),
    ("field that is not the program's", "7.4", put("schema/0/name", "y"), ()),
    ("field of another dtype", "7.4", put("schema/0/dtype", "i32"), ()),
    ("field of another shape", "7.4", put("schema/0/shape", [4]), ()),
    ("field too many", "7.4",
     put("schema", [*_SCHEMA, {"dtype": "u8", "name": "y", "shape": []}]), ()),
    ("scalar that is not the program's", "7.4", put("scalars", {"rate": "0x0.0p+0"}), ()),
    ("scalar too many", "7.4", put("scalars/rate", "0x0.0p+0"), ()),
    ("scalar missing", "7.4", put("scalars", {}), ()),
    ("table shorter than the steps", "7.4", put("scalars/lr", ["0x0.0p+0"] * 2), ()),
    ("table longer than the steps", "7.4", put("scalars/lr", ["0x0.0p+0"] * 4), ()),
    ("empty table", "7.4", put("scalars/lr", []), ()),
]  # fmt: skip

# (name, change of the program text): well-formed programs that are no job's (7.4).
MISFITS: list[tuple[str, str, str]] = [
    ("program without a loss", "output loss %5", "output lost %5"),
    ("loss of another shape", "output loss %5", "output loss %2"),
    ("scalar that the job has not", "input scalar scalar.lr f64[]\n",
     "input scalar scalar.a f64[]\ninput scalar scalar.lr f64[]\n"),
    ("program that is not the named one", "draw=0", "draw=1"),
    ("program that is malformed", "draw=0", "draw=00"),
]  # fmt: skip

# Changes of the bytes of the good file: (name, clause, old, new).
BYTES: list[tuple[str, str, bytes, bytes]] = [
    ("space after a colon", "1.11", b'"steps":3', b'"steps": 3'),
    ("line feed at the end", "1.11", b'"shape":[3]}]}', b'"shape":[3]}]}\n'),
    ("two objects", "1.11", b'"shape":[3]}]}', b'"shape":[3]}]}{}'),
    ("cut off", "1.11", b'"shape":[3]}]}', b'"shape":[3]}]'),
    ("comma at the end", "1.11", b'"shape":[3]}]}', b'"shape":[3]}],}'),
    ("members out of order", "1.11", b'"record_count":5,"rng_seed":"9223372036854775807"',
     b'"rng_seed":"9223372036854775807","record_count":5'),
    ("key twice", "1.11", b'"steps":3', b'"steps":3,"steps":3'),
    ("key twice with two values", "1.11", b'"steps":3', b'"steps":4,"steps":3'),
    ("float", "1.11", b'"steps":3', b'"steps":3.0'),
    ("exponent", "1.11", b'"steps":3', b'"steps":3e0'),
    ("minus zero", "1.9", b'"record_count":5', b'"record_count":-0'),
    ("number with a zero", "1.11", b'"steps":3', b'"steps":03'),
    ("integer of 2^53", "1.9", b'"steps":3', b'"steps":9007199254740992'),
    ("integer of 5000 digits", "1.9", b'"steps":3', b'"steps":' + b"9" * 5000),
    ("not a number", "1.11", b'"steps":3', b'"steps":NaN'),
    ("infinity", "1.11", b'"steps":3', b'"steps":Infinity'),
    ("escaped letter", "1.11", b"written by hand", b"written by h\\u0061nd"),
    ("escaped slash", "1.11", b"tallystick-job/1", b"tallystick-job\\/1"),
    ("lone surrogate", "1.11", b"written by hand", b"written by \\ud800"),
    ("surrogate in UTF-8", "1.11", b"written by hand", b"written by \xed\xa0\x80"),
    ("not UTF-8", "1.11", b"written by hand", b"written by \xff"),
    ("zero byte", "1.11", b"written by hand", b"written\x00by hand"),
    ("comment", "1.11", b'"steps":3', b'/**/"steps":3'),
    ("single quotes", "1.11", b'"steps"', b"'steps'"),
    ("nested too deeply", "1.11", b'"evaluation":null', b'"evaluation":' + b"[" * 65 + b"]" * 65),
    ("nested far too deeply", "1.11", b'"evaluation":null',
     b'"evaluation":' + b"[" * 20000 + b"]" * 20000),
    ("word changed under the self-digest", "1.8", b"written by hand", b"written by head"),
]  # fmt: skip

WHOLE: list[tuple[str, str, bytes]] = [
    ("an empty manifest", "1.11", b""),
    ("null", "1.11", b"null"),
    ("a list", "7.1", b"[]"),
    ("an empty object", "7.1", b"{}"),
    ("a string", "7.1", b'"tallystick-job/1"'),
    ("a manifest that is a pickle", "1.11", b"\x80\x04N."),
]


def job_cases(program: str) -> list[dict[str, Any]]:
    """Cases in the order above; `program` is the text that stands beside every job.json."""
    cases: list[dict[str, Any]] = []

    def add(name: str, clause: str, data: bytes, text: str = program, good: bool = False) -> None:
        held: dict[str, Any]
        try:
            held = {"text": data.decode("utf-8")}
        except UnicodeDecodeError:
            held = {"base64": base64.b64encode(data).decode()}
        said = {"digest": json.loads(data)["job_digest"]} if good else {"refused": True}
        other = {} if text == program else {"program": text}
        cases.append({"name": name, "clause": f"COMMITMENTS {clause}", **held, **other, **said})

    whole = sealed(good_manifest(program))
    add("a job", "7", whole, good=True)
    for name, clause, change in GOOD_CHANGES:
        body = good_manifest(program)
        change(body)
        add(name, clause, sealed(body), good=True)
    for name, clause, change, keep in REFUSED:
        body = good_manifest(program)
        sealed(body)  # the digests that are kept are those of the good one
        change(body)
        add(name, clause, sealed(body, keep) if keep != BOTH else _self_sealed(body))
    for name, old, new in MISFITS:
        text = program.replace(old, new)
        body = good_manifest(program if name == "program that is not the named one" else text)
        add(name, "7.4", sealed(body), text)
    for name, clause, before, after in BYTES:
        assert whole.count(before) == 1, name
        add(name, clause, whole.replace(before, after))
    body = good_manifest(program)
    sealed(body)
    add("no self-digest", "1.8", dumped(body))
    add("self-digest of zeros", "1.8", dumped({**body, "manifest_digest": "00" * 32}))
    add("self-digest that is null", "1.8", dumped({**body, "manifest_digest": None}))
    for name, clause, data in WHOLE:
        add(name, clause, data)
    return cases


def _self_sealed(body: Manifest) -> bytes:
    return dumped({**body, "manifest_digest": self_digest(body)})
