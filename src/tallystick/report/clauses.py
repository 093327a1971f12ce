"""The broken rule: its text, for people who do not have spec/PROTOCOL.md at hand, and the values
that decided it.

`clauses.json` is made from the specification by `python -m tallystick.report.clauses SPEC`; a
test holds it against the specification.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path

from tallystick.numerics.contracts import Contract, is_contract, parse_contract
from tallystick.program.ir import op_spec
from tallystick.protocol.verdict import CASES
from tallystick.report.facts import DisputeFacts
from tallystick.report.falsehood import true_name
from tallystick.report.html import PARTIES, Safe, binary, bits_of, code, count, el, join, text
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


def _value_row(
    name: str, shown: str, true: str, wrong: bool | None, undecided: bool = False
) -> Safe:
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
        _value_row(f"{PARTIES[p]} signed", verdict.claimed[p], true, p in guilty, verdict.undecided)
        for p in (0, 1)
    ]
    if true:
        rows.append(_value_row(true_name(facts), true, true, None))
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


_FILE = "clauses.json"
_START = re.compile(r"(\d+\.\d+(?:\.\d+)?) (\S.*)")
_MARKUP = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|\\(\*)")
_FENCE = "```"
_CELL = re.compile(r"(?<!\\)\|")


def clauses_of(specification: str) -> dict[str, str]:
    """Number -> text of every numbered clause, as the specification writes it.

    The text is the clause's paragraphs, lists, tables and formulas, up to the next clause or
    heading.
    """
    found: dict[str, list[str]] = {}
    current: list[str] = []
    fenced = False
    for line in specification.splitlines():
        start = _START.fullmatch(line)
        if not fenced and start is not None:
            current = found[start[1]] = [start[2]]
        elif not fenced and line.startswith("#"):
            current = []
        else:
            current.append(line)
        fenced ^= line.startswith(_FENCE)
    return {number: "\n".join(lines).strip() for number, lines in found.items()}


@cache
def _clauses() -> dict[str, str]:
    data: dict[str, str] = json.loads(files("tallystick.report").joinpath(_FILE).read_text("utf-8"))
    return data


def _marked(raw: str) -> Safe:
    """A line with its code and emphasis."""
    parts, at = [], 0
    for found in _MARKUP.finditer(raw):
        parts.append(text(raw[at : found.start()]))
        code, strong, emphasis, star = found.groups()
        name, inner = ("code", code) if code else ("strong", strong) if strong else ("em", emphasis)
        parts.append(text(star) if star else el(name, inner))
        at = found.end()
    return join(*parts, raw[at:])


def _row(line: str, cell: str) -> Safe:
    cells = [c.strip().replace("\\|", "|") for c in _CELL.split(line)[1:-1]]
    scope = "col" if cell == "th" else None
    return el("tr", *(el(cell, _marked(c), scope=scope) for c in cells))


def _block(lines: list[str]) -> Safe:
    """A paragraph, list, table or formula after the clause's first paragraph."""
    if lines[0].startswith(_FENCE):
        return el("pre", "\n".join(lines[1:-1]))
    if lines[0].startswith("|"):
        rows = (_row(line, "td") for line in lines[2:])
        return el("table", el("caption", "From the clause"), _row(lines[0], "th"), *rows)
    if lines[0].startswith("- "):
        return el("ul", *(el("li", _marked(line[2:])) for line in lines))
    return el("p", _marked(" ".join(lines)))


def clause_text(number: str) -> Safe | None:
    """The clause as markup; None where this build does not know it."""
    raw = _clauses().get(number)
    if raw is None:
        return None
    first, *rest = (block.split("\n") for block in raw.split("\n\n"))
    return join(_marked(" ".join(first)), *map(_block, rest))


def clause_quote(number: str) -> Safe:
    """The clause as a quotation, with its number."""
    words = clause_text(number) or "(see the specification)"
    return el("blockquote", el("span", f"PROTOCOL {number}", class_="number"), words)


def _write(specification: Path) -> None:
    made = clauses_of(specification.read_text("utf-8"))
    target = Path(__file__).with_name(_FILE)
    target.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
