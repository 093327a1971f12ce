"""A little of the matrix over HTTP and of the fuzzing of both servers (docs/proofs/sessions.md)."""

from __future__ import annotations

import pytest

pytest.importorskip("starlette", reason="the extra [service] is not installed")
pytest.importorskip("uvicorn", reason="the extra [service] is not installed")
pytest.importorskip("httpx2", reason="the extra [service] is not installed")

from adversary.fuzz_http import Wire, fuzz, log_server
from adversary.http_matrix import cells, play_over_http
from adversary.session_matrix import Cell, Small


@pytest.mark.parametrize("name", ("two-answers", "deeply-nested"))
def test_attacks_over_http(small: Small, name: str) -> None:
    """PROTOCOL P1, P2, P3: the honest party, real servers, the real driver."""
    ended = play_over_http(small, Cell(name, "", 2, 1))
    assert ended.session.result is not None


def test_every_attack_is_played_over_http() -> None:
    found = cells()
    assert len([cell for cell in found if cell.k == 5]) == 10
    assert len({cell.attack for cell in found if cell.k < 5}) == 14


def test_an_index_of_thousands_of_digits_is_no_entry() -> None:
    """PROTOCOL 12.6. Found by fuzz_http.py: Python refuses to read a number of 4,400 digits, and
    the server answered 500."""
    faults: list[BaseException] = []
    with log_server([b"entry"], faults) as port:
        wire = Wire(port)
        statuses = []
        for index in (b"0", b"00", b"1", b"9" * 4400, b"0" * 9000, b"-0", b"%D9%A0"):
            request = b"GET /v1/log/%s HTTP/1.1\r\nhost: x\r\n\r\n" % index
            statuses.append(wire.ask(request)[0])
            wire.close()
    assert statuses == [200, *[404] * 6] and not faults


def test_requests_of_every_kind() -> None:
    """A response of 2xx or 4xx to each, and the honest turns are answered as before."""
    found = fuzz(360, 0, 3)
    assert found["faults"] == 0
    assert {"200", "400", "401", "403", "404", "409"} <= set(found["statuses"])
