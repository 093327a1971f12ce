"""Requests for the servers of a party and of a referee's log: of every kind, mostly wrong.

`OPENAPI` describes the service (docs/adr/0013-http.md) for schemathesis, whose requests cover
methods, paths, headers and bodies by that description. It cannot sign: a body of the description is
bytes, and nearly every one is refused at its signature. So `Requests` writes the others: turns,
changed and signed anew under the key that the party believes, and heads that no HTTP library sends.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from service.parties import REFEREE, Script

from tallystick.commit.signed import sign_compact
from tallystick.delegation.turns import TURN_TYPE, AskOpening, AskSeal, Ended, Play, turn_of
from tallystick.protocol.referee import Referee

_OCTETS = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_DONE = {"description": "done"}
OPENAPI: dict[str, Any] = {
    "openapi": "3.0.3",
    "info": {"title": "a party, and a referee's log", "version": "1"},
    "paths": {
        "/v1/turn": {
            "post": {
                "requestBody": {"required": True, "content": _OCTETS},
                "responses": {"200": _DONE, "4XX": _DONE},
            }
        },
        "/v1/party": {"get": {"responses": {"200": _DONE}}},
        "/v1/commitment": {"get": {"responses": {"200": _DONE, "4XX": _DONE}}},
        "/v1/logs/{query}": {
            "get": {
                "parameters": [
                    {"name": "query", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": _DONE, "4XX": _DONE},
            }
        },
        "/v1/log": {"get": {"responses": {"200": _DONE}}},
        "/v1/log/{index}": {
            "get": {
                "parameters": [
                    {"name": "index", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": _DONE, "4XX": _DONE},
            }
        },
        "/log/{room}/{name}": {
            "get": {
                "parameters": [
                    {"name": n, "in": "path", "required": True, "schema": {"type": "string"}}
                    for n in ("room", "name")
                ],
                "responses": {"200": _DONE, "4XX": _DONE},
            }
        },
    },
}

_METHODS = [
    b"GET",
    b"POST",
    b"PUT",
    b"HEAD",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"TRACE",
    b"get",
    b"X",
]
_PATHS = [
    b"/v1/turn", b"/v1/party", b"/v1/commitment", b"/v1/logs/", b"/v1/log/", b"/v1/log", b"/log/",
    b"/", b"*", b"/v1/turn/", b"/v1//turn", b"/v1/%74urn", b"/v1/turn?x=1", b"http://x/v1/turn",
]  # fmt: skip
_HEADERS = [
    b"content-type: application/json", b"content-encoding: gzip", b"expect: 100-continue",
    b"connection: close", b"upgrade: websocket\r\nconnection: upgrade", b"range: bytes=0-1",
    b"x: " + b"y" * 4000, b"transfer-encoding: chunked", b"content-length: 7", b"host: other",
    b"accept: nothing/*", b"cookie: a=b", b"authorization: Basic eDp5", b"te: trailers", b"x:\xff",
    b"if-none-match: *", b"forwarded: for=1.2.3.4", b"x-forwarded-for: ::1", b"no-colon", b": e",
]  # fmt: skip


@dataclass
class Requests:
    """Draws requests. `turns` are signed turns of one session with the party."""

    rng: random.Random
    turns: list[bytes]
    queries: list[bytes] = field(default_factory=list)

    def post(self, body: bytes, path: bytes = b"/v1/turn") -> bytes:
        """A well-formed POST."""
        return (
            b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path, len(body)) + body
        )

    def turn(self) -> bytes:
        """A body: a turn, changed before its signature or after it."""
        rng = self.rng
        message = rng.choice(self.turns)
        how = rng.random()
        if how < 0.1:
            return message
        if how < 0.35:
            return self._changed(message)
        if how < 0.6:
            return sign_compact(REFEREE, TURN_TYPE, self._changed(message[8:-64]))
        turn = turn_of(message[8:-64])
        return sign_compact(REFEREE, TURN_TYPE, replace(turn, **self._fields(turn)).to_bytes())

    def _fields(self, turn: Any) -> dict[str, Any]:
        """One field of a turn or of its request, with another value of its type."""
        rng, request = self.rng, turn.request
        if rng.random() < 0.1:
            return {"session": rng.randbytes(32)}
        if isinstance(request, (AskSeal, Ended)):
            return {"request": type(request)(self._changed(request.entry))}
        if isinstance(request, AskOpening):
            entries = list(request.entries)
            move = rng.randrange(4)
            if move == 0:
                rng.shuffle(entries)
            elif move == 1:
                entries = entries[: rng.randrange(len(entries) + 1)]
            elif move == 2:
                entries += rng.choices(entries, k=rng.randrange(1, 30))
            else:
                at = rng.randrange(len(entries))
                entries[at] = self._changed(entries[at])
            return {"request": AskOpening(tuple(entries))}
        assert isinstance(request, Play)
        messages, pair = list(request.messages), request.commitments
        if messages and rng.random() < 0.5:
            at = rng.randrange(len(messages))
            messages[at] = (rng.randrange(2), self._changed(messages[at][1]))
        changes: list[dict[str, Any]] = [
            {"query": self._changed(request.query)},
            {"query": rng.choice(self.queries or [b""])},
            {"query": b""},
            {"first": rng.choice([0, 1, len(messages), 1 << 40, (1 << 64) - 1])},
            {"game": rng.choice([0, 1, 5, (1 << 64) - 1])},
            {"party": 1 - request.party},
            {"messages": tuple(messages)},
            {"messages": tuple(messages * 3)[:64]},
            {"commitments": (pair[1], pair[0])},
            {"commitments": (pair[0], pair[0])},
            {"commitments": (self._changed(pair[0]), pair[1])},
        ]
        return {"request": replace(request, **rng.choice(changes))}

    def odd(self) -> bytes:
        """A request of any method, path, headers and body; now and then no HTTP at all."""
        rng = self.rng
        if rng.random() < 0.04:
            return rng.randbytes(rng.randrange(1, 400)) + b"\r\n\r\n"
        path = rng.choice(_PATHS)
        if path.endswith((b"/", b"logs/")):
            path += self._segment()
        body = rng.randbytes(rng.choice([0, 0, 1, 40, 3000])) if rng.random() < 0.4 else b""
        head = [b"host: x"] * rng.choice([1, 1, 1, 1, 0, 2])
        if body or rng.random() < 0.3:
            length = len(body) if rng.random() < 0.9 else rng.choice([0, 1 << 40, -1])
            head.append(b"content-length: %d" % length)
        head += rng.choices(_HEADERS, k=rng.choice([0, 0, 1, 2, 5]))
        version = rng.choice([b"HTTP/1.1"] * 9 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""])
        line = b" ".join([rng.choice(_METHODS[:2] * 6 + _METHODS), path, version])
        return b"\r\n".join([line, *head, b"", body])

    def _segment(self) -> bytes:
        rng = self.rng
        index = rng.randrange(30)
        return rng.choice(
            [
                b"%d" % index, b"0%d" % index, b"-1", b"9" * rng.choice([7, 8, 30, 4400, 9000]),
                b"%%31", b"%D9%A1", b"%00", b"..%2f..%2fetc", b"..", b"1/2", b"0/0000001.bin",
                b"000/%07d.bin" % index, b"%e2%82%ac", b"a" * rng.choice([1, 255, 300, 5000]),
                rng.choice(self.queries or [b"\0"]).hex().encode(),
                rng.randbytes(20).hex().encode(),
                b"+1", b"1e3", b"0x10", b"1_0", b"\xc2\xb2",
            ]
        )  # fmt: skip

    def _changed(self, data: bytes) -> bytes:
        rng, out = self.rng, bytearray(data)
        at = rng.randrange(len(out) + 1)
        move = rng.randrange(5)
        if move == 0 and out:
            out[at % len(out)] ^= 1 << rng.randrange(8)
        elif move == 1:
            del out[at:]
        elif move == 2:
            out[at:at] = rng.randbytes(rng.randint(1, 90))
        elif move == 3:
            out[at : at + 8] = rng.choice([0, 1, 1 << 40, (1 << 64) - 1]).to_bytes(8, "little")
        else:
            del out[at : at + rng.randint(1, 40)]
        return bytes(out)


def session_turns(script: Script, seal: Any, honest: Any, cheat: Any) -> list[bytes]:
    """Turns of a whole session and game. `seal` sends one to the party and gives its message."""
    begin = script.begin()
    turns = [begin, script.opening(seal(begin))]
    seal(turns[-1])
    pair = (honest.commitment, cheat.commitment)
    game = Referee(script.job.terms, pair, 4)
    while game.verdict is None:
        for seat, player in enumerate((honest, cheat)):
            if seat in game.pending:
                if seat == 0:
                    turns.append(script.play(game, 0, pair))
                    turns.append(script.play(game, 0, pair, first=len(game.transcript)))
                game.receive(seat, player.answer(game.pending[seat]))
    return turns
