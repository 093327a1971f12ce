"""Markup that outside text cannot change: every value is escaped unless it is `Safe`."""

from __future__ import annotations

import html

from tallystick.visible import visible

MAX_TEXT = 2000  # characters of one outside text on a page
_SEPARATORS = "\n\t"


class Safe(str):
    """Markup that this module made."""


def text(value: object, limit: int | None = MAX_TEXT) -> Safe:
    """`value` as text of a page.

    Texts longer than `limit` are cut. Characters that draw nothing or act (among them those that
    turn the writing direction, and lone surrogates, which no encoding takes) are spelled out.
    """
    if isinstance(value, Safe):
        return value
    raw = str(value)
    if limit is not None and len(raw) > limit:
        raw = raw[:limit] + "…"
    return Safe(html.escape(visible(raw, _SEPARATORS), quote=True))


def el(name: str, *children: object, **attributes: object) -> Safe:
    """The element `name`; children and attribute values are escaped unless they are `Safe`.

    Attribute names are written `class_`, `aria_label`, `viewBox`; None leaves one out. The name
    and the attributes' names are ours, never from outside.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value, None)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Safe(f"<{name}{given}>{join(*children)}</{name}>")


def join(*parts: object) -> Safe:
    """Parts one after the other; None adds no markup."""
    return Safe("".join(text(part) for part in parts if part is not None))
