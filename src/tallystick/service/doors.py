"""What strangers may cost one server: its bounds, what each peer has spent, and its places.

The bounds are no part of the protocol: a server may have tighter ones, and a client asks again
later. Shares of a peer are smaller than those of all, so that a few peers can never use up the
server.

Theory of operation. A server has places: connections, requests under way, room for bodies. Whatever
waits for its peer stands in a line: a connection without a whole head, a handshake, a request whose
body has not come or whose response is not read. It costs the peer nothing to let the server wait,
so it may not keep others out: where the server is full, the line gives way, first of the peer that
has the most there. What waits for this server ends by itself. A peer that has shown a turn of a
believed referee is *known*. It goes after strangers, and a few of its connections and requests
never make room for others'.
"""

from __future__ import annotations

import ipaddress
from collections import Counter, OrderedDict
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

MIB = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """Upper bounds, all inclusive. Times are seconds, sizes bytes."""

    connections: int = 512
    peer_connections: int = 160
    requests: int = 256  # at one time
    peer_requests: int = 128
    # A peer that has shown a turn of a believed referee is known. So many are remembered, and so
    # many connections and requests of each make no room for others'.
    known_peers: int = 32
    known_connections: int = 4
    # A peer has an account. It gains `rate` a second, up to `burst`. A connection and a request
    # cost 1 each. A bad request costs more, because the server's work for it serves no session:
    # `bad_cost`, and 1 for every `bad_bytes` of its body. So does a connection that ends without
    # a whole head.
    rate: float = 500.0
    burst: float = 1000.0
    bad_cost: float = 20.0
    bad_bytes: int = 32 << 10
    peers: int = 4096  # of which the account is known
    head_bytes: int = 16 << 10
    body_bytes: int = 9 * MIB  # PROTOCOL 13.2
    bodies_bytes: int = 96 * MIB  # of all requests that are being read
    peer_bodies_bytes: int = 48 * MIB
    handshakes: int = 128  # TLS connections that are not established yet
    handshake_seconds: float = 10.0
    head_seconds: float = 3.0  # a head is one packet
    # A request that has waited for its peer for so long makes room for any other.
    slow_seconds: float = 5.0
    body_seconds: float = 60.0
    whole_seconds: float = 180.0  # from a request's head to the last byte of its response
    idle_seconds: int = 30  # between two requests of a connection
    closing_seconds: float = 10.0  # for the last bytes of a response, once the connection ends
    # How long a request waits for an answer that is being made, before it gets `working`.
    patience_seconds: float = 2.0


BOUNDS = Bounds()


# The least that a site is given. Its holder has every address of it.
_PREFIX = 64


def peer_of(address: str) -> str:
    """The peer at `address`: an IPv4 address itself, of an IPv6 address its /64 prefix.

    An IPv4 address written as an IPv6 one is the IPv4 address. What is no address is a peer by its
    name.
    """
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found), _PREFIX), strict=False))


class Rates:
    """An account for each peer. Peers that were quiet longest are forgotten first."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, peer: str, now: float) -> bool:
        """Whether `peer` may make one request more at `now`, in seconds of any clock."""
        tokens, then = self._left.pop(peer, (self._bounds.burst, now))
        tokens = min(self._bounds.burst, tokens + (now - then) * self._bounds.rate)
        allowed = tokens >= 1
        self._left[peer] = (tokens - 1 if allowed else tokens, now)
        if len(self._left) > self._bounds.peers:
            self._left.popitem(last=False)
        return allowed

    def bad(self, peer: str, size: int = 0) -> None:
        """Charge `peer` for a bad request with a body of `size` bytes. It may owe one burst."""
        if peer in self._left:
            tokens, then = self._left[peer]
            cost = self._bounds.bad_cost + size / self._bounds.bad_bytes
            self._left[peer] = max(tokens - cost, -self._bounds.burst), then


class Waiting(Protocol):
    """Something of a peer that stands in a line since a moment, in seconds of the loop's clock."""

    peer: str
    since: float


W = TypeVar("W", bound=Waiting)


class Line(Generic[W]):
    """Things of many peers, each peer's in the order in which they came."""

    def __init__(self) -> None:
        self._peers: dict[str, dict[W, None]] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __contains__(self, one: W) -> bool:
        return one in self._peers.get(one.peer, ())

    def join(self, one: W, now: float) -> None:
        """Put `one` at the end, at the moment `now`."""
        self.leave(one)
        one.since = now
        self._peers.setdefault(one.peer, {})[one] = None
        self._length += 1

    def leave(self, one: W) -> None:
        """Take `one` out, if it is there."""
        if one in self:
            del self._peers[one.peer][one]
            self._length -= 1
            if not self._peers[one.peer]:
                del self._peers[one.peer]

    def count(self, peer: str) -> int:
        """How many of `peer` are there."""
        return len(self._peers.get(peer, ()))

    def oldest(self, peer: str) -> W | None:
        """The one of `peer` that has been there longest."""
        return next(iter(self._peers.get(peer, ())), None)

    def first(
        self, may: Callable[[W], bool], later: Container[str], weights: Counter[str] | None = None
    ) -> W | None:
        """The one to go first, of the oldest of each peer that `may` go.

        Peers in `later` come after all others. Then the peer of the most weight goes first, which
        is the number that it has here where no `weights` are given, then the oldest.
        """
        best: W | None = None
        least: tuple[bool, int] = (True, 1)
        for peer, mine in self._peers.items():
            rank = peer in later, -(len(mine) if weights is None else weights[peer])
            if rank > least:
                continue
            one = next(iter(mine))
            if (best is None or rank < least or one.since < best.since) and may(one):
                best, least = one, rank
        return best


@dataclass(eq=False)
class DoorConnection:
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

    place: DoorConnection
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
        self._headless: Line[DoorConnection] = Line()
        self._handshakes: Line[DoorConnection] = Line()
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
    ) -> DoorConnection | None:
        """A place for a new connection of `peer`; None if there is none, or the peer owes."""
        if not self.rates.take(peer, now):
            return None
        place = DoorConnection(peer, cut)
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

    def secured(self, place: DoorConnection) -> None:
        """The handshake of `place` is over."""
        self._handshakes.leave(place)

    def shakes_hands(self, place: DoorConnection) -> bool:
        """Whether the handshake of `place` is under way."""
        return place in self._handshakes

    def heard(self, place: DoorConnection) -> None:
        """A whole head has come."""
        place.shown = True
        self._headless.leave(place)

    def wait(self, place: DoorConnection, now: float) -> None:
        """The connection has no request under way now."""
        if not place.gone:
            self._headless.join(place, now)

    def leave(self, place: DoorConnection) -> None:
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

    def _first_of(self, line: Line[DoorConnection]) -> DoorConnection | None:
        return line.first(lambda place: not self._keeps(place.peer), self._known)

    def _keeps(self, peer: str) -> bool:
        """Whether no connection of `peer` makes room for others'."""
        return self.knows(peer) and self._peer_open[peer] <= self.bounds.known_connections

    def _cut(self, place: DoorConnection | None) -> None:
        if place is not None:
            self.leave(place)
            place.cut()

    # -- requests ----------------------------------------------------------------------------------

    def begin(self, place: DoorConnection, now: float) -> Request | None:
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
