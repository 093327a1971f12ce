"""The tokens of an answer, as they stand beside its receipt (ANSWERS 7.5).

The file is not signed: the receipt binds its tokens by the job digest, and its log-probabilities
by the run root.
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

KIND = "tallystick/spoken/1"
_F32 = 4


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
                "kind": KIND,
                "logprobs": canonical_array(self.logprobs).tobytes().hex(),
                "prompt": list(self.prompt),
                "text": self.text,
                "tokens": list(self.tokens),
            }
        )

    @staticmethod
    def from_bytes(data: bytes) -> Spoken:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        top = Members(parse_canonical_json(data, "answer", LIMITS.spoken_bytes), _malformed)
        top.only("kind", "logprobs", "prompt", "text", "tokens")
        if top.of("kind", str) != KIND:
            _malformed(f"its kind is {top.value['kind']!r}")
        prompt, tokens = integers(top, "prompt"), integers(top, "tokens")
        if not (prompt and tokens) or len(prompt) + len(tokens) > LIMITS.text_places:
            _malformed("it has no prompt or no answer, or more than the limit")
        logprobs = np.frombuffer(top.hex("logprobs", _F32 * len(tokens)), "<f4")
        if first_non_canonical(logprobs) is not None:
            _malformed("a log-probability is a NaN that nobody writes")
        return Spoken(prompt, tokens, logprobs, top.of("text", str))


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(f"The answer is malformed: {why}.", "Ask its sender for an intact copy.")
