"""A judged dispute as a page: the verdict, the parties, the way to it, the cost."""

from __future__ import annotations

import re

from tallystick.devices.environment import exact_environment
from tallystick.report.curve import figure
from tallystick.report.facts import Curve, DisputeFacts
from tallystick.report.falsehood import number_section, the_number
from tallystick.report.first import consequence, first_sentence, meaning, until
from tallystick.report.html import Safe, el, join
from tallystick.report.job_words import job_section
from tallystick.report.meanings import Kind
from tallystick.report.narrowing import narrowing_section
from tallystick.report.page import (
    Inside,
    badge,
    banner,
    commands,
    fold,
    page,
    paragraph,
    section,
    trust_badge,
)
from tallystick.report.path import path_section
from tallystick.report.ruling import ruling_section
from tallystick.report.words import PARTIES, code, count, digest, facts, items, size

_AUDIT = "To know that, repeat its training: tallystick audit does so with the run and the data."
# What a verdict by PROTOCOL 5.3 says of the two states.
_TWO_STATES = re.compile(r"its nodes make state ([0-9a-f]{16}), it has committed to ([0-9a-f]{16})")


@exact_environment()
def dispute_page(dispute: DisputeFacts, inside: Inside | None = None) -> str:
    """The page of a dispute: a whole HTML document, with the judge `inside` or without."""
    body = dispute_body(dispute, None if inside is None else inside.section)
    return page(headline(dispute), body, same=dispute.verdict.agreement, inside=inside)


@exact_environment()
def dispute_body(dispute: DisputeFacts, again: Safe | None = None) -> Safe:
    """The content of the page's main part, from the first sentence to the fold; `again` is where
    the page judges itself."""
    verdict = dispute.verdict
    differ = not verdict.agreement
    return join(
        banner(headline(dispute), *_lead(dispute), good=None if verdict.undecided else not differ),
        again,
        number_section(dispute) if differ else None,
        _meaning(dispute),
        narrowing_section(dispute) if differ else None,
        job_section(dispute.terms),
        _parties(dispute),
        _curves(dispute),
        _again(dispute, again is not None),
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
    """The verdict in one sentence."""
    return first_sentence(dispute.verdict)


def _lead(dispute: DisputeFacts) -> list[Safe | None]:
    verdict = dispute.verdict
    found = {meaning(verdict, c).means: None for c in verdict.convicted}
    if len(found) > 1:
        told = [paragraph(el("strong", PARTIES[c.party]), f" {meaning(verdict, c).did}. ",
                          meaning(verdict, c).means) for c in verdict.convicted]  # fmt: skip
    else:
        told = [paragraph(words, class_="lead") for words in found]
    place = until(verdict)
    return [
        *told,
        paragraph(consequence(verdict), class_=None if told else "lead"),
        the_number(dispute),
        *_two_states(dispute),
        paragraph(place) if place and not verdict.agreement else None,
        _word_of_a_referee(dispute) if verdict.forfeit else None,
    ]


def _two_states(dispute: DisputeFacts) -> list[Safe]:
    """The two states that one party signed as the end of one step (PROTOCOL 5.3)."""
    verdict, told = dispute.verdict, []
    for conviction in verdict.convicted:
        found = _TWO_STATES.match(conviction.sentence)
        if conviction.clause != "5.3" or not found:
            continue
        name, other = PARTIES[conviction.party], PARTIES[1 - conviction.party]
        lines = [
            el("strong", f"{name} signed"), " the state with the fingerprint ", code(found[2]),
            ". It also signed the operations of the step, and they end in ", code(found[1]), ".",
        ]  # fmt: skip
        trees = next((e for e in verdict.story if e.clause == "5.1" and all(e.stated)), None)
        if trees and len(set(trees.stated)) == 1 and len(verdict.convicted) == 1:
            lines.append(
                f" {other} signed the same operations with the same results: only the state that "
                f"{name} signed for the end of the step is another one."
            )
        told.append(paragraph(*lines))
    return told


def _word_of_a_referee(dispute: DisputeFacts) -> Safe:
    return paragraph(
        "This rests on the word of a referee, not on a signed message of a party. The referee has "
        "the key ",
        code(dispute.referee or "(none named)"),
        ". Whoever made this page named it as a referee to believe (--trust-referee). Its message "
        "states neither a date nor how long it waited. Nobody else can check the silence.",
    )


def _parties(dispute: DisputeFacts) -> Safe:
    verdict = dispute.verdict
    guilty = {c.party for c in verdict.convicted}
    cards = []
    for party, run in enumerate(dispute.runs):
        if party in guilty:
            fate = badge("✗ silent" if verdict.forfeit else "✗ not accepted", False)
        elif verdict.agreement:
            fate = badge("✓ agrees", True)
        else:
            fate = badge("✓ accepted", True) if verdict.accepted == party else badge("—", None)
        rows: dict[str, object] = {
            "Its run ends after": count(run.final_step, "step"),
            "Signed states, with the start": count(run.checkpoints),
            "Signed by the key": join(code(run.signer.key_id[:16]), "… ",
                                      trust_badge(dispute.trusted[party])),
        }  # fmt: skip
        card = "card party one" if party else "card party"
        cards.append(el("div", el("h3", PARTIES[party], " ", fate), facts(rows), class_=card))
    words = (
        "Each key has signed a run of this job. A key is all that is known of a party. A and B say "
        "only in which order the runs were named, so on another page the same key may be the "
        "other letter. An unknown signer is a key that the maker of this page did not name."
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
        "terms computed by the referee": count(verdict.terms),
        "operators in the disputed job": count(work),
    }
    boxes = (el("div", el("b", value), " ", el("span", name)) for name, value in figures.items())
    words = (
        "The referee holds no weights and no data, and needs neither torch nor a GPU: it computes "
        "at most 256 terms of one operator."
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


def _again(dispute: DisputeFacts, carried: bool) -> Safe:
    name = dispute.name
    referee = " --trust-referee REFEREE" if dispute.verdict.forfeit else ""
    rows: dict[str, object] = {
        "Job digest (the job's fingerprint)": digest(dispute.terms.digest),
        "Evidence": join(code(name), ", ", size(dispute.size)),
        "SHA-256 of the evidence (its fingerprint)": digest(dispute.digest),
    }
    return section(
        "How to check it yourself",
        paragraph(
            "You need tallystick, the evidence and the job. ",
            "This page carries the evidence: its size and its SHA-256 are below. "
            if carried
            else "The maker of this page had all three. Compare the size and the SHA-256 of your "
            "evidence file with those below (sha256sum shows the second). ",
            "Take the job from a person whom you trust to know it.",
        ),
        paragraph(
            "The referee asked the questions. The judge is another program: it reads the signed "
            "answers, plays the whole game again, and compares the job digest. It believes no "
            "verdict, not even this page's. It needs seconds and no training.",
        ),
        commands(
            f"tallystick judge {name} --job JOB{referee}",
            f"tallystick judge {name} --job JOB{referee} --trust KEY",
        ),
        paragraph(
            "JOB is the folder of the job. KEY is a file with the public key of a signer that you "
            "know: with it, the judge says which run that signer has signed.",
        ),
        paragraph(
            "REFEREE is the file with the public key of a referee that you believe. The silence is "
            "the one thing for which the judge takes somebody's word.",
        )
        if referee
        else None,
        facts(rows),
    )


def _meaning(dispute: DisputeFacts) -> Safe:
    verdict = dispute.verdict
    if verdict.agreement:
        proves = ["Both keys have signed the same run for this job."]
        open_ = ["That the run is true: two liars may agree. " + _AUDIT]
    elif verdict.undecided:
        proves = [
            "The runs differ, and neither is shown wrong: at the difference both values follow "
            "from the job and the parties' own logs of roundings.",
        ]
        open_ = [
            "Which of the runs is to be accepted. Some numbers lie so near the middle between two "
            "others that the job lets the trainer choose. A second party that follows the "
            "trainer's log makes the same choices, and then the runs can be compared.",
            "Anything about later steps: behind the first difference nothing was compared.",
        ]
    elif verdict.forfeit:
        proves = [
            "That both signed their statements before the silence. Not that these are true, and "
            "not the silence itself."
        ]
        open_ = [meaning(verdict, c).open_ for c in verdict.convicted[:1]]
        open_.append(
            "That one run is false, or the other one true. “Accepted” says only which run is left."
        )
    else:
        proves, open_ = _proved(dispute)
    open_ += [
        "Which person holds a key. A key signs; whose it is, you must know from elsewhere.",
        "That the job is a good one. This is about who followed it, and not about its worth.",
    ]
    return join(
        section("What this proves", items(*proves)), section("What it does not", items(*open_))
    )


def _proved(dispute: DisputeFacts) -> tuple[list[str], list[str]]:
    verdict = dispute.verdict
    guilty = " and ".join(PARTIES[c.party] for c in verdict.convicted)
    kinds = {meaning(verdict, c).kind for c in verdict.convicted}
    what = (
        "an answer that a party of a true run does not give"
        if kinds == {Kind.ANSWER}
        else "something that cannot be true of a run of this job"
    )
    proves = [
        f"That {guilty} signed {what}. The proof is the signature itself: anyone can check it, and "
        "no witness has to be believed.",
    ]
    open_ = ["Why it is false: a cheat and a broken memory chip look the same."]
    open_ += sorted({m.open_ for c in verdict.convicted if (m := meaning(verdict, c)).open_})
    step = verdict.place.step
    if step is not None and kinds == {Kind.STEP}:
        open_.append(f"What was done after step {step:,}, or elsewhere in it: the game ends at the "
                     "first difference.")  # fmt: skip
    if verdict.accepted is not None:
        kept = PARTIES[verdict.accepted]
        proves.append(f"At most {kept} can have followed the job and answered truly.")
        open_.append(f"That the run of {kept} is true to its end: this opponent did not show it "
                     "wrong, and no more. " + _AUDIT)  # fmt: skip
    return proves, open_
