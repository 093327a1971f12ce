"""Evidence of other tokens (ANSWERS 6.7, 6.9)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from reference.answers.files import Receipt, read_receipt, statement_of
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
    if name not in statement.programs or name not in rooms(statement, name[2]):
        raise RefusedError("no program of an answer")
    if name[2] in ("embedding", "classes"):
        raise RefusedError("a program of an encoding")
    fields = record_of(_hex(top["record"]), name, statement.vocabulary)
    seed = decimal(top["seed"], 2**63 - 1, "seed")
    root = data_root(fields, fields_of(name, statement.vocabulary))
    if digest_of_job(statement, name, root, seed) != receipt.job:
        raise RefusedError("another job")
    prompt, count, rows = receipt.prompt, receipt.answer, name[1]
    laid = (
        count <= rows
        and prompt + count <= name[0]
        and (
            fields["place"].tolist() == places(prompt, count, rows)
            and fields["live"].tolist() == [int(r < count) for r in range(rows)]
            and not fields["text"][prompt + count :].any()
        )
    )
    if not laid:
        raise RefusedError("a record of other counts")
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
