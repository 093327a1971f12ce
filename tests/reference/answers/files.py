"""Statements, receipts, cancellations; what stands beside a receipt (ANSWERS 4, 6.6, 7, 11.9)."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from reference.answers.asked import ENCODINGS, MOST_CHOICES, Object
from reference.judge.encoding import (
    MalformedError,
    RefusedError,
    blob,
    canonical_json,
    digest_of,
    dumped,
    sha,
    signed,
    tag,
)
from reference.judge.json_members import contract_of, members, whole, word
from reference.judge.merkle import CODES, Type, canonical

PLACES, SPOKEN_BYTES, VOCABULARY = 1048576, 16777216, 16777216
SETS = ("greedy", "draw", "full")
RECEIPT_TYPE = "application/vnd.tallystick.answered.v1+json"
RUN_TYPE = "application/vnd.tallystick.run-commitment.v1+json"
CANCELLED_TYPE = "application/vnd.tallystick.cancelled.v1+json"
STATEMENT = (
    "about", "adapter", "contract", "kind", "programs", "run", "slots", "special_tokens", "stop",
    "template", "tokenizer", "vocabulary",
)  # fmt: skip
Name = tuple[int, int, str]  # of a program: L, A, set


@dataclass
class Statement:
    """A model statement (4.2)."""

    members: Object

    @property
    def contract(self) -> str:
        return str(self.members["contract"])

    @property
    def vocabulary(self) -> int:
        return int(self.members["vocabulary"])

    @property
    def stop(self) -> list[int]:
        return list(self.members["stop"])

    @property
    def weights(self) -> dict[str, bytes]:
        return {s["name"]: bytes.fromhex(s["digest"]) for s in self.members["slots"]}

    @property
    def types(self) -> dict[str, Type]:
        return {s["name"]: (s["dtype"], tuple(s["shape"])) for s in self.members["slots"]}

    @property
    def programs(self) -> dict[Name, bytes]:
        listed = self.members["programs"]
        return {(p["length"], p["answer"], p["set"]): bytes.fromhex(p["digest"]) for p in listed}

    @property
    def encodes(self) -> str | None:
        """The set of an encoder's programs (11.2)."""
        set_ = next(iter(self.programs))[2]
        return set_ if set_ in ENCODINGS else None

    @property
    def digest(self) -> bytes:
        """4.4."""
        named = {name: value for name, value in self.members.items() if name != "about"}
        return sha(tag("model/1") + blob(dumped(named).encode()))


def read_statement(data: bytes) -> Statement:
    if len(data) > 16777216:
        raise RefusedError("too long")
    return statement_of(canonical_json(data))


def statement_of(value: Any) -> Statement:
    top = members(value, STATEMENT, "a statement")
    contract = contract_of(top["contract"])
    if top["kind"] != "tallystick/model/1" or contract.startswith("replay/"):
        raise RefusedError("another kind, or a contract with logs")
    vocabulary = whole(top["vocabulary"], 1, VOCABULARY, "vocabulary")
    names = []
    for slot in _listed(top["slots"]):
        members(slot, ("digest", "dtype", "name", "shape"), "a slot")
        names.append(word(slot["name"], "a name").encode())
        digest_of(slot["digest"])
        if slot["dtype"] not in CODES or len(_listed(slot["shape"])) > 16:
            raise RefusedError("a slot of no type")
        for n in slot["shape"]:
            whole(n, 0, 2**40, "a size")
    if not names or names != sorted(set(names)) or max(map(len, names)) > 1024:
        raise RefusedError("slots")
    if any(name.startswith(b"buffer.answer.") for name in names):
        raise RefusedError("a weight with an answer's name")
    _check_programs(_listed(top["programs"]), bool(top["stop"]))
    _check_words(top, vocabulary)
    return Statement(top)


def _check_programs(listed: list[Any], stops: bool) -> None:
    found: list[Name] = []
    for program in listed:
        members(program, ("answer", "digest", "length", "set"), "a program")
        digest_of(program["digest"])
        length = whole(program["length"], 1, PLACES, "length")
        answer = whole(program["answer"], 1, PLACES, "answer")
        if program["set"] not in (*SETS, *ENCODINGS):
            raise RefusedError("no set")
        if program["set"] in SETS and answer >= length:
            raise RefusedError("no bucket")
        found.append((length, answer, program["set"]))
    if not 0 < len(found) <= 256 or found != sorted(set(found)):
        raise RefusedError("programs")
    kinds = {name[1:] for name in found}
    if any(set_ in ENCODINGS for _, set_ in kinds) and (len(kinds) > 1 or stops):
        raise RefusedError("an encoder's programs")


def _check_words(top: Object, vocabulary: int) -> None:
    for name in ("tokenizer", "special_tokens", "about"):
        if not isinstance(top[name], dict):
            raise RefusedError(name)
    if len(top["tokenizer"]) > 64 or not all(isinstance(v, str) for v in top["about"].values()):
        raise RefusedError("files, or about")
    for digest in (*top["tokenizer"].values(), top["template"], top["run"]):
        if digest is not None:
            digest_of(digest)
    if None in top["tokenizer"].values():
        raise RefusedError("a file without a digest")
    if top["adapter"] is not None:
        adapter = members(top["adapter"], ("digest", "merged"), "an adapter")
        digest_of(adapter["digest"])
        if type(adapter["merged"]) is not bool:
            raise RefusedError("an adapter")
    tokens = list(_listed(top["stop"]))
    if len(tokens) > 4096 or len(top["special_tokens"]) > 4096:
        raise RefusedError("too many tokens")
    for name, token in top["special_tokens"].items():
        members(token, ("id", "text"), "a special token")
        word(token["text"], "its text")
        if not name.endswith("_token"):
            raise RefusedError("the name of no special token")
        tokens += [] if token["id"] is None else [token["id"]]
    for token in tokens:
        whole(token, 0, vocabulary - 1, "a token")
    if top["stop"] != sorted(set(top["stop"])):
        raise RefusedError("stop is not ascending")


@dataclass
class Receipt:
    """A receipt whose two signatures have been verified (7)."""

    model: bytes
    request: bytes
    choice: int
    job: bytes
    root: bytes
    state: bytes
    prompt: int
    answer: int
    finish: str
    key: bytes


def read_receipt(data: bytes) -> Receipt:
    """7.1 to 7.4."""
    payload, key_id, signature = _envelope(data, RECEIPT_TYPE, 1024)
    digests = ("job", "model", "request", "root", "state")
    numbers = ("answer", "choice", "prompt", "time", "until")
    top = members(
        canonical_json(payload), (*digests, *numbers, "finish", "kind", "run", "key"), "a receipt"
    )
    if top["kind"] != "tallystick/answered/1":
        raise RefusedError("another kind")
    found = {name: _base64url(top[name], 32) for name in digests}
    key, run = _base64url(top["key"], 32), _base64url(top["run"], 64)
    whole(top["choice"], 0, MOST_CHOICES - 1, "choice")
    for name in ("prompt", "answer"):
        whole(top[name], 1, PLACES, name)
    whole(top["time"], 0, whole(top["until"], 0, 2**52, "until"), "time")
    if top["finish"] not in ("stop", "length", "cancelled", *ENCODINGS):
        raise RefusedError("no finish")
    if key_id != sha(key).hex() or not signed(key, signature, RECEIPT_TYPE, payload):
        raise RefusedError("a signature that does not verify")
    commitment = {
        "checkpoints": 2, "final_state_root": found["state"].hex(), "final_step": 1,
        "job_digest": found["job"].hex(), "kind": "tallystick/run-commitment/1",
        "run_root": found["root"].hex(), "signer": key.hex(),
    }  # fmt: skip
    if not signed(key, run, RUN_TYPE, dumped(commitment).encode()):
        raise RefusedError("no run commitment")
    told = {name: top[name] for name in ("choice", "prompt", "answer", "finish")}
    return Receipt(**found, **told, key=key)


@dataclass
class Said:
    """What stands beside a receipt (7.5, 11.9): of an answer `tokens`, of an encoding none.
    `numbers` are the log-probabilities or the values."""

    prompt: list[int]
    tokens: list[int] | None
    numbers: np.ndarray


def read_said(data: bytes) -> Said:
    if len(data) > SPOKEN_BYTES:
        raise RefusedError("too long")
    top = canonical_json(data)
    if not isinstance(top, dict):
        raise RefusedError("no object")
    if top.get("kind") == "tallystick/encoded/1":
        members(top, ("kind", "labels", "prompt", "values"), "an encoding")
        numbers = _floats(top["values"])
        if len(_listed(top["labels"])) not in (0, len(numbers)):
            raise RefusedError("labels")
        for label in top["labels"]:
            word(label, "a label")
        return Said(_tokens(top["prompt"]), None, numbers)
    members(top, ("kind", "logprobs", "prompt", "text", "tokens"), "an answer")
    word(top["text"], "text")
    found = Said(_tokens(top["prompt"]), _tokens(top["tokens"]), _floats(top["logprobs"]))
    assert found.tokens is not None
    if top["kind"] != "tallystick/spoken/1" or len(found.tokens) != len(found.numbers):
        raise RefusedError("another kind, or another number of log-probabilities")
    if len(found.prompt) + len(found.tokens) > PLACES:
        raise RefusedError("too long")
    return found


@dataclass
class Cancellation:
    request: bytes
    choice: int
    answer: int


def read_cancellation(data: bytes, client: bytes | None) -> Cancellation:
    """6.6, 6.6.1."""
    payload, key_id, signature = _envelope(data, CANCELLED_TYPE, 1024)
    top = members(
        canonical_json(payload), ("answer", "choice", "kind", "request"), "a cancellation"
    )
    if top["kind"] != "tallystick/cancelled/1":
        raise RefusedError("another kind")
    if client is None or key_id != sha(client).hex():
        raise RefusedError("not the client's")
    if not signed(client, signature, CANCELLED_TYPE, payload):
        raise RefusedError("a signature that does not verify")
    return Cancellation(
        digest_of(top["request"]),
        whole(top["choice"], 0, MOST_CHOICES - 1, "choice"),
        whole(top["answer"], 1, PLACES, "answer"),
    )


def _envelope(data: bytes, kind: str, most: int) -> tuple[bytes, str, bytes]:
    """Payload, key id and signature of an envelope with one signature."""
    if len(data) > most:
        raise RefusedError("too long")
    outer = members(canonical_json(data), ("payload", "payloadType", "signatures"), "an envelope")
    if outer["payloadType"] != kind or len(_listed(outer["signatures"])) != 1:
        raise RefusedError("another type, or not one signature")
    one = members(outer["signatures"][0], ("keyid", "sig"), "a signature")
    return _base64(outer["payload"]), word(one["keyid"], "key id"), _base64(one["sig"])


def _base64(value: Any) -> bytes:
    try:
        data = base64.b64decode(word(value, "base64"), validate=True)
    except ValueError as error:
        raise MalformedError("no base64") from error
    if base64.b64encode(data).decode() != value:
        raise MalformedError("base64 with other bits")
    return data


def _base64url(value: Any, length: int) -> bytes:
    """7.2."""
    if not re.fullmatch("[A-Za-z0-9_-]*", word(value, "bytes")):
        raise MalformedError("no base64url")
    data = _base64(value.translate(str.maketrans("-_", "+/")) + "=" * (-len(value) % 4))
    if len(data) != length:
        raise MalformedError("another number of bytes")
    return data


def _floats(value: Any) -> np.ndarray:
    if not re.fullmatch("([0-9a-f]{8})+", word(value, "numbers")):
        raise RefusedError("no numbers")
    data = bytes.fromhex(value)
    if not canonical("f32", data) or len(data) > 4 * PLACES:
        raise RefusedError("numbers that nobody writes, or too many")
    return np.frombuffer(data, "<f4")


def _tokens(value: Any) -> list[int]:
    found = [whole(t, -(2**53) + 1, 2**53 - 1, "a token") for t in _listed(value)]
    if not 0 < len(found) <= PLACES:
        raise RefusedError("no tokens, or too many")
    return found


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise RefusedError("no list")
    return value
