"""What a page that carries evidence is beside it: whose judge, whose style, whose words.

Nothing here decides about the evidence (PROTOCOL 8.6). It says of a page from another person what
can be said by its bytes: whether the judge in it is one that this package lists, and whether the
page is the one that this build writes about the same evidence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tallystick.commit.encoding import sha256
from tallystick.errors import CannotCheckError
from tallystick.job.carried import CLOSING, CarriedEvidence, carried_place
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement
from tallystick.report.built_judge import BuiltJudge, built_judge, version_of
from tallystick.report.with_judge import SCRIPT_TAG, STYLE_TAG, facts_for, policy_of, write_page

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
