"""The chat template of a model: messages become one text (ANSWERS 5.6).

A template is a program by somebody else. It runs in a process of its own, in jinja2's sandbox,
without files and without a clock, with limits of memory and time. It sees the messages, the
model's special tokens and the request's date, and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from tallystick.answers.dates import moment_of, written
from tallystick.commit.encoding import JsonValue, canonical_json
from tallystick.data.sources.tokenizer_process import RulesProcess, serve
from tallystick.errors import CannotCheckError, CorruptFileError, UsageError
from tallystick.limits import LIMITS

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
