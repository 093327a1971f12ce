"""ANSWERS 5.9: some parts of a request, and what a receipt says of them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from unit.answers.toy import Toy, receipt_of

from tallystick.answers.beside_receipt import Spoken
from tallystick.answers.job import AnswerJob
from tallystick.answers.layout import Settings
from tallystick.answers.receipt import LENGTH, read_receipt
from tallystick.answers.request import ModelRequest
from tallystick.answers.shown import ShownReport, ShownRequest, check_shown
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.errors import CorruptFileError, TallystickError, UsageError

TOY = Toy.make()
ASKED = TOY.request()
CLIENT = PrivateKey(bytes([3]) * 32).public
NAMES = tuple(ASKED.parts)


def receipt(request: ModelRequest = ASKED, **odd: object) -> bytes:
    spoken = Spoken((3, 1, 4), (1, 2, 3), np.full(3, -1, np.float32))
    return receipt_of(AnswerJob(TOY.statement, request, spoken), LENGTH, **odd)  # type: ignore[arg-type]


def reported(request: ModelRequest, names: tuple[str, ...], **odd: object) -> ShownReport:
    shown = ShownRequest.from_bytes(ShownRequest.of(request, names).to_bytes())
    return check_shown(shown, read_receipt(receipt(request, **odd)))


@pytest.mark.parametrize("client", (None, CLIENT))
@pytest.mark.parametrize("count", (1, 2, 7))
def test_any_parts_are_proved(count: int, client: object) -> None:
    asked = replace(ASKED, client=client)
    for names in combinations(sorted(asked.parts), count):
        report = reported(asked, names)
        assert report.proved and report.accepted
        assert {n: p.value for n, p in report.request.shown.items()} == {
            n: asked.parts[n] for n in names
        }
        assert set(report.request.hidden) == asked.parts.keys() - set(names)


def test_neither_secret_nor_hidden_parts_nor_other_salts_are_in_it() -> None:
    text = ModelRequest(
        bytes(32), Settings(), text="a word of mine", secret=bytes(range(32)), nonce=b"n" * 16
    )
    data = ShownRequest.of(text, ["model", "date"]).to_bytes()
    assert text.secret.hex().encode() not in data and b"a word of mine" not in data
    assert text.nonce is not None and text.nonce.hex().encode() not in data
    salts = {name: text.salt(name).hex().encode() in data for name in (*text.parts, "record")}
    assert {name for name, there in salts.items() if there} == {"model", "date"}


def test_another_receipt_proves_nothing() -> None:
    shown = ShownRequest.of(ASKED, ["settings"])
    other = replace(ASKED, secret=bytes(32))
    report = check_shown(shown, read_receipt(receipt(other)))
    assert not report.proved and not report.accepted and report.contradictions == ()


def test_a_changed_part_is_of_another_request() -> None:
    body = json.loads(ShownRequest.of(ASKED, ["settings", "choices"]).to_bytes())
    body["shown"]["settings"]["value"]["max_tokens"] = 1
    shown = ShownRequest.from_bytes(canonical_json(body))
    assert shown.digest != ASKED.digest
    assert not check_shown(shown, read_receipt(receipt())).proved


@pytest.mark.parametrize(
    ("part", "change", "odd", "clause"),
    [
        ("model", {"model": bytes(32)}, {}, "6.2"),
        ("choices", {}, {"choice": 1}, "6.2"),
        ("input", {}, {"prompt": 4}, "6.2"),
        ("settings", {}, {"answer": 4}, "6.5"),
    ],
)
def test_a_shown_part_may_convict(
    part: str, change: dict[str, object], odd: dict[str, object], clause: str
) -> None:
    asked = replace(ASKED, **change)  # type: ignore[arg-type]
    report = reported(asked, (part,), **odd)
    assert report.proved and not report.accepted
    assert [one.clause for one in report.contradictions] == [clause]
    hidden = next(name for name in NAMES if name not in (part, "input"))
    assert reported(asked, (hidden,), **odd).accepted, "what is hidden says nothing"


def test_what_cannot_be_shown() -> None:
    with pytest.raises(UsageError, match="no part 'secret'"):
        ShownRequest.of(ASKED, ["secret"])
    with pytest.raises(UsageError, match="no part 'client'"):
        ShownRequest.of(ASKED, ["client"])
    with pytest.raises(UsageError, match="No part"):
        ShownRequest.of(ASKED, [])


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("kind",), "tallystick/shown-request/2", "kind"),
        (("more",), 1, "missing or unknown"),
        (("hidden", "more"), "00" * 32, "each once"),
        (("hidden", "settings"), "00" * 32, "each once"),
        (("hidden", "record"), "00" * 32, "each once"),
        (("hidden", "date"), "00" * 31, "digits"),
        (("hidden",), [], "object"),
        (("shown",), {}, "each once"),
        (("shown", "settings", "more"), 1, "missing or unknown"),
        (("shown", "settings", "salt"), "00", "digits"),
        (("shown", "settings", "value"), None, "object"),
        (("shown", "settings", "value", "top_k"), -1, "top_k"),
        (("shown", "settings", "value", "stop"), [2, 1], "stop"),
    ],
)
def test_malformed_files(path: tuple[str, ...], value: object, why: str) -> None:
    body = json.loads(ShownRequest.of(ASKED, ["settings"]).to_bytes())
    place = body
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    with pytest.raises(CorruptFileError, match=why):
        ShownRequest.from_bytes(canonical_json(body))


def test_nothing_shown_is_no_file() -> None:
    body = json.loads(ShownRequest.of(ASKED, ["settings"]).to_bytes())
    body["hidden"]["settings"], body["shown"] = "00" * 32, {}
    with pytest.raises(CorruptFileError, match="shows nothing"):
        ShownRequest.from_bytes(canonical_json(body))


def test_any_bytes_are_a_shown_request_or_a_typed_error() -> None:
    rng, whole = random.Random(7), ShownRequest.of(ASKED, NAMES).to_bytes()
    for _ in range(300):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.choice(b'0a"{}[],:\x00\xff')
        try:
            ShownRequest.from_bytes(bytes(data))
        except TallystickError as error:
            assert error.exit_code == 2 and error.next_action
