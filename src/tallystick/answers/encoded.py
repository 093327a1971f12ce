"""An encoding as it stands beside its receipt (ANSWERS 11.9).

The file is not signed: the receipt binds its tokens by the job digest, its values by the run root,
and its labels by nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tallystick.answers.spoken import Spoken
from tallystick.answers.statement import integers
from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.tensor import Array, canonical_array, first_non_canonical
from tallystick.errors import CorruptFileError
from tallystick.limits import LIMITS

KIND = "tallystick/encoded/1"
# Of the file: its members are in the order of their names.
BEGINNING = f'{{"kind":"{KIND}"'.encode()
_F32 = 8  # hexadecimal digits


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
                "kind": KIND,
                "labels": list(self.labels),
                "prompt": list(self.prompt),
                "values": canonical_array(self.values).tobytes().hex(),
            }
        )

    @staticmethod
    def from_bytes(data: bytes) -> Encoded:
        """Inverse of `to_bytes` for untrusted bytes. Raises CorruptFileError."""
        top = Members(parse_canonical_json(data, "encoding", LIMITS.spoken_bytes), _malformed)
        top.only("kind", "labels", "prompt", "values")
        if top.of("kind", str) != KIND:
            _malformed(f"its kind is {top.value['kind']!r}")
        prompt, listed = integers(top, "prompt"), top.of("labels", list)
        labels = tuple(label for label in listed if isinstance(label, str))
        count, odd = divmod(len(top.of("values", str)), _F32)
        if not (prompt and count) or odd or max(len(prompt), count) > LIMITS.text_places:
            _malformed("it has no text or no values, or more than the limit")
        if len(labels) != len(listed) or len(labels) not in (0, count):
            _malformed("its labels are not one text for each value")
        values = np.frombuffer(top.hex("values", count * _F32 // 2), "<f4")
        if first_non_canonical(values) is not None:
            _malformed("a value is a NaN that nobody writes")
        return Encoded(prompt, values, labels)


def read_said(data: bytes) -> Spoken | Encoded:
    """What stands beside a receipt, of either kind: untrusted bytes. Raises CorruptFileError."""
    is_encoded = data.startswith(BEGINNING)
    return Encoded.from_bytes(data) if is_encoded else Spoken.from_bytes(data)


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(
        f"The encoding is malformed: {why}.", "Ask its sender for an intact copy."
    )
