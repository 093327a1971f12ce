"""Stable anchors of the specification: clause 6.5 of PROTOCOL is `PROTOCOL.html#clause-6-5`.

A page that cites the clause links there.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

_NUMBER = re.compile(r"(\d+(?:\.\d+)*)\.?(?=\s|$)")
NAMES = (
    "NUMERICS",
    "PROGRAM",
    "COMMITMENTS",
    "PROTOCOL",
    "OPENING",
    "ANSWERS",
    "CLAIMS",
    "THREATS",
)
_CITED = re.compile(rf"\b({'|'.join(NAMES)}) (\d+(?:\.\d+)*)")
_OWN = re.compile(r"§(\d+(?:\.\d+)*)|(?<=[( ])(\d+(?:\.\d+)+)(?=[),;])")


def _anchor(number: str) -> str:
    return "clause-" + number.replace(".", "-")


def mark(app: Sphinx, tree: nodes.document) -> None:
    """Give every clause its anchor."""
    name = app.env.docname
    if not name.startswith("spec/"):
        return
    clauses: set[str] = set()
    for node in tree.findall(lambda n: isinstance(n, (nodes.paragraph, nodes.section))):
        named = node[0] if isinstance(node, nodes.section) else node
        found = _NUMBER.match(named.astext())
        if found is None or found[1] in clauses:
            continue
        # A paragraph of a table or list begins with a number for other reasons.
        if isinstance(node, nodes.paragraph) and (
            "." not in found[1] or not isinstance(node.parent, nodes.section)
        ):
            continue
        clauses.add(found[1])
        node["ids"].insert(0, _anchor(found[1]))
        first = named[0] if named.children else None
        if isinstance(node, nodes.paragraph) and isinstance(first, nodes.Text):
            link = nodes.reference("", found[1], refuri="#" + _anchor(found[1]), classes=["clause"])
            link["internal"] = True
            named.replace(first, [link, nodes.Text(first.astext()[len(found[1]) :])])
    kept = _kept(app)
    kept[name] = clauses


def _kept(app: Sphinx) -> dict[str, set[str]]:
    if not hasattr(app.env, "spec_clauses"):
        app.env.spec_clauses = {}  # type: ignore[attr-defined]
    found: dict[str, set[str]] = app.env.spec_clauses  # type: ignore[attr-defined]
    return found


def _skipped(node: nodes.Node) -> bool:
    above: Any = node.parent
    while above is not None:
        if isinstance(above, (nodes.reference, nodes.literal, nodes.literal_block, nodes.title)):
            return True
        above = above.parent
    return False


def cite(app: Sphinx, tree: nodes.document, docname: str) -> None:
    """Link what cites a clause."""
    clauses = _kept(app)
    own = docname if docname.startswith("spec/") else None
    for text in list(tree.findall(nodes.Text)):
        if _skipped(text):
            continue
        plain, at = text.astext(), 0
        parts: list[nodes.Node] = []
        found = [(m, f"spec/{m[1]}", m[2]) for m in _CITED.finditer(plain)]
        found += [(m, own, m[1] or m[2]) for m in _OWN.finditer(plain) if own]
        for match, page, number in sorted(found, key=lambda one: one[0].start()):
            if match.start() < at or number not in clauses.get(page, ()):
                continue
            parts.append(nodes.Text(plain[at : match.start()]))
            where = "" if page == docname else app.builder.get_relative_uri(docname, page)
            link = nodes.reference("", match[0], refuri=f"{where}#{_anchor(number)}")
            link["internal"] = True
            parts.append(link)
            at = match.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(plain[at:])])
