"""Evidence about receipts, without a model: `check_conviction`, `compare_receipts` (ANSWERS 6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tallystick.answers.files import AnswerFiles, receipt_bytes
from tallystick.answers.other_tokens import OtherTokens, TokenConviction
from tallystick.answers.receipt import AnswerReceipt, read_receipt
from tallystick.answers.two_receipts import (
    BEGINNING,
    NothingFollowsError,
    ReceiptsConviction,
    Texts,
    TwoReceipts,
)
from tallystick.api import given
from tallystick.api.answering import GivenAnswer
from tallystick.api.encoding import GivenEncoding
from tallystick.api.given import PathLike
from tallystick.api.requests import free_file
from tallystick.commit.signing import PublicKey
from tallystick.disk.files import write_file
from tallystick.disk.regular import read_file
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

AnyReceipt = GivenAnswer | GivenEncoding | PathLike | bytes


@dataclass(frozen=True)
class ReceiptsReport:
    """The result of comparing two receipts. `conviction` is None if they do not contradict each
    other. `sentence` says what was found. `convicting` is the evidence."""

    receipts: tuple[AnswerReceipt, AnswerReceipt]
    trusted: tuple[bool | None, bool | None]
    sentence: str
    conviction: ReceiptsConviction | None = None
    convicting: TwoReceipts | None = None


def check_conviction(
    evidence: PathLike | bytes, *, trust: Sequence[PublicKey | PathLike] | None = None
) -> TokenConviction | ReceiptsConviction:
    """Verify the evidence that `check` or `compare_receipts` has written, without the model.

    What it returns says whom it convicts, `receipt.signer`, and by what: `sentence`. Of a run with
    other tokens than its text it has `row`, `claimed` and `drawn`; of two receipts `clause`, and
    `row` and `tokens` where these differ. `trust` are the signers that you know.

    Raises SignatureInvalidError, DigestMismatchError and CorruptFileError for a file that convicts
    nobody, StorageError.
    """
    data = evidence
    if not isinstance(data, bytes):
        data = read_file(given.path(data), LIMITS.conviction_bytes, "evidence")
    if data.startswith(BEGINNING):
        return TwoReceipts.from_bytes(data).convicts(given.publics(trust))
    return OtherTokens.from_bytes(data).convicts(given.publics(trust))


def compare_receipts(
    receipt: AnyReceipt,
    other: AnyReceipt,
    *,
    trust: Sequence[PublicKey | PathLike] | None = None,
    evidence: PathLike | None = None,
) -> ReceiptsReport:
    """Whether two receipts of one signer contradict each other, so that one of them is false
    (ANSWERS 6.10). No model is needed.

    Each is a receipt, its bytes, an answer's directory or what `generate` gave. The receipts alone
    show two runs of one job. To show two answers to one request, the answers' directories are
    needed. The report's `conviction` is None where nothing follows, for example where one answer
    was cancelled earlier than the other. `evidence` is a file to write where they convict: it has
    the receipts, and for two answers the model statement and what the records of both jobs say:
    prompt and answers as tokens, the settings of the sampler, the seed of the choice and the
    record's salt. It has neither the request's secret nor its messages or stop strings.

    Raises SignatureInvalidError, DigestMismatchError and CorruptFileError for receipts and answers
    that convict nobody, StorageError, and UsageError for the bare bytes of two receipts of one
    request that are of two jobs, and where `evidence` is there already.
    """
    target = None if evidence is None else free_file(given.path(evidence), "evidence")
    known = given.publics(trust)
    data = _data(receipt), _data(other)
    first, second = (read_receipt(one, known) for one in data)
    a, b = first.receipt, second.receipt
    found = TwoReceipts(data)
    if a.job != b.job and _of_one_request(a, b):
        jobs = [_files(one).signed(known)[1] for one in (receipt, other)]
        found = TwoReceipts(data, Texts.of(jobs))
    trusted = first.trusted, second.trusted
    try:
        conviction = found.convicts(known)
    except NothingFollowsError as error:
        return ReceiptsReport((a, b), trusted, error.message)
    if target is not None:
        write_file(target, [found.to_bytes()])
    return ReceiptsReport((a, b), trusted, conviction.sentence, conviction, found)


def _of_one_request(a: AnswerReceipt, b: AnswerReceipt) -> bool:
    """Whether the tokens of two jobs are worth comparing (6.10.2)."""
    of_answers = not (a.is_of_encoding or b.is_of_encoding)
    same = (a.signer, a.model, a.request, a.choice) == (b.signer, b.model, b.request, b.choice)
    return of_answers and same


def _data(receipt: AnyReceipt) -> bytes:
    if isinstance(receipt, bytes):
        return receipt
    if isinstance(receipt, (GivenAnswer, GivenEncoding)):
        return receipt.receipt
    return receipt_bytes(given.path(receipt))


def _files(receipt: AnyReceipt) -> AnswerFiles:
    if isinstance(receipt, (GivenAnswer, GivenEncoding)):
        return receipt.files
    if isinstance(receipt, bytes):
        raise UsageError(
            "The two receipts are for different jobs. A receipt alone does not show its tokens.",
            "Pass the directories of both answers.",
        )
    return AnswerFiles.read(given.path(receipt))
