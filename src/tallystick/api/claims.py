"""Claims for other tools, put together once for every face: what is stated, and who signs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tallystick.answers.check import AnswerReport
from tallystick.answers.files import receipt_bytes
from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.claims import bom, findings
from tallystick.claims.findings import audit_payload
from tallystick.claims.models import model_signature
from tallystick.claims.runs import StatedRun, provenance_payload, stated_run
from tallystick.commit.p256 import P256Key
from tallystick.commit.signed import Statement, read_statement, sign_statement
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.disk.keys import load_p256_key
from tallystick.disk.manifest import file_digest
from tallystick.disk.regular import read_file
from tallystick.errors import MismatchError
from tallystick.limits import LIMITS
from tallystick.run.show.audit_report import AuditReport
from tallystick.run.store.export import Which

Keys = Sequence[PublicKey | PathLike]


def claim_run(
    run: PathLike,
    key: PrivateKey | PathLike,
    *,
    models: Sequence[PathLike] = (),
    average: bool = False,
    best: bool = False,
    trust: Keys | None = None,
) -> bytes:
    """A signed claim about a finished run, for tools that read in-toto Statements (CLAIMS 2).

    `models` are files of `tallystick export`, which are compared with the run; `average` and `best`
    say of which weights they are. The run is not repeated: see `claim_audit`. Errors: those of
    `verify_model`, and UsageError for `average` or `best` without `models`.
    """
    found = _stated(run, models, average, best, trust)
    return sign_statement(_private(key), found.payload()).to_bytes()


def claim_provenance(
    run: PathLike,
    key: PrivateKey | PathLike,
    *,
    models: Sequence[PathLike] = (),
    average: bool = False,
    best: bool = False,
    builder: str | None = None,
    trust: Keys | None = None,
) -> bytes:
    """A signed SLSA provenance of a finished run and the files exported from it (CLAIMS 6).

    `builder` is a URI for whoever ran the training. Every file of the job is checked first; raises
    CounterpartyError for an altered one. Other parameters and errors: as `claim_run`.
    """
    secret = _private(key)
    found = _stated(run, models, average, best, trust)
    return sign_statement(secret, provenance_payload(found, secret.public, builder)).to_bytes()


def bill_of_materials(
    run: PathLike,
    *,
    models: Sequence[PathLike] = (),
    average: bool = False,
    best: bool = False,
    name: str | None = None,
    trust: Keys | None = None,
) -> bytes:
    """A CycloneDX document about the model of a finished run (CLAIMS 8). It is not signed.

    `name` is the model's, by default that of the run's directory. Other parameters and errors: as
    `claim_provenance`.
    """
    found = _stated(run, models, average, best, trust)
    return bom.bill_of_materials(found, name or found.store.directory.name or "model")


def claim_audit(report: AuditReport, key: PrivateKey | PathLike) -> bytes:
    """A signed claim of what an audit has found (CLAIMS 3), by whoever made the audit.

    Raises MismatchError where the run's directory holds another run by now, or another signer's,
    StorageError.
    """
    return sign_statement(_private(key), audit_payload(report)).to_bytes()


def claim_answer(
    receipt: PathLike | bytes,
    key: PrivateKey | PathLike,
    *,
    report: AnswerReport | None = None,
) -> bytes:
    """A signed claim about the answer of a receipt (CLAIMS 5); no text is in it, nor a digest of
    one.

    `receipt` is a file, its bytes or an answer's directory; `report` what `check` has found of it.
    Raises the errors of a receipt that does not verify, and MismatchError for another's report.
    """
    data = receipt if isinstance(receipt, bytes) else receipt_bytes(given.path(receipt))
    return sign_statement(_private(key), findings.answer_payload(data, report)).to_bytes()


def claim_conviction(evidence: bytes, key: PrivateKey | PathLike) -> bytes:
    """A signed claim that evidence about receipts convicts their signer (CLAIMS 4).

    The evidence is verified first; errors: as `check_conviction`.
    """
    payload = findings.answer_conviction_payload(evidence)
    return sign_statement(_private(key), payload).to_bytes()


def sign_model(directory: PathLike, key: P256Key | PathLike, target: PathLike) -> bytes:
    """Sign every file of a model's directory for `model_signing verify` (CLAIMS 7).

    `key` is of `tallystick keys p256`. What is returned goes in the file `target`, which is
    passed over if it lies at the directory's top. Raises UsageError, also where `target` is there
    and no model signature, CorruptFileError for a link in the directory, StorageError.
    """
    secret = key if isinstance(key, P256Key) else load_p256_key(given.path(key))
    return model_signature(secret, given.path(directory), given.path(target))


@dataclass(frozen=True)
class CheckedClaim:
    """A claim whose signature is by a trusted key; `files` has for each given file the name of the
    subject that it is."""

    statement: Statement
    files: tuple[tuple[Path, str], ...]


def check_claim(
    claim: PathLike | bytes, trust: Keys, *, files: Sequence[PathLike] = ()
) -> CheckedClaim:
    """Verify a claim's signature by the keys of `trust`, and that it is about `files` (CLAIMS 9).

    What its predicate says is not checked: a run is audited, an answer checked, evidence judged.
    Raises SignatureInvalidError, CorruptFileError, and MismatchError for a file that no subject of
    the claim is.
    """
    data = claim
    if not isinstance(data, bytes):
        data = read_file(given.path(data), LIMITS.envelope_bytes, "claim")
    statement = read_statement(data, given.publics(trust) or [])
    matched = []
    for file in files:
        path = given.path(file)
        names = statement.names_of(file_digest(path))
        if not names:
            raise MismatchError(
                f"The claim is not about {path}: none of its subjects has the file's SHA-256.",
                "Ask for the claim about this file, or for the file that the claim names.",
            )
        matched.append((path, names[0]))
    return CheckedClaim(statement, tuple(matched))


def _stated(
    run: PathLike,
    models: Sequence[PathLike],
    average: bool,
    best: bool,
    trust: Keys | None,
) -> StatedRun:
    paths = [given.path(model) for model in models]
    return stated_run(given.path(run), paths, given.publics(trust), Which(average, best))


def _private(key: PrivateKey | PathLike) -> PrivateKey:
    found = given.private(key)
    assert found is not None
    return found
