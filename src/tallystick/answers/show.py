"""A file about an answer by itself: what it is, what it claims, what that proves (ANSWERS 4, 5, 7).

As `run/show/files.py` does for all other files of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tallystick.answers.check import check_words
from tallystick.answers.files import RECEIPT, STATEMENT, AnswerFiles
from tallystick.answers.receipt import RECEIPT_TYPE, AnswerReceipt, read_receipt
from tallystick.answers.request import KIND as REQUEST_KIND
from tallystick.answers.request import ModelRequest
from tallystick.answers.spoken import KIND as SPOKEN_KIND
from tallystick.answers.spoken import Spoken
from tallystick.answers.statement import KIND as STATEMENT_KIND
from tallystick.answers.statement import ModelStatement
from tallystick.commit.signing import Envelope
from tallystick.disk.regular import is_directory, open_beginning, os_errors, present, read_file
from tallystick.job.numbers import moment
from tallystick.limits import LIMITS
from tallystick.run.show.files import Claims, FileSaid

_BEGINNING = 64


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
    reader = next((read for begins, read in _READERS.items() if first.startswith(begins)), None)
    return None if reader is None else reader(path)


def _of_receipt(receipt: AnswerReceipt) -> Claims:
    return {
        "model_digest": receipt.model.hex(),
        "request_digest": receipt.request.hex(),
        "job_digest": receipt.job.hex(),
        "run_root": receipt.root.hex(),
        "choice": receipt.choice,
        "prompt_tokens": receipt.prompt,
        "answer_tokens": receipt.answer,
        "finish": receipt.finish,
        "time": moment(receipt.time),
        "until": moment(receipt.until),
    }


def _answer(path: Path) -> FileSaid:
    files = AnswerFiles.read(path)
    signed, answer, _ = files.bound()
    report = check_words(signed, answer)
    if report.contradictions:
        sentence = report.contradictions[0].sentence
        proves = f"That its signer has signed what contradicts itself: {sentence}"
    elif report.findings:
        proves = (
            "That the owner of the key has signed these tokens, and not what stands beside them: "
            f"{report.findings[0].sentence}"
        )
    else:
        proves = (
            "That the owner of the key has signed these tokens as the answer of this model to this "
            "request. Whether the model says that, a check shows."
        )
    return FileSaid(
        "answer",
        "an answer of a model, with its signed receipt",
        _of_receipt(signed.receipt),
        proves,
        f"tallystick check {path} --model MODEL",
        (signed.receipt.signer.key_id,),
    )


def _receipt(path: Path) -> FileSaid | None:
    data = read_file(path, LIMITS.envelope_bytes, "envelope")
    if Envelope.from_bytes(data).payload_type != RECEIPT_TYPE:
        return None
    receipt = read_receipt(data).receipt
    return FileSaid(
        "receipt",
        "the signed receipt of a model's answer",
        _of_receipt(receipt),
        "That the owner of the key has signed these digests. Request and tokens beside it show "
        "what they stand for.",
        f"tallystick check {path} --model MODEL",
        (receipt.signer.key_id,),
    )


def _request(path: Path) -> FileSaid:
    request = ModelRequest.from_bytes(read_file(path, LIMITS.request_bytes, "request"))
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
        },
        "Nothing by itself: nobody has signed it. A receipt names it by its digest.",
        "Keep it from those who must not read it: its secret shows what a receipt hides.",
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
    b'{"payload":': _receipt,
    f'{{"kind":"{REQUEST_KIND}"'.encode(): _request,
    f'{{"kind":"{SPOKEN_KIND}"'.encode(): _spoken,
    b'{"about":': _statement,
}
