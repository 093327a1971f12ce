"""The application of a model server: its routes, and who may use them.

The chat page is static files, under a policy that lets them talk to this server only.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tallystick.answers.statement import ProgramName
from tallystick.errors import TallystickError, UsageError
from tallystick.service.guard import App, Guard, believed
from tallystick.serving.answer_reply import AnswerReply, ReplyOutcome
from tallystick.serving.api_keys import Accounts, ApiKey, KeyRing, ServingLimits, bounds_of
from tallystick.serving.asked import (
    CHAT,
    COMPLETIONS,
    AskedAnswers,
    Named,
    read_chat,
    read_completions,
)
from tallystick.serving.cancelling import BODY_BYTES, Cancelling
from tallystick.serving.embeddings import embed, embeddings_members, read_embeddings
from tallystick.serving.fields import (
    SERVER,
    ApiError,
    Fields,
    no_room,
    of_error,
    of_guard,
    parse_body,
)
from tallystick.serving.keeping import AnswerKeeper
from tallystick.serving.metrics import Metrics
from tallystick.serving.models import Served, ServedEncoder, ServedModel, find_model
from tallystick.serving.own_request import OWN, read_own
from tallystick.serving.replies import kept_members

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
_FILES = {
    "/": ("index.html", "text/html"),
    "/chat.css": ("chat.css", "text/css"),
    "/chat.js": ("chat.js", "text/javascript"),
    "/receipt.js": ("receipt.js", "text/javascript"),
}


def page_routes() -> list[Route]:
    """The routes of the page. Nothing in it is secret: they ask for no key."""
    return [Route(path, _serving(*found), methods=["GET"]) for path, found in _FILES.items()]


def _serving(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    data = (files("tallystick.serving") / "page" / name).read_bytes()

    async def serve(_: Request) -> Response:
        return Response(data, headers=_HEADERS, media_type=kind)

    return serve


Log = Callable[[Mapping[str, Any]], None]
Read = Callable[[Fields, Named, ServingLimits], AskedAnswers]
_WORKERS = 4
T = TypeVar("T")
# Without keys everyone on this machine is this one.
_NOBODY = ApiKey("local", b"", 0, operator=True)
_LOCAL = ("localhost", "127.0.0.1", "[::1]")


@dataclass
class ModelServer:
    """What the routes share. `keys` is None where none are asked for: on loopback only.

    It calls `tell` with faults of this machine, `log` with what it has done, without texts.
    """

    models: list[Served]
    keeper: AnswerKeeper
    keys: KeyRing | None
    limits: ServingLimits
    tell: Callable[[BaseException], None]
    log: Log
    metrics: Metrics = field(default_factory=Metrics)
    cancelling: Cancelling = field(default_factory=Cancelling)
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(_WORKERS, "tallystick-texts")
    )

    def __post_init__(self) -> None:
        self._accounts = Accounts(self.limits.key_tokens_minute)

    def app(self) -> Guard:
        """The ASGI application, within its bounds."""
        get = [
            ("/health", self._health),
            ("/ready", self._ready),
            ("/metrics", self._metrics),
            ("/v1/models", self._models),
            ("/v1/models/{model}", self._model),
            ("/v1/models/{model}/statement", self._statement),
            ("/v1/models/{model}/template", self._template),
            ("/v1/models/{model}/files/{name}", self._file),
            ("/v1/models/{model}/programs/{name}", self._program),
            ("/v1/receipts/{id}", self._receipt),
        ]
        post = [
            ("/v1/chat/completions", self._chat),
            ("/v1/completions", self._completions),
            ("/v1/embeddings", self._embeddings),
            ("/v1/cancellations", self._cancel),
        ]
        routes = [*page_routes()]
        routes += [Route(path, _guarded(do), methods=["GET"]) for path, do in get]
        routes += [Route(path, _guarded(do), methods=["POST"]) for path, do in post]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _of_route, 500: _fault})
        app.router.redirect_slashes = False
        return Guard(self._logged(app), bounds_of(self.limits), self.tell, of_guard)

    # -- who asks ----------------------------------------------------------------------------------

    def _owner(self, request: Request) -> ApiKey:
        """The key of a request. Raises ApiError."""
        if self.keys is None:
            host = request.headers.get("host", "").lower()
            name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
            if name not in _LOCAL:  # a page elsewhere, whose name leads here
                raise ApiError(403, "Without keys this server answers to localhost only.")
            return _NOBODY
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        key = self.keys.find(text) if scheme.lower() == "bearer" and text else None
        if key is None:
            raise ApiError(401, "Give an API key of this server.", code="invalid_api_key")
        believed(request.scope)
        request.scope["state"]["key"] = key.name
        return key

    # -- answers -----------------------------------------------------------------------------------

    async def _chat(self, request: Request) -> App:
        return await self._answers(request, read_chat)

    async def _completions(self, request: Request) -> App:
        return await self._answers(request, read_completions)

    async def _answers(self, request: Request, read: Read) -> App:
        owner, body = self._owner(request).name, await _json(request)
        self._accounts.check(owner, time.monotonic())
        if await self._work(self.keeper.full) is not None:
            raise no_room()
        fields = Fields(body)
        model = find_model(self.models, fields.raw("model"))
        if not isinstance(model, ServedModel):
            raise _other_kind(f"{model.name} gives embeddings, no answers")
        if OWN in fields:  # a file, which takes its time
            about = model.named, self.limits, CHAT if read is read_chat else COMPLETIONS
            asked = await self._work(lambda: read_own(fields, *about))
        else:
            asked = read(fields, model.named, self.limits)
        id_ = f"{'chatcmpl' if read is read_chat else 'cmpl'}-{secrets.token_hex(12)}"
        request.scope["state"]["request"] = id_
        route, began = request.url.path, time.monotonic()

        def done(outcome: ReplyOutcome) -> None:
            now = time.monotonic()
            self._accounts.pay(owner, outcome.prompt_tokens + outcome.answer_tokens, now)
            self._count(owner, model, outcome, now - began)
            request.scope["state"]["said"] = {
                "route": route,
                "model": model.name,
                "status": outcome.status,
                "why": outcome.why,
                "prompt_tokens": outcome.prompt_tokens,
                "answer_tokens": outcome.answer_tokens,
                "finishes": outcome.finishes,
                "first_token_seconds": _rounded(outcome.first),
            }

        return AnswerReply(
            id_, owner, model, asked, self.keeper, self.limits, self.workers, self.tell, done,
            self.cancelling,
        )  # fmt: skip

    async def _cancel(self, request: Request) -> Response:
        """A client's signed word that an answer ends (ANSWERS 6.6)."""
        owner = self._owner(request).name
        return JSONResponse(self.cancelling.cancel(owner, await _json(request, BODY_BYTES)))

    def _count(self, owner: str, model: Served, outcome: ReplyOutcome, seconds: float) -> None:
        add = self.metrics.add
        for finish in outcome.finishes:
            add("answers", owner, model=model.name, finish=finish)
        if outcome.why is not None:
            add("refused_answers", owner, model=model.name, why=outcome.why)
            return
        add("prompt_tokens", owner, outcome.prompt_tokens, model=model.name)
        add("answer_tokens", owner, outcome.answer_tokens, model=model.name)
        add("request_seconds", owner, seconds, model=model.name)
        if outcome.first is not None:
            add("first_token_seconds", owner, outcome.first, model=model.name)
            add("first_tokens", owner, model=model.name)

    async def _embeddings(self, request: Request) -> Response:
        owner, body = self._owner(request).name, await _json(request)
        self._accounts.check(owner, time.monotonic())
        if await self._work(self.keeper.full) is not None:
            raise no_room()
        fields = Fields(body)
        model = find_model(self.models, fields.raw("model"))
        if not isinstance(model, ServedEncoder):
            raise _other_kind(f"{model.name} gives answers, no embeddings: name an encoder")
        asked, began = read_embeddings(fields, model.statement, self.limits), time.monotonic()
        kept = await embed(asked, model.thread, owner, self.keeper, self.limits)
        found = embeddings_members(asked, kept, model.name, model.digest)
        tokens, now = found["usage"]["total_tokens"], time.monotonic()
        self._accounts.pay(owner, tokens, now)
        self._count(owner, model, ReplyOutcome(prompt_tokens=tokens), now - began)
        request.scope["state"]["said"] = {
            "route": request.url.path,
            "model": model.name,
            "status": 200,
            "prompt_tokens": tokens,
            "texts": len(kept),
        }
        data = await self._work(lambda: json.dumps(found))
        headers = {"tallystick-receipt": ",".join(one.id for one in kept[:64])}
        return Response(data, 200, headers, "application/json")

    async def _receipt(self, request: Request) -> Response:
        owner, id_ = self._owner(request).name, request.path_params["id"]
        files = await self._work(lambda: self.keeper.find(id_, owner))
        if files is None:
            raise ApiError(404, "This key has no such receipt.", code="receipt_not_found")
        return JSONResponse(kept_members(id_, files))

    # -- models ------------------------------------------------------------------------------------

    def _named(self, request: Request) -> Served:
        self._owner(request)
        return find_model(self.models, request.path_params["model"])

    async def _models(self, request: Request) -> Response:
        self._owner(request)
        return JSONResponse({"object": "list", "data": [m.members() for m in self.models]})

    async def _model(self, request: Request) -> Response:
        return JSONResponse(self._named(request).members())

    async def _statement(self, request: Request) -> Response:
        data = self._named(request).statement.to_bytes()
        return Response(data, media_type="application/json")

    async def _template(self, request: Request) -> Response:
        template = self._named(request).opened.model.chat_template
        if template is None:
            raise ApiError(404, "The model has no chat template.")
        return PlainTextResponse(template)

    async def _file(self, request: Request) -> Response:
        """A file of the tokenizer: its digest is in the statement."""
        files = self._named(request).opened.model.files
        data = files.get(request.path_params["name"])
        if data is None:
            raise ApiError(404, "The model has no such file.")
        return Response(data, media_type="application/octet-stream")

    async def _program(self, request: Request) -> Response:
        """The text of a program, by LENGTH-ANSWER-SET."""
        model = self._named(request)
        names = {f"{n.length}-{n.answer}-{n.set}": n for n in model.statement.programs}
        name: ProgramName | None = names.get(request.path_params["name"])
        if name is None:
            raise ApiError(404, "The model's statement has no such program.")
        return PlainTextResponse(model.opened.program(name).text())

    # -- the server itself -------------------------------------------------------------------------

    async def _health(self, _: Request) -> Response:
        alive = all(model.thread.alive for model in self.models)
        return JSONResponse({"status": "ok" if alive else "down"}, 200 if alive else 503)

    async def _ready(self, _: Request) -> Response:
        alive = all(model.thread.alive for model in self.models)
        ready = alive and await self._work(self.keeper.full) is None
        return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)

    async def _metrics(self, request: Request) -> Response:
        """A key's own counts; an operator's key reads those of all."""
        key = self._owner(request)
        gauges: list[tuple[str, str, Mapping[str, str], float]] = []
        if key.operator:
            for model in self.models:
                underway, waiting = model.thread.load
                label = {"model": model.name}
                gauges.append(("answers_underway", "Answers being computed.", label, underway))
                gauges.append(("answers_waiting", "Answers in the queue.", label, waiting))
        text = self.metrics.text(None if key.operator else key.name, gauges)
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def _work(self, make: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.workers, make)

    def _logged(self, app: App) -> App:
        """`app`, which tells the log of each request once it is over."""

        async def logged(scope: Any, receive: Any, send: Any) -> None:
            began, status = time.monotonic(), 0
            state = scope["state"]

            async def noting(message: Any) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, noting)
            finally:
                said = state.pop("said", {"route": _route(scope["path"]), "status": status})
                key = state.pop("key", None if self.keys else _NOBODY.name)
                if key is not None:
                    labels = {"route": said["route"], "status": str(said["status"])}
                    self.metrics.add("requests", key, **labels)
                seconds = _rounded(time.monotonic() - began)
                self.log({"id": state.pop("request", None), "key": key, **said, "seconds": seconds})

        return logged


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _guarded(do: Callable[[Request], Awaitable[App]]) -> Callable[[Request], Awaitable[Any]]:
    """`do`, whose refusals become responses."""

    async def guarded(request: Request) -> Any:
        try:
            return await do(request)
        except ApiError as error:
            return _refusal(error)
        except UsageError as error:  # others are this server's faults, of which the guard tells
            return _refusal(of_error(error))

    return guarded


def _other_kind(why: str) -> ApiError:
    return ApiError(400, f"{why}; see /v1/models.", param="model", code="model_not_supported")


def _refusal(error: ApiError) -> Response:
    headers = {} if error.retry_after is None else {"retry-after": str(error.retry_after)}
    return JSONResponse(error.members(), error.status, headers)


async def _of_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refusal(ApiError(error.status_code, str(error.detail), code="unknown_url"))


async def _fault(_: Request, error: Exception) -> Response:
    found = of_error(error) if isinstance(error, TallystickError) else None
    return _refusal(found or ApiError(500, "A fault of this server.", kind=SERVER))


async def _json(request: Request, most: int | None = None) -> dict[str, Any]:
    """The object in the body, of at most `most` bytes. A page of another site cannot send this type
    unasked."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ApiError(415, "The body must be application/json.")
    data = await request.body()
    if most is not None and len(data) > most:
        raise ApiError(413, f"This body has at most {most} bytes.")
    return parse_body(data)


_ROUTES = ("/", "/health", "/ready", "/metrics", "/v1/chat/completions", "/v1/completions",
           "/v1/embeddings", "/v1/cancellations")  # fmt: skip


def _route(path: str) -> str:
    """A path without what a client has written into it."""
    if path in _ROUTES:
        return path
    return next((p for p in ("/v1/models", "/v1/receipts") if path.startswith(p)), "other")


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 6)


def log_line(said: Mapping[str, Any]) -> str:
    """One line of the log: JSON."""
    moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"time": moment, "event": "request", **said}, separators=(",", ":"))
