"""Two receipts of one signer that cannot both be true (ANSWERS 6.10).

A job has one run, and a request has one answer. If two receipts name two of them, the signer has
signed something false, whichever of the two it is. An honest signer may sign one answer with two
ends, for example because a client cancelled it. So the ends of answers are not compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tallystick.answers.encoding_job import EncodingJob
from tallystick.answers.other_tokens import SignedRecord
from tallystick.answers.receipt import AnswerReceipt, SignedReceipt, read_receipt
from tallystick.answers.statement import ModelStatement, ProgramName
from tallystick.answers.words import AnyJob
from tallystick.commit.encoding import JsonValue, canonical_json, parse_canonical_json
from tallystick.commit.members import Members
from tallystick.commit.signing import PublicKey
from tallystick.commit.tensor import Array
from tallystick.errors import CorruptFileError, DigestMismatchError
from tallystick.limits import LIMITS

KIND = "tallystick/two-receipts/1"
# Of the file: its members are in the order of their names.
BEGINNING = f'{{"kind":"{KIND}"'.encode()
ONE_JOB, ONE_REQUEST = "6.10.1", "6.10.2"
# The fields of a record that the tokens of the answer decide (ANSWERS 3.3).
_OF_TOKENS = frozenset({"text", "place", "live"})
_U63 = 19  # decimal digits
_NEXT = "Refuse the file: it convicts nobody."


class NothingFollowsError(CorruptFileError):
    """The two receipts do not contradict each other."""


@dataclass(frozen=True)
class ReceiptsConviction:
    """Who is convicted, and by which clause. By 6.10.2, `row` is the first row that differs, and
    `tokens` are the two tokens there. `trusted` is as in a check."""

    receipts: tuple[AnswerReceipt, AnswerReceipt]
    trusted: bool | None
    clause: str
    sentence: str
    row: int | None = None
    tokens: tuple[int, int] | None = None

    @property
    def receipt(self) -> AnswerReceipt:
        """The first one. Both are of one signer."""
        return self.receipts[0]


@dataclass(frozen=True)
class Texts:
    """What shows the texts of two jobs (ANSWERS 6.10.4)."""

    statement: ModelStatement
    seed: int
    set: str
    records: tuple[tuple[int, int, bytes], tuple[int, int, bytes]]  # L, A, bytes

    @staticmethod
    def of(answers: Sequence[AnyJob]) -> Texts | None:
        """Those of two jobs of one request. None for encodings, of which 6.10.2 says nothing: a
        signer can call one an answer in its receipt."""
        if any(isinstance(answer, EncodingJob) for answer in answers):
            return None
        first, second = (SignedRecord.of(a) for a in answers if not isinstance(a, EncodingJob))
        one, two = ((own.program.length, own.program.answer, own.record) for own in (first, second))
        return Texts(answers[0].statement, first.seed, first.program.set, (one, two))

    def signed(self, number: int) -> SignedRecord:
        length, answer, record = self.records[number]
        return SignedRecord(ProgramName(length, answer, self.set), self.seed, record)

    def members(self) -> JsonValue:
        statement = self.statement.to_bytes()
        return {
            "records": [
                {"answer": answer, "length": length, "record": record.hex()}
                for length, answer, record in self.records
            ],
            "seed": str(self.seed),
            "set": self.set,
            "statement": parse_canonical_json(
                statement, "model statement", LIMITS.model_statement_bytes
            ),
        }


@dataclass(frozen=True)
class TwoReceipts:
    """The file (ANSWERS 6.10.4): the bytes of both receipts, and for 6.10.2 their texts."""

    receipts: tuple[bytes, bytes]
    texts: Texts | None = None

    def to_bytes(self) -> bytes:
        """The file: canonical JSON."""
        texts = None if self.texts is None else self.texts.members()
        hexed: list[JsonValue] = [data.hex() for data in self.receipts]
        return canonical_json({"kind": KIND, "receipts": hexed, "texts": texts})

    @staticmethod
    def from_bytes(data: bytes) -> TwoReceipts:
        """Inverse of `to_bytes` for untrusted bytes; nothing is verified yet. Raises
        CorruptFileError."""
        top = Members(
            parse_canonical_json(data, "evidence of two receipts", LIMITS.conviction_bytes),
            _malformed,
        )
        top.only("kind", "receipts", "texts")
        if top.of("kind", str) != KIND:
            _malformed(f"its kind is {top.value['kind']!r}")
        listed = top.of("receipts", list)
        if len(listed) != 2:
            _malformed("it does not have two receipts")
        first, second = (top.hex_of(one, "receipts", None) for one in listed)
        texts = None if top.value["texts"] is None else _texts(top.child("texts"))
        return TwoReceipts((first, second), texts)

    def convicts(self, trust: list[PublicKey] | None = None) -> ReceiptsConviction:
        """Verify the evidence (ANSWERS 6.10.5). Raises NothingFollowsError for receipts that do not
        contradict each other; SignatureInvalidError, DigestMismatchError and CorruptFileError for
        a file that shows nothing of them."""
        first, second = (read_receipt(data, trust) for data in self.receipts)
        a, b = first.receipt, second.receipt
        if a.signer != b.signer:
            raise NothingFollowsError("The two receipts have two signers.", _NEXT)
        if a.job == b.job:
            return _of_one_job(first, second)
        for what, differs in (
            ("models", a.model != b.model),
            ("requests", a.request != b.request),
            ("choices", a.choice != b.choice),
        ):
            if differs:
                raise NothingFollowsError(f"The two receipts are of two {what}.", _NEXT)
        if self.texts is None:
            raise NothingFollowsError(
                "The two receipts are of two jobs, and nothing shows that neither answer begins "
                "with the other.",
                "Compare the directories of both answers.",
            )
        return _of_one_request(first, second, self.texts)


def _of_one_job(first: SignedReceipt, second: SignedReceipt) -> ReceiptsConviction:
    """6.10.1."""
    a, b = first.receipt, second.receipt
    if (a.root, a.state) == (b.root, b.state):
        raise NothingFollowsError("The two receipts name one run.", _NEXT)
    sentence = "A job has one run, and the two receipts name two runs of one job."
    return ReceiptsConviction((a, b), first.trusted, ONE_JOB, sentence)


def _of_one_request(
    first: SignedReceipt, second: SignedReceipt, texts: Texts
) -> ReceiptsConviction:
    """6.10.2."""
    a, b = first.receipt, second.receipt
    if texts.statement.digest != a.model:
        raise DigestMismatchError(
            "The receipts are for a different model than the one here.", _NEXT
        )
    one, two = (
        texts.signed(number).fields(texts.statement, receipt, _malformed, _NEXT)
        for number, receipt in enumerate((a, b))
    )
    if any(one[name].tobytes() != two[name].tobytes() for name in one.keys() - _OF_TOKENS):
        raise NothingFollowsError("The two jobs have different settings or salts.", _NEXT)
    if _prompt(one, a) != _prompt(two, b):
        raise NothingFollowsError("The two jobs have different prompt tokens.", _NEXT)
    pairs = zip(_answer(one, a), _answer(two, b), strict=False)
    differing = ((row, pair) for row, pair in enumerate(pairs) if pair[0] != pair[1])
    found = next(differing, None)
    if found is None:
        raise NothingFollowsError("One of the two answers begins with the other.", _NEXT)
    row, tokens = found
    sentence = (
        f"One request has one answer. In row {row}, after the same text, one receipt has the token "
        f"{tokens[0]} and the other one {tokens[1]}."
    )
    return ReceiptsConviction((a, b), first.trusted, ONE_REQUEST, sentence, row, tokens)


def _prompt(fields: dict[str, Array], receipt: AnswerReceipt) -> list[int]:
    found: list[int] = fields["text"][: receipt.prompt].tolist()
    return found


def _answer(fields: dict[str, Array], receipt: AnswerReceipt) -> list[int]:
    end = receipt.prompt + receipt.answer
    found: list[int] = fields["text"][receipt.prompt : end].tolist()
    return found


def _texts(told: Members) -> Texts:
    told.only("records", "seed", "set", "statement")
    statement = ModelStatement.from_bytes(canonical_json(told.child("statement").value))
    set_, listed = told.of("set", str), told.of("records", list)
    if len(listed) != 2:
        _malformed("it does not have two records")
    found: list[tuple[int, int, bytes]] = []
    for item in listed:
        entry = Members(item, _malformed)
        entry.only("answer", "length", "record")
        length, answer = entry.of("length", int), entry.of("answer", int)
        if ProgramName(length, answer, set_) not in statement.programs:
            _malformed("a program is none of the statement's")
        found.append((length, answer, entry.hex("record", None)))
    one, two = found
    return Texts(statement, told.decimal("seed", _U63), set_, (one, two))


def _malformed(why: str) -> NoReturn:
    raise CorruptFileError(f"The evidence of two receipts is malformed: {why}.", _NEXT)
