"""A referee's log by static GETs, and no other file of its directory (PROTOCOL 12.6, 13.2.1)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from service.transports import until

from tallystick.disk.entry_log import EntryLogWriter
from tallystick.service.log_app import log_app
from tallystick.service.server import HttpServer, listening_socket

httpx2 = pytest.importorskip("httpx2")


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data + bytes(64)


def test_entries_are_shown_by_index_and_by_file(tmp_path: Path) -> None:
    shown = 2
    with EntryLogWriter(tmp_path / "out") as log:
        for number in range(3):
            log.append(framed(b"entry %d" % number))
        (tmp_path / "out" / "result.json").write_text("{}")
        app = log_app(log.read, lambda: shown, b"s" * 32)
        server = HttpServer(app, listening_socket("127.0.0.1:0"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
        thread.start()
        until(lambda: server.started)
        base = f"http://127.0.0.1:{server.port}"
        with httpx2.Client(trust_env=False) as client:
            head = client.get(f"{base}/v1/log").json()
            assert head == {"session": (b"s" * 32).hex(), "entries": 2}
            for number in range(2):
                entry = client.get(f"{base}/v1/log/{number}")
                assert entry.content == log.read(number)
                assert client.get(f"{base}/log/0000/000000{number}.bin").content == entry.content
            for path in (
                "/v1/log/2", "/log/0000/0000002.bin", "/v1/log/9999", "/v1/log/-1", "/v1/log/01",
                "/v1/log/x", "/v1/log/²", "/log/0000/1.bin", "/log/0001/0000001.bin",
                "/log/../lock", "/result.json", "/lock", "/log/0000/%2e%2e%2f%2e%2e%2flock",
            ):  # fmt: skip
                assert client.get(base + path).status_code == 404, path
            assert client.post(f"{base}/v1/log", content=b"x").status_code == 405
        server.stop()
        thread.join(10)
