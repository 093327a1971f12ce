"""Writes vectors/delegation/settlement.json: an offer's documents and settlements (PROTOCOL 14).

    PYTHONPATH=tests python tests/vectors/make_settlement_vectors.py [--out FILE]

Written from the specification with hashlib and json, without the package; Ed25519 is a library's.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from reference.settlement import settlement

Object = dict[str, Any]


def h(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def tagged(name: str, *parts: bytes) -> str:
    return h(b"tallystick/" + name.encode() + b"\0" + b"".join(parts)).hex()


def u64(n: int) -> bytes:
    return n.to_bytes(8, "little")


def canonical(value: Any) -> bytes:
    # ASCII keys and strings, integers below 2^53: these happen to be RFC 8785's bytes.
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


class Signer:
    """A key made from a number."""

    def __init__(self, number: int) -> None:
        self.seed = bytes([number]) * 32
        self.key = Ed25519PrivateKey.from_private_bytes(self.seed)
        self.raw = self.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public = self.raw.hex()

    def envelope(self, kind: str, payload: bytes) -> str:
        message = b"DSSEv1 %d %s %d %s" % (len(kind), kind.encode(), len(payload), payload)
        signature = base64.b64encode(self.key.sign(message)).decode()
        return canonical({
            "payload": base64.b64encode(payload).decode(), "payloadType": kind,
            "signatures": [{"keyid": h(self.raw).hex(), "sig": signature}],
        }).decode()  # fmt: skip


SIGNERS = sorted((Signer(n) for n in range(21, 29)), key=lambda s: s.raw)
REFEREE, CLIENT, *REST = SIGNERS
A, B, D, E, F = (s.public for s in REST[:5])
BY_KEY = {s.public: s for s in SIGNERS}
ENDED = 1_800_000_100_000

CLAIMS = {
    name: tagged("claim/1", h(f"run {name}".encode()), u64(97), u64(6), h(f"end {name}".encode()))
    for name in ("true", "false", "worse")
}

OFFER: Object = {
    "absence": 40, "alarm_stake": 301, "client": CLIENT.public, "client_stake": 9000,
    "deadlines": {"accept": 1_800_000_000_000, "challenge": 5000, "seal": 1_800_000_090_000,
                  "withdraw": 1_800_000_010_000},
    "job_digest": h(b"job").hex(), "keys": [], "kind": "tallystick/offer/1", "least": 1,
    "most_parties": 64, "nonce": h(b"nonce").hex(), "price": 100, "provider_stake": 1000,
    "providers": 4, "reexecution": {"most_steps": 100, "payer": "loser", "unit_price": 3},
    "referees": [REFEREE.public], "reward": 333,
    "rules": {"arity": 20, "budget": 600000, "extension": 60000, "opening": 600000, "step": 50,
              "steps": 1000},
    "silence": 250, "unit": "credit", "withdrawal": {"client": 70, "provider": 30},
}  # fmt: skip


def document(name: str, members: Object, signer: str) -> Object:
    """A document's payload, digest and envelope."""
    payload = canonical({**members, "kind": f"tallystick/{name}/1"})
    envelope = BY_KEY[signer].envelope(f"application/vnd.tallystick.{name}.v1+json", payload)
    return {"digest": h(payload).hex(), "envelope": envelope, "payload": payload.decode()}


def game(number: int, keys: list[str], removed: int, executed: list[int]) -> Object:
    return {"executed": executed, "keys": keys, "number": number,
            "removed": [bool(removed & 1), bool(removed & 2)]}  # fmt: skip


def outcome(names: str, result: int, accepted: str | None, members: Object, games: list[Object],
            number: int) -> Object:  # fmt: skip
    return {
        "accepted": accepted and CLAIMS[accepted], "ended": ENDED + 50_000 * number,
        "games": games, "head": h(b"head %d" % number).hex(),
        "members": [{"claim": claim and CLAIMS[claim], "fate": fate, "key": key}
                    for key, (fate, claim) in sorted(members.items())],
        "offer": names, "result": result, "session": h(b"session %d" % number).hex(),
    }  # fmt: skip


FIRST = {A: ("remaining", "true"), B: ("remaining", "true"), D: ("convicted", "false")}
GAMES = [game(0, [A, D], 2, [40, 12])]
# name: changes of the offer, (signer, time) of withdrawals, the two sessions
CASES: dict[str, tuple[Object, list[tuple[str, int]], Any, Any]] = {
    "a liar among three": ({}, [], (1, "true", FIRST, GAMES), None),
    "each fate": (
        {}, [],
        (1, "true", {A: ("remaining", "true"), B: ("excluded", None), D: ("silent", "false")},
         [game(0, [A, D], 2, [90, 3])]),
        None,
    ),
    "the client pays re-execution": (
        {"reexecution": {"most_steps": 30, "payer": "client", "unit_price": 3}}, [],
        (1, "true", FIRST, GAMES), None,
    ),
    "a provider withdraws": ({}, [(D, 1_800_000_010_000)],
                             (2, "true", {A: FIRST[A], B: FIRST[B]}, []), None),
    "the client withdraws": ({}, [(D, 1_800_000_001_000), (CLIENT.public, 1_800_000_002_000)],
                             None, None),
    "too few are left": ({"least": 3}, [(D, 1_800_000_001_000)], None, None),
    "a false alarm": (
        {}, [], (1, "true", FIRST, GAMES),
        (1, "true", {A: FIRST[A], B: FIRST[B], E: ("convicted", "worse")},
         [game(0, [A, E], 2, [20, 5])]),
    ),
    "two true alarms": (
        {}, [], (1, "false", {A: ("remaining", "false"), B: ("remaining", "false")}, []),
        (1, "true", {A: ("convicted", "false"), B: ("silent", "false"), E: ("remaining", "true"),
                     F: ("remaining", "true")},
         [game(0, [A, E], 1, [5, 60]), game(1, [B, E], 1, [5, 60])]),
    ),
    "no result": (
        {}, [], (4, None, {A: ("remaining", "true"), B: ("remaining", "false")},
                 [game(0, [A, B], 0, [7, 7])]), None,
    ),
}  # fmt: skip


def made(name: str) -> Object:
    changes, withdrawals, session, challenge = CASES[name]
    offer = {**OFFER, **changes}
    whole = document("offer", offer, CLIENT.public)
    digest = whole["digest"]
    signed: list[tuple[int, Object]] = []
    for at, key in enumerate((A, B, D)):
        accept = document("acceptance", {"offer": digest, "provider": key}, key)
        signed.append((1_799_999_999_000 + at, accept))
    for key, time in withdrawals:
        signed.append((time, document("withdrawal", {"offer": digest, "party": key}, key)))
    first = None if session is None else outcome(digest, *session, 0)
    second = None
    if challenge is not None:
        assert first is not None
        for at, key in enumerate((E, F) if F in challenge[2] else (E,)):
            members = {"auditor": key, "claim": first["accepted"], "offer": digest,
                       "session": first["session"]}  # fmt: skip
            signed.append((ENDED + 1 + at, document("alarm", members, key)))
        alarm = next(d for t, d in signed if t == ENDED + 1)
        second = outcome(alarm["digest"], *challenge, 1)
    receipts = [
        document("receipt", {"document": d["digest"], "offer": digest, "referee": REFEREE.public,
                             "time": t}, REFEREE.public)
        for t, d in signed
    ]  # fmt: skip
    transfers, accepted = settlement(
        offer,
        digest,
        [(t, d["digest"], json.loads(d["payload"])) for t, d in signed],
        first,
        second,
    )
    time = ENDED + 100_000
    subjects = [("offer", digest)] + [
        (name, one["head"]) for name, one in (("session", first), ("challenge", second)) if one
    ]
    predicate = {
        "accepted": accepted, "challenge": second, "offer": digest, "referee": REFEREE.public,
        "documents": sorted(({"digest": d["digest"], "time": t} for t, d in signed),
                            key=lambda d: str(d["digest"])),
        "session": first, "time": time, "transfers": transfers, "unit": offer["unit"],
    }  # fmt: skip

    def stated(kind: str, names: dict[str, str]) -> str:
        payload = canonical({
            "_type": "https://in-toto.io/Statement/v1", "predicate": predicate,
            "predicateType": kind,
            "subject": [{"digest": {names.get(n, "tallystickEntry"): d}, "name": n}
                        for n, d in subjects],
        })  # fmt: skip
        return REFEREE.envelope("application/vnd.in-toto+json", payload)

    old = dict.fromkeys(("offer", "session", "challenge"), "sha256")
    return {
        "name": name, "documents": [whole, *(d for _, d in signed), *receipts], "session": first,
        "challenge": second, "time": time, "transfers": transfers, "accepted": accepted,
        "statement": stated("urn:tallystick:settlement:v1", old),
        "claim": stated("https://tallystick.dev/claims/settlement/v1",
                        {"offer": "tallystickDocument"}),
    }  # fmt: skip


def vectors() -> Object:
    """The file's content."""
    return {
        "clause": "14",
        "seeds": {s.public: s.seed.hex() for s in SIGNERS},
        "claims": [{"run_root": h(f"run {n}".encode()).hex(), "final_step": 97, "checkpoints": 6,
                    "final_state_root": h(f"end {n}".encode()).hex(), "digest": digest}
                   for n, digest in CLAIMS.items()],
        "cases": [made(name) for name in CASES],
    }  # fmt: skip


def text() -> str:
    return json.dumps(vectors(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    home = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=home / "vectors/delegation/settlement.json")
    parser.parse_args().out.write_text(text(), encoding="ascii")
