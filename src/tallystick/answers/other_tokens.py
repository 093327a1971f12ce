"""Evidence that a receipt's signed state has other tokens than its text (ANSWERS 6.7, 6.9).

Statement, record and seed give the job that the receipt names. A slot proof gives the tokens of its
final state. So anyone convicts the signer, without a weight and without the request.
The record says which text was signed (6.9.2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from tallystick.answers.job import TOKENS, AnswerJob
from tallystick.answers.layout import SETS, Bucket, batch_types, has_answers
from tallystick.answers.one_step import commitment_of, genesis_of
from tallystick.answers.programs import answer_slots
from tallystick.answers.receipt import AnswerReceipt, SignedReceipt, read_receipt
from tallystick.answers.statement import ModelStatement, ProgramName, integers
from tallystick.commit.data import DataSchema, Field, data_root, parse_record, record_bytes
from tallystick.commit.encoding import canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signing import PublicKey
from tallystick.commit.state import SlotProof, prove_slot, slot_order
from tallystick.commit.tensor import Array, tensor_digest
from tallystick.errors import CorruptFileError, DigestMismatchError, UsageError
from tallystick.limits import LIMITS

Refuse = Callable[[str], NoReturn]


@dataclass(frozen=True)
class SignedRecord:
    """A record's bytes, with the program and the seed of its job."""

    program: ProgramName
    seed: int
    record: bytes

    @staticmethod
    def of(answer: AnswerJob) -> SignedRecord:
        values = {name: array[0] for name, array in answer.columns.items()}
        return SignedRecord(answer.program_name, answer.seed, record_bytes(answer.schema, values))

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.program.length, self.program.answer)

    def fields(
        self, statement: ModelStatement, receipt: AnswerReceipt, refuse: Refuse, next_action: str
    ) -> dict[str, Array]:
        """The fields of the record, which is that of the receipt's job and laid out for its counts.

        The caller has compared the statement with the receipt, and the program is one of it.
        `refuse` raises for a record that no answer has; DigestMismatchError for another job."""
        name = self.program
        if name.set not in SETS or not has_answers(self.bucket, name.set, statement.vocabulary):
            refuse("its program has no answers")
        types = batch_types(self.bucket, name.set, statement.vocabulary)
        schema = DataSchema(tuple(Field(n, t.dtype, t.shape) for n, t in types.items()))
        try:
            fields = parse_record(schema, self.record)
            columns = {name: array[np.newaxis] for name, array in fields.items()}
            root, slots = data_root(schema, columns), answer_slots(self.bucket)
            job = commitment_of(statement, name, slots, root, self.seed).digest()
        except UsageError as error:
            refuse(error.message.rstrip("."))
        if job != receipt.job:
            raise DigestMismatchError(
                "The receipt's job is not that of this statement, record and seed.", next_action
            )
        if not _is_laid_out(fields, self.bucket, receipt.prompt, receipt.answer):
            refuse("its record is not laid out as an answer of the receipt's counts")
        return fields


def _is_laid_out(fields: dict[str, Array], bucket: Bucket, prompt: int, count: int) -> bool:
    """Whether place, live and the end of the text are those of ANSWERS 3.3."""
    rows = np.arange(bucket.answer)
    fits = count <= bucket.answer and prompt + count <= bucket.length
    return bool(
        fits
        and np.array_equal(fields["place"], prompt - 1 + np.minimum(rows, count - 1))
        and np.array_equal(fields["live"], (rows < count).astype(np.int64))
        and not fields["text"][prompt + count :].any()
    )


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
