"""The broken rule, and the values that decided it."""

from __future__ import annotations

import struct

from tallystick.numerics.contracts import Contract, is_contract, parse_contract
from tallystick.program.ir import op_spec
from tallystick.protocol.verdict import CASES
from tallystick.report.clauses import clause_quote
from tallystick.report.facts import DisputeFacts
from tallystick.report.falsehood import true_name
from tallystick.report.html import PARTIES, Safe, binary, bits_of, code, count, el, join
from tallystick.report.page import paragraph, section

_NEAR = 1 << 24  # binary32 numbers: a greater distance is not shown
PHASES = ("commitments and genesis", "the diverging step", "the diverging operator", "one element")


def apart(a: str, b: str) -> int | None:
    """The number of binary32 numbers from one value to another, both given by their bits.

    None where one of them is no binary32 or is not finite.
    """
    if len(a) != 8 or len(b) != 8:
        return None
    at: list[int] = []
    for bits in (a, b):
        (value,) = struct.unpack(">I", bytes.fromhex(bits))
        if value & 0x7F800000 == 0x7F800000:
            return None
        size = value & 0x7FFFFFFF
        at.append(-size if value >> 31 else size)
    return abs(at[0] - at[1])


def _row(name: str, shown: str, true: str, wrong: bool | None, undecided: bool = False) -> Safe:
    number, bits = bits_of(shown)
    true_bits = bits_of(true)[1]
    compared = bits and true_bits and len(bits) == len(true_bits)
    cells = [code(number)]
    if bits:
        cells.append(el("div", code(f"0x{bits}")))
    if bits and compared:
        cells.append(binary(bits, true_bits))
    told: object = ""
    if wrong is not None and not undecided:
        told = el("span", "✗ false", class_="bad") if wrong else "not shown wrong"
        distance = apart(bits, true_bits) if compared else None
        if wrong and distance is not None and 0 < distance <= _NEAR:
            told = join(told, el("div", f"{count(distance)} binary32 numbers away",
                                 class_="soft small"))  # fmt: skip
    return el("tr", el("th", name, scope="row"), el("td", *cells), el("td", told))


def _values(facts: DisputeFacts) -> Safe | None:
    verdict = facts.verdict
    if verdict.claimed == ("", ""):
        return None
    guilty = {c.party for c in verdict.convicted}
    true = verdict.value
    rows = [
        _row(f"{PARTIES[p]} signed", verdict.claimed[p], true, p in guilty, verdict.undecided)
        for p in (0, 1)
    ]
    if true:
        rows.append(_row(true_name(facts), true, true, None))
    has_bits = any(bits_of(shown)[1] for shown in verdict.claimed)
    note = "Marked: the bits that differ from the true value's." if has_bits and true else None
    head = el(
        "tr",
        *(
            el("th", h, scope="col")
            for h in ("who", "value and bits" if has_bits else "value", "finding")
        ),
    )
    caption = el("caption", "The values to the bit" if has_bits else "The values")
    table = el("table", caption, el("thead", head), el("tbody", *rows), class_="values")
    return join(table, None if note is None else paragraph(note, class_="soft small"))


def _contract(facts: DisputeFacts) -> Contract | None:
    """The job's contract, None where this build does not know it."""
    name = facts.terms.commitment.contract
    return parse_contract(name) if is_contract(name) else None


def ruling_section(facts: DisputeFacts) -> Safe:
    """The convicted parties, the clauses with their text, and the values."""
    verdict = facts.verdict
    parts: list[object] = []
    ended = "Ended by silence" if verdict.forfeit else "Decided"
    where = f"{ended} in phase {verdict.phase}, which is about {PHASES[verdict.phase]}"
    case = f"; case {verdict.case}: {CASES[verdict.case]}" if verdict.case in CASES else ""
    parts.append(paragraph(f"{where}{case}.", class_="soft"))
    for conviction in verdict.convicted:
        name = PARTIES[conviction.party]
        parts.append(paragraph(el("strong", f"{name}: "), conviction.sentence, "."))
    if verdict.undecided:
        parts.append(clause_quote("1.5.1"))
    for clause in sorted({c.clause for c in verdict.convicted}):
        parts.append(clause_quote(clause))
    if verdict.place.quantity is not None and verdict.place.operator is not None:
        numerics = op_spec(verdict.place.operator).clause
        contract = _contract(facts)
        if contract is not None and verdict.place.operator in contract.own_operators:
            numerics += f" and {contract.clause}"
        parts.append(
            paragraph(
                "The meaning of ",
                code(verdict.place.operator),
                ", to the bit, stands in NUMERICS ",
                numerics,
                f" under the contract {facts.terms.commitment.contract}.",
            )
        )
    known = _contract(facts)
    if known is not None and known.keeps_log:
        left, taken = verdict.choices
        parts.append(
            paragraph(
                f"Roundings that the logs left to the trainer, as far as the game determined "
                f"them: {left}; taken otherwise than to the nearest: {taken}."
            )
        )
    parts.append(_values(facts))
    return section("The ruling", *parts)
