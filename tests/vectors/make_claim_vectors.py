"""Writes vectors/claims/claims.json: runs, receipts, keys and models, and their claims (CLAIMS).

    PYTHONPATH=tests python tests/vectors/make_claim_vectors.py [--out FILE]

Written from the specification with hashlib and json, without the package; the curves are a
library's.
"""

from __future__ import annotations

import argparse
import base64
import json
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from make_settlement_vectors import Object, Signer, canonical, h

TRAINER, STATER = Signer(31), Signer(32)
OURS, IN_TOTO = "https://tallystick.dev/claims/", "application/vnd.in-toto+json"


def statement(kind: str, subjects: list[tuple[str, Object]], predicate: Object) -> bytes:
    return canonical({
        "_type": "https://in-toto.io/Statement/v1", "predicate": predicate, "predicateType": kind,
        "subject": [{"digest": digest, "name": name} for name, digest in subjects],
    })  # fmt: skip


def claim(name: str, subjects: list[tuple[str, Object]], predicate: Object) -> str:
    return STATER.envelope(IN_TOTO, statement(f"{OURS}{name}/v1", subjects, predicate))


def of_file(data: bytes) -> Object:
    return {"sha256": h(data).hex()}


# ---- runs (CLAIMS 2) ----------------------------------------------------------------------------
def run(name: str, steps: int, exported: bool) -> Object:
    root, end, job = (h(f"{name} {what}".encode()).hex() for what in ("root", "end", "job"))
    commitment = TRAINER.envelope("application/vnd.tallystick.run-commitment.v1+json", canonical({
        "checkpoints": 3, "final_state_root": end, "final_step": steps, "job_digest": job,
        "kind": "tallystick/run-commitment/1", "run_root": root, "signer": TRAINER.public,
    }))  # fmt: skip
    subjects: list[tuple[str, Object]] = [
        ("commitment.json", of_file(commitment.encode())),
        ("run", {"tallystickRunRoot": root}),
        ("final-state", {"tallystickStateRoot": end}),
    ]
    files = {}
    if exported:
        files["model.safetensors"] = {**of_file(name.encode()), "tallystickStateRoot": end}
        subjects += files.items()
    predicate: Object = {
        "checkpoints": 3, "contract": "ordered/1", "convicted": [], "disputed": False,
        "evidence": None, "job_digest": job, "signer": TRAINER.public, "steps": steps,
    }  # fmt: skip
    return {
        "commitment": commitment,
        "contract": "ordered/1",
        "files": files,
        "claim": claim("run", subjects, predicate),
    }


# ---- answers (CLAIMS 5) -------------------------------------------------------------------------
def short(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def answer(name: str, finish: str, counts: tuple[int, int]) -> Object:
    parts = ("job", "model", "request", "root", "state")
    digests = {what: h(f"{name} {what}".encode()) for what in parts}
    own = json.loads(TRAINER.envelope(
        "application/vnd.tallystick.run-commitment.v1+json", canonical({
            "checkpoints": 2, "final_state_root": digests["state"].hex(), "final_step": 1,
            "job_digest": digests["job"].hex(), "kind": "tallystick/run-commitment/1",
            "run_root": digests["root"].hex(), "signer": TRAINER.public,
        })))  # fmt: skip
    times = {"time": 1_800_000_000_000, "until": 1_800_086_400_000}
    said = {"answer": counts[1], "choice": 0, "finish": finish, "prompt": counts[0], **times}
    receipt = TRAINER.envelope("application/vnd.tallystick.answered.v1+json", canonical({
        **said, **{what: short(digest) for what, digest in digests.items()},
        "key": short(TRAINER.raw), "kind": "tallystick/answered/1",
        "run": short(base64.b64decode(own["signatures"][0]["sig"])),
    }))  # fmt: skip
    subjects: list[tuple[str, Object]] = [
        ("receipt.json", of_file(receipt.encode())),
        ("run", {"tallystickRunRoot": digests["root"].hex()}),
        ("final-state", {"tallystickStateRoot": digests["state"].hex()}),
    ]
    predicate = {
        **said, "checked": None, "job_digest": digests["job"].hex(), "signer": TRAINER.public,
        "model_digest": digests["model"].hex(), "request_digest": digests["request"].hex(),
    }  # fmt: skip
    return {"receipt": receipt, "claim": claim("answer", subjects, predicate)}


# ---- keys and models (CLAIMS 7) -----------------------------------------------------------------
def vouched(number: int, name: str) -> Object:
    public = ec.derive_private_key(number, ec.SECP256R1()).public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    predicate = {
        "key": der.hex(), "scheme": "ecdsa-sha2-nistp256", "signer": STATER.public,
        "use": "model-signing",
    }  # fmt: skip
    return {
        "public": pem.decode(),
        "name": name,
        "claim": claim("key", [(name, of_file(pem))], predicate),
    }


def model(name: str, files: dict[str, str], signature: str | None) -> Object:
    """`signature` is the name of the signature's file where it lies in the directory."""
    git = [".git", ".gitattributes", ".github", ".gitignore"]
    ignored = sorted([*git, *([] if signature is None else [signature])])
    kept = sorted((n for n in files if n.split("/")[0] not in ignored), key=lambda n: n.split("/"))
    digests = [h(files[n].encode()) for n in kept]
    predicate = {
        "resources": [{"algorithm": "sha256", "digest": d.hex(), "name": n}
                      for n, d in zip(kept, digests, strict=True)],
        "serialization": {"allow_symlinks": False, "hash_type": "sha256",
                          "ignore_paths": ignored, "method": "files"},
    }  # fmt: skip
    subject = [(name, {"sha256": h(b"".join(digests)).hex()})]
    payload = statement("https://model_signing/signature/v1.0", subject, predicate)
    return {"name": name, "files": files, "signature": signature, "payload": payload.decode()}


def earlier_signature() -> str:
    """A signature that another one replaces: its place may hold nothing else (7.4)."""
    payload = base64.b64encode(statement("https://model_signing/signature/v1.0", [], {})).decode()
    return canonical({
        "dsseEnvelope": {"payload": payload, "payloadType": IN_TOTO, "signatures": []},
        "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
        "verificationMaterial": {"publicKey": {"hint": "0" * 64}, "tlogEntries": []},
    }).decode()  # fmt: skip


def vectors() -> Object:
    """The file's content."""
    many = {"a/b": "1", "a.b": "2", "a/c/d": "3", "Z": "", ".gitignore": "x", ".git/config": "y",
            "a/.git": "z", "model.sig": earlier_signature()}  # fmt: skip
    return {
        "clauses": "CLAIMS 1, 2, 5, 7",
        "seed": STATER.seed.hex(),
        "runs": [run("first", 97, False), run("second", 1, True)],
        "answers": [
            answer("one", "stop", (3, 7)),
            answer("two", "cancelled", (1, 1)),
            answer("three", "embedding", (9, 384)),
        ],
        "keys": [vouched(1, "p256.pem.pub"), vouched(2**255, "models.pub")],
        "models": [
            model("one", {"config.json": "{}"}, None),
            model("many", many, "model.sig"),
            model("all", many, None),
        ],
    }


def text() -> str:
    return json.dumps(vectors(), indent=1, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    home = Path(__file__).resolve().parents[2]
    parser.add_argument("--out", type=Path, default=home / "vectors/claims/claims.json")
    out: Any = parser.parse_args().out
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text(), encoding="ascii")
