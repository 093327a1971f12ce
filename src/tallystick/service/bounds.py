"""The bounds of a server on what strangers may cost it.

They are no part of the protocol: a server may have tighter ones, and a client asks again later.
A *peer* is a network address, or a prefix of IPv6 (`service.peers`). Shares of a peer are smaller
than those of all, and what waits for its peer makes room for others (`service.doors`), so that a
few peers can never use up the server.
"""

from __future__ import annotations

from dataclasses import dataclass

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
