"""The common parts of pages: head, style, mark, footer, and the page about a refused file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from tallystick.errors import TallystickError
from tallystick.installed import tallystick_version
from tallystick.report.html import Safe, el, join, text

# The page loads no other file, even if a text from outside managed to become markup.
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_OPTION = re.compile(r"(?<= )(-{1,2}[a-z][a-z-]*(?: [^-\s]\S*)?)")


@cache
def page_style() -> Safe:
    """The content of the style element of every page."""
    return Safe(files("tallystick.report").joinpath("page.css").read_text("utf-8"))


def _stick(same: bool) -> Safe:
    """Two halves of a tally stick; the notches match, or they do not."""

    def notches(top: int, at: tuple[int, ...]) -> str:
        return "".join(f"M{x} {top}v10" for x in at)

    above = (12, 20, 28, 44, 60)
    below = above if same else (12, 20, 32, 44, 60)
    halves = (el("rect", x=x, y=y, width=70, height=10, rx=2) for x, y in ((2, 1), (4, 13)))
    return el(
        "svg",
        el("g", *halves, fill="none", stroke="currentColor", stroke_width="1.5"),
        el(
            "path",
            d=notches(1, above) + notches(13, below),
            stroke="currentColor",
            stroke_width="2",
        ),
        viewBox="0 0 76 24",
        aria_hidden="true",
    )


@dataclass(frozen=True)
class Inside:
    """What a page has inside beside its words (`report/with_judge.py`): a policy of its own, styles
    of the head, a section of the main part, and elements at the end of the body."""

    policy: Safe
    styles: Safe
    section: Safe
    end: Safe


def page(
    title: str, body: Safe, same: bool = True, inside: Inside | None = None, about: str = ""
) -> str:
    """A whole document. `body` is the content of its main part, `about` says what pages of its kind
    are about."""
    policy = text(POLICY) if inside is None else inside.policy
    head = el(
        "head",
        Safe('<meta charset="utf-8">'),
        Safe('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Safe(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Safe('<meta name="referrer" content="no-referrer">'),
        el("title", f"{title} – Tallystick"),
        el("style", page_style()),
        inside and inside.styles,
    )
    brand = el("div", _stick(same), "Tallystick", class_="brand")
    top = el("header", brand, el("p", about) if about else None, class_="top")
    made = f"Written by tallystick {tallystick_version()}. This page is for reading; "
    rest = "the files that it names" if inside is None else "the evidence and the job inside of it"
    footer = el("footer", made, f"its statements rest on {rest}.")
    content = el("body", top, el("main", body), footer, inside and inside.end)
    html = el("html", head, content, lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def section(title: str, *content: object) -> Safe:
    """A part of a page under a heading."""
    return el("section", el("h2", title), *content)


def paragraph(*content: object, class_: str | None = None) -> Safe:
    return el("p", *content, class_=class_)


def badge(label: str, good: bool | None) -> Safe:
    """A word in a frame: good news, bad news, or neither."""
    tone = {True: " good", False: " bad", None: ""}[good]
    return el("span", label, class_=f"badge{tone}")


def trust_badge(trusted: bool | None) -> Safe:
    """A badge that says whether the reader named the signer."""
    if trusted:
        return badge("✓ trusted signer", True)
    return badge("owner not named", None if trusted is None else False)


def banner(sentence: str, *more: object, good: bool | None, doubtful: bool = False) -> Safe:
    """The page's statement in one sentence, and the words below it. It is `doubtful` where it rests
    on somebody's word."""
    tone = " doubtful" if doubtful else {True: " good", False: " bad", None: ""}[good]
    return el("div", el("h1", sentence), *more, class_=f"card verdict{tone}")


def table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> Safe:
    """A table whose first column names its rows.

    On a phone each row is a block, in which a cell stands beside its column's name (`data-label`).
    Blocks would lose what a screen reader knows of a table, so the roles are written out.
    """
    top = (el("th", head, scope="col", role="columnheader") for head in heads)
    body = []
    for first, *rest in rows:
        cells = (
            el("td", cell, role="cell", data_label=head or None)
            for head, cell in zip(heads[1:], rest, strict=True)
        )
        body.append(el("tr", el("th", first, scope="row", role="rowheader"), *cells, role="row"))
    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *top, role="row"), role="rowgroup"),
        el("tbody", *body, role="rowgroup"),
        role="table",
        class_="stacked",
    )


def fold(title: str, *content: object) -> Safe:
    """A part for readers who want the whole way: closed, and opened without a script."""
    return el("details", el("summary", title), *content, class_="fold")


def commands(*lines: str) -> Safe:
    """Command lines to type. An option is not torn from its value where a line is too long."""
    return el("pre", el("code", Safe("\n".join(map(_command, lines)))))


def _command(line: str) -> Safe:
    parts = _OPTION.split(line)
    options = (el("span", part, class_="option") for part in parts[1::2])
    return join(parts[0], *(x for pair in zip(options, parts[2::2], strict=True) for x in pair))


def refusal_page(name: str, what: str, error: TallystickError) -> str:
    """A page that says why `what`, the file or directory `name`, is not shown."""
    body = join(
        banner(
            f"Nothing is shown, and nobody is accused: this {what} does not check out.",
            paragraph(error.message, class_="lead"),
            paragraph(error.next_action) if error.next_action else None,
            good=False,
        ),
        paragraph(
            f"This page believes no part of it and so repeats none. This convicts nobody: the "
            f"sender of the {what} may simply have sent the wrong one.",
        ),
        paragraph("It was ", el("code", name), "."),
    )
    return page(f"Not judged: {name}", body, same=False)
