"""Model servers in this process, and what tests ask them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from tallystick.api.answering import Answering
from tallystick.commit.signing import PrivateKey
from tallystick.service.server import HttpServer, listening_socket
from tallystick.serving.api_keys import KeyRing, ServingLimits
from tallystick.serving.app import ModelServer
from tallystick.serving.engine_thread import ModelThread
from tallystick.serving.keeping import AnswerKeeper, MemoryKeeper
from tallystick.serving.models import Served, ServedModel, open_served

KEY = PrivateKey.generate()
LIMITS = ServingLimits()


@dataclass
class Running:
    """A server that runs, what it has logged, and the faults it has told of."""

    url: str
    server: ModelServer
    logged: list[Mapping[str, Any]] = field(default_factory=list)
    faults: list[BaseException] = field(default_factory=list)

    @property
    def thread(self) -> ModelThread:
        thread = self.server.models[0].thread
        assert isinstance(thread, ModelThread)
        return thread

    def client(self, key: str | None = None) -> httpx2.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


@contextmanager
def running(
    model: Path | Answering,
    limits: ServingLimits = LIMITS,
    keys: Path | None = None,
    keeper: AnswerKeeper | None = None,
    threads: int | None = None,
) -> Iterator[Running]:
    """A server of one model on a free port of this machine."""
    kept = keeper or MemoryKeeper()
    found = Running("", None)  # type: ignore[arg-type]
    tell = found.faults.append
    if isinstance(model, Answering):
        served: Served = ServedModel("tiny", ModelThread(model, KEY, kept, limits, tell))
    else:
        served = open_served(model, None, KEY, kept, limits, tell, threads, 1 << 28, False)
    thread = served.thread
    thread.start()
    ring = None if keys is None else KeyRing(keys)
    server = ModelServer([served], kept, ring, limits, tell, found.logged.append)
    with listening_socket("127.0.0.1:0") as sock:
        http = HttpServer(server.app(), sock, grace=1)
        found.url, found.server = f"http://127.0.0.1:{http.port}", server
        loop = threading.Thread(target=http.run, daemon=True)
        loop.start()
        until(lambda: http.started)
        try:
            yield found
        finally:
            http.stop()
            loop.join()
            thread.close()


def until(holds: Any, seconds: float = 30) -> None:
    """Wait until `holds()`, and fail where that takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.01)


def chat(text: str = "abc", **more: Any) -> dict[str, Any]:
    """A request for a chat."""
    return {"model": "tiny", "messages": [{"role": "user", "content": text}], **more}
