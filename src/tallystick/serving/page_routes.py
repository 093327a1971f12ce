"""The chat page: static files, under a policy that lets them talk to this server only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

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
