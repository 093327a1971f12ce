"""A dispute's page that carries its evidence and a judge (PROTOCOL 8.6): written, and looked at
where another person has written it.

The page is a function of what it carries and of this build: no file's name, no run's losses and no
reader's trust is in it. So whoever has the evidence can write it again and compare the bytes.

Nothing here decides about the evidence (PROTOCOL 8.6). It says of a page from another person what
can be said by its bytes: whether the judge in it is one that this package lists, and whether the
page is the one that this build writes about the same evidence.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, replace

from tallystick.commit.encoding import sha256
from tallystick.devices.environment import exact_environment
from tallystick.errors import CannotCheckError
from tallystick.job.carried import CLOSING, OPENING, CarriedEvidence, carried_place
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement
from tallystick.report.built_judge import BuiltJudge, built_judge, version_of
from tallystick.report.dispute_page import dispute_page
from tallystick.report.facts import DisputeFacts, judged_dispute
from tallystick.report.html import Safe, code, digest, el, items, join
from tallystick.report.page import Inside, page_style, paragraph, section

# What the facts call the evidence: a reader may give the file any name.
NAME = "page.html"
SCRIPT_TAG = b'<script id="tallystick-judge-script">'
STYLE_TAG = b'<style id="tallystick-judge-style">'
# The element that the script fills.
MOUNT = "tallystick-judge"


@exact_environment()
def write_page(carried: CarriedEvidence, dispute: DisputeFacts, judge: BuiltJudge) -> str:
    """The page about `dispute`, as `facts_for` gives it: a whole HTML document.

    Raises UsageError as `carried.text`.
    """
    return dispute_page(dispute, _inside(carried, judge))


def facts_for(data: bytes, terms: Terms, found: Judgement) -> DisputeFacts:
    """The facts of such a page: the evidence in `data`, whose judgement under `terms` is `found`
    (with whatever trust: no reader's trust is in the page)."""
    facts = judged_dispute(NAME, data, terms, found)
    return replace(facts, trusted=(None, None))


def policy_of(script: bytes, *styles: bytes) -> Safe:
    """The policy of a page that runs this script, applies these styles, and loads nothing."""
    return Safe(
        "default-src 'none'; form-action 'none'; base-uri 'none'; "
        f"script-src {_source(script)}; style-src {' '.join(map(_source, styles))}"
    )


def _source(content: bytes) -> str:
    return f"'sha256-{base64.b64encode(sha256(content)).decode('ascii')}'"


def _inside(carried: CarriedEvidence, judge: BuiltJudge) -> Inside:
    return Inside(
        policy_of(judge.script, page_style().encode("utf-8"), judge.style),
        _element(STYLE_TAG, judge.style, b"</style>"),
        _section(carried),
        join(
            _element(OPENING, carried.text(), CLOSING),
            _element(SCRIPT_TAG, judge.script, CLOSING),
        ),
    )


def _element(opening: bytes, content: bytes, closing: bytes) -> Safe:
    return Safe((opening + content + closing).decode("utf-8"))


def _section(carried: CarriedEvidence) -> Safe:
    return section(
        "Judged again, in your browser",
        el(
            "div",
            paragraph(
                "It was not judged again: this browser has run no script. The command ",
                code("tallystick judge"),
                " takes this file too.",
            ),
            id=MOUNT,
        ),
        paragraph(
            "This page carries the signed evidence, the job, and a judge that runs in your "
            "browser. It needs no network, and sends nothing. The job came with the page: only you "
            "can say whether it is the one that you mean. If you distrust the sender of this page, "
            "take your own copy of the judge: see “How to check it yourself” below.",
            class_="soft small",
        ),
        _names(carried),
    )


def _names(carried: CarriedEvidence) -> Safe | None:
    if not carried.names:
        return None
    named = sorted(carried.names.items())
    return join(
        paragraph("Names that the maker of this page gives to keys. Nobody has checked them:"),
        items(*(join("“", name, "”: the key ", digest(sha256(key))) for key, name in named)),
    )


PARTS = SCRIPT, STYLE, TEXT = "script", "style", "text"
_STYLE_END, _PAGE_STYLE_TAG = b"</style>", b"<style>"
_POLICY = re.compile(rb'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
# Stands for the judge of a build that has none: its parts are other ones than any page's.
_NO_JUDGE = BuiltJudge(b"", b"")


@dataclass(frozen=True)
class EmbeddedJudge:
    """The judge in a page: SHA-256 of its parts (None where the page has no such element, or
    several), and the version of the listed build that it is byte for byte."""

    script: bytes | None
    style: bytes | None
    version: str | None

    @property
    def listed(self) -> bool:
        return self.version is not None


@dataclass(frozen=True)
class _PageParts:
    """A page taken apart. `text` is all but script, styles, policy and evidence; None are parts
    that are missing, or there more than once."""

    script: bytes | None
    judge_style: bytes | None
    page_style: bytes | None
    policy: bytes | None
    text: bytes


def embedded_judge(page: bytes) -> EmbeddedJudge:
    """The judge in a page that carries evidence. Raises CorruptFileError as `carried_place`."""
    parts = _apart(page)
    script, style = parts.script, parts.judge_style
    version = None if script is None or style is None else version_of(script, style)
    return EmbeddedJudge(
        None if script is None else sha256(script),
        None if style is None else sha256(style),
        version,
    )


def differing(
    page: bytes, carried: CarriedEvidence, terms: Terms, found: Judgement
) -> tuple[str, ...]:
    """Which of PARTS differ from the page that this build writes about the same evidence; none
    where the page is that page, byte for byte. `found` is its judgement under `terms`.

    Raises CorruptFileError as `carried_place`.
    """
    try:
        judge = built_judge()
    except CannotCheckError:
        judge = _NO_JUDGE
    dispute = facts_for(carried.evidence, terms, found)
    expected = write_page(carried, dispute, judge).encode("utf-8")
    if page == expected:
        return ()
    theirs, ours = _apart(page), _apart(expected)
    styles = theirs.judge_style, theirs.page_style
    differs = {
        SCRIPT: theirs.script != ours.script,
        STYLE: styles != (ours.judge_style, ours.page_style),
        # Another policy than its script and styles ask for is a change of its own.
        TEXT: theirs.text != ours.text or theirs.policy != _policy(theirs),
    }
    return tuple(part for part in PARTS if differs[part]) or (TEXT,)


def _policy(parts: _PageParts) -> bytes | None:
    if parts.script is None or parts.judge_style is None or parts.page_style is None:
        return None
    return policy_of(parts.script, parts.page_style, parts.judge_style).encode("ascii")


def _apart(page: bytes) -> _PageParts:
    begin, end = carried_place(page)
    page = page[:begin] + page[end:]
    script, page = _cut(page, SCRIPT_TAG, CLOSING)
    judge_style, page = _cut(page, STYLE_TAG, _STYLE_END)
    page_style, page = _cut(page, _PAGE_STYLE_TAG, _STYLE_END)
    found = list(_POLICY.finditer(page))
    policy = found[0][1] if len(found) == 1 else None
    if policy is not None:
        page = page[: found[0].start(1)] + page[found[0].end(1) :]
    return _PageParts(script, judge_style, page_style, policy, page)


def _cut(page: bytes, opening: bytes, closing: bytes) -> tuple[bytes | None, bytes]:
    """The content of the one element that begins with `opening`, and the page without it; None and
    the page where there is not exactly one."""
    if page.count(opening) != 1:
        return None, page
    begin = page.index(opening) + len(opening)
    end = page.find(closing, begin)
    if end < 0:
        return None, page
    return page[begin:end], page[:begin] + page[end:]
