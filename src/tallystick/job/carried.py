"""What a page of HTML carries, and the judge over it (PROTOCOL 8.6).

A page carries evidence, the terms of a job, names of keys. It proves nothing by itself. This module
takes out what a judge needs; it reads one element by its bytes, and parses no HTML. Nothing is
written to a disk, and nothing is loaded that runs a job.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NoReturn

from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signing import PublicKey
from tallystick.disk.regular import read_file
from tallystick.errors import CorruptFileError, UnsupportedVersionError, UsageError
from tallystick.job.job import MANIFEST, Job
from tallystick.job.job_file import terms_of_files
from tallystick.limits import LIMITS
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement, judge

FORMAT = "tallystick-carried/1"
OPENING = b'<script type="application/vnd.tallystick.carried+json" id="tallystick-carried">'
CLOSING = b"</script>"
# What errors call the job: it lies in no directory.
WHERE = Path("the page's job")
_FAMILY = "tallystick-carried/"
_MOST_FILES = 65  # the manifest, and at most 64 programs (COMMITMENTS 7.6.1)
_PROGRAM_FILE = re.compile(r"program(-[a-z][a-z0-9-]{0,39})?\.txt", re.ASCII)


@dataclass(frozen=True)
class CarriedEvidence:
    """The content of the element. `job` is the job's files by name, `names` what the page's maker
    calls the holders of public keys (32 raw bytes)."""

    evidence: bytes
    job: Mapping[str, bytes]
    names: Mapping[bytes, str]

    @cached_property
    def terms(self) -> Terms:
        """The terms of the job that came with the page. Raises as `terms_of_files`."""
        return terms_of_files(self.job, WHERE)

    def text(self) -> bytes:
        """The element's text. Raises UsageError where it would be refused."""
        data = canonical_json(
            {
                "evidence": _digits(self.evidence),
                "format": FORMAT,
                "job": {name: _digits(data) for name, data in self.job.items()},
                "names": {key.hex(): name for key, name in self.names.items()},
            }
        )
        try:
            _read_text(data)
        except CorruptFileError as error:
            raise UsageError(
                error.message, "Give names to at most 64 keys. Names are short and contain no `<`."
            ) from error
        return data


def terms_files(job: Job) -> dict[str, bytes]:
    """The files of a job that a page carries, by name. Raises StorageError, CorruptFileError."""
    programs = range(len(job.commitment.timetable.programs))
    limits = {job.program_file(number): LIMITS.program_bytes for number in programs}
    limits[MANIFEST] = LIMITS.manifest_bytes
    return {
        name: read_file(job.directory / name, limit, "file of the job", job.directory)
        for name, limit in limits.items()
    }


def is_page(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes is a page: evidence begins with its tag (8.1)."""
    return beginning.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"<"


def read_page(data: bytes) -> CarriedEvidence:
    """What the page in untrusted bytes carries.

    Raises CorruptFileError, UnsupportedVersionError (PROTOCOL 8.6).
    """
    return _read_text(data[slice(*carried_place(data))])


def carried_place(data: bytes) -> tuple[int, int]:
    """Where in a page the text of the carried element begins and ends. Raises CorruptFileError."""
    if len(data) > LIMITS.page_bytes:
        _refuse(f"it has {len(data)} bytes, more than the limit of {LIMITS.page_bytes}")
    found = data.count(OPENING)
    if found != 1:
        _refuse("it carries no evidence" if not found else "it carries evidence more than once")
    begin = data.index(OPENING) + len(OPENING)
    end = data.find(CLOSING, begin)
    if end < 0:
        _refuse("it is cut off")
    return begin, end


def _refuse(why: str) -> NoReturn:
    raise CorruptFileError(
        f"This page is refused: {why}.", "The page convicts nobody. Ask for an intact copy."
    )


def _read_text(text: bytes) -> CarriedEvidence:
    if b"<" in text:
        _refuse("its evidence is not written as a page carries it")
    value = parse_canonical_json(text, "page's evidence", LIMITS.carried_bytes)
    top = Members(value, _refuse)
    form = top.of("format", str)
    if form != FORMAT:
        if form.startswith(_FAMILY):
            raise UnsupportedVersionError(
                f"The page has format {form[:80]!r}, but this build knows {FORMAT!r}.",
                "Use a build of Tallystick that knows this format.",
            )
        _refuse("its format is unknown")
    top.only("evidence", "format", "job", "names")
    evidence = _bytes(top, "evidence", LIMITS.evidence_bytes)
    return CarriedEvidence(evidence, _files(top.child("job")), _names(top.child("names")))


def _files(job: Members) -> dict[str, bytes]:
    if len(job.value) > _MOST_FILES:
        job.fail("it carries too many files of a job")
    files = dict[str, bytes]()
    for name in job.value:
        if name == MANIFEST:
            files[name] = _bytes(job, name, LIMITS.manifest_bytes)
        elif _PROGRAM_FILE.fullmatch(name):
            files[name] = _bytes(job, name, LIMITS.program_bytes)
        else:
            job.fail("it carries a file that is none of a job's terms")
    if MANIFEST not in files:
        job.fail("it carries no job")
    return files


def _names(names: Members) -> dict[bytes, str]:
    if len(names.value) > LIMITS.parties:
        names.fail("it names too many keys")
    found = dict[bytes, str]()
    for key in names.value:
        name = names.of(key, str)
        if len(name.encode("utf-8")) > LIMITS.name_bytes:
            names.fail("it gives a key too long a name")
        found[names.hex_of(key, "names")] = name
    return found


def _digits(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(members: Members, name: str, limit: int) -> bytes:
    """Bytes in standard base64, whose number is within `limit` before any is decoded."""
    text = members.of(name, str)
    if len(text) > 4 * ((limit + 2) // 3):
        members.fail(f"{name!r} is longer than its limit")
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (ValueError, binascii.Error):
        members.fail(f"{name!r} is not base64")
    if len(data) > limit:
        members.fail(f"{name!r} is longer than its limit")
    if _digits(data) != text:  # unused bits that are not zero
        members.fail(f"{name!r} is not the base64 of its bytes")
    return data


@dataclass(frozen=True)
class PageJudgement:
    """The verdict over the evidence in a page, and all that the page carries.

    `terms` are those that it was judged by. `own_job` is false where they came with the page: then
    the verdict is worth as much as that job (PROTOCOL 8.6.4).
    """

    judgement: Judgement
    carried: CarriedEvidence
    terms: Terms
    own_job: bool


def judge_carried(
    page: bytes,
    own: Terms | None,
    trust: Sequence[PublicKey] | None = None,
    trust_referees: Sequence[PublicKey] = (),
) -> PageJudgement:
    """The verdict over the evidence in the untrusted bytes of a page, by the caller's `own` terms,
    or else by those that came with it.

    Raises as `judge`, and CorruptFileError, DigestMismatchError or UnsupportedVersionError for a
    page that carries none.
    """
    carried = read_page(page)
    terms = carried.terms if own is None else own
    found = judge(terms, carried.evidence, trust, trust_referees)
    return PageJudgement(found, carried, terms, own is not None)
