"""Objects of the Python interface as a person meets them: one line, and in a notebook a table.

Names and texts in them may be another party's, so both forms spell out what draws nothing or acts,
and the table escapes the rest.
"""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Mapping

from tallystick.visible import visible

_MOST = 400  # characters of one value: an object is looked at, not read
_LEAD = 12  # hexadecimal digits of a digest in a line


def value_text(value: object) -> str:
    """A value for people: bytes as hexadecimal, truth as yes and no, numbers with separators."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int):
        return f"{value:,}"
    text = visible(str(value))
    return text if len(text) <= _MOST else text[:_MOST] + "…"


class Tabled(ABC):
    """An object that says its `title` and its facts in a line, and in a notebook as a table."""

    @abstractmethod
    def facts_for_people(self) -> tuple[str, Mapping[str, object]]:
        """The title, and the facts by their names."""

    def __repr__(self) -> str:
        title, facts = self.facts_for_people()
        told = (f"{visible(name)} {_brief(value)}" for name, value in facts.items())
        return f"<{visible(title)}: {', '.join(told)}>"

    def _repr_html_(self) -> str:
        title, facts = self.facts_for_people()
        rows = "".join(
            f"<tr><th>{_escaped(visible(name))}</th><td>{_escaped(value_text(value))}</td></tr>"
            for name, value in facts.items()
        )
        return f"<table><caption>{_escaped(visible(title))}</caption>{rows}</table>"


def _brief(value: object) -> str:
    """A value in a line, digests by their first digits."""
    return value.hex()[:_LEAD] if isinstance(value, bytes) else value_text(value)


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
