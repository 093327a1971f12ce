"""Pairs of receipts for vectors/answers: which convict, and which an honest signer may sign."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from answer_cases import STRANGER, honest_encoding, honest_spoken, requests, rooted, with_tokens
from unit.answers.toy import receipt_of
from unit.answers.toy_encoder import receipt_of_encoding

from tallystick.answers.receipt import CANCELLED, LENGTH
from tallystick.answers.two_receipts import Texts, TwoReceipts


def pairs() -> Iterator[tuple[str, TwoReceipts]]:
    yield from _of_one_job()
    yield from _of_one_request()
    yield from _of_nothing()


def _of_one_job() -> Iterator[tuple[str, TwoReceipts]]:
    said, finish = honest_spoken(requests()["greedy ordered"], 0)
    receipt = receipt_of(said, finish)
    logs = said.spoken.logprobs.copy()
    logs[0] = np.nextafter(logs[0], np.float32(0))
    near = receipt_of(replace(said, spoken=replace(said.spoken, logprobs=logs)), CANCELLED)
    yield "another log-probability", TwoReceipts((receipt, near))
    yield (
        "another state",
        TwoReceipts((receipt_of(said, finish, **rooted(said, bytes(32))), receipt)),
    )
    yield "another root alone", TwoReceipts((receipt, receipt_of(said, finish, root=bytes(32))))
    again = receipt_of(said, CANCELLED, time=1, until=2)
    yield "one run, signed again with another finish", TwoReceipts((receipt, again))
    foreign = receipt_of(said, finish, STRANGER, root=bytes(32))
    yield "two signers of two runs", TwoReceipts((receipt, foreign))
    encoding = honest_encoding(requests()["embedding"])
    values = encoding.encoded.values.copy()
    values[7] = np.nextafter(values[7], np.float32(0))
    false = replace(encoding, encoded=replace(encoding.encoded, values=values))
    both = receipt_of_encoding(encoding), receipt_of_encoding(false)
    yield "two encodings of one text", TwoReceipts(both)


def _of_one_request() -> Iterator[tuple[str, TwoReceipts]]:
    for name in ("draw rounded", "full rounded"):
        asked = requests()[name]
        said, finish = honest_spoken(asked, 0)
        own = said.spoken.tokens
        false = with_tokens(asked, 0, (3, 1, 4), (*own[:-1], (own[-1] + 1) % 16))
        both = receipt_of(said, finish), receipt_of(false)
        yield f"two answers, {name}", TwoReceipts(both, Texts.of((said, false)))
        short = with_tokens(asked, 0, (3, 1, 4), own[:1])
        both = receipt_of(short, CANCELLED), receipt_of(said, finish)
        yield f"one cancelled earlier, {name}", TwoReceipts(both, Texts.of((short, said)))
    asked = requests()["a longer prompt"]
    prompt = tuple(range(13))
    first = with_tokens(asked, 0, prompt, (1, 2, 3, 4))
    second = with_tokens(asked, 0, prompt, (1, 2, 9, 4, 6, 8))
    both = receipt_of(first, CANCELLED), receipt_of(second)
    yield "two answers of two lengths", TwoReceipts(both, Texts.of((first, second)))


def _of_nothing() -> Iterator[tuple[str, TwoReceipts]]:
    asked = requests()["draw rounded"]
    said = with_tokens(asked, 0, (3, 1, 4), (1, 2, 3))
    other = with_tokens(asked, 0, (3, 1, 5), (1, 9, 3))
    receipt = receipt_of(said)
    both = receipt, receipt_of(other)
    yield "two prompts", TwoReceipts(both, Texts.of((said, other)))
    for name in ("model", "request"):
        both = receipt, receipt_of(other, LENGTH, **{name: bytes(32)})
        yield f"two {name}s", TwoReceipts(both)
    yield "two choices", TwoReceipts((receipt, receipt_of(replace(other, choice=1))))
