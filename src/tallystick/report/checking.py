"""How a reader of a dispute's page checks it without believing the page."""

from __future__ import annotations

from tallystick.report.facts import DisputeFacts
from tallystick.report.html import Safe, code, digest, facts, items, join, size
from tallystick.report.page import commands, paragraph, section

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
