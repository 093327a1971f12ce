"""An S3 server that lies: it has one object, `run/a`, of 1000 bytes, and answers by `how`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SIZE = 1000
BODY = bytes(range(250)) * 4
_ITEM = (
    "<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
    "<ETag>&quot;e&quot;</ETag><Size>{size}</Size></Contents>"
)


class Lies(BaseHTTPRequestHandler):
    """`listing` gives the XML of a page by its number; `answer` the status, headers and pieces of
    a body."""

    protocol_version = "HTTP/1.1"
    listing: Callable[[int], str]
    answer: Callable[[], tuple[int, dict[str, str], Iterator[bytes]]]
    pages = 0
    sent = 0

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        kind = type(self)
        if "list-type" in self.path:
            kind.pages += 1
            page = kind.listing(kind.pages).encode()
            self._head(200, {"Content-Length": str(len(page))})
            self.wfile.write(page)
            return
        status, headers, pieces = kind.answer()
        self._head(status, headers)
        with suppress(OSError):
            for piece in pieces:
                self.wfile.write(piece)
                kind.sent += len(piece)
        self.close_connection = True

    do_HEAD = do_GET  # noqa: N815 - the name is the library's

    def _head(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        given = {"ETag": '"e"', "Last-Modified": "Fri, 02 Jan 2026 03:04:05 GMT", **headers}
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()


def page(key: str = "run/a", size: int = SIZE, more: bool = False, number: int = 0) -> str:
    """A page of a listing; without a key an empty one."""
    item = _ITEM.format(key=key, size=size) if key else ""
    token = f"<NextContinuationToken>t{number}</NextContinuationToken>" if more else ""
    truncated = str(more).lower()
    return f"<R>{item}<IsTruncated>{truncated}</IsTruncated>{token}</R>".replace(
        "R>", "ListBucketResult>"
    )


def part(
    body: bytes = BODY, status: int = 206, stated: str = f"bytes 0-999/{SIZE}", times: int = 1
) -> tuple[int, dict[str, str], Iterator[bytes]]:
    """An answer to a request for bytes 0 to 999."""
    headers = {"Content-Length": str(len(body) * times)}
    if status == 206:
        headers["Content-Range"] = stated
    return status, headers, (body for _ in range(times))


@contextmanager
def lying(
    listing: Callable[[int], str] = lambda number: page(),
    answer: Callable[[], tuple[int, dict[str, str], Iterator[bytes]]] = part,
) -> Iterator[tuple[dict[str, str], type[Lies]]]:
    """The environment of a client, and what the server has done."""
    kind = type("Here", (Lies,), {"listing": staticmethod(listing), "answer": staticmethod(answer)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield (
            {
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
                "AWS_ALLOW_HTTP": "true",
            },
            kind,
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
