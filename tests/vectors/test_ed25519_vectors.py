"""vectors/commit/ed25519.json: signatures that implementations differ about (COMMITMENTS 9.1.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.exceptions import InvalidSignature
from reference.judge import encoding

from tallystick.commit import signing
from tallystick.errors import MachineFaultError, UsageError

FILE = Path(__file__).resolve().parents[2] / "vectors" / "commit" / "ed25519.json"
CASES: list[dict[str, Any]] = json.loads(FILE.read_text("ascii"))["cases"]
WITHOUT, WITH = "equation_without_cofactor", "equation_with_cofactor"
RAW = [[bytes.fromhex(c[m]) for m in ("public_key", "signature", "message")] for c in CASES]


class Library:
    """An Ed25519 that takes what one of the two equations takes, of the file's cases."""

    equation = WITHOUT

    def __init__(self, key: bytes) -> None:
        self.key = key

    @classmethod
    def from_public_bytes(cls, key: bytes) -> Library:
        return cls(key)

    def verify(self, signature: bytes, message: bytes) -> None:
        case = CASES[RAW.index([self.key, signature, message])]
        if not case[self.equation]:
            raise InvalidSignature


class WithTheCofactor(Library):
    equation = WITH


def test_the_cases_cover_both_sides() -> None:
    """64 pairs of key and R; all but the pure one have a message only one equation takes."""
    torsion = [c for c in CASES if c["name"].startswith("A + ")]
    assert len({c["name"].rsplit(",", 1)[0] for c in torsion}) == 64
    assert sum(c[WITH] and not c[WITHOUT] for c in torsion) == 63
    assert sum(c[WITHOUT] and not c["accepted"] for c in torsion) == 42
    assert [c["name"] for c in CASES if c["accepted"]] == [
        "A + 0T, R + 0T, both", "ordinary", "ordinary, empty message",
    ]  # fmt: skip


def test_the_package_takes_the_ordinary_ones_alone() -> None:
    """It took 42 signatures of keys of mixed order, and keys that are no point."""
    wrong = []
    for case, (key, signature, message) in zip(CASES, RAW, strict=True):
        try:
            found = signing.PublicKey(key).verifies(signature, message)
        except UsageError:
            found = False
        if found != case["accepted"]:
            wrong.append(case["name"])
    assert wrong == []


@pytest.mark.parametrize("library", [None, Library, WithTheCofactor])
def test_the_second_judge_needs_no_equation(
    library: type[Library] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It multiplies R too, and so takes the same signatures with a library of either equation."""
    if library is not None:
        monkeypatch.setattr(encoding, "Ed25519PublicKey", library)
    found = [encoding.verifies(*raw) for raw in RAW]
    assert [c["name"] for c, f in zip(CASES, found, strict=True) if f != c["accepted"]] == []


def test_a_library_with_the_other_equation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package leaves R to the library, so it looks once whether it may."""
    key = signing.PrivateKey(bytes(32))
    signature = key.sign(b"m")
    assert key.public.verifies(signature, b"m")
    signing.check_the_equation.cache_clear()
    monkeypatch.setattr(signing.PublicKey, "library_verifies", lambda *_: True)
    with pytest.raises(MachineFaultError, match="equation"):
        key.public.verifies(signature, b"m")
