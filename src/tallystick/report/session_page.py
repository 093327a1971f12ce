"""A session of k parties as a page: the result, the parties, the games, the clocks."""

from __future__ import annotations

from tallystick.delegation.ended import fates_of
from tallystick.delegation.entries import (
    ALONE,
    CONTESTED,
    CONVICTED,
    NONE_ACCEPTED,
    RESULTS,
    UNCONTESTED,
)
from tallystick.delegation.match import Match, Member
from tallystick.delegation.outcome import Fate
from tallystick.delegation.outcome import SealedMember as Ended
from tallystick.delegation.session import Session
from tallystick.devices.environment import exact_environment
from tallystick.report.bracket import bracket
from tallystick.report.html import Safe, el, join
from tallystick.report.page import badge, banner, commands, page, paragraph, section
from tallystick.report.words import code, count, digest, facts, items, size


@exact_environment()
def session_headline(session: Session) -> str:
    """The result in one sentence."""
    if session.result is None:
        return f"The session goes on: it is {session.state}."
    return RESULTS[session.result.outcome].sentence


@exact_environment()
def session_page(session: Session, source: str) -> str:
    """The page of a session that was played again from its log (`delegation.watch`).

    `source` is the name of the referee's directory. The page is a whole HTML document.
    """
    outcome = None if session.result is None else session.result.outcome
    good = {CONTESTED: True, UNCONTESTED: True, NONE_ACCEPTED: False}.get(outcome or 0)
    body = join(
        banner(session_headline(session), _lead(session), good=None if outcome is None else good),
        _figures(session),
        section("Who met whom", bracket(session)) if session.matches else None,
        _parties(session),
        _games(session) if session.matches else None,
        _rules(session),
        _again(session, source),
        _meaning(outcome),
    )
    return page(session_headline(session), body, same=outcome in (CONTESTED, UNCONTESTED))


def _lead(session: Session) -> Safe:
    sides = {m.claim for m in session.members.values()}
    words = (
        f"{count(len(session.seals), 'key')} sealed and "
        f"{count(len(session.members), 'commitment')} counted, with "
        f"{count(len(sides), 'different claim')}. "
    )
    words += f"{count(len(session.matches), 'game')} in {count(session.rounds, 'round')}."
    return paragraph(words, class_="lead")


def _figures(session: Session) -> Safe:
    received = sum(
        len(message) for m in session.matches if m.referee for _, message in m.referee.transcript
    )
    terms = max((m.referee.terms for m in session.matches if m.referee), default=0)
    rounds = max((m.referee.rounds for m in session.matches if m.referee), default=0)
    shown = (
        (count(len(session.matches)), "games"),
        (count(rounds), "questions and answers of the longest game"),
        (size(received).partition(" (")[0], "of signed answers"),
        (count(terms), "terms executed at most by the referee in a game"),
    )
    return el("div", *(el("div", el("b", n), el("span", what)) for n, what in shown),
              class_="figures")  # fmt: skip


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:,.1f} s"


def _parties(session: Session) -> Safe:
    rows = []
    fates = {} if session.result is None else fates_of(session)
    for key in sorted(session.seals, key=lambda k: k.raw):
        member = session.members.get(key)
        played = [(m, p) for m in session.matches for p, x in enumerate(m.members) if x.key == key]
        fate = _fate(fates.get(key))
        used = sum(m.clocks[p].used for m, p in played)
        rows.append(
            el("tr", el("td", code(key.key_id[:16])), el("td", _claim(member)), el("td", fate),
               el("td", ", ".join(str(m.number) for m, _ in played) or "none"),
               el("td", _seconds(used)))
        )  # fmt: skip
    head = el("tr", *(el("th", h) for h in ("Key id", "Run root", "", "Games", "Time used")))
    return section("The parties", el("table", head, *rows))


def _fate(found: Ended | None) -> Safe:
    if found is None:
        return badge("it goes on", None)
    if found.fate is Fate.REMAINING:
        return badge("✓ remains", True)
    return badge(f"✗ {found.fate.value}", False)


def _claim(member: Member | None) -> Safe:
    return code("—") if member is None else code(member.run.run_root.hex()[:16])


def _games(session: Session) -> Safe:
    head = el("tr", *(el("th", h) for h in ("Game", "Round", "Parties", "End", "Answers")))
    rows = [_game(match) for match in session.matches]
    return section("The games", el("table", head, *rows))


def _game(match: Match) -> Safe:
    first, second = (m.key.key_id[:12] for m in match.members)
    asked = 0 if match.referee is None else len(match.referee.transcript)
    return el("tr", el("td", match.number), el("td", match.round),
              el("td", code(first), " and ", code(second)), el("td", *_end(match)),
              el("td", count(asked)))  # fmt: skip


def _end(match: Match) -> list[object]:
    if match.ending is None:
        return ["it goes on"]
    if match.ending.outcome != CONVICTED:
        return ["not decided: ", match.why]
    assert match.referee is not None and match.referee.verdict is not None
    told: list[object] = []
    for conviction in match.referee.verdict.convicted:
        key = match.members[conviction.party].key.key_id[:12]
        told += [code(key), " ", badge(f"clause {conviction.clause}", False), " ",
                 conviction.sentence, ". "]  # fmt: skip
    return told


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
        "Each party that a game convicted has signed a false statement, or was silent by the "
        "referee's word; its evidence says which.",
        "Each party had sealed its claim before the log held any other one's.",
    ]
    open_ = [
        "A silence is the referee's word. It shows no lie.",
        "That the job is a good one. The session says which parties followed it.",
    ]
    if outcome in (CONTESTED, UNCONTESTED):
        proves.append("If at least one party followed the job and answered in time, its claim is "
                      "the accepted one.")  # fmt: skip
        open_.append("That the claim is true if no party was honest: it was only not shown wrong.")
    if outcome == ALONE:
        open_.append("That the claim is true: no second party has repeated the run.")
    return join(
        section("What this proves", items(*proves)), section("What it does not", items(*open_))
    )
