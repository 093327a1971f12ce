"""A judged dispute as a page: the verdict, the parties, the way to it, the cost."""

from __future__ import annotations

from tallystick.devices.environment import exact_environment
from tallystick.report.curve import figure
from tallystick.report.facts import Curve, DisputeFacts
from tallystick.report.html import Safe, el, join
from tallystick.report.page import (
    Inside,
    badge,
    banner,
    commands,
    page,
    paragraph,
    section,
    trust_badge,
)
from tallystick.report.path import path_section
from tallystick.report.ruling import ruling_section
from tallystick.report.words import PARTIES, code, count, digest, facts, items, size


@exact_environment()
def dispute_page(dispute: DisputeFacts, inside: Inside | None = None) -> str:
    """The page of a dispute: a whole HTML document, with the judge `inside` or without."""
    verdict = dispute.verdict
    body = join(
        banner(
            headline(dispute),
            *_lead(dispute),
            good=None if verdict.undecided else verdict.agreement,
        ),
        inside and inside.section,
        _parties(dispute),
        None if verdict.agreement else path_section(dispute),
        None if verdict.agreement else ruling_section(dispute),
        _cost(dispute),
        _curves(dispute),
        _again(dispute),
        _meaning(dispute),
    )
    return page(headline(dispute), body, same=verdict.agreement, inside=inside)


@exact_environment()
def headline(dispute: DisputeFacts) -> str:
    """The verdict in one sentence."""
    verdict = dispute.verdict
    if verdict.agreement:
        return "The parties agree: both have committed to the same run."
    if verdict.undecided:
        return "It could not be decided: the runs differ, and neither party is shown wrong."
    if len(verdict.convicted) > 1:
        return "Both parties are convicted; no run is accepted."
    party = verdict.convicted[0].party
    how = (
        "by silence, on a referee's word"
        if verdict.forfeit
        else f"of breaking clause {verdict.convicted[0].clause}"
    )
    if verdict.accepted is None:
        return f"{PARTIES[party]} is convicted {how}; no run is accepted."
    return (
        f"{PARTIES[party]} is convicted {how}; the run of {PARTIES[verdict.accepted]} is accepted."
    )


def _lead(dispute: DisputeFacts) -> list[Safe]:
    verdict, place = dispute.verdict, dispute.verdict.place
    words = []
    if place.step is not None:
        words.append(f"Up to step {place.step:,} the runs are equal, after it they are not.")
    elif place.interval is not None:
        low, high = place.interval
        words.append(f"The runs are equal at step {low:,} and differ at step {high:,}.")
    if place.node is not None:
        total = len(dispute.terms.program.nodes)
        words.append(
            f"Of that step's {count(total, 'operator')} the first to differ is number "
            f"{place.node:,}, {place.operator}"
        )
        if place.side == "input":
            words[-1] += f": its input {place.operand}."
        elif place.side == "output":
            words[-1] += f": equal inputs, another output {place.operand}."
        else:
            words[-1] += "."
    if place.element is not None:
        words.append(f"It comes down to element {place.element:,}.")
    told = [
        paragraph(
            el("strong", f"{PARTIES[c.party]} "), badge(f"clause {c.clause}", False), " ",
            c.sentence, ".",
        )
        for c in verdict.convicted
    ]  # fmt: skip
    if verdict.forfeit:
        told.append(
            paragraph(
                "This rests on the word of a referee, not on a signed message of a party. The "
                "referee has the key ",
                code(dispute.referee or "(none named)"),
                ", which the reader of this page has named with --trust-referee. No other person "
                "can check the silence itself.",
            )
        )
    lead = [paragraph(" ".join(words), class_="lead")] if words else []
    return [*lead, *told]


def _parties(dispute: DisputeFacts) -> Safe:
    verdict = dispute.verdict
    guilty = {c.party for c in verdict.convicted}
    cards = []
    for party, run in enumerate(dispute.runs):
        if party in guilty:
            fate = badge("✗ convicted", False)
        elif verdict.agreement:
            fate = badge("✓ agrees", True)
        else:
            fate = badge("✓ accepted", True) if verdict.accepted == party else badge("—", None)
        rows: dict[str, object] = {
            "Run root": digest(run.run_root),
            "Final state": digest(run.final_state_root),
            "Ends after": count(run.final_step, "step"),
            "Checkpoints": count(run.checkpoints),
            "Signer (key id)": join(digest(run.signer.key_id), " ",
                                    trust_badge(dispute.trusted[party])),
        }  # fmt: skip
        card = "card party one" if party else "card party"
        cards.append(el("div", el("h3", PARTIES[party], " ", fate), facts(rows), class_=card))
    c = dispute.terms.commitment
    job = {
        "Job digest": digest(dispute.terms.digest),
        "Job": f"{count(c.steps, 'step')} under {c.contract}, "
        f"{count(len(dispute.terms.program.nodes), 'operator')} a step",
    }
    return section("The parties", el("div", *cards, class_="pair"), facts(job))


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
    boxes = (el("div", el("b", value), el("span", name)) for name, value in figures.items())
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


def _again(dispute: DisputeFacts) -> Safe:
    name = dispute.name
    referee = " --trust-referee REFEREE" if dispute.verdict.forfeit else ""
    rows = {"Evidence": join(code(name), ", ", size(dispute.size)),
            "SHA-256 of the file": digest(dispute.digest),
            "Arity of the search": count(dispute.arity)}  # fmt: skip
    return section(
        "How to check it yourself",
        paragraph(
            "Party A is party 0 of the protocol, B is 1. "
            "Get the job from a person whom you trust to know it; it must have the job digest "
            "above. The judge repeats the referee's whole game from the signed answers and "
            "believes no verdict, this page's included. It needs seconds and no training.",
        ),
        commands(
            f"tallystick judge {name} --job JOB{referee}",
            f"tallystick judge {name} --job JOB{referee} --trust KEY",
        ),
        paragraph("The second form also says whether a signer has the key in the file KEY."),
        paragraph("REFEREE is the file with the key of the referee that you believe.")
        if referee
        else None,
        facts(rows),
    )


def _meaning(dispute: DisputeFacts) -> Safe:
    verdict = dispute.verdict
    if verdict.agreement:
        proves = ["Both keys have signed the same run root for this job."]
        open_ = ["That the run is true: two liars may agree. An audit repeats it."]
    elif verdict.undecided:
        proves = [
            "The runs differ, and neither is shown wrong: at the difference both values follow "
            "from the job and the parties' own rounding logs.",
        ]
        open_ = [
            "Which of the runs is to be accepted. The contract leaves the trainer the rounding of "
            "doubtful elements; an auditor that follows the trainer's log makes the same choices. "
            "Under the published form it cannot where a sum's terms cancel (NUMERICS 14.9.2). "
            "An auditor that could not read that log must get it first: past the difference the "
            "game compared no values (PROTOCOL 6.12, 6.15).",
        ]
    elif verdict.forfeit:
        proves = ["The statements that both signed before the silence; not the silence itself."]
        open_ = ["That the silent party's run is false."]
    else:
        proves = [
            "Each convicted party has signed a false statement, or two statements that contradict "
            "each other, or cannot open its own commitment. Its own signature shows it.",
            "If one of the parties followed the job and answered, it is the accepted one.",
        ]
        open_ = [
            "Why the statement is false: a cheat and a broken memory chip look the same.",
            "That the accepted run is true to its end: a dispute ends at the first difference. "
            "This opponent did not show it wrong; an audit repeats it.",
        ]
    open_ += [
        "Which person holds a key. --trust names the signers of runs that you know, "
        "--trust-referee the referees that you believe.",
        "That the job is a good one. The verdict says which party followed it.",
    ]
    return join(
        section("What this proves", items(*proves)), section("What it does not", items(*open_))
    )
