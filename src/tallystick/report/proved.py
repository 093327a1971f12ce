"""What a verdict proves and what it leaves open, and how a reader of a dispute's page checks it
without believing the page.
"""

from __future__ import annotations

from tallystick.protocol.verdict import Verdict
from tallystick.report.answer_meanings import Work
from tallystick.report.facts import DisputeFacts
from tallystick.report.first import meaning, not_shown_wrong
from tallystick.report.html import PARTIES, Safe, code, digest, facts, items, join, size
from tallystick.report.meanings import Kind
from tallystick.report.page import commands, paragraph, section

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


# What a page that carries its evidence calls itself: a reader may save it under any name.
FILE = "FILE"
_JUDGE = (
    "The judge is the program that reads the signed answers, plays the whole dispute again, and "
    "computes who signed something false. It believes no verdict, not even this page's. It needs "
    "seconds and no GPU. The Python package tallystick has it, and this command starts it:"
)
_KEY = join(
    code("--trust KEY"), " adds which run a signer has signed whom you know. KEY is a file with "
    "that signer's public key.",
)  # fmt: skip
_REFEREE = join(
    code("--trust-referee REFEREE"), " names the referee that you trust. REFEREE is a file with "
    "its public key. Without it the judge checks the signatures and decides nothing: it takes "
    "nobody's word for a silence.",
)  # fmt: skip


def checking_section(dispute: DisputeFacts, carried: bool) -> Safe:
    """The commands, what they need, and the fingerprints to compare."""
    told = _carried(dispute) if carried else _apart(dispute)
    what = "this file" if carried else code(dispute.name)
    rows: dict[str, object] = {
        "Fingerprint of the job (job digest)": digest(dispute.terms.digest),
        "The evidence": join("in ", what, ", " if carried else ": ", size(dispute.size)),
        "Fingerprint of the evidence (SHA-256)": digest(dispute.digest),
    }
    return section("How to check it yourself", *told, facts(rows))


def _options(dispute: DisputeFacts) -> str:
    return " --trust-referee REFEREE" if dispute.verdict.forfeit else ""


def _carried(dispute: DisputeFacts) -> list[Safe]:
    said: list[object] = [
        "FILE is this page, under the name by which you saved it.",
        join("Without ", code("--job"), " the judge goes by the job in this page. With ",
             code("--job JOB"), " it goes by yours. JOB is the folder of the job: take it from a "
             "person whom you trust to know it."),
        _REFEREE if dispute.verdict.forfeit else None,
        _KEY,
    ]  # fmt: skip
    return [
        paragraph(
            "Whoever sent you this page could have changed its words or its judge. So take the "
            "judge from elsewhere. " + _JUDGE
        ),
        commands(f"tallystick judge {FILE}{_options(dispute)} --job JOB"),
        items(*(entry for entry in said if entry is not None)),
        paragraph("The same package writes a page of your own, into which you drop this file:"),
        commands("tallystick judge-page -o judge.html"),
        paragraph(
            "Both take nothing from this page but the evidence and the job. The command also says "
            "whether the words and the judge in it are those of the package."
        ),
    ]


def _apart(dispute: DisputeFacts) -> list[Safe]:
    return [
        paragraph(
            "You need the evidence and the job. The maker of this page had both. Compare the size "
            "and the fingerprint of your evidence file with those below (sha256sum shows the "
            "second). Take the job from a person whom you trust to know it. " + _JUDGE
        ),
        commands(f"tallystick judge {dispute.name} --job JOB{_options(dispute)}"),
        items(
            "JOB is the folder of the job.",
            *([_REFEREE] if dispute.verdict.forfeit else []),
            _KEY,
        ),
    ]
