"""Random bytes from a counterparty: every reader answers with a CounterpartyError or a value."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.signing import Envelope, PrivateKey, RunCommitment, sign_run, verify_run
from tallystick.commit.tensor import TensorOpening, open_tensor, tensor_digest
from tallystick.errors import CounterpartyError

KEY = PrivateKey(bytes(32))
RUN = RunCommitment(b"j" * 32, b"r" * 32, 20, b"s" * 32, 2, KEY.public)
ENVELOPE = sign_run(KEY, RUN).to_bytes()
TENSOR = np.arange(900, dtype=np.int32).reshape(30, 30)
OPENING = open_tensor(TENSOR, [(0, 1)]).to_bytes()


def mutate(data: bytes, draw: random.Random) -> bytes:
    """Cut, repeat, overwrite or splice up to four places of honest bytes."""
    out = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(out) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            del out[at : at + draw.choice((1, 2, 8, 32, 500))]
        elif kind == 1:
            out[at:at] = out[at : at + draw.choice((1, 8, 64))]
        elif kind == 2:
            out[at:at] = draw.randbytes(draw.choice((1, 4, 8)))
        else:
            out[at : at + 8] = draw.choice((b"\xff" * 8, bytes(8), b"\0\0\0\0\0\0\0\x80"))
    return bytes(out)


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_mutated_openings(draw: random.Random) -> None:
    bad = mutate(OPENING, draw)
    if bad == OPENING:
        return
    with pytest.raises(CounterpartyError):
        TensorOpening.from_bytes(bad).verify(tensor_digest(TENSOR))


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_mutated_envelopes(draw: random.Random) -> None:
    bad = mutate(ENVELOPE, draw)
    if bad == ENVELOPE:
        return
    with pytest.raises(CounterpartyError):
        verify_run(Envelope.from_bytes(bad), [KEY.public])


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]",:\\u0a1e-. tfn', max_size=60).map(str.encode)
)
def test_any_bytes_as_json(data: bytes) -> None:
    try:
        value = parse_canonical_json(data)
    except CounterpartyError:
        return
    assert canonical_json(value) == data
