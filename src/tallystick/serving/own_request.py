"""A client's own request, which it sends as a file beside OpenAI's fields (ANSWERS 5.8).

The file says everything that is asked for, and the server adds nothing. Fields that stand beside it
say the same, or are refused by name. How the response is sent (`stream`, `logprobs`) is no part of
a request, so these fields are read as ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tallystick.answers.request import ModelRequest
from tallystick.answers.statement import ModelStatement
from tallystick.api.requests import client_request, require_answerable
from tallystick.commit.encoding import canonical_json
from tallystick.errors import TallystickError
from tallystick.serving.api_keys import ServingLimits
from tallystick.serving.asked import (
    CHAT,
    COMPLETIONS,
    AskedAnswers,
    Named,
    read_logprobs,
    read_messages,
    read_neutral,
    read_stream,
)
from tallystick.serving.fields import ApiError, Fields, invalid

OWN = "tallystick"
_FILE = f"{OWN}.request"


def read_own(fields: Fields, model: Named, limits: ServingLimits, route: str) -> AskedAnswers:
    """What the file in the field `tallystick` asks for. Raises ApiError."""
    given = Fields(fields.of(OWN, dict, {}))
    request = _request(given.raw("request"), model.statement)
    given.end()
    _within(request, limits)
    if (CHAT if request.messages is not None else COMPLETIONS) != route:
        other, what = ("/v1/completions", "a text or tokens") if route == CHAT else (
            "/v1/chat/completions", "messages"
        )  # fmt: skip
        raise _refused(f"it is of {what}: send it to {other}", "wrong_route")
    read_neutral(fields, route)
    logprobs = read_logprobs(fields, route)
    stream, usage = read_stream(fields)
    _agree(fields, request)
    fields.end()
    return AskedAnswers(route, (request,), stream, usage, logprobs)


def _request(given: Any, statement: ModelStatement) -> ModelRequest:
    """The request in a file, given as its JSON or as its text. Raises ApiError."""
    if not isinstance(given, (dict, str)):
        raise invalid(_FILE, "it must be the file of `tallystick request`: its JSON, or its text")
    try:
        data = given.encode("utf-8") if isinstance(given, str) else canonical_json(given)
        request = client_request(ModelRequest.from_bytes(data), {})
        if request.model != statement.digest:
            why = f"it is to the model {request.model.hex()}, and this one is"
            raise _refused(f"{why} {statement.digest.hex()}", "wrong_model")
        require_answerable(statement, request)
    except TallystickError as error:
        raise _refused(str(error)) from None
    except (TypeError, ValueError, RecursionError):  # of what is not JSON of ours
        raise _refused("it is not canonical JSON") from None
    return request


def _within(request: ModelRequest, limits: ServingLimits) -> None:
    """Raise ApiError for more than this server gives: a request is answered whole."""
    for what, asked, most in (
        ("max_tokens", request.settings.max_tokens, limits.answer_tokens),
        ("choices", request.choices, limits.choices),
    ):
        if asked > most:
            raise _refused(f"it asks for {asked} {what}, and this server gives {most} at most")


def _agree(fields: Fields, request: ModelRequest) -> None:
    """Read the fields that say again what the request says. Raises ApiError, with the name of each
    that says something else."""
    other = []
    for name, said in _says(request).items():
        if (value := fields.raw(name)) is None or _same(value, said):
            continue
        if name == "messages" and said is not None and _same(list(read_messages(value)), said):
            continue  # as a client's own library writes them
        if name in ("stop", "prompt") and _same([value], said):
            continue
        if name == "prompt" and _same(value, [said]):
            continue
        other.append(name)
    if other:
        raise ApiError(
            400,
            f"{', '.join(other)}: the request in `{_FILE}` says something else. Leave these fields "
            "out, or make another request.",
            param=other[0],
            code="contradicts_request",
        )


def _says(request: ModelRequest) -> Mapping[str, Any]:
    """The request by the interface's names; None for what it does not say."""
    s = request.settings
    prompt = request.text if request.tokens is None else list(request.tokens)
    return {
        "messages": None if request.messages is None else [dict(m) for m in request.messages],
        "prompt": prompt,
        "max_tokens": s.max_tokens,
        "max_completion_tokens": s.max_tokens,
        "temperature": s.temperature,
        "top_p": s.top_p,
        "presence_penalty": s.presence,
        "frequency_penalty": s.frequency,
        "logit_bias": {str(token): value for token, value in s.bias},
        "top_k": s.top_k,
        "min_p": s.min_p,
        "repetition_penalty": s.repetition,
        "stop_tokens": list(s.stop),
        "stop": list(request.stop_strings),
        "n": request.choices,
        "seed": s.seed if request.nonce is None else None,
        "nonce": None if request.nonce is None else request.nonce.hex(),
        "secret": request.secret.hex(),
        "seed_by": "client",
        "date": request.date,
    }


def _same(given: Any, said: Any) -> bool:
    """Whether two values of JSON say the same: 1 is 1.0, and true is neither."""
    if isinstance(given, bool) or isinstance(said, bool):
        return given is said
    if isinstance(given, dict) and isinstance(said, dict):
        return given.keys() == said.keys() and all(_same(given[k], said[k]) for k in given)
    if isinstance(given, list) and isinstance(said, list):
        return len(given) == len(said) and all(map(_same, given, said))
    return bool(given == said)


def _refused(why: str, code: str = "invalid_request_file") -> ApiError:
    return ApiError(400, f"{_FILE}: {why}", param=_FILE, code=code)
