"""The places of one server: its connections, its requests under way and the room for bodies.

Theory of operation. Whatever waits for its peer stands in a line: a connection without a whole
head, a handshake, a request whose body has not come or whose response is not read. It costs the
peer nothing to let the server wait, so it may not keep others out: where the server is full, the
line gives way (`service.line`), first of the peer that has the most there. What waits for this
server ends by itself. A peer that has shown a turn of a believed referee is *known*. It goes after
strangers, and a few of its connections and requests never make room for others'.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from tallystick.service.bounds import Bounds
from tallystick.service.line import Line
from tallystick.service.rates import Rates


@dataclass(eq=False)
class Place:
    """A connection. `cut` ends it at once; `shown` says whether a whole head has ever come, and
    `believed` whether a turn of a believed referee has."""

    peer: str
    cut: Callable[[], None]
    since: float = 0.0
    shown: bool = False
    believed: bool = False
    gone: bool = False
    requests: set[Request] = field(default_factory=set)


@dataclass(eq=False)
class Request:
    """A request under way, and the bytes that are set aside for its body."""

    place: Place
    peer: str
    since: float = 0.0
    size: int = 0
    over: bool = False


class Doors:
    """Counts what peers hold, within `bounds`. `now` is in seconds of the loop's clock."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.rates = bounds, Rates(bounds)
        self._open = self._running = self._held = 0
        self._peer_open: Counter[str] = Counter()
        self._peer_running: Counter[str] = Counter()
        self._peer_held: Counter[str] = Counter()
        self._headless: Line[Place] = Line()
        self._handshakes: Line[Place] = Line()
        self._slow: Line[Request] = Line()  # requests that wait for their peer
        self._known: OrderedDict[str, None] = OrderedDict()

    # -- peers -------------------------------------------------------------------------------------

    def welcome(self, peer: str) -> None:
        """`peer` has shown a turn of a believed referee. Those quiet longest are forgotten."""
        self._known[peer] = None
        self._known.move_to_end(peer)
        if len(self._known) > self.bounds.known_peers:
            self._known.popitem(last=False)

    def knows(self, peer: str) -> bool:
        """Whether `peer` is known."""
        return peer in self._known

    # -- connections -------------------------------------------------------------------------------

    def admit(
        self, peer: str, now: float, cut: Callable[[], None], handshake: bool = False
    ) -> Place | None:
        """A place for a new connection of `peer`; None if there is none, or the peer owes."""
        if not self.rates.take(peer, now):
            return None
        place = Place(peer, cut)
        if self._peer_open[peer] >= self.bounds.peer_connections:
            self._cut(self._headless.oldest(peer))
        if self._open >= self.bounds.connections:
            self._cut(self._first_of(self._headless))
        if handshake and len(self._handshakes) >= self.bounds.handshakes:
            self._cut(self._first_of(self._handshakes))
        if (
            self._peer_open[peer] >= self.bounds.peer_connections
            or self._open >= self.bounds.connections
            or (handshake and len(self._handshakes) >= self.bounds.handshakes)
        ):
            _less(self._peer_open, peer, 0)
            return None
        self._open += 1
        self._peer_open[peer] += 1
        self._headless.join(place, now)
        if handshake:
            self._handshakes.join(place, now)
        return place

    def secured(self, place: Place) -> None:
        """The handshake of `place` is over."""
        self._handshakes.leave(place)

    def shakes_hands(self, place: Place) -> bool:
        """Whether the handshake of `place` is under way."""
        return place in self._handshakes

    def heard(self, place: Place) -> None:
        """A whole head has come."""
        place.shown = True
        self._headless.leave(place)

    def wait(self, place: Place, now: float) -> None:
        """The connection has no request under way now."""
        if not place.gone:
            self._headless.join(place, now)

    def leave(self, place: Place) -> None:
        """The connection is gone. One that never had a whole head costs as a bad request does."""
        if place.gone:
            return
        place.gone = True
        self._headless.leave(place)
        self._handshakes.leave(place)
        self._open -= 1
        _less(self._peer_open, place.peer, 1)
        if not place.shown:
            self.rates.bad(place.peer)
        for request in tuple(place.requests):
            if request in self._slow:
                self.end(request)

    def _first_of(self, line: Line[Place]) -> Place | None:
        return line.first(lambda place: not self._keeps(place.peer), self._known)

    def _keeps(self, peer: str) -> bool:
        """Whether no connection of `peer` makes room for others'."""
        return self.knows(peer) and self._peer_open[peer] <= self.bounds.known_connections

    def _cut(self, place: Place | None) -> None:
        if place is not None:
            self.leave(place)
            place.cut()

    # -- requests ----------------------------------------------------------------------------------

    def begin(self, place: Place, now: float) -> Request | None:
        """A request by a connection that was heard; None if there are too many."""
        peer, bounds = place.peer, self.bounds
        mine = self._peer_running[peer]
        if mine >= bounds.peer_requests and not self._give_way(self._slow.oldest(peer), now):
            return None
        if self._running >= bounds.requests:
            one = self._slow.first(
                lambda r: self._may(r, peer, now, self._slow.count(r.peer) > mine + 1), self._known
            )
            kept = self.knows(peer) and mine < bounds.known_connections
            if one is not None:
                self._cut(one.place)
            elif not kept:
                return None
        request = Request(place, peer)
        place.requests.add(request)
        self._running += 1
        self._peer_running[peer] += 1
        return request

    def set_aside(self, request: Request, size: int, now: float) -> bool:
        """Room for a body of `size` bytes; False if there is none."""
        peer, bounds = request.peer, self.bounds
        if self._peer_held[peer] + size > bounds.peer_bodies_bytes:
            return False
        after = self._peer_held[peer] + size
        while self._held + size > bounds.bodies_bytes:
            one = self._slow.first(
                lambda r: r.size > 0 and self._may(r, peer, now, self._peer_held[r.peer] > after),
                self._known, self._peer_held,
            )  # fmt: skip
            if one is None:
                return False
            self._cut(one.place)
        request.size = size
        self._held += size
        self._peer_held[peer] += size
        return True

    def theirs(self, request: Request, now: float) -> None:
        """From here on the request waits for its peer."""
        if not request.over and not request.place.gone:
            self._slow.join(request, now)

    def ours(self, request: Request) -> None:
        """From here on the request waits for this server."""
        self._slow.leave(request)

    def end(self, request: Request) -> None:
        """The request is over."""
        if request.over:
            return
        request.over = True
        request.place.requests.discard(request)
        self._slow.leave(request)
        self._running -= 1
        _less(self._peer_running, request.peer, 1)
        self._held -= request.size
        _less(self._peer_held, request.peer, request.size)

    def _give_way(self, request: Request | None, now: float) -> bool:
        """Cut a request that has waited for its peer too long to keep others out."""
        if request is None or now - request.since < self.bounds.slow_seconds:
            return False
        self._cut(request.place)
        return True

    def _may(self, request: Request, peer: str, now: float, more: bool) -> bool:
        """Whether `request` makes room for one of `peer`: strangers for the known, who has `more`
        for who has less, and after some time anyone."""
        if self._keeps(request.peer):
            return False
        if self.knows(peer) and not self.knows(request.peer):
            return True
        return more or now - request.since >= self.bounds.slow_seconds


def _less(count: Counter[str], peer: str, number: int) -> None:
    count[peer] -= number
    if count[peer] <= 0:
        del count[peer]
