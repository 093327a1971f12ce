"""The chat template of a model: messages become one text (ANSWERS 5.6).

A template is a program by somebody else. It runs in a process of its own, in jinja2's sandbox,
without files and without a clock, with limits of memory and time. It sees the messages, the
model's special tokens and the request's date, and nothing else.

A date is written here, by a request's form (5.1). The C library's strftime reads the locale and the
time zone of its machine, and differs between systems.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from tallystick.commit.encoding import JsonValue, canonical_json
from tallystick.data.sources.tokenizer_process import RulesProcess, serve
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError
from tallystick.limits import LIMITS

_FORM = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2})?")
_DIRECTIVE = re.compile("%(-?)(.?)", re.DOTALL)
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def moment_of(date: str) -> datetime.datetime:
    """The moment that a request's date names. Raises ValueError."""
    if not _FORM.fullmatch(date):
        raise ValueError("not of the form YYYY-MM-DD or YYYY-MM-DDThh:mm:ss")
    return datetime.datetime.fromisoformat(date)


def reads_date(template: str | None) -> bool:
    """Whether a chat template may ask for the date (ANSWERS 5.6)."""
    return template is not None and "strftime_now" in template


def written(moment: datetime.datetime, form: str) -> str:
    """`moment` by the directives of ANSWERS 5.6. Raises ValueError for any other one."""
    by_name = {
        "Y": f"{moment.year:04}",
        "y": f"{moment.year % 100:02}",
        "m": f"{moment.month:02}",
        "B": _MONTHS[moment.month - 1],
        "b": _MONTHS[moment.month - 1][:3],
        "d": f"{moment.day:02}",
        "e": f"{moment.day:2}",
        "j": f"{moment.timetuple().tm_yday:03}",
        "A": _DAYS[moment.weekday()],
        "a": _DAYS[moment.weekday()][:3],
        "H": f"{moment.hour:02}",
        "I": f"{(moment.hour + 11) % 12 + 1:02}",
        "p": "AM" if moment.hour < 12 else "PM",
        "M": f"{moment.minute:02}",
        "S": f"{moment.second:02}",
        "%": "%",
    }

    def replaced(found: re.Match[str]) -> str:
        bare, name = found.groups()
        if name not in by_name:
            raise ValueError(f"it writes a date by {found[0]!r}, which no clause defines")
        text = by_name[name]
        # Without what fills it up: of a number, and never the last digit.
        return text[:-1].lstrip("0 ") + text[-1] if bare and text.strip().isdecimal() else text

    return _DIRECTIVE.sub(replaced, form)


_MODULE = "tallystick.answers.template"
_RENDER = 1


class Template:
    """A chat template. Raises CannotCheckError without jinja2, CorruptFileError for a text that
    is not a template."""

    def __init__(self, text: str) -> None:
        if find_spec("jinja2") is None:
            raise CannotCheckError(
                "A chat template needs jinja2.", "Run pip install 'tallystick[answers]'."
            )
        try:
            self._process = RulesProcess(text.encode("utf-8"), _MODULE)
        except UsageError as error:
            raise CorruptFileError(
                f"The chat template is not valid: {error.message}.",
                "Report this to the model's author.",
            ) from None

    def render(
        self, messages: list[JsonValue], special: Mapping[str, str], date: str | None
    ) -> str:
        """The text of `messages`, up to where the answer begins. Raises UsageError for messages
        that the template refuses, and for a text over the limit."""
        given: JsonValue = {"date": date, "messages": messages, "special": dict(special)}
        try:
            found = self._process.ask(_RENDER, canonical_json(given))
        except UsageError as error:
            raise UsageError(
                f"The chat template gives no text for these messages: {error.message}.",
                "Change the messages, or send tokens.",
            ) from None
        return found.decode("utf-8")


# -- in the other process --------------------------------------------------------------------------


def _opened(data: bytes) -> Any:
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    # What gives another text each time.
    del environment.filters["random"], environment.globals["lipsum"]
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(data.decode("utf-8"))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers has it (ANSWERS 5.6): jinja2's own one escapes for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> None:
    raise ValueError(message)


def _answer(template: Any, kind: int, data: bytes) -> bytes:
    given = json.loads(data)

    def now(form: str) -> str:
        if given["date"] is None:
            raise ValueError("it reads a date, and the request has none")
        return written(moment_of(given["date"]), form)

    # Piece by piece: a template that writes without an end is ended at the limit.
    found = bytearray()
    for piece in template.generate(
        messages=given["messages"], add_generation_prompt=True, tools=None, documents=None,
        strftime_now=now, **given["special"],
    ):  # fmt: skip
        found += piece.encode("utf-8")
        if len(found) > LIMITS.rendered_bytes:
            raise ValueError(f"it is longer than {LIMITS.rendered_bytes} bytes")
    return bytes(found)


def main() -> None:
    import jinja2.sandbox  # noqa: F401 (its memory is our own, and none of the template's)

    serve(_opened, _answer)


if __name__ == "__main__":
    main()
