"""ANSWERS 8.8: which receipts a seed draws."""

from __future__ import annotations

import hashlib
from collections import Counter

import pytest

from tallystick.api.samples import drawn, receipt_digest, set_digest
from tallystick.errors import UsageError

RECEIPTS = [hashlib.sha256(bytes([n])).digest() for n in range(40)]
SEED = bytes(range(32))


def test_the_draw_is_by_the_clauses() -> None:
    """8.8.1 and 8.8.2 by hand, as a third person repeats them."""
    ordered = sorted(RECEIPTS)
    text = b"tallystick/answer-set/1\0" + (40).to_bytes(8, "little") + b"".join(ordered)
    among = hashlib.sha256(text).digest()
    assert set_digest(RECEIPTS) == among
    tag = b"tallystick/answer-draw/1\0"
    ranks = {hashlib.sha256(tag + SEED + among + one).digest(): one for one in ordered}
    assert drawn(SEED, RECEIPTS, 7) == [ranks[rank] for rank in sorted(ranks)][:7]
    assert receipt_digest(b"abc") == hashlib.sha256(b"abc").digest()


def test_order_and_repetition_of_files_decide_nothing() -> None:
    again = [*reversed(RECEIPTS), *RECEIPTS[:5]]
    assert set_digest(again) == set_digest(RECEIPTS)
    assert drawn(SEED, again, 7) == drawn(SEED, RECEIPTS, 7)


def test_a_receipt_that_is_left_out_shows() -> None:
    for number in range(40):
        assert set_digest(RECEIPTS[:number] + RECEIPTS[number + 1 :]) != set_digest(RECEIPTS)


def test_a_smaller_sample_is_in_a_larger_one() -> None:
    for count in range(1, 40):
        assert drawn(SEED, RECEIPTS, count) == drawn(SEED, RECEIPTS, 40)[:count]


def test_every_receipt_is_drawn_as_often_as_every_other() -> None:
    found: Counter[bytes] = Counter()
    for number in range(2000):
        found.update(drawn(number.to_bytes(32, "big"), RECEIPTS, 4))
    # 2000 · 4 / 40 = 200 each, with a standard deviation of 13.4.
    assert len(found) == 40 and all(abs(count - 200) < 5 * 13.4 for count in found.values())


@pytest.mark.parametrize(("seed", "count"), [(b"", 1), (SEED, 0), (SEED, 41), (SEED + b"1", 1)])
def test_what_cannot_be_drawn(seed: bytes, count: int) -> None:
    with pytest.raises(UsageError):
        drawn(seed, RECEIPTS, count)
