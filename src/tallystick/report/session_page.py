"""A session of k parties as a page: the result, the parties, the games, the clocks."""

from __future__ import annotations

from tallystick.commit.signing import PublicKey
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    CONVICTED,
    NO_RESULT,
    NONE_ACCEPTED,
    RESULTS,
    UNCONTESTED,
    DeviationError,
)
from tallystick.delegation.match import Match, Member, sides_of
from tallystick.delegation.outcome import Fate
from tallystick.delegation.outcome import SealedMember as Ended
from tallystick.delegation.session import Session
from tallystick.delegation.watch import fates_of
from tallystick.devices.environment import exact_environment
from tallystick.report.answer_meanings import Work, work_of
from tallystick.report.clauses import clause_quote
from tallystick.report.first import deed
from tallystick.report.html import Safe, code, count, digest, el, facts, items, join, size
from tallystick.report.job_words import job_section
from tallystick.report.meanings import OUTSIDE
from tallystick.report.page import badge, banner, commands, fold, page, paragraph, section, table
from tallystick.report.proved import LEAVES_OPEN, PROVES

_LEFT, _ROUND, _ROW, _GAP, _TOP, _RIGHT = 118, 96, 22, 12, 26, 40


def bracket(session: Session) -> Safe:
    """An SVG of the parties that opened, by side, and of their games, by round.

    A party's line ends with a cross where a game removed it.
    """
    rows = _rows(session)
    width = _LEFT + _ROUND * max(1, session.rounds) + _RIGHT
    height = _TOP + max((y for y, _ in rows.values()), default=0) + _ROW
    marks = [_band(session, rows, width), _rounds(session, height)]
    marks += [_line(session, key, *place, width) for key, place in rows.items()]
    marks += [_drawn_game(match, rows) for match in session.matches]
    drawn = el(
        "svg", *marks, viewBox=f"0 0 {width} {height}", role="img",
        aria_label="Parties by side, and their games by round", class_="bracket",
        width=width, height=height,
    )  # fmt: skip
    return el("figure", drawn, el("figcaption", _CAPTION))


_CAPTION = (
    "A line is a party, a shaded band a side: parties that signed one claim. A vertical line is a "
    "game; a cross ends the line of a party that lost it, by a false statement or by silence."
)


def _rows(session: Session) -> dict[PublicKey, tuple[int, Member]]:
    """Each member's height, side by side."""
    found: dict[PublicKey, tuple[int, Member]] = {}
    y = _TOP
    for side in sides_of(session.members.values()):
        for member in side:
            y += _ROW
            found[member.key] = y - _ROW // 2, member
        y += _GAP
    return found


def _x(round_: int) -> int:
    return _LEFT + _ROUND * round_ - _ROUND // 2


def _band(session: Session, rows: dict[PublicKey, tuple[int, Member]], width: int) -> Safe:
    bands = []
    for side in sides_of(session.members.values()):
        heights = [rows[m.key][0] for m in side]
        top = min(heights) - _ROW // 2
        deep = max(heights) + _ROW // 2 - top
        bands.append(el("rect", x=0, y=top, width=width, height=deep, rx=5, class_="side"))
    return join(*bands)


def _rounds(session: Session, height: int) -> Safe:
    return join(
        *(
            join(
                el("line", x1=_x(n), y1=_TOP, x2=_x(n), y2=height - 6, class_="grid"),
                el("text", f"round {n}", x=_x(n), y=16, text_anchor="middle"),
            )
            for n in range(1, session.rounds + 1)
        )
    )


def _line(session: Session, key: PublicKey, y: int, member: Member, width: int) -> Safe:
    lost = next(
        (m for m in session.matches for p, x in enumerate(m.members)
         if x.key == key and m.ending is not None and m.ending.convicted >> p & 1),
        None,
    )  # fmt: skip
    end = width - _RIGHT if lost is None else _x(lost.round)
    label = el("text", key.key_id[:12], x=8, y=y + 4, class_="mono")
    line = el("line", x1=_LEFT - 6, y1=y, x2=end, y2=y, class_="train" if lost is None else "out")
    if lost is None:
        left = key not in session.removed
        return join(label, line, el("text", "✓" if left else "✗", x=end + 8, y=y + 4))
    cross = el("path", d=f"M{end - 5} {y - 5}l10 10m-10 0l10 -10", class_="event cross")
    return join(label, line, cross)


def _drawn_game(match: Match, rows: dict[PublicKey, tuple[int, Member]]) -> Safe:
    x = _x(match.round)
    ends = sorted(rows[m.key][0] for m in match.members)
    # Below the upper party's row: there no line of a party passes through it.
    number = el("text", f"game {match.number}", x=x + 6, y=ends[0] + _ROW // 2 + 4)
    dots = [el("circle", cx=x, cy=y, r=3.2, class_="dot") for y in ends]
    return join(el("line", x1=x, y1=ends[0], x2=x, y2=ends[1], class_="axis"), *dots, number)


@exact_environment()
def session_headline(session: Session) -> str:
    """The result in one sentence."""
    if session.result is None:
        return f"The session goes on: it is {session.state}."
    return RESULTS[session.result.outcome].sentence


@exact_environment()
def deviation_page(name: str, error: DeviationError) -> str:
    """The page of a log whose referee has broken the rules: it accuses the referee alone."""
    meant = OUTSIDE.get(error.clause, "What it signed breaks the rules of its log.")
    body = join(
        banner(
            f"The referee of this session broke its rules, at entry {error.index:,} of its log.",
            paragraph(meant, " Nothing that the referee says of this session can be relied on.",
                      class_="lead"),
            paragraph("No party is accused by this: it is about the referee alone, and its own "
                      "signature shows it."),
            good=False,
        ),
        section("What to do", paragraph(error.next_action)),
        fold(
            "For experts: the entry and the clause",
            paragraph(error.message),
            clause_quote(error.clause),
        ),
        paragraph("It was ", code(name), "."),
    )  # fmt: skip
    return page(f"A referee that broke its rules: {name}", body, same=False)


@exact_environment()
def session_page(session: Session, source: str) -> str:
    """The page of a session that was played again from its log (`delegation.watch`).

    `source` is the name of the referee's directory. The page is a whole HTML document.
    """
    outcome = None if session.result is None else session.result.outcome
    good = {CONTESTED: True, UNCONTESTED: True, NONE_ACCEPTED: False}.get(outcome or 0)
    body = join(
        banner(session_headline(session), *_lead(session), good=None if outcome is None else good),
        _games(session) if session.matches else None,
        _parties(session),
        section("Who met whom", bracket(session)) if session.matches else None,
        _meaning(outcome),
        job_section(session.terms),
        _again(session, source),
        fold(
            "For experts: the clauses, the rules and what it cost",
            _clauses(session),
            _rules(session),
            _figures(session),
        ),
    )
    return page(session_headline(session), body, same=outcome in (CONTESTED, UNCONTESTED))


def _lead(session: Session) -> list[Safe]:
    sides = {m.claim for m in session.members.values()}
    told = [paragraph(_FOLLOWS[session.result.outcome], class_="lead")] if session.result else []
    words = (
        f"{count(len(session.seals), 'party', 'parties')} took part: each sealed its result "
        f"before it could see another one's. {count(len(session.members), 'result')} counted, "
        f"{len(sides):,} of them different. "
    )
    if session.matches:
        words += (
            f"Two parties with different results play a game that finds who is wrong: "
            f"{count(len(session.matches), 'game')} in {count(session.rounds, 'round')}."
        )
    fates = {} if session.result is None else fates_of(session)
    lost = {f: sum(x.fate is f for x in fates.values()) for f in _FATES}
    ends = [f"{n:,} {_BECAME[fate]}" for fate, n in lost.items() if n]
    if ends:
        words += f" Of these parties, {' and '.join(ends)}."
    return [*told, paragraph(words)]


_FOLLOWS = {
    NONE_ACCEPTED: "No result of the training is left to accept.",
    CONTESTED: "The parties did not agree. Game by game the referee asked who is wrong, and one "
    "result is left.",
    UNCONTESTED: "There was nothing to decide. It is still only their word that they followed the "
    "job: if all of them lie alike, a session does not show it.",
    ALONE: "A result that nobody has repeated is not confirmed by a session.",
    NO_RESULT: "Nobody is accused by that, and no result is accepted.",
}
_BECAME = {
    Fate.CONVICTED: "signed something false",
    Fate.EXCLUDED: "contradicted itself by its own signatures",
    Fate.SILENT: "did not answer in time, by the referee's word",
    Fate.UNOPENED: "did not open its seal in time",
}


def _figures(session: Session) -> Safe:
    received = sum(
        len(message) for m in session.matches if m.referee for _, message in m.referee.transcript
    )
    terms = max((m.referee.terms for m in session.matches if m.referee), default=0)
    rounds = max((m.referee.rounds for m in session.matches if m.referee), default=0)
    shown = (
        (count(len(session.matches)), "games played"),
        (count(rounds), "questions and answers of the longest game"),
        (size(received).partition(" (")[0], "of signed answers"),
        (count(terms), "terms executed at most by the referee in a game"),
    )
    boxes = (el("div", el("b", n), " ", el("span", what)) for n, what in shown)
    return section("What it cost", el("div", *boxes, class_="figures"))


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.1f} s"


def _parties(session: Session) -> Safe:
    rows: list[list[object]] = []
    fates = {} if session.result is None else fates_of(session)
    for key in sorted(session.seals, key=lambda k: k.raw):
        played = [(m, p) for m in session.matches for p, x in enumerate(m.members) if x.key == key]
        games = ", ".join(f"game {m.number}" for m, _ in played) or "no game"
        used = sum(m.clocks[p].used for m, p in played)
        rows.append([code(key.key_id[:12]), _claim(session.members.get(key)),
                     _fate(fates.get(key)), games, _seconds(used)])  # fmt: skip
    heads = ("Party (its key)", "Signed run", "What became of it", "Played in", "Time it used")
    return section("The parties", table("Each key that took part", heads, rows))


_FATES = {
    Fate.CONVICTED: "✗ shown false",
    Fate.EXCLUDED: "✗ contradicted itself",
    Fate.SILENT: "✗ silent",
    Fate.UNOPENED: "✗ did not open its seal",
}


def _fate(found: Ended | None) -> Safe:
    if found is None:
        return badge("it goes on", None)
    if found.fate is Fate.REMAINING:
        return badge("✓ remains", True)
    return badge(_FATES[found.fate], False)


def _claim(member: Member | None) -> Safe:
    return code("—") if member is None else code(member.run.run_root.hex()[:12])


def _games(session: Session) -> Safe:
    heads = ("Game", "Round", "Between", "How it ended", "Signed answers")
    work = work_of(session.terms)
    rows = [_game(match, work) for match in session.matches]
    note = "Games and rounds are numbered; the first game is game 0, the first round is round 1."
    return section("The games", table("Each game of two parties", heads, rows),
                   paragraph(note, class_="soft small"))  # fmt: skip


def _game(match: Match, work: Work) -> list[object]:
    first, second = (m.key.key_id[:12] for m in match.members)
    asked = 0 if match.referee is None else len(match.referee.transcript)
    between = join(code(first), " and ", code(second))
    return [f"game {match.number}", match.round, between, _end(match, work), count(asked)]


def _end(match: Match, work: Work) -> Safe:
    if match.ending is None:
        return join("It goes on.")
    if match.ending.outcome != CONVICTED:
        return join("Not decided: ", match.why)
    assert match.referee is not None and match.referee.verdict is not None
    verdict = match.referee.verdict
    told: list[object] = []
    for conviction in verdict.convicted:
        key = match.members[conviction.party].key.key_id[:12]
        before = "The referee says that " if verdict.forfeit else None
        told += [before, code(key), f" {deed(verdict, conviction, work)}. "]
    return join(*told)


def _clauses(session: Session) -> Safe | None:
    """By which clause of the protocol each game convicted."""
    rows = []
    for match in session.matches:
        verdict = None if match.referee is None else match.referee.verdict
        for conviction in () if verdict is None else verdict.convicted:
            key = match.members[conviction.party].key.key_id[:12]
            words = f", clause {conviction.clause}: {conviction.sentence}"
            rows.append(join(f"game {match.number}: ", code(key), words))
    return section("The clauses of the verdicts", items(*rows)) if rows else None


def _rules(session: Session) -> Safe:
    rules = session.rules
    assert rules is not None
    rows: dict[str, object] = {
        "Job digest": digest(rules.job_digest),
        "Session": digest(session.session),
        "Referee (key id)": digest(rules.referee.key_id),
        "Parties": f"at most {rules.most}, "
        + (f"of {len(rules.allowed)} named keys" if rules.allowed else "any key"),
        "Time of a party in a game": f"{_seconds(rules.game_budget)}, and at least "
        f"{_seconds(rules.extension)} for each answer",
        "Arity": count(rules.arity),
    }
    return section("The rules", facts(rows))


def _again(session: Session, source: str) -> Safe:
    told = [
        paragraph(
            "The referee's log is the only source of this page. It was played again before the "
            "page was written; a log that no referee of these rules writes convicts the referee. "
            "Anyone who has the job can do the same, and can judge each game alone.",
        ),
        commands(
            f"tallystick fsck {source} --job JOB",
            *(["tallystick judge EVIDENCE --job JOB"] if session.matches else []),
        ),
    ]
    return section("How to check it yourself", *told)


def _meaning(outcome: int | None) -> Safe:
    proves = [
        "Each party that lost a game has signed a false statement, or was silent by the referee's "
        "word; its evidence says which.",
        "Each party had sealed its claim before the log held any other one's.",
    ]
    open_ = [
        "That a silent party has lied. Its silence is the referee's word.",
        "That the job is a good one. The session says which parties followed it.",
    ]
    if outcome in (CONTESTED, UNCONTESTED):
        proves.append("If at least one party followed the job and answered in time, its claim is "
                      "the accepted one.")  # fmt: skip
        open_.append("That the claim is true if no party was honest: it was only not shown wrong.")
    if outcome == ALONE:
        open_.append("That the claim is true: no second party has repeated the run.")
    return join(section(PROVES, items(*proves)), section(LEAVES_OPEN, items(*open_)))
