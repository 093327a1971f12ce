"""Evidence that a receipt's signed state has other tokens than its text (ANSWERS 6.7, 6.9).

Statement, record and seed give the job that the receipt names. A slot proof gives the tokens of its
final state. So anyone convicts the signer, without a weight and without the request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tallystick.answers.job import TOKENS, AnswerJob
from tallystick.answers.layout import Bucket
from tallystick.answers.one_step import genesis_of
from tallystick.answers.programs import answer_slots
from tallystick.answers.receipt import AnswerReceipt, SignedReceipt, read_receipt
from tallystick.answers.signed_record import SignedRecord
from tallystick.answers.statement import ModelStatement, ProgramName, integers
from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signing import PublicKey
from tallystick.commit.state import SlotProof, prove_slot, slot_order
from tallystick.commit.tensor import Array, tensor_digest
from tallystick.errors import CorruptFileError, DigestMismatchError
from tallystick.limits import LIMITS

KIND = "tallystick/other-tokens/1"
_MEMBERS = (
    "answer", "kind", "length", "path", "receipt", "record", "seed", "set", "statement", "tokens"
)  # fmt: skip
_MOST_PATH = 64  # a tree of 2^64 slots
_U63 = 19  # decimal digits
_NEXT = "Refuse the file: it convicts nobody."


@dataclass(frozen=True)
class TokenConviction:
    """Who is convicted, and by what: in the first row that differs, the signed text has the token
    `claimed`, and the signed state the token `drawn`. `trusted` is as in a check."""

    receipt: AnswerReceipt
    trusted: bool | None
    row: int
    claimed: int
    drawn: int

    @property
    def sentence(self) -> str:
        return (
            f"The signed text demands the token {self.claimed} in row {self.row} of the answer, "
            f"and the signed state has {self.drawn} there."
        )


@dataclass(frozen=True)
class OtherTokens:
    """The file (ANSWERS 6.9.1). `tokens` are those of the final state, `path` is the slot proof."""

    receipt: bytes
    statement: ModelStatement
    program: ProgramName
    seed: int
    record: bytes
    tokens: tuple[int, ...]
    path: tuple[bytes, ...]

    @staticmethod
    def of(
        signed: SignedReceipt, answer: AnswerJob, final: Mapping[str, bytes], tokens: Array
    ) -> OtherTokens:
        """From the final state of the receipt's run: its tensor digests, and its tokens."""
        own = SignedRecord.of(answer)
        return OtherTokens(
            signed.data,
            answer.statement,
            own.program,
            own.seed,
            own.record,
            tuple(int(token) for token in tokens),
            prove_slot(final, TOKENS).path,
        )

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        name = self.program
        statement = self.statement.to_bytes()
        return canonical_json(
            {
                "answer": name.answer,
                "kind": KIND,
                "length": name.length,
                "path": [step.hex() for step in self.path],
                "receipt": self.receipt.hex(),
                "record": self.record.hex(),
                "seed": str(self.seed),
                "set": name.set,
                "statement": parse_canonical_json(
                    statement, "model statement", LIMITS.model_statement_bytes
                ),
                "tokens": list(self.tokens),
            }
        )

    @staticmethod
    def from_bytes(data: bytes) -> OtherTokens:
        """Inverse of `to_bytes` for untrusted bytes; nothing is verified yet. Raises
        CorruptFileError."""
        value = parse_canonical_json(data, "evidence of other tokens", LIMITS.conviction_bytes)
        top = Members(value, _malformed)
        top.only(*_MEMBERS)
        if top.of("kind", str) != KIND:
            _malformed(f"its kind is {top.value['kind']!r}")
        statement = ModelStatement.from_bytes(canonical_json(top.child("statement").value))
        program = ProgramName(top.of("length", int), top.of("answer", int), top.of("set", str))
        if program not in statement.programs:
            _malformed("its program is none of the statement's")
        tokens, path = integers(top, "tokens"), top.of("path", list)
        if len(tokens) != program.answer or len(path) > _MOST_PATH:
            _malformed("it has another number of tokens, or too long a proof")
        return OtherTokens(
            top.hex("receipt", None),
            statement,
            program,
            top.decimal("seed", _U63),
            top.hex("record", None),
            tokens,
            tuple(top.hex_of(step, "path") for step in path),
        )

    def convicts(self, trust: list[PublicKey] | None = None) -> TokenConviction:
        """Verify the evidence (ANSWERS 6.9.2). Raises SignatureInvalidError, DigestMismatchError
        and CorruptFileError for a file that convicts nobody."""
        signed = read_receipt(self.receipt, trust)
        receipt, name = signed.receipt, self.program
        if self.statement.digest != receipt.model:
            raise DigestMismatchError("The receipt is of another model than the one here.", _NEXT)
        own = SignedRecord(name, self.seed, self.record)
        text, bucket = own.fields(self.statement, receipt, _malformed, _NEXT)["text"], own.bucket
        claimed = np.zeros(name.answer, np.int64)
        claimed[: receipt.answer] = text[receipt.prompt : receipt.prompt + receipt.answer]
        drawn = np.array(self.tokens, np.int64)
        if not self._proof(bucket, tensor_digest(drawn), receipt.state):
            raise DigestMismatchError(
                "These tokens are not proved to be those of the receipt's final state.", _NEXT
            )
        rows = np.flatnonzero(claimed != drawn)
        if not rows.size:
            raise CorruptFileError("The signed state has the tokens of the signed text.", _NEXT)
        at = int(rows[0])
        return TokenConviction(receipt, signed.trusted, at, int(claimed[at]), int(drawn[at]))

    def _proof(self, bucket: Bucket, digest: bytes, state: bytes) -> bool:
        names = slot_order(list(genesis_of(self.statement, answer_slots(bucket))))
        index, size = names.index(TOKENS), len(names)
        proof = SlotProof(TOKENS, digest, index, size, self.path)
        return proof.proves(state, TOKENS, index, size)


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(f"The evidence of other tokens is malformed: {why}.", _NEXT)
