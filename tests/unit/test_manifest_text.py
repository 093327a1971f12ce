"""COMMITMENTS 7.5 against the manifests that are written and read: members, values, digest."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from unit.test_spec_tables import rows, section

from tallystick.disk.manifest import manifest_bytes
from tallystick.errors import CounterpartyError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job

DIGEST = r"[0-9a-f]{64}"
BINARY64 = r"-?0x[01]\.[0-9a-f]+p[+-][0-9]+"


def stated(number: str) -> dict[str, str]:
    """Member -> its value as a table of COMMITMENTS says it (the last column)."""
    return {row[0].strip("`"): row[-1] for row in rows(section("COMMITMENTS", number))}


def manifest(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((job.directory / "job.json").read_text("utf-8"))
    return found


def fits(value: Any, said: str) -> bool:
    """Whether a value is what a table says; of an object that is told elsewhere, an object."""
    if said.startswith("null, or "):
        return value is None or fits(value, said.removeprefix("null, or "))
    for start, holds in KINDS.items():
        if said.startswith(start):
            return bool(holds(value))
    raise AssertionError(f"a value that this test does not know: {said}")


def is_binary64(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(BINARY64, value) is not None


def is_scalar(value: Any) -> bool:
    return is_binary64(value) or (isinstance(value, list) and all(map(is_binary64, value)))


def is_field(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"name", "dtype", "shape"}


def is_object(value: Any, of: Callable[[Any], bool] = lambda _: True) -> bool:
    return isinstance(value, dict) and all(map(of, value.values()))


# The first words of a table's last column, the longest first.
KINDS: dict[str, Callable[[Any], Any]] = {
    "the string `tallystick-job/1`": lambda v: v == "tallystick-job/1",
    "digest": lambda v: isinstance(v, str) and re.fullmatch(DIGEST, v),
    "a decimal string": lambda v: isinstance(v, str) and re.fullmatch("0|[1-9][0-9]*", v),
    "a string": lambda v: isinstance(v, str),
    "an integer": lambda v: type(v) is int,
    "true (1) or false (0)": lambda v: type(v) is bool,
    "an array of the record's fields": lambda v: isinstance(v, list) and all(map(is_field, v)),
    "an object: the name of each scalar": lambda v: is_object(v, is_scalar),
    "an object: names of slots": lambda v: is_object(v, is_binary64),
    "an object": is_object,
}


@pytest.fixture(params=["logreg_job", "mlp_job"])
def job(request: pytest.FixtureRequest) -> Job:
    """One with an evaluation; one with a schedule and with slots that are filled."""
    found: Job = request.getfixturevalue(request.param)
    return found


def test_the_members_are_the_tables(job: Job) -> None:
    """COMMITMENTS 7.5.1, 7.5.2, 7.5.4."""
    found = manifest(job)
    for number, value in (
        ("7.5.1", found), ("7.5.2", found["commitment"]), ("7.5.4", found["evaluation"])
    ):  # fmt: skip
        if value is None:
            continue
        table = stated(number)
        assert set(value) == set(table)
        wrong = [name for name, said in table.items() if not fits(value[name], said)]
        assert not wrong, (number, wrong)


def test_what_the_two_jobs_have_is_all(logreg_job: Job, mlp_job: Job) -> None:
    """So the test above looks at every kind of member."""
    assert manifest(logreg_job)["evaluation"]
    assert manifest(mlp_job)["fills"]
    assert any(isinstance(v, list) for v in manifest(mlp_job)["scalars"].values())


def test_the_commitments_members_are_those_of_the_job() -> None:
    """COMMITMENTS 7.5.2 names each member of 7.1 once."""
    members = [row[0] for row in rows(section("COMMITMENTS", "7.1"))]
    assert [row[1] for row in rows(section("COMMITMENTS", "7.5.2"))] == members


def test_the_manifest_digest(job: Job) -> None:
    """COMMITMENTS 7.5.3, by hand."""
    assert "H( TAG(manifest/1) ‖ blob m )" in section("COMMITMENTS", "7.5.3")
    found = manifest(job)
    said = found.pop("manifest_digest")
    m = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    layout = b"tallystick/manifest/1\0" + struct.pack("<Q", len(m)) + m
    assert hashlib.sha256(layout).hexdigest() == said


@pytest.mark.parametrize("number", ["7.5.1", "7.5.2", "7.5.4"])
def test_other_members_are_refused(number: str, logreg_job: Job, tmp_path: Path) -> None:
    """COMMITMENTS 7.5: exactly these members; each is left out, and one is added."""
    within = {"7.5.1": (), "7.5.2": ("commitment",), "7.5.4": ("evaluation",)}[number]
    for name in [*sorted(set(stated(number)) - {"manifest_digest"}), "another"]:
        body = manifest(logreg_job)
        del body["manifest_digest"]
        inner = body[within[0]] if within else body
        inner.pop(name) if name in inner else inner.update(another="")
        (tmp_path / "job.json").write_bytes(manifest_bytes(body))
        with pytest.raises(CounterpartyError):
            load_job(tmp_path)
