"""Segments drawn from a secret, and what their repetition says about the others.

The trainer has signed the roots of all segments before the secret is drawn. The draw is without
replacement, so the number of false segments in it is hypergeometric: of n segments of which f are
false, k drawn ones miss all of them with probability C(n - f, k) / C(n, k).
"""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from tallystick.commit.encoding import Writer, tag
from tallystick.disk.regular import present, read_file
from tallystick.errors import UsageError
from tallystick.run.parallel.task import Segment

SECRET_BYTES = 32
_DRAW = tag("audit-sample/1")
_SHARES = (Fraction(1, 100), Fraction(1, 20), Fraction(1, 10))
_HEX = re.compile(r"[0-9a-fA-F]{64}")
_COUNT = re.compile(r"[0-9]{1,9}")
_SHARE = re.compile(r"(?=[.0-9])[0-9]{0,9}\.[0-9]{0,9}")
_PERCENT = re.compile(r"[0-9]{1,3}(\.[0-9]{1,9})?%")

# A fraction of the segments, or a count of them.
Size = Fraction | int


@dataclass(frozen=True)
class Confidence:
    """Of a run with at least `false_segments` false ones, `share` of all, the sample finds one with
    `probability`; `share` is None for one segment."""

    share: Fraction | None
    false_segments: int
    probability: Fraction


def digits(p: Fraction) -> str:
    """A probability in digits, never rounded up to 1."""
    if p == 1:
        return "1"
    return f"{math.floor(p * 10**6) / 10**6:.6g}"


def parse_size(text: str) -> Size:
    """`12` segments, `0.05` or `5%` of them. Raises UsageError."""
    size: Size
    if _COUNT.fullmatch(text):
        size = int(text)
    elif _SHARE.fullmatch(text) and text != ".":
        size = Fraction(text if not text.endswith(".") else text + "0")
    elif _PERCENT.fullmatch(text):
        size = Fraction(text[:-1]) / 100
    else:
        raise _wrong(text)
    return check_size(size, text)


def size_of(value: object) -> Size:
    """A size given in Python: an integer of any kind (numpy's too) is a count; a real number or a
    Fraction is a share, by the digits that it is written with. Raises UsageError."""
    if isinstance(value, str):
        return parse_size(value)
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return check_size(int(value))
    if isinstance(value, Fraction):
        return check_size(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            return check_size(Fraction(str(value)), value)
        except ValueError:  # not finite, or written in a way of its own
            raise _wrong(value) from None
    raise _wrong(repr(value))


def check_size(size: Size, written: object = None) -> Size:
    """Raise UsageError for no segment, and for more than all. `written` is what the user gave."""
    if size <= 0 or (isinstance(size, Fraction) and size > 1):
        raise _wrong(size if written is None else written)
    return size


def _wrong(value: object) -> UsageError:
    return UsageError(
        f"--sample {value} is neither a share of the segments nor a number of them.",
        "Write a share, such as 0.05 or 5%, or a whole number of segments, such as 12. A share is "
        "above 0 and at most 1.",
    )


def count_of(size: Size, segments: int) -> int:
    """How many of `segments` to draw: a share is rounded up. Raises UsageError for more than there
    are."""
    if isinstance(size, int):
        if size > segments:
            raise UsageError(
                f"The run has {segments} segments, fewer than the {size} to draw.",
                "Draw fewer, or audit the whole run.",
            )
        return size
    return max(1, math.ceil(size * segments))


def new_secret() -> bytes:
    """32 bytes that nobody can foretell."""
    return os.urandom(SECRET_BYTES)


def same_draw(secret: bytes) -> str:
    """What to say of a draw whose audit came to no verdict, and is kept nowhere."""
    return (
        f"Segments were drawn: with --secret {secret.hex()} the same command repeats that draw, "
        "without it draws anew, which gives a cheat another chance. Tell nobody the secret before "
        "the verdict. (--state DIR would have kept draw and results.)"
    )


def read_secret(text: str) -> bytes:
    """The secret of an earlier draw: 64 hexadecimal digits, or a file that holds them. Raises
    UsageError, StorageError."""
    if _HEX.fullmatch(text):
        return bytes.fromhex(text)
    if len(text) < 4096 and present(Path(text)):
        data = read_file(Path(text), 1024, "secret").decode("ascii", "replace").strip()
        if _HEX.fullmatch(data):
            return bytes.fromhex(data)
    raise UsageError(
        "--secret is neither 64 hexadecimal digits nor a file that contains them.",
        "Pass the secret that an earlier report printed, or leave --secret out.",
    )


def check_secret(secret: bytes | None) -> bytes | None:
    """`secret` itself. Raises UsageError for another length than 32 bytes."""
    if secret is not None and len(secret) != SECRET_BYTES:
        raise UsageError(
            f"A secret has {SECRET_BYTES} bytes, not {len(secret)}.",
            "Pass the secret that an earlier report printed.",
        )
    return secret


def draw(
    secret: bytes, job_digest: bytes, run_root: bytes, segments: Sequence[Segment], count: int
) -> list[Segment]:
    """`count` of `segments`, every set of this size as likely as every other, in order.

    Those with the least digests of secret, job, run and segment: whoever has the secret draws the
    same ones.
    """

    def rank(segment: Segment) -> bytes:
        writer = Writer(_DRAW).hash(secret, "secret").hash(job_digest, "job digest")
        writer.hash(run_root, "run root").u64(segment.first).u64(segment.last)
        return writer.digest()

    return sorted(sorted(segments, key=rank)[:count])


def caught(segments: int, false: int, drawn: int) -> Fraction:
    """The probability that a draw of `drawn` of `segments` has at least one of the `false` ones."""
    return 1 - Fraction(math.comb(segments - false, drawn), math.comb(segments, drawn))


def confidence(segments: int, drawn: int) -> tuple[Confidence, ...]:
    """The probability for one false segment, and for shares of 1, 5 and 10 %, rounded up."""
    cases = [(None, 1), *((share, math.ceil(share * segments)) for share in _SHARES)]
    return tuple(Confidence(share, n, caught(segments, n, drawn)) for share, n in cases)
