"""Signed cancellations of answers that are under way (ANSWERS 6.6).

A cancellation counts from the time the server has the request until it signs the answer. Requests
under way are found by their digests. Requests that have ended are remembered for a while, so that a
client whose cancellation is late is told so.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.answers.cancellation import read_cancellation
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PublicKey
from tallystick.errors import SignatureInvalidError, TallystickError
from tallystick.limits import LIMITS
from tallystick.serving.engine_thread import ModelThread, WantedAnswer
from tallystick.serving.fields import ApiError

# A body may have blanks that the file has not.
BODY_BYTES = 4 * LIMITS.cancellation_bytes
_REMEMBERED = 4096  # requests that have ended
# An API key cancels what it has asked for, and nothing else.
_Name = tuple[str, bytes]


@dataclass(frozen=True)
class _Asked:
    """One sending of a request: its answers, which a thread computes."""

    wanted: Sequence[WantedAnswer]
    thread: ModelThread


@dataclass(frozen=True)
class _Ended:
    """What is still known of a request."""

    client: PublicKey | None
    choices: int


class Cancelling:
    """The requests that a server answers, by API key and request digest. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._underway: dict[_Name, list[_Asked]] = {}
        self._ended: OrderedDict[_Name, _Ended] = OrderedDict()

    def enter(self, wanted: Sequence[WantedAnswer], thread: ModelThread) -> None:
        """These answers can be cancelled from now on."""
        for name, asked in _by_request(wanted, thread).items():
            with self._lock:
                self._underway.setdefault(name, []).append(asked)

    def refused(self, wanted: Sequence[WantedAnswer], thread: ModelThread) -> None:
        """The thread has not taken these answers: they never were under way, so nothing is
        remembered of them."""
        for name, asked in _by_request(wanted, thread).items():
            with self._lock:
                self._take_out(name, asked)

    def leave(self, wanted: Sequence[WantedAnswer], thread: ModelThread) -> None:
        """These answers are signed, or nobody waits for them any more."""
        for name, asked in _by_request(wanted, thread).items():
            with self._lock:
                self._take_out(name, asked)
                request = asked.wanted[0].prepared.request
                self._ended[name] = _Ended(request.client, request.choices)
                self._ended.move_to_end(name)
                if len(self._ended) > _REMEMBERED:
                    self._ended.popitem(last=False)

    def _take_out(self, name: _Name, asked: _Asked) -> None:
        left = [one for one in self._underway.pop(name, []) if one != asked]
        if left:
            self._underway[name] = left

    def cancel(self, owner: str, body: dict[str, Any]) -> dict[str, Any]:
        """End an answer to a request of the API key `owner` where the cancellation in `body` says.
        What is told of that. Raises ApiError."""
        try:
            data = canonical_json(body)
            said = read_cancellation(data)
        except (TallystickError, TypeError, ValueError, RecursionError) as error:
            why = str(error) if isinstance(error, TallystickError) else "It is not canonical JSON."
            raise ApiError(400, why, code="invalid_cancellation") from None
        name = owner, said.request
        with self._lock:
            underway, ended = list(self._underway.get(name, ())), self._ended.get(name)
        if underway:
            request = underway[0].wanted[0].prepared.request
            ended = _Ended(request.client, request.choices)
        if ended is None:
            why = "This API key has sent no such request here, or it ended long ago."
            raise ApiError(404, why, code="request_not_found")
        _verify(data, ended.client)
        if said.choice >= ended.choices:
            why = f"The request asks for {ended.choices} answers: it has no choice {said.choice}."
            raise ApiError(400, why, code="invalid_cancellation")
        end = said.answer, data
        # The client's word is of the request, so it is of every sending of it that goes on.
        heard = [
            asked.thread.end_after(one, end)
            for asked in underway
            for one in asked.wanted
            if one.number == said.choice
        ]
        # Whoever waits for one of these answers hears of a success only if that answer ends.
        if not heard or not all(heard):
            why = "The answer has ended: it is signed, or nobody waits for it."
            if any(heard):
                why = "Of the answers to this request one is signed already. The others end there."
            raise ApiError(409, why, code="answer_ended")
        return {
            "object": "tallystick.cancellation",
            "request": said.request.hex(),
            "choice": said.choice,
            "answer": said.answer,
        }


def _verify(data: bytes, client: PublicKey | None) -> None:
    if client is None:
        why = "The request names no client, so nobody can cancel its answers."
        raise ApiError(400, why, code="no_client")
    try:
        read_cancellation(data, client)
    except SignatureInvalidError as error:
        raise ApiError(403, str(error), code="invalid_signature") from None


def _by_request(wanted: Sequence[WantedAnswer], thread: ModelThread) -> dict[_Name, _Asked]:
    found: dict[_Name, list[WantedAnswer]] = {}
    for one in wanted:
        found.setdefault((one.owner, one.prepared.request.digest), []).append(one)
    return {name: _Asked(tuple(ones), thread) for name, ones in found.items()}
