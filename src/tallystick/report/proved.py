"""What a verdict proves, and what it leaves open."""

from __future__ import annotations

from tallystick.protocol.verdict import Verdict
from tallystick.report.answer_meanings import Work
from tallystick.report.facts import DisputeFacts
from tallystick.report.first import meaning, not_shown_wrong
from tallystick.report.html import PARTIES, Safe, items, join
from tallystick.report.meanings import Kind
from tallystick.report.page import section

PROVES, LEAVES_OPEN = "What this proves", "What it does not prove"
_AUDIT = "To know more, repeat its training: tallystick audit does so with the run and the data."
_CHECK = "To know more, ask the model again: tallystick check does so with the receipt's files."


def proved_section(dispute: DisputeFacts) -> Safe:
    """Both lists."""
    verdict, more = dispute.verdict, _AUDIT if dispute.work is Work.TRAINING else _CHECK
    if verdict.agreement:
        proves, open_ = _agreement(more, one_key=dispute.runs[0].signer == dispute.runs[1].signer)
    elif verdict.undecided:
        proves, open_ = _undecided()
    elif verdict.forfeit:
        proves, open_ = _silence(verdict)
    else:
        proves, open_ = _falsehood(verdict, dispute.work, more)
    open_ += [
        "Which person holds a key. A key signs; whose it is, you must know from elsewhere.",
        "That the job is a good one, or its model safe to use. This is about who followed the job.",
    ]
    return join(section(PROVES, items(*proves)), section(LEAVES_OPEN, items(*open_)))


def _agreement(more: str, one_key: bool) -> tuple[list[str], list[str]]:
    proves, open_ = ["Both keys have signed the same run for this job."], []
    if one_key:
        proves = ["One key has signed this run for this job, twice."]
        open_ = ["That anybody else confirms the run: both parties have one and the same key."]
    return proves, [*open_, "That the run is true: two liars may agree. " + more]


def _undecided() -> tuple[list[str], list[str]]:
    proves = [
        "The runs differ, and neither is shown wrong: at the difference both values follow from "
        "the job and the parties' own logs of roundings.",
    ]
    return proves, [
        "Which of the runs is to be accepted. Some numbers lie so near the middle between two "
        "others that the job lets the trainer choose. A second party that follows the trainer's "
        "log makes the same choices, and then the runs can be compared.",
        "Anything about later steps: no single number after the first difference was compared.",
    ]


def _silence(verdict: Verdict) -> tuple[list[str], list[str]]:
    proves = [
        "That both signed their statements before the silence. Not that these are true, and not "
        "the silence itself."
    ]
    open_ = [meaning(verdict, c).open_ for c in verdict.convicted[:1]]
    return proves, [*open_, "That one run is false, or that the other one is true."]


def _falsehood(verdict: Verdict, work: Work, more: str) -> tuple[list[str], list[str]]:
    guilty = " and ".join(PARTIES[c.party] for c in verdict.convicted)
    found = [meaning(verdict, c, work) for c in verdict.convicted]
    kinds = {one.kind for one in found}
    what = (
        "an answer that a party of a true run does not give"
        if kinds == {Kind.ANSWER}
        else "something that cannot be true of a run of this job"
    )
    proves = [
        f"That {guilty} signed {what}. The proof is the signature itself: anyone can check it with "
        "their own copy of the judge, and no witness has to be believed.",
    ]
    open_ = ["Why the signed statement is false: a broken machine signs the same as a cheat."]
    open_ += sorted({one.open_ for one in found if one.open_})
    step = verdict.place.step
    if work is not Work.TRAINING and kinds == {Kind.STEP}:
        what = "answer" if work is Work.ANSWER else "result"
        open_.append(f"Anything else of the {what}: the dispute ends at the first difference.")
    elif step is not None and kinds == {Kind.STEP}:
        open_.append(
            f"What was done after step {step:,}, or elsewhere in it: the dispute ends at the first "
            "difference."
        )
    if verdict.accepted is not None:
        kept = PARTIES[verdict.accepted]
        open_.append(f"That the run of {kept} is true. {not_shown_wrong(kept)} {more}")
    return proves, open_
