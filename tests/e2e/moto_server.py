"""An S3-compatible server for tests: moto's, on a free port, with faults on demand.

`python tests/e2e/moto_server.py` starts one, prints what to export, and serves until Ctrl-C.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

BUCKET = "runs"


@dataclass
class Server:
    """The address, what was asked of it, and `fault`: called with the number of a request and its
    environment, it answers "" (none), "500", "503", "403" or "cut" (a body that ends too early)."""

    endpoint: str = ""
    requests: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    fault: Callable[[int, dict[str, Any]], str] = lambda number, environ: ""

    def environment(self) -> dict[str, str]:
        """What a process needs to use the server."""
        return {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
        }

    def client(self) -> Any:
        """A client of another library, boto3."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def objects(self, prefix: str) -> dict[str, int]:
        """Names and sizes of the objects below a prefix, as boto3 lists them."""
        pages = (
            self.client()
            .get_paginator("list_objects_v2")
            .paginate(Bucket=BUCKET, Prefix=prefix + "/")
        )
        return {
            item["Key"].removeprefix(prefix + "/"): item["Size"]
            for page in pages
            for item in page.get("Contents", ())
        }


_STATUS = {
    "500": "500 Internal Server Error",
    "503": "503 Slow Down",
    "403": "403 Forbidden",
}


@contextmanager
def serving() -> Iterator[Server]:
    """A server with an empty bucket, in threads of this process."""
    import logging

    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    found, lock = Server(), threading.Lock()
    real = DomainDispatcherApplication(create_backend_app)

    def app(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with lock:
            found.requests[environ["REQUEST_METHOD"]] += 1
            fault = found.fault(sum(found.requests.values()), environ)
            if fault:
                found.faults[fault] += 1
        if fault in _STATUS:
            length = int(environ.get("CONTENT_LENGTH") or 0)
            while length > 0:
                length -= len(environ["wsgi.input"].read(min(length, 1 << 20))) or length
            start(_STATUS[fault], [("Content-Type", "application/xml"), ("Connection", "close")])
            return [b"<Error><Code>SlowDown</Code><Message>asked for</Message></Error>"]
        answer = b"".join(real(environ, start))
        return [answer[: len(answer) // 2]] if fault == "cut" else [answer]

    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.endpoint = f"http://127.0.0.1:{server.server_port}"
    found.client().create_bucket(Bucket=BUCKET)
    found.requests.clear()
    try:
        yield found
    finally:
        server.shutdown()


if __name__ == "__main__":
    with serving() as running:
        for variable, value in running.environment().items():
            print(f"export {variable}={value}")
        print(f"# tallystick train JOB --out s3://{BUCKET}/NAME", flush=True)
        threading.Event().wait()
