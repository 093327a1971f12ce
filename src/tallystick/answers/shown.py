"""A request of which some parts are shown, and the others hidden (ANSWERS 5.9).

A shown part stands there with its salt, a hidden one with its digest. So a reader gets the request
digest, compares it with the one in a receipt, and learns nothing of the hidden parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NoReturn

from tallystick.answers.layout import Settings
from tallystick.answers.receipt import AnswerReceipt, SignedReceipt
from tallystick.answers.request import (
    CLIENT_KEY,
    PARTS,
    ModelRequest,
    part_digest,
    request_digest,
    request_of_parts,
)
from tallystick.answers.words import Said
from tallystick.commit.encoding import JsonValue, canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.errors import CorruptFileError, TallystickError, UsageError
from tallystick.limits import LIMITS

KIND = "tallystick/shown-request/1"
# What the hidden parts are taken for where the shown ones are read.
_NEUTRAL = ModelRequest(bytes(32), Settings(), tokens=(0,), secret=bytes(32))


@dataclass(frozen=True)
class ShownPart:
    """A part of a request, and the salt of its digest."""

    value: JsonValue
    salt: bytes


@dataclass(frozen=True)
class ShownRequest:
    """A request in part: what is shown, by name, and the part digests of what is hidden."""

    shown: Mapping[str, ShownPart]
    hidden: Mapping[str, bytes]

    @cached_property
    def digest(self) -> bytes:
        """The request digest, which is that of the whole request (ANSWERS 5.4)."""
        shown = {name: part_digest(name, p.salt, p.value) for name, p in self.shown.items()}
        return request_digest({**self.hidden, **shown})

    @staticmethod
    def of(request: ModelRequest, names: Iterable[str]) -> ShownRequest:
        """`request` with the parts `names` shown. Raises UsageError for a part that it lacks, and
        where nothing is to be shown."""
        wanted, parts = set(names), request.parts
        if odd := wanted - parts.keys():
            raise UsageError(
                f"The request has no part {min(odd)[:80]!r}.",
                f"Choose from {', '.join(sorted(parts))}.",
            )
        if not wanted:
            raise UsageError(
                "No part was chosen to be shown.", f"Choose some of {', '.join(sorted(parts))}."
            )
        salts = {name: request.salt(name) for name in parts}
        return ShownRequest(
            {name: ShownPart(parts[name], salts[name]) for name in wanted},
            {
                name: part_digest(name, salts[name], value)
                for name, value in parts.items()
                if name not in wanted
            },
        )

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        return canonical_json(
            {
                "hidden": {name: digest.hex() for name, digest in self.hidden.items()},
                "kind": KIND,
                "shown": {
                    name: {"salt": part.salt.hex(), "value": part.value}
                    for name, part in self.shown.items()
                },
            }
        )

    @staticmethod
    def from_bytes(data: bytes) -> ShownRequest:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        value = parse_canonical_json(data, "shown request", LIMITS.request_bytes)
        top = Members(value, _malformed)
        top.only("hidden", "kind", "shown")
        if top.of("kind", str) != KIND:
            _malformed(f"its kind is {top.value['kind']!r}")
        shown, hidden = top.child("shown"), top.child("hidden")
        names = [*shown.value, *hidden.value]
        if sorted(names) not in (sorted(PARTS), sorted((*PARTS, CLIENT_KEY))):
            _malformed("its parts are not those of a request, each once")
        if not shown.value:
            _malformed("it shows nothing")
        found: dict[str, ShownPart] = {}
        for name in shown.value:
            part = shown.child(name)
            part.only("salt", "value")
            found[name] = ShownPart(part.value["value"], part.hex("salt"))
        _read({name: part.value for name, part in found.items()})
        return ShownRequest(found, {name: hidden.hex(name) for name in hidden.value})


@dataclass(frozen=True)
class ShownReport:
    """What a receipt says of a shown request (ANSWERS 5.9).

    `proved` is true if the receipt names this request: then each shown part is one of it. `trusted`
    is as in a check. `contradictions` are what the shown parts and the receipt alone show of §6.
    """

    request: ShownRequest
    receipt: AnswerReceipt
    trusted: bool | None
    contradictions: tuple[Said, ...] = ()

    @property
    def proved(self) -> bool:
        return self.request.digest == self.receipt.request

    @property
    def accepted(self) -> bool:
        return self.proved and not self.contradictions


def check_shown(request: ShownRequest, signed: SignedReceipt) -> ShownReport:
    """Compare a shown request with a receipt whose signatures have been verified."""
    report = ShownReport(request, signed.receipt, signed.trusted)
    if not report.proved:
        return report
    return replace(report, contradictions=tuple(_contradictions(request, signed.receipt)))


def _contradictions(request: ShownRequest, receipt: AnswerReceipt) -> Iterator[Said]:
    shown = _read({name: part.value for name, part in request.shown.items()})
    if "model" in request.shown and shown.model != receipt.model:
        yield Said("6.2", "The request asks for another model than the receipt names.")
    if "choices" in request.shown and receipt.choice >= shown.choices:
        choice = f"The receipt is of choice {receipt.choice}"
        yield Said("6.2", f"{choice}, and the request asks for {shown.choices}.")
    if (
        "input" in request.shown
        and shown.tokens is not None
        and len(shown.tokens) != receipt.prompt
    ):
        counts = f"The request has {len(shown.tokens)} prompt tokens"
        yield Said("6.2", f"{counts}, and the receipt counts {receipt.prompt}.")
    if "settings" in request.shown and receipt.answer > shown.settings.max_tokens:
        most = shown.settings.max_tokens
        yield Said("6.5", f"The answer has {receipt.answer} tokens, the request asks for {most}.")


def _read(shown: Mapping[str, JsonValue]) -> ModelRequest:
    """The shown parts, read as in a request whose other parts are neutral. CorruptFileError for a
    value that no request has."""
    try:
        again = request_of_parts({**_NEUTRAL.parts, **shown}, bytes(32))
    except CorruptFileError:
        raise
    except TallystickError as error:
        _malformed(error.message.rstrip("."))
    if any(again.parts.get(name) != value for name, value in shown.items()):
        _malformed("a part is not in its canonical form")
    return again


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The shown request is malformed: {why}.", "Ask its sender for an intact copy."
    )
