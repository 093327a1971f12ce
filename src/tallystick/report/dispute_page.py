"""A judged dispute as a page: the verdict, the parties, the way to it, the cost."""

from __future__ import annotations

import re

from tallystick.devices.environment import exact_environment
from tallystick.protocol.verdict import Conviction
from tallystick.report.answer_meanings import Work
from tallystick.report.clauses import ruling_section
from tallystick.report.curve import figure
from tallystick.report.facts import Curve, DisputeFacts
from tallystick.report.falsehood import has_digests, number_section, the_number
from tallystick.report.first import consequence, first_sentence, meaning, until
from tallystick.report.html import (
    FINGERPRINT,
    PARTIES,
    Safe,
    code,
    count,
    digest,
    el,
    facts,
    items,
    join,
)
from tallystick.report.job_words import job_section
from tallystick.report.narrowing import narrowing_section
from tallystick.report.page import (
    Inside,
    badge,
    banner,
    fold,
    page,
    paragraph,
    section,
    trust_badge,
)
from tallystick.report.path import path_section
from tallystick.report.proved import checking_section, proved_section
from tallystick.report.revealed import in_words

# Above the first sentence: what all of it is about, and what the words mean.
ABOUT = (
    "Two parties each signed that they trained the same model by the same written order, called "
    "the job. Their signed records of that training are called runs. This page shows whether and "
    "where the two runs differ, and what is proved about it."
)
_ABOUT_ENCODING = (
    "Two parties each signed which numbers a model makes of one text, computed by the same written "
    "order, called the job. Their signed records of that are called runs. This page shows whether "
    "and where the two runs differ, and what is proved about it."
)
_ABOUT_ANSWER = (
    "Two parties each signed how a language model answers one text, computed by the same written "
    "order, called the job. Their signed records of that are called runs. This page shows whether "
    "and where the two runs differ, and what is proved about it."
)
# What a verdict by PROTOCOL 5.3 says of the two states.
_NO_NUMBER = (
    "A state is very many numbers, and only its fingerprint was signed. So no single number can be "
    "shown."
)
_TWO_STATES = re.compile(r"its nodes make state ([0-9a-f]{16}), it has committed to ([0-9a-f]{16})")


@exact_environment()
def dispute_page(dispute: DisputeFacts, inside: Inside | None = None) -> str:
    """The page of a dispute: a whole HTML document, with the judge `inside` or without."""
    body = dispute_body(dispute, None if inside is None else inside.section)
    same = dispute.verdict.agreement
    title = headline(dispute)
    about = {Work.ANSWER: _ABOUT_ANSWER, Work.ENCODING: _ABOUT_ENCODING}.get(dispute.work, ABOUT)
    return page(title, body, same=same, inside=inside, about=about)


@exact_environment()
def dispute_body(dispute: DisputeFacts, again: Safe | None = None) -> Safe:
    """The content of the page's main part, from the first sentence to the fold; `again` is where
    the page judges itself."""
    verdict = dispute.verdict
    differ = not verdict.agreement
    return join(
        banner(
            headline(dispute),
            *_lead(dispute),
            good=None if verdict.undecided else not differ,
            doubtful=verdict.forfeit,
        ),
        number_section(dispute) if differ else None,
        again,
        proved_section(dispute),
        _reveals(dispute),
        narrowing_section(dispute, _explains(dispute)) if differ else None,
        job_section(dispute.terms),
        _parties(dispute),
        _curves(dispute),
        checking_section(dispute, again is not None),
        fold(
            "For experts: every signed statement, the clauses and their text",
            path_section(dispute) if differ else None,
            ruling_section(dispute) if differ else None,
            _cost(dispute),
            _digests(dispute),
        ),
    )


@exact_environment()
def headline(dispute: DisputeFacts) -> str:
    """The verdict in one sentence. The judge that a page carries compares it with its own."""
    return first_sentence(dispute.verdict, dispute.work)


def _lead(dispute: DisputeFacts) -> list[Safe | None]:
    verdict = dispute.verdict
    found = {meaning(verdict, c, dispute.work).means: None for c in verdict.convicted}
    if len(found) > 1:
        told = [paragraph(el("strong", PARTIES[c.party]), f" {m.did}. ", m.means)
                for c in verdict.convicted
                for m in [meaning(verdict, c, dispute.work)]]  # fmt: skip
    else:
        told = [paragraph(words, class_="lead") for words in found]
    place = until(verdict) if dispute.work is Work.TRAINING else ""
    return [
        *told,
        paragraph(consequence(verdict, dispute.work), class_=None if told else "lead"),
        paragraph(FINGERPRINT) if _explains(dispute) else None,
        the_number(dispute),
        *_two_states(dispute),
        paragraph(place) if place and not verdict.agreement else None,
        _word_of_a_referee(dispute) if verdict.forfeit else None,
    ]


def _explains(dispute: DisputeFacts) -> bool:
    """Whether the first sentences show fingerprints, and so say what one is."""
    states = any(_two_roots(c) for c in dispute.verdict.convicted)
    return bool(dispute.verdict.convicted) and (has_digests(dispute) or states)


def _two_roots(conviction: Conviction) -> re.Match[str] | None:
    """The fingerprints in a conviction by PROTOCOL 5.3: of the work, and of the signed state."""
    return _TWO_STATES.match(conviction.sentence) if conviction.clause == "5.3" else None


def _two_states(dispute: DisputeFacts) -> list[Safe]:
    """The two states that one party signed as the end of one step (PROTOCOL 5.3)."""
    verdict, told = dispute.verdict, []
    for conviction in verdict.convicted:
        found = _two_roots(conviction)
        if not found:
            continue
        name, other = PARTIES[conviction.party], PARTIES[1 - conviction.party]
        lines = [
            el("strong", f"{name} signed"), " the state with the fingerprint ", code(found[2]),
            " as the result of the step. It also signed the operations of the step, and their "
            "result has the fingerprint ", code(found[1]), ".",
        ]  # fmt: skip
        trees = next((e for e in verdict.story if e.clause == "5.1" and all(e.stated)), None)
        if trees and len(set(trees.stated)) == 1 and len(verdict.convicted) == 1:
            lines.append(
                f" Both parties signed the same operations, with the same results. {other}'s "
                f"result of the step fits them; {name}'s does not."
            )
        told.append(paragraph(*lines))
    if told:
        told.append(paragraph(_NO_NUMBER))
    return told


def _reveals(dispute: DisputeFacts) -> Safe | None:
    """What the evidence shows of a text that may be meant for few."""
    if dispute.reveals is None:
        return None
    return section(
        "What the evidence shows of the text",
        items(*in_words(dispute.reveals)),
        paragraph(
            "Whoever has the evidence can read that. The numbers are those that the parties have "
            "signed, false ones among them.", class_="soft small",
        ),
    )  # fmt: skip


def _word_of_a_referee(dispute: DisputeFacts) -> Safe:
    return paragraph(
        "The silence rests on the word of one referee, and not on anything that the party signed. "
        "The referee's message states neither a date nor how long the referee waited, and "
        "nobody else can check the silence. The maker of this page trusts that referee; you need "
        "not. The referee's key is ",
        code(dispute.referee or "(none named)"),
        ".",
    )


def _fate(dispute: DisputeFacts, party: int) -> Safe:
    """A party's part in the verdict, in a few words. Good news is no part of it: that a party was
    not shown wrong does not make its run right."""
    verdict = dispute.verdict
    if verdict.agreement:
        return badge("agrees", True)
    if party not in {c.party for c in verdict.convicted}:
        return badge("not shown wrong here", None)
    if verdict.forfeit:
        return badge("did not answer, says the referee", None)
    return badge("✗ signed something false", False)


def _parties(dispute: DisputeFacts) -> Safe:
    cards = []
    for party, run in enumerate(dispute.runs):
        rows: dict[str, object] = {
            "Its run ends after": count(run.final_step, "step"),
            "Signed states, with the start": count(run.checkpoints),
            "Signed by the key": join(code(run.signer.key_id[:16]), "… ",
                                      trust_badge(dispute.trusted[party])),
        }  # fmt: skip
        card = "card party one" if party else "card party"
        name = el("h3", PARTIES[party], " ", _fate(dispute, party))
        cards.append(el("div", name, facts(rows), class_=card))
    words = (
        "Each key has signed a run of this job. A key is all that is known of a party. A and B say "
        "only in which order the runs were named, so on another page the same key may be the "
        "other letter. “Owner not named” means that the maker of this page named no owner of the "
        "key."
    )
    return section("The parties", paragraph(words, class_="soft small"),
                   el("div", *cards, class_="pair"))  # fmt: skip


def _digests(dispute: DisputeFacts) -> Safe:
    rows: dict[str, object] = {"Arity of the search": count(dispute.arity)}
    for party, run in enumerate(dispute.runs):
        rows |= {
            f"{PARTIES[party]}: run root": digest(run.run_root),
            f"{PARTIES[party]}: final state": digest(run.final_state_root),
            f"{PARTIES[party]}: signer (key id)": digest(run.signer.key_id),
        }
    return section(
        "Fingerprints", paragraph("Party A is party 0 of the protocol, B is 1."), facts(rows)
    )


def _cost(dispute: DisputeFacts) -> Safe:
    verdict = dispute.verdict
    work = dispute.terms.commitment.steps * len(dispute.terms.program.nodes)
    figures = {
        "rounds of questions": count(verdict.rounds),
        "bytes of answers": count(verdict.received),
        "bytes of evidence": count(dispute.size),
        "terms computed by the judge": count(verdict.terms),
        "operations in the disputed job": count(work),
    }
    boxes = (el("div", el("b", value), " ", el("span", name)) for name, value in figures.items())
    words = (
        "The judge holds no weights and no data, and needs neither torch nor a GPU: it computes at "
        "most 256 terms of one operation."
    )
    return section("What it cost", el("div", *boxes, class_="figures"),
                   paragraph(words, class_="soft small"))  # fmt: skip


def _curves(dispute: DisputeFacts) -> Safe | None:
    curves = [
        (p, Curve(f"{PARTIES[p]} ({c.name})", c.training, c.validation))
        for p, c in enumerate(dispute.curves)
        if c is not None
    ]
    if not any(curve.training for _, curve in curves):
        return None
    note = (
        "From the journals of the run directories; no part of the evidence. Curves that look equal "
        "need not be: a verdict turns on single bits."
    )
    return section("Losses", figure(curves, event=dispute.verdict.place.step, caption=note))
