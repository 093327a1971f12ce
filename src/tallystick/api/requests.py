"""A client's own requests: made, shown in part, cancelled (ANSWERS 5, 6.6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from tallystick.answers.cancellation import sign_cancellation
from tallystick.answers.files import read_model_request, read_statement, receipt_bytes
from tallystick.answers.layout import Settings
from tallystick.answers.receipt import read_receipt
from tallystick.answers.request import Message, ModelRequest, new_nonce, new_secret
from tallystick.answers.shown import ShownReport, ShownRequest
from tallystick.answers.shown import check_shown as compared
from tallystick.answers.statement import ModelStatement
from tallystick.api import given
from tallystick.api.given import PathLike
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.disk.files import write_file
from tallystick.disk.regular import present, read_file
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

# A request's file holds its secret.
_PRIVATE = 0o600


def request(
    statement: ModelStatement | PathLike,
    *,
    prompt: str | None = None,
    messages: Sequence[Message] | None = None,
    tokens: Sequence[int] | None = None,
    max_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    bias: Mapping[int, float] | None = None,
    stop: Sequence[int] = (),
    stop_strings: Sequence[str] = (),
    seed: int | None = None,
    nonce: bytes | None = None,
    choices: int = 1,
    date: str | None = None,
    client: PublicKey | PathLike | None = None,
    out: PathLike | None = None,
) -> ModelRequest:
    """Make a request to the model that a statement names, as its client, without the model.

    `statement` is a model statement, its directory or its file. What is asked for is as in
    `generate`. The secret is new, and so is the nonce that gives the seed, unless `seed` or `nonce`
    (16 bytes) is given: the server has nothing to choose. `client` is your public key. With it in
    the request, `cancel` can end an answer in a way that you cannot deny, nor the server invent.

    `out` is the file to write, readable by you alone, for `generate(…, request=FILE)`. The server
    needs it whole, with the secret. Keep a copy: `check(…, request=FILE)` refuses an answer to any
    other request.

    Raises UsageError for what the model can never answer, and where `out` is there already,
    StorageError, CorruptFileError.
    """
    stated = statement_of(statement)
    if seed is not None and nonce is not None:
        raise UsageError(
            "A request has either a seed or a nonce, not both.", "Leave one of them out."
        )
    settings = Settings(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition=repetition,
        presence=presence,
        frequency=frequency,
        bias=tuple(sorted((bias or {}).items())),
        seed=seed or 0,
        max_tokens=max_tokens,
        stop=tuple(sorted(set(stop))),
    )
    made = ModelRequest(
        stated.digest,
        settings,
        tokens=None if tokens is None else tuple(tokens),
        text=prompt,
        messages=None if messages is None else tuple(messages),
        nonce=new_nonce() if seed is None and nonce is None else nonce,
        date=date,
        stop_strings=tuple(stop_strings),
        choices=choices,
        secret=new_secret(),
        client=_public(client),
    )
    require_answerable(stated, made)
    if out is not None:
        write_new(given.path(out), made.to_bytes(), "request", _PRIVATE)
    return made


# What a request is made of, and the values that stand for what is not said.
DEFAULTS: Mapping[str, Any] = {
    name: parameter.default
    for name, parameter in signature(request).parameters.items()
    if name not in ("statement", "out")
}


def client_request(asked: ModelRequest | PathLike, others: Mapping[str, Any]) -> ModelRequest:
    """The request that a client has made by itself (ANSWERS 5.8). UsageError where one of `others`,
    values by the names of `request`, would say something beside it."""
    told = [name for name, value in others.items() if value != DEFAULTS[name]]
    if told:
        raise UsageError(
            f"A client's request cannot be combined with {', '.join(told)}: it already states "
            "what it asks for.",
            "Leave them out, or ask the client for another request.",
        )
    found = request_of(asked)
    if found.server_seed:
        raise UsageError(
            "The server chose the seed of this request, so it is not a client's own request.",
            "Ask the client for a request with its own seed or nonce.",
        )
    return found


def cancel(
    request: ModelRequest | PathLike,
    tokens: int,
    key: PrivateKey | PathLike,
    *,
    choice: int = 0,
    out: PathLike | None = None,
) -> bytes:
    """Sign, as the client of a request, that an answer to it ends after `tokens` tokens.

    `key` is the private key whose public half the request names as `client`. `choice` says which of
    the answers. The bytes, written to `out`, are for the server: `generate(…, cancelled=[FILE])`
    ends the answer there, and whoever checks its receipt sees that the client wanted that.

    Raises UsageError for another key, a request that names none, an answer that the request does
    not ask for, and where `out` is there already; StorageError, CorruptFileError.
    """
    private = given.private(key)
    assert private is not None
    data = sign_cancellation(private, request_of(request), tokens, choice)
    if out is not None:
        write_new(given.path(out), data, "cancellation")
    return data


def show_request(
    request: ModelRequest | PathLike, parts: Sequence[str], *, out: PathLike | None = None
) -> ShownRequest:
    """Show the parts of a request that are named, and hide the others.

    `parts` are names of `request.parts`: `choices`, `client` where there is one, `date`, `input`,
    `model`, `seed`, `settings`, `stop_strings`. Each shown part goes with its salt, each other one
    as a digest, which tells nothing of it. The secret stays where it is. `out` is the file to
    write. `check_shown` compares it with a receipt.

    Raises UsageError for a part that the request lacks, for none at all, and where `out` is there
    already; StorageError, CorruptFileError.
    """
    shown = ShownRequest.of(request_of(request), parts)
    if out is not None:
        data = shown.to_bytes()
        if len(data) > LIMITS.request_bytes:
            raise UsageError(
                "The shown parts are longer than a request may be.", "Show fewer parts."
            )
        write_new(given.path(out), data, "shown request")
    return shown


def check_shown(
    shown: ShownRequest | PathLike,
    receipt: PathLike | bytes,
    *,
    trust: Sequence[PublicKey | PathLike] | None = None,
) -> ShownReport:
    """Which parts of a receipt's request a file of `show_request` proves, and which it hides.

    `receipt` is the receipt, its bytes, or an answer's directory. Nothing else is needed. The
    report's `proved` is true if the receipt names this very request; `request.shown` has the parts
    that are proved then, `request.hidden` the names of the others. Its `contradictions` are what
    these parts and the receipt show of each other: they convict the signer. `trust` are the
    signers that you know.

    Raises SignatureInvalidError, CorruptFileError, StorageError.
    """
    if not isinstance(shown, ShownRequest):
        file = read_file(given.path(shown), LIMITS.request_bytes, "shown request")
        shown = ShownRequest.from_bytes(file)
    data = receipt if isinstance(receipt, bytes) else receipt_bytes(given.path(receipt))
    return compared(shown, read_receipt(data, given.publics(trust)))


def request_of(request: ModelRequest | PathLike) -> ModelRequest:
    """A request, or the one in a file. Raises StorageError, CorruptFileError."""
    return request if isinstance(request, ModelRequest) else read_model_request(given.path(request))


def statement_of(statement: ModelStatement | PathLike) -> ModelStatement:
    """A statement, or the one in a directory or file. Raises StorageError, CorruptFileError."""
    if isinstance(statement, ModelStatement):
        return statement
    return read_statement(given.path(statement))


def free_file(path: Path, what: str) -> Path:
    """`path`, where there is nothing yet. Raises UsageError."""
    if present(path):
        raise UsageError(f"{path} already exists.", f"Choose another file for the {what}.")
    return path


def write_new(path: Path, data: bytes, what: str, mode: int = 0o644) -> None:
    """Write a file that is not there yet. Raises UsageError, StorageError."""
    write_file(free_file(path, what), [data], mode=mode)


def _public(key: PublicKey | PathLike | None) -> PublicKey | None:
    found = given.publics(None if key is None else [key])
    return None if found is None else found[0]


def require_answerable(statement: ModelStatement, request: ModelRequest) -> None:
    """UsageError for a request that the statement's model can never answer, as far as that can be
    seen without its tokenizer."""
    settings, most = request.settings, statement.vocabulary
    for what, tokens in (
        ("prompt", request.tokens or ()),
        ("bias", [token for token, _ in settings.bias]),
        ("stop set", settings.stop),
    ):
        odd = next((token for token in tokens if not 0 <= token < most), None)
        if odd is not None:
            raise UsageError(
                f"The {what} contains the token {odd}, but the model's vocabulary has {most} "
                "tokens.",
                "Use the tokenizer of this model.",
            )
    if statement.most(len(request.tokens or (0,)), settings.set) < 1:
        raise UsageError(
            f"The model statement has no bucket for a prompt of {len(request.tokens or (0,))} "
            f"tokens with the sampler set {settings.set}.",
            "Shorten the prompt, or ask for a statement with a larger bucket.",
        )
