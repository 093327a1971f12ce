"""Files of ANSWERS that every reader refuses, each altered in one place and signed anew."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

from answer_cases import CLIENT, STRANGER, Signed, models, requests
from unit.answers.toy import KEY

from tallystick.answers.cancellation import CANCELLATION_TYPE, sign_cancellation
from tallystick.answers.receipt import RECEIPT_TYPE
from tallystick.answers.request import ModelRequest
from tallystick.answers.shown import ShownRequest
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import Envelope, PrivateKey, sign_envelope

Refusal = tuple[str, str, str, bytes, bytes]  # kind, name, clause, the honest file, this one
Change = Callable[[Any], None]


def refused(answers: list[Signed], conviction: bytes, pair: bytes) -> Iterator[Refusal]:
    """`conviction` and `pair` are files of evidence that convict."""
    by_name = {one.name: one for one in answers}
    yield from _statements()
    yield from _requests()
    yield from _receipts(by_name["honest: greedy ordered, choice 0"].receipt)
    yield from _said(by_name)
    yield from _cancellations()
    yield from _shown()
    yield from _convictions(conviction)
    yield from _pairs(pair)


def at(*path: str | int, to: Any) -> Change:
    """Puts a value at a place; without a value there it is a member more."""

    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        body[path[-1]] = to

    return change


def without(*path: str | int) -> Change:
    def change(body: Any) -> None:
        for step in path[:-1]:
            body = body[step]
        del body[path[-1]]

    return change


def altered(data: bytes, change: Change) -> bytes:
    body = json.loads(data)
    change(body)
    return canonical_json(body)


def _of(kind: str, data: bytes, changes: list[tuple[str, str, Change]]) -> Iterator[Refusal]:
    for name, clause, change in changes:
        yield kind, name, clause, data, altered(data, change)
    yield kind, "a blank before it", "COMMITMENTS 1.11", data, b" " + data
    yield kind, "cut off", "COMMITMENTS 1.11", data, data[:-1]


def _statements() -> Iterator[Refusal]:
    data = models()["ordered"].statement.to_bytes()
    yield from _of("statement", data, [
        ("another kind", "4.2", at("kind", to="tallystick/model/2")),
        ("a member more", "4.2", at("more", to=1)),
        ("no stop", "4.2", without("stop")),
        ("a contract with logs", "1.5", at("contract", to="replay/1-draft.1;b=32;form=bounded")),
        ("no contract", "4.2", at("contract", to="ordered/9")),
        ("no vocabulary", "4.2", at("vocabulary", to=0)),
        ("a stop token outside of it", "4.2", at("stop", to=[16])),
        ("stop not ascending", "4.2", at("stop", to=[5, 1])),
        ("slots in another order", "4.2", lambda b: b["slots"].reverse()),
        ("a slot twice", "4.2", lambda b: b["slots"].insert(0, b["slots"][0])),
        ("no slots", "4.2", at("slots", to=[])),
        ("a slot of an answer", "4.2", at("slots", 0, "name", to="buffer.answer.x")),
        ("a slot of no type", "4.2", at("slots", 0, "dtype", to="f8")),
        ("a short digest", "COMMITMENTS 1.1", at("slots", 0, "digest", to="00" * 31)),
        ("an empty bucket", "2.3", at("programs", 0, "answer", to=0)),
        ("an answer as long as the text", "2.3", at("programs", 0, "answer", to=12)),
        ("another set", "3.2", at("programs", 0, "set", to="lucky")),
        ("programs in another order", "4.2", lambda b: b["programs"].reverse()),
        ("a program of an encoding among them", "11.2", at("programs", 5, "set", to="classes")),
        ("a special token of another name", "4.2",
         at("special_tokens", "bos", to={"id": 0, "text": ""})),
        ("an adapter without a word", "4.2", without("adapter", "merged")),
        ("a number about it", "4.2", at("about", "name", to=1)),
        ("a file without a digest", "4.2", at("tokenizer", "tokenizer.json", to=None)),
    ])  # fmt: skip


def _requests() -> Iterator[Refusal]:
    data = requests()["full ordered"].request.to_bytes()
    told = ("parts", "settings")
    nan, half = "nan", "0x1.0000000000000p-1"
    yield from _of("request", data, [
        ("another kind", "5.2", at("kind", to="tallystick/request/2")),
        ("a part more", "5.1", at("parts", "more", to=1)),
        ("no date", "5.1", without("parts", "date")),
        ("a date of no calendar", "5.1", at("parts", "date", to="2026-02-30")),
        ("a date with a zone", "5.1", at("parts", "date", to="2026-02-03T00:00:00Z")),
        ("two inputs", "5.1", at("parts", "input", to={"text": "a", "tokens": [1]})),
        ("no tokens", "5.1", at("parts", "input", to={"tokens": []})),
        ("a message without a role", "5.1",
         at("parts", "input", to={"messages": [{"content": ""}]})),
        ("no choice", "5.1", at("parts", "choices", to=0)),
        ("too many choices", "10.1", at("parts", "choices", to=1025)),
        ("true for a number", "5.1", at("parts", "choices", to=True)),
        ("seed and nonce", "5.1", at("parts", "seed", "nonce", to="00" * 16)),
        ("neither", "5.1", at("parts", "seed", "seed", to=None)),
        ("a nonce of the server's", "5.1",
         at("parts", "seed", to={"by": "server", "nonce": "00" * 16, "seed": None})),
        ("a short nonce", "5.1",
         at("parts", "seed", to={"by": "client", "nonce": "00" * 15, "seed": None})),
        ("a seed too large", "5.1", at("parts", "seed", "seed", to=str(2**64))),
        ("a seed with a zero before it", "5.1", at("parts", "seed", "seed", to="011")),
        ("an empty stop string", "5.1", at("parts", "stop_strings", to=[""])),
        ("a client that is no key", "5.1", at("parts", "client", to="00" * 32)),
        ("a client of null", "5.1", at("parts", "client", to=None)),
        ("a temperature of nan", "3.1", at(*told, "temperature", to=nan)),
        ("a temperature below 0", "3.1", at(*told, "temperature", to="-" + half)),
        ("a temperature that becomes 0", "3.1", at(*told, "temperature", to=(1e-60).hex())),
        ("a temperature that becomes infinite", "3.1", at(*told, "temperature", to=(1e39).hex())),
        ("another spelling", "COMMITMENTS 1.10", at(*told, "temperature", to="0x1p+2")),
        ("top_p of 0", "3.1", at(*told, "top_p", to="0x0.0p+0")),
        ("top_p above 1", "3.1", at(*told, "top_p", to=(1.001).hex())),
        ("min_p above 1", "3.1", at(*told, "min_p", to=(1.5).hex())),
        ("repetition of 0", "3.1", at(*told, "repetition", to="0x0.0p+0")),
        ("top_k below 0", "3.1", at(*told, "top_k", to=-1)),
        ("no token", "5.1", at(*told, "max_tokens", to=0)),
        ("stop not ascending", "5.1", at(*told, "stop", to=[3, 3])),
        ("bias not ascending", "3.1", lambda b: b["parts"]["settings"]["bias"].reverse()),
        ("a short secret", "5.2", at("secret", to="00" * 31)),
    ])  # fmt: skip
    encoding = requests()["embedding"].request.to_bytes()
    yield from _of("request", encoding, [
        ("messages for an encoding", "11.7", at("parts", "input", to={"messages": [{"role": ""}]})),
        ("another output", "11.7", at("parts", "output", to="greedy")),
        ("choices of an encoding", "11.7", at("parts", "choices", to=1)),
    ])  # fmt: skip


def _receipts(data: bytes) -> Iterator[Refusal]:
    payload = Envelope.from_bytes(data).payload

    def anew(change: Change, key: PrivateKey = KEY, kind: str = RECEIPT_TYPE) -> bytes:
        return sign_envelope(key, kind, altered(payload, change)).to_bytes()

    text = json.loads(payload)["job"]
    other = text[:-1] + chr(ord(text[-1]) + 1)  # the same bytes in another spelling
    for name, clause, change in (
        ("another kind", "7.2", at("kind", to="tallystick/answered/2")),
        ("a member more", "7.2", at("more", to=1)),
        ("no time", "7.2", without("time")),
        ("until before its time", "7.2", at("until", to=1)),
        ("a time too large", "7.2", at("until", to=2**52 + 1)),
        ("a choice too large", "10.1", at("choice", to=1024)),
        ("no prompt", "1.2", at("prompt", to=0)),
        ("an answer too long", "10.1", at("answer", to=2**20 + 1)),
        ("a digest with padding", "7.2", at("model", to=json.loads(payload)["model"] + "=")),
        ("a digest in another spelling", "7.2", at("job", to=other)),
        ("a digest of 33 bytes", "7.2", at("model", to="A" * 44)),
        ("another job than the run's", "7.4", at("job", to="A" * 43)),
        ("another state than the run's", "7.4", at("state", to="A" * 43)),
        ("another key", "7.3", at("key", to=_url(STRANGER.public.raw))),
        ("a key of small order", "COMMITMENTS 9.1.1", at("key", to="A" * 43)),
    ):
        yield "receipt", name, clause, data, anew(change)
    nothing: Change = lambda body: None  # noqa: E731
    yield "receipt", "signed by somebody else", "7.3", data, anew(nothing, STRANGER)
    yield "receipt", "another type", "7.1", data, anew(nothing, kind=CANCELLATION_TYPE)
    one = json.loads(data)["signatures"][0]
    for name, signatures in (("no signature", []), ("two signatures", [one, one])):
        yield "receipt", name, "7.1", data, altered(data, at("signatures", to=signatures))
    flipped = base64.b64decode(one["sig"])
    flipped = bytes([flipped[0] ^ 1]) + flipped[1:]
    sig = base64.b64encode(flipped).decode()
    yield (
        "receipt",
        "an altered signature",
        "7.3",
        data,
        altered(data, at("signatures", 0, "sig", to=sig)),
    )
    yield "receipt", "too long", "7.1", data, data + b" " * 1024
    yield "receipt", "cut off", "7.1", data, data[:-1]


def _url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _said(by_name: dict[str, Signed]) -> Iterator[Refusal]:
    spoken = by_name["honest: greedy ordered, choice 0"].said.spoken.to_bytes()  # type: ignore[union-attr]
    yield from _of("said", spoken, [
        ("another kind", "7.5", at("kind", to="tallystick/spoken/2")),
        ("a member more", "7.5", at("labels", to=[])),
        ("no prompt", "1.2", at("prompt", to=[])),
        ("no answer", "1.2", lambda b: b.update(tokens=[], logprobs="")),
        ("a log-probability less", "7.5", lambda b: b.update(logprobs=b["logprobs"][8:])),
        ("another NaN", "COMMITMENTS 3.3",
         lambda b: b.update(logprobs="0100c07f" + b["logprobs"][8:])),
        ("capital letters", "7.5", lambda b: b.update(logprobs="0000C07F" + b["logprobs"][8:])),
        ("a token of no integer", "7.5", at("tokens", 0, to="1")),
        ("a text of null", "7.5", at("text", to=None)),
    ])  # fmt: skip
    encoded = by_name["honest: classes"].said.encoded.to_bytes()  # type: ignore[union-attr]
    yield from _of("said", encoded, [
        ("a member more, beside an encoding", "11.9", at("text", to="")),
        ("a label less", "11.9", lambda b: b["labels"].pop()),
        ("a label of no text", "11.9", at("labels", 0, to=1)),
        ("no values", "11.9", at("values", to="")),
        ("half a value", "11.9", lambda b: b.update(values=b["values"][2:])),
    ])  # fmt: skip


def _cancellations() -> Iterator[Refusal]:
    request = requests()["full ordered"].request
    assert isinstance(request, ModelRequest)
    honest = sign_cancellation(CLIENT, request, 1)
    payload = Envelope.from_bytes(honest).payload
    for name, clause, change in (
        ("another kind", "6.6.1", at("kind", to="tallystick/cancelled/2")),
        ("a member more", "6.6.1", at("time", to=1)),
        ("after no token", "6.6.1", at("answer", to=0)),
        ("a choice too large", "6.6.1", at("choice", to=1024)),
        ("a short digest", "6.6.1", at("request", to="00" * 31)),
    ):
        data = sign_envelope(CLIENT, CANCELLATION_TYPE, altered(payload, change)).to_bytes()
        yield "cancellation", name, clause, honest, data
    for name, key, kind in (
        ("another type", CLIENT, RECEIPT_TYPE), ("of somebody else", STRANGER, CANCELLATION_TYPE),
    ):  # fmt: skip
        yield "cancellation", name, "6.6", honest, sign_envelope(key, kind, payload).to_bytes()


def _shown() -> Iterator[Refusal]:
    request = requests()["full ordered"].request
    assert isinstance(request, ModelRequest)
    data = ShownRequest.of(request, ["settings", "choices"]).to_bytes()
    yield from _of("shown", data, [
        ("another kind", "5.9", at("kind", to="tallystick/shown-request/2")),
        ("nothing shown", "5.9", lambda b: b.update(
            hidden={**b["hidden"], "choices": "00" * 32, "settings": "00" * 32}, shown={})),
        ("a part that no request has", "5.9", at("hidden", "secret", to="00" * 32)),
        ("a part that is not there", "5.9", without("hidden", "date")),
        ("a part in both", "5.9", at("hidden", "choices", to="00" * 32)),
        ("a value that no part has", "5.9", at("shown", "choices", "value", to=0)),
        ("settings that no part has", "5.9",
         at("shown", "settings", "value", "top_p", to="0x0.0p+0")),
        ("a short salt", "5.9", at("shown", "choices", "salt", to="00")),
    ])  # fmt: skip


def _convictions(data: bytes) -> Iterator[Refusal]:
    body = json.loads(data)
    text = bytes.fromhex(body["record"])
    flipped = (bytes([text[0] ^ 1]) + text[1:]).hex()
    yield from _of("conviction", data, [
        ("another kind", "6.9.1", at("kind", to="tallystick/other-tokens/2")),
        ("a member more", "6.9.1", at("request", to={})),
        ("another seed", "6.9.2", at("seed", to="12")),
        ("another record", "6.9.2", at("record", to=flipped)),
        ("a record too short", "6.9.2", at("record", to="00")),
        ("another statement", "6.9.2", at("statement", "stop", to=[])),
        ("another program", "6.9.2", at("set", to="full")),
        ("no program", "6.9.1", at("length", to=13)),
        ("other tokens than proved", "6.9.2", at("tokens", 0, to=9)),
        ("a token more", "6.9.1", lambda b: b["tokens"].append(0)),
        ("a proof too short", "6.9.2", lambda b: b["path"].pop()),
        ("a proof too long", "6.9.2", lambda b: b["path"].append("00" * 32)),
        ("no receipt", "6.9.2", at("receipt", to="")),
    ])  # fmt: skip


def _pairs(data: bytes) -> Iterator[Refusal]:
    record = ("texts", "records", 0)
    yield from _of("pair", data, [
        ("another kind", "6.10.4", at("kind", to="tallystick/two-receipts/2")),
        ("a member more", "6.10.4", at("request", to={})),
        ("one receipt", "6.10.4", lambda b: b["receipts"].pop()),
        ("no receipt", "6.10.5", at("receipts", 1, to="")),
        ("no texts", "6.10.5", at("texts", to=None)),
        ("one record", "6.10.4", lambda b: b["texts"]["records"].pop()),
        ("another seed", "6.10.5", at("texts", "seed", to="12")),
        ("another set", "6.10.5", at("texts", "set", to="full")),
        ("no program", "6.10.4", at(*record, "length", to=13)),
        ("a record too short", "6.10.5", at(*record, "record", to="00")),
        ("another statement", "6.10.5", at("texts", "statement", "stop", to=[1])),
    ])  # fmt: skip
