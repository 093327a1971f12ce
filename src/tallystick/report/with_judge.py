"""A dispute's page that carries its evidence and a judge (PROTOCOL 8.6).

The page is a function of what it carries and of this build: no file's name, no run's losses and no
reader's trust is in it. So whoever has the evidence can write it again and compare the bytes.
"""

from __future__ import annotations

import base64
from dataclasses import replace

from tallystick.commit.encoding import sha256
from tallystick.devices.environment import exact_environment
from tallystick.job.carried import CLOSING, OPENING, CarriedEvidence
from tallystick.program.terms import Terms
from tallystick.protocol.judge import Judgement
from tallystick.report.built_judge import BuiltJudge
from tallystick.report.dispute_page import dispute_page
from tallystick.report.facts import DisputeFacts, judged_dispute
from tallystick.report.html import Safe, el, join
from tallystick.report.page import Inside, page_style, paragraph, section
from tallystick.report.words import code, digest, items

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
