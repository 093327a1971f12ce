"""What stands beside a receipt: the tokens of an answer (ANSWERS 7.5), or an encoding (11.9).

The file is not signed. The receipt binds its tokens by the job digest, and its log-probabilities or
values by the run root. It binds an encoding's labels by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tallystick.answers.statement import integers
from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.tensor import Array, canonical_array, first_non_canonical
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS

SPOKEN_KIND = "tallystick/spoken/1"
_SPOKEN_F32 = 4


@dataclass(frozen=True, eq=False)
class Spoken:
    """Prompt and answer as tokens, with the answer's log-probabilities (f32[N]), and its text."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: Array
    text: str = ""

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        return canonical_json(
            {
                "kind": SPOKEN_KIND,
                "logprobs": canonical_array(self.logprobs).tobytes().hex(),
                "prompt": list(self.prompt),
                "text": self.text,
                "tokens": list(self.tokens),
            }
        )

    @staticmethod
    def from_bytes(data: bytes) -> Spoken:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        top = Members(parse_canonical_json(data, "answer", LIMITS.spoken_bytes), _malformed_tokens)
        top.only("kind", "logprobs", "prompt", "text", "tokens")
        if top.of("kind", str) != SPOKEN_KIND:
            _malformed_tokens(f"its kind is {top.value['kind']!r}")
        prompt, tokens = integers(top, "prompt"), integers(top, "tokens")
        if not (prompt and tokens) or len(prompt) + len(tokens) > LIMITS.text_places:
            _malformed_tokens("it has no prompt or no answer, or more than the limit")
        logprobs = np.frombuffer(top.hex("logprobs", _SPOKEN_F32 * len(tokens)), "<f4")
        if first_non_canonical(logprobs) is not None:
            _malformed_tokens("a log-probability is a NaN that nobody writes")
        return Spoken(prompt, tokens, logprobs, top.of("text", str))


def _malformed_tokens(why: str) -> NoReturn:
    raise CorruptFileError(f"The answer is malformed: {why}.", "Ask its sender for an intact copy.")


ENCODED_KIND = "tallystick/encoded/1"
# Of the file: its members are in the order of their names.
ENCODED_BEGINNING = f'{{"kind":"{ENCODED_KIND}"'.encode()
_ENCODED_F32 = 8  # hexadecimal digits


@dataclass(frozen=True, eq=False)
class Encoded:
    """A text as tokens, the values (f32[D]) that the encoder makes of it, and the names of the
    classes that they are of, if they are of classes."""

    prompt: tuple[int, ...]
    values: Array
    labels: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        return canonical_json(
            {
                "kind": ENCODED_KIND,
                "labels": list(self.labels),
                "prompt": list(self.prompt),
                "values": canonical_array(self.values).tobytes().hex(),
            }
        )

    @staticmethod
    def from_bytes(data: bytes) -> Encoded:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        top = Members(
            parse_canonical_json(data, "encoding", LIMITS.spoken_bytes), _malformed_encoding
        )
        top.only("kind", "labels", "prompt", "values")
        if top.of("kind", str) != ENCODED_KIND:
            _malformed_encoding(f"its kind is {top.value['kind']!r}")
        prompt, listed = integers(top, "prompt"), top.of("labels", list)
        labels = tuple(label for label in listed if isinstance(label, str))
        count, odd = divmod(len(top.of("values", str)), _ENCODED_F32)
        if not (prompt and count) or odd or max(len(prompt), count) > LIMITS.text_places:
            _malformed_encoding("it has no text or no values, or more than the limit")
        if len(labels) != len(listed) or len(labels) not in (0, count):
            _malformed_encoding("its labels are not one text for each value")
        values = np.frombuffer(top.hex("values", count * _ENCODED_F32 // 2), "<f4")
        if first_non_canonical(values) is not None:
            _malformed_encoding("a value is a NaN that nobody writes")
        return Encoded(prompt, values, labels)


def read_said(data: bytes) -> Spoken | Encoded:
    """What stands beside a receipt, of either kind: untrusted bytes. Raises CorruptFileError."""
    is_encoded = data.startswith(ENCODED_BEGINNING)
    return Encoded.from_bytes(data) if is_encoded else Spoken.from_bytes(data)


def _malformed_encoding(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The encoding is malformed: {why}.", "Ask its sender for an intact copy."
    )
