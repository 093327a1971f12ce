"""A file about an answer by itself: what it is, what it claims, what that proves (ANSWERS 4, 5, 7).

As `run/show/files.py` does for all other files of ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from tallystick.answers.beside_receipt import ENCODED_BEGINNING, SPOKEN_KIND, Encoded, Spoken
from tallystick.answers.cancellation import CANCELLATION_TYPE, read_cancellation
from tallystick.answers.check import check_words
from tallystick.answers.encoding_job import EncodingJob, EncodingRequest, read_request
from tallystick.answers.files import RECEIPT, STATEMENT, AnswerFiles
from tallystick.answers.other_tokens import OtherTokens
from tallystick.answers.receipt import RECEIPT_TYPE, AnswerReceipt, read_receipt
from tallystick.answers.request import KIND as REQUEST_KIND
from tallystick.answers.shown import ShownRequest
from tallystick.answers.statement import KIND as STATEMENT_KIND
from tallystick.answers.statement import ModelStatement
from tallystick.answers.two_receipts import BEGINNING as TWO_RECEIPTS
from tallystick.answers.two_receipts import TwoReceipts
from tallystick.commit.signing import Envelope
from tallystick.disk.regular import is_directory, open_beginning, os_errors, present, read_file
from tallystick.job.numbers import moment
from tallystick.limits import LIMITS
from tallystick.run.show.files import Claims, FileSaid

_BEGINNING = 64
# Its first member is a number, so that its kind stands where these bytes end.
_OTHER_TOKENS = re.compile(rb'\{"answer":[0-9]{1,7},"kind":"tallystick/other-tokens/1"')
_NOTHING_SIGNED = "Nothing by itself: nobody has signed it. A receipt names it by its digest."
_KEEP = "Keep it from those who must not read it: its secret shows what a receipt hides."


def say_of_answer(path: Path) -> FileSaid | None:
    """What `path` is: an answer, its receipt, its request, its tokens, or a model statement; None
    for none of these. Raises CounterpartyError for one that is damaged, StorageError."""
    if is_directory(path):
        if present(path / RECEIPT):
            return _answer(path)
        return _statement(path / STATEMENT) if present(path / STATEMENT) else None
    file, _ = open_beginning(path, "file", _BEGINNING)
    with os_errors(path), file:
        first = file.read(_BEGINNING)
    if _OTHER_TOKENS.match(first):
        return _other_tokens(path)
    reader = next((read for begins, read in _READERS.items() if first.startswith(begins)), None)
    return None if reader is None else reader(path)


def _of_receipt(receipt: AnswerReceipt) -> Claims:
    counted = "values" if receipt.is_of_encoding else "answer_tokens"
    return {
        "model_digest": receipt.model.hex(),
        "request_digest": receipt.request.hex(),
        "job_digest": receipt.job.hex(),
        "run_root": receipt.root.hex(),
        "choice": receipt.choice,
        "prompt_tokens": receipt.prompt,
        counted: receipt.answer,
        "finish": receipt.finish,
        "time": moment(receipt.time),
        "until": moment(receipt.until),
    }


def _answer(path: Path) -> FileSaid:
    files = AnswerFiles.read(path)
    signed, answer, _ = files.bound()
    report = check_words(signed, answer, files.cancellation)
    if isinstance(answer, EncodingJob):
        what, these, gives = "an encoding of a text by a model", "numbers", "gives them"
        asked = "encoding of this text by this model"
    else:
        what, these, gives = "an answer of a model", "tokens", "says that"
        asked = "answer of this model to this request"
    if report.contradictions:
        sentence = report.contradictions[0].sentence
        proves = f"That its signer has signed what contradicts itself: {sentence}"
    elif report.findings:
        proves = (
            f"That the owner of the key has signed these {these}, and not what stands beside them: "
            f"{report.findings[0].sentence}"
        )
    else:
        proves = (
            f"That the owner of the key has signed these {these} as the {asked}. Whether the model "
            f"{gives}, a check shows."
        )
    return FileSaid(
        "encoding" if isinstance(answer, EncodingJob) else "answer",
        f"{what}, with its signed receipt",
        _of_receipt(signed.receipt),
        proves,
        f"tallystick check {path} --model MODEL",
        (signed.receipt.signer.key_id,),
    )


def _envelope(path: Path) -> FileSaid | None:
    data = read_file(path, LIMITS.envelope_bytes, "envelope")
    if Envelope.from_bytes(data).payload_type == CANCELLATION_TYPE:
        return _cancellation(data)
    if Envelope.from_bytes(data).payload_type != RECEIPT_TYPE:
        return None
    return _receipt(path, data)


def _receipt(path: Path, data: bytes) -> FileSaid:
    receipt = read_receipt(data).receipt
    return FileSaid(
        "receipt",
        f"the signed receipt of a model's {'encoding' if receipt.is_of_encoding else 'answer'}",
        _of_receipt(receipt),
        "That the owner of the key has signed these digests. Request and tokens beside it show "
        "what they stand for.",
        f"tallystick check {path} --model MODEL",
        (receipt.signer.key_id,),
    )


def _cancellation(data: bytes) -> FileSaid:
    said = read_cancellation(data)
    return FileSaid(
        "cancellation",
        "a client's word that a model's answer ends there",
        {
            "request_digest": said.request.hex(),
            "choice": said.choice,
            "answer_tokens": said.answer,
        },
        "Nothing by itself: the request says whose signature it must have.",
        "Put it beside the receipt as cancelled.json; `tallystick check` compares both.",
    )


def _request(path: Path) -> FileSaid:
    request = read_request(read_file(path, LIMITS.request_bytes, "request"))
    if isinstance(request, EncodingRequest):
        return FileSaid(
            "request",
            "a request to an encoder, with the secret that opens it",
            {
                "request_digest": request.digest.hex(),
                "model_digest": request.model.hex(),
                "input": "text" if request.tokens is None else "tokens",
                "output": request.output,
            },
            _NOTHING_SIGNED,
            _KEEP,
        )
    given = {"tokens": request.tokens, "text": request.text, "messages": request.messages}
    return FileSaid(
        "request",
        "a request to a model, with the secret that opens it",
        {
            "request_digest": request.digest.hex(),
            "model_digest": request.model.hex(),
            "input": next(name for name, value in given.items() if value is not None),
            "sampler": request.settings.set,
            "max_tokens": request.settings.max_tokens,
            "choices": request.choices,
            "client": None if request.client is None else request.client.key_id,
        },
        _NOTHING_SIGNED,
        _KEEP,
    )


def _shown(path: Path) -> FileSaid:
    shown = ShownRequest.from_bytes(read_file(path, LIMITS.request_bytes, "shown request"))
    return FileSaid(
        "shown request",
        "some parts of a request to a model, and digests of the others",
        {
            "request_digest": shown.digest.hex(),
            "shown": ", ".join(sorted(shown.shown)),
            "hidden": ", ".join(sorted(shown.hidden)),
        },
        "Nothing by itself: a receipt that names this request digest proves the shown parts.",
        f"tallystick check {path} --receipt RECEIPT",
    )


def is_evidence(path: Path) -> bool:
    """Whether the file at `path` begins as evidence about receipts (ANSWERS 6.9, 6.10)."""
    file, _ = open_beginning(path, "file", _BEGINNING)
    with os_errors(path), file:
        first = file.read(_BEGINNING)
    return bool(_OTHER_TOKENS.match(first)) or first.startswith(TWO_RECEIPTS)


def _two_receipts(path: Path) -> FileSaid:
    data = read_file(path, LIMITS.conviction_bytes, "evidence")
    found = TwoReceipts.from_bytes(data).convicts()
    first, second = found.receipts
    return FileSaid(
        "two receipts",
        "evidence that two receipts of one signer contradict each other",
        {
            "model_digest": first.model.hex(),
            "request_digest": first.request.hex(),
            "job_digest": first.job.hex(),
            "other_job_digest": second.job.hex(),
            "run_root": first.root.hex(),
            "other_run_root": second.root.hex(),
            "clause": found.clause,
        },
        f"That one of the two receipts is false. {found.sentence}",
        f"tallystick check {path}",
        (first.signer.key_id,),
    )


def _other_tokens(path: Path) -> FileSaid:
    data = read_file(path, LIMITS.conviction_bytes, "evidence")
    evidence = OtherTokens.from_bytes(data)
    found = evidence.convicts()
    return FileSaid(
        "other tokens",
        "evidence that a receipt is of a run with other tokens than its text",
        {
            **_of_receipt(found.receipt),
            "row": found.row,
            "claimed": found.claimed,
            "drawn": found.drawn,
        },
        f"That the signer contradicts itself. {found.sentence}",
        f"tallystick check {path}",
        (found.receipt.signer.key_id,),
    )


def _spoken(path: Path) -> FileSaid:
    spoken = Spoken.from_bytes(read_file(path, LIMITS.spoken_bytes, "answer"))
    return FileSaid(
        "tokens",
        "the tokens and the text of a model's answer",
        {"prompt_tokens": len(spoken.prompt), "answer_tokens": len(spoken.tokens)},
        "Nothing by itself: the receipt beside it names these tokens, and nothing binds the text.",
        f"tallystick check {path.parent} --model MODEL",
    )


def _encoded(path: Path) -> FileSaid:
    encoded = Encoded.from_bytes(read_file(path, LIMITS.spoken_bytes, "encoding"))
    return FileSaid(
        "values",
        "the tokens of a text, and the numbers that an encoder makes of it",
        {"prompt_tokens": len(encoded.prompt), "values": len(encoded.values)},
        "Nothing by itself: the receipt beside it names them, and nothing binds the names of "
        "classes.",
        f"tallystick check {path.parent} --model MODEL",
    )


def _statement(path: Path) -> FileSaid | None:
    data = read_file(path, LIMITS.model_statement_bytes, "model statement")
    if f'"kind":"{STATEMENT_KIND}"'.encode() not in data:
        return None
    stated = ModelStatement.from_bytes(data)
    adapter = stated.adapter
    where = path.parent if path.name == STATEMENT else path
    return FileSaid(
        "model statement",
        "a statement that names a model by digests",
        {
            "model_digest": stated.digest.hex(),
            "contract": stated.contract,
            "vocabulary": stated.vocabulary,
            "weights": len(stated.weights),
            "programs": len(stated.programs),
            "adapter": None if adapter is None else adapter.digest.hex(),
            "adapter_merged": None if adapter is None else adapter.merged,
            "run_root": None if stated.run is None else stated.run.hex(),
        },
        "Nothing by itself: whoever has the model derives it again and compares.",
        f"tallystick model verify {where} --model MODEL{' --adapter DIR' * bool(adapter)}",
    )


_READERS: dict[bytes, Callable[[Path], FileSaid | None]] = {
    b'{"payload":': _envelope,
    f'{{"kind":"{REQUEST_KIND}"'.encode(): _request,
    f'{{"kind":"{SPOKEN_KIND}"'.encode(): _spoken,
    b'{"hidden":': _shown,
    TWO_RECEIPTS: _two_receipts,
    ENCODED_BEGINNING: _encoded,
    b'{"about":': _statement,
}
