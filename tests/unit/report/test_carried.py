"""The element by which a page carries evidence: layout, limits, refusals (PROTOCOL 8.6)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from evidence_format import load
from unit.report.carried_pages import lay_out

from tallystick.commit.encoding import canonical_json
from tallystick.errors import (
    CorruptFileError,
    DigestMismatchError,
    TallystickError,
    UnsupportedVersionError,
)
from tallystick.job import carried as module
from tallystick.job.carried import (
    CLOSING,
    OPENING,
    CarriedEvidence,
    is_page,
    read_page,
    terms_files,
)
from tallystick.job.job_file import load_job, load_terms
from tallystick.limits import LIMITS

KEY = bytes(range(32))
Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> CarriedEvidence:
    bundle = load("format-two")
    files = lay_out(bundle, bundle.cases[0], tmp_path_factory.mktemp("case"))
    return CarriedEvidence(b"evidence", terms_files(load_job(files.job)), {KEY: "Ann & Söhne"})


def page(text: bytes) -> bytes:
    return b"<!DOCTYPE html><p>" + OPENING + text + CLOSING + b"</p>"


def changed(held: CarriedEvidence, change: Change) -> bytes:
    value = json.loads(held.text())
    change(value)
    return page(canonical_json(value))


def test_what_is_written_is_read_again(held: CarriedEvidence, tmp_path: Path) -> None:
    assert read_page(page(held.text())) == held
    directory = tmp_path / "job"
    directory.mkdir()
    for name, data in held.job.items():
        (directory / name).write_bytes(data)
    own, theirs = load_terms(directory), held.terms
    assert (own.digest, own.texts, own.schemas) == (theirs.digest, theirs.texts, theirs.schemas)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda v: v.pop("names"), "'names' is missing"),
        (lambda v: v.update(more=1), "'more' is missing or unknown"),
        (lambda v: v.update(format="other/1"), "its format is unknown"),
        (lambda v: v.update(format=1), "'format' is not a string"),
        (lambda v: v.update(evidence="ZXZ"), "not base64"),
        (lambda v: v.update(evidence="ZX Z"), "not base64"),
        (lambda v: v.update(evidence="ZX-_"), "not base64"),
        (lambda v: v.update(evidence="é==="), "not base64"),
        (lambda v: v.update(evidence="ZR=="), "not the base64 of its bytes"),
        (lambda v: v.update(evidence=None), "'evidence' is not a string"),
        (lambda v: v.update(job=[]), "should be an object"),
        (lambda v: v["job"].pop("job.json"), "no job"),
        (lambda v: v["job"].update({"../job.json": ""}), "none of a job's terms"),
        (lambda v: v["job"].update({"state0.safetensors": ""}), "none of a job's terms"),
        (lambda v: v["job"].update({"program-A.txt": ""}), "none of a job's terms"),
        (lambda v: v["job"].update({f"program-a{i}.txt": "" for i in range(65)}), "too many files"),
        (lambda v: v["names"].update({"00": "x"}), "not 64"),
        (lambda v: v["names"].update({"AB" * 32: "x"}), "not lower-case"),
        (lambda v: v["names"].update({"ab" * 32: "x" * 1025}), "too long a name"),
        (lambda v: v["names"].update({"ab" * 32: "a<b"}), "not written as a page"),
        (lambda v: v["names"].update({f"{i:064x}": "x" for i in range(64)}), "too many keys"),
    ],
)
def test_refused_content(held: CarriedEvidence, change: Change, why: str) -> None:
    with pytest.raises(CorruptFileError, match=r"refused|canonical") as found:
        read_page(changed(held, change))
    assert why in found.value.message


def test_refused_layouts(held: CarriedEvidence) -> None:
    text = held.text()
    for data, why in (
        (b"<!DOCTYPE html>", "no evidence"),
        (page(text).replace(OPENING, OPENING.upper()), "no evidence"),
        (page(text) + page(text), "more than once"),
        (page(text) + OPENING, "more than once"),
        (b"<p>" + OPENING + text, "cut off"),
        (page(b" " + text), "canonical"),
        (page(text + b"\n"), "canonical"),
        (page(b"[" * 100), "canonical"),
        (page(b"\xff"), "canonical"),
        (page(b""), "canonical"),
        (page(b"<!--" + text), "not written as a page"),
        (page(b"[]"), "should be an object"),
    ):
        with pytest.raises(CorruptFileError, match=why):
            read_page(data)
    with pytest.raises(UnsupportedVersionError, match="tallystick-carried/2"):
        read_page(changed(held, lambda v: v.update(format="tallystick-carried/2")))


def test_sizes_are_checked_before_anything_is_decoded(
    held: CarriedEvidence, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> bytes:
        raise AssertionError("decoded")

    data = changed(held, lambda v: v.update(evidence="AAAA" * 3))
    for limit in ({"evidence_bytes": 6}, {"carried_bytes": 100}, {"page_bytes": 100}):
        monkeypatch.setattr(module, "LIMITS", replace(LIMITS, **limit))
        monkeypatch.setattr(base64, "b64decode", never)
        with pytest.raises(CorruptFileError, match="limit"):
            read_page(data)
    monkeypatch.undo()
    assert read_page(data).evidence == bytes(9)


@pytest.mark.parametrize("change", ["swap", "missing", "extra", "manifest", "text"])
def test_a_job_whose_files_do_not_fit(held: CarriedEvidence, change: str) -> None:
    files = dict(held.job)
    first, *others = sorted(name for name in files if name != "job.json")
    if change == "swap":
        files[first], files[others[0]] = files[others[0]], files[first]
    elif change == "missing":
        del files[first]
    elif change == "extra":
        files["program-x.txt"] = b""
    elif change == "manifest":
        files["job.json"] = files["job.json"].replace(b'"steps":', b'"step":', 1)
    else:
        files[first] += b"\n"
    with pytest.raises((CorruptFileError, DigestMismatchError)) as found:
        _ = replace(held, job=files).terms
    assert isinstance(found.value, TallystickError) and "the page's job" in found.value.message


def test_what_begins_as_a_page() -> None:
    for beginning in (b"<!DOCTYPE html>", b"\xef\xbb\xbf<html>", b"\r\n <!-- saved -->"):
        assert is_page(beginning)
    for beginning in (b"", b"tallystick/evidence/1\0", b"{", b"\xef\xbb"):
        assert not is_page(beginning)
