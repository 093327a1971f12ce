"""Evidence about receipts: of other tokens, and of two receipts (ANSWERS 6.9, 6.10)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from reference.answers.asked import ENCODINGS
from reference.answers.files import Name, Receipt, Statement, read_receipt, statement_of
from reference.answers.job import (
    data_root,
    digest_of_job,
    fields_of,
    genesis,
    rooms,
    slots_of,
    tensor_of,
)
from reference.judge.encoding import RefusedError, canonical_json, digest_of, sha, tag, text, u64
from reference.judge.json_members import decimal, members, whole, word
from reference.judge.merkle import NUMPY, by_inclusion, leaf_hash, size
from reference.sampler import places

MEMBERS = (
    "answer", "kind", "length", "path", "receipt", "record", "seed", "set", "statement", "tokens"
)  # fmt: skip
TOKENS = "buffer.answer.tokens"


def other_tokens(data: bytes) -> tuple[Receipt, int, int, int]:
    """The receipt, row, claimed and drawn token; RefusedError for a file that convicts nobody."""
    if len(data) > 25165824:
        raise RefusedError("too long")
    top = members(canonical_json(data), MEMBERS, "evidence")
    if top["kind"] != "tallystick/other-tokens/1":
        raise RefusedError("another kind")
    receipt, statement = read_receipt(_hex(top["receipt"])), statement_of(top["statement"])
    if statement.digest != receipt.model:
        raise RefusedError("another model")
    name = (top["length"], top["answer"], word(top["set"], "set"))
    fields = signed_record(top["record"], name, top["seed"], statement, receipt)
    prompt, count, rows = receipt.prompt, receipt.answer, name[1]
    tokens = [whole(t, -(2**53) + 1, 2**53 - 1, "a token") for t in _listed(top["tokens"])]
    path = [digest_of(step) for step in _listed(top["path"])]
    if len(tokens) != rows:
        raise RefusedError("another number of tokens")
    slots = sorted(genesis(statement, name), key=str.encode)
    assert TOKENS in slots_of(name)
    leaf = leaf_hash(tag("slot/1") + text(TOKENS) + tensor_of(np.array(tokens, np.int64)))
    tree = by_inclusion(leaf, slots.index(TOKENS), len(slots), path)
    if sha(tag("state/1") + u64(len(slots)) + tree) != receipt.state:
        raise RefusedError("not proved")
    claimed = [*fields["text"][prompt : prompt + count].tolist(), *[0] * (rows - count)]
    for row, (said, drawn) in enumerate(zip(claimed, tokens, strict=True)):
        if said != drawn:
            return receipt, row, said, drawn
    raise RefusedError("the same tokens")


def signed_record(
    record: Any, name: Name, seed: Any, statement: Statement, receipt: Receipt
) -> dict[str, np.ndarray]:
    """The fields of a record that is the receipt's (6.9.2); RefusedError for another one."""
    if name not in statement.programs or name not in rooms(statement, name[2]):
        raise RefusedError("no program of an answer")
    if name[2] in ENCODINGS:
        raise RefusedError("a program of an encoding")
    fields = record_of(_hex(record), name, statement.vocabulary)
    root = data_root(fields, fields_of(name, statement.vocabulary))
    job = digest_of_job(statement, name, root, decimal(seed, 2**63 - 1, "seed"))
    if job != receipt.job:
        raise RefusedError("another job")
    prompt, count, rows = receipt.prompt, receipt.answer, name[1]
    laid = (
        count <= rows
        and prompt + count <= name[0]
        and fields["place"].tolist() == places(prompt, count, rows)
        and fields["live"].tolist() == [int(r < count) for r in range(rows)]
        and not fields["text"][prompt + count :].any()
    )
    if not laid:
        raise RefusedError("a record of other counts")
    return fields


def two_receipts(data: bytes) -> tuple[Receipt, str, int | None, list[int] | None]:
    """One receipt, the clause, and of 6.10.2 the row and both tokens; RefusedError for a file that
    convicts nobody (6.10)."""
    if len(data) > 25165824:
        raise RefusedError("too long")
    top = members(canonical_json(data), ("kind", "receipts", "texts"), "evidence")
    if top["kind"] != "tallystick/two-receipts/1" or len(_listed(top["receipts"])) != 2:
        raise RefusedError("another kind, or not two receipts")
    a, b = (read_receipt(_hex(receipt)) for receipt in top["receipts"])
    if a.key != b.key:
        raise RefusedError("two signers")
    if a.job == b.job:
        if (a.root, a.state) == (b.root, b.state):
            raise RefusedError("one run")
        return a, "6.10.1", None, None
    if (a.model, a.request, a.choice) != (b.model, b.request, b.choice):
        raise RefusedError("of two models, requests or choices")
    told = members(top["texts"], ("records", "seed", "set", "statement"), "texts")
    statement = statement_of(told["statement"])
    if statement.digest != a.model or len(_listed(told["records"])) != 2:
        raise RefusedError("another model, or not two records")
    found = []
    for entry, receipt in zip(told["records"], (a, b), strict=True):
        members(entry, ("answer", "length", "record"), "a record")
        name = (entry["length"], entry["answer"], word(told["set"], "set"))
        found.append(signed_record(entry["record"], name, told["seed"], statement, receipt))
    for name in found[0].keys() - {"text", "place", "live"}:
        if found[0][name].tobytes() != found[1][name].tobytes():
            raise RefusedError("other settings or salts")
    one, two = (
        f["text"][: r.prompt + r.answer].tolist() for f, r in zip(found, (a, b), strict=True)
    )
    if a.prompt != b.prompt or one[: a.prompt] != two[: a.prompt]:
        raise RefusedError("other prompts")
    for row, tokens in enumerate(zip(one[a.prompt :], two[b.prompt :], strict=False)):
        if tokens[0] != tokens[1]:
            return a, "6.10.2", row, list(tokens)
    raise RefusedError("one begins with the other")


def record_of(data: bytes, name: tuple[int, int, str], vocabulary: int) -> dict[str, np.ndarray]:
    """The fields of a record's bytes (COMMITMENTS 8.1)."""
    types, found, at = fields_of(name, vocabulary), {}, 0
    if len(data) != sum(map(size, types.values())):
        raise RefusedError("another number of bytes")
    for field in sorted(types, key=str.encode):
        dtype, shape = types[field]
        count = size(types[field])
        found[field] = np.frombuffer(data[at : at + count], NUMPY[dtype]).reshape(shape)
        at += count
    return found


def _hex(value: Any) -> bytes:
    if not re.fullmatch("([0-9a-f]{2})*", word(value, "bytes")):
        raise RefusedError("no hexadecimal digits")
    return bytes.fromhex(value)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise RefusedError("no list")
    return value
