"""The games of a session, drawn: a line for each party, and where its games and its end are."""

from __future__ import annotations

from tallystick.commit.signing import PublicKey
from tallystick.delegation.match import Match, Member, sides_of
from tallystick.delegation.session import Session
from tallystick.report.html import Safe, el, join

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
    marks += [_game(match, rows) for match in session.matches]
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


def _game(match: Match, rows: dict[PublicKey, tuple[int, Member]]) -> Safe:
    x = _x(match.round)
    ends = sorted(rows[m.key][0] for m in match.members)
    # Below the upper party's row: there no line of a party passes through it.
    number = el("text", f"game {match.number}", x=x + 6, y=ends[0] + _ROW // 2 + 4)
    dots = [el("circle", cx=x, cy=y, r=3.2, class_="dot") for y in ends]
    return join(el("line", x1=x, y1=ends[0], x2=x, y2=ends[1], class_="axis"), *dots, number)
