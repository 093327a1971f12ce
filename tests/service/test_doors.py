"""Who gets a place where a server is full, without a network (docs/adr/0013-http.md)."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from dataclasses import replace
from typing import Any

import pytest

from tallystick.service.doors import BOUNDS, DoorConnection, Doors, Request, peer_of
from tallystick.service.guard import PLACE, Guard


class House:
    """Doors with small bounds, a clock that is set by hand, and the places that were cut."""

    def __init__(self, **bounds: float) -> None:
        small = {
            "connections": 4, "peer_connections": 3, "requests": 4, "peer_requests": 3,
            "handshakes": 2, "known_peers": 2, "known_connections": 1, "bodies_bytes": 100,
            "peer_bodies_bytes": 60,
        }  # fmt: skip
        self.doors = Doors(replace(BOUNDS, **{**small, **bounds}))  # type: ignore[arg-type]
        self.now = 0.0
        self.cut: list[str] = []

    def comes(self, peer: str, name: str = "", handshake: bool = False) -> DoorConnection | None:
        self.now += 0.001
        cut = lambda: self.cut.append(name or peer)  # noqa: E731
        return self.doors.admit(peer, self.now, cut, handshake)

    def place(self, peer: str, name: str = "") -> DoorConnection:
        found = self.comes(peer, name)
        assert found is not None
        return found

    def asks(self, peer: str, name: str = "", size: int = 0) -> Request | None:
        """A new connection of `peer` with a request whose body does not come."""
        request = self.begins(self.place(peer, name))
        if request is not None:
            if not self.doors.set_aside(request, size, self.now):
                self.doors.end(request)
                return None
            self.doors.theirs(request, self.now)
        return request

    def begins(self, place: DoorConnection) -> Request | None:
        self.doors.heard(place)
        return self.doors.begin(place, self.now)

    def know(self, peer: str) -> None:
        self.doors.welcome(peer)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.1", True),
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("2001:0db8:0000:0001::0001", "2001:db8:0:1::1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_what_counts_as_one_peer(one: str, other: str, same: bool) -> None:
    assert (peer_of(one) == peer_of(other)) is same


def test_what_is_no_address_is_a_peer_by_its_name() -> None:
    assert peer_of("") == "" and peer_of("no:address") == "no:address"


def test_the_oldest_without_a_head_goes_first() -> None:
    house = House()
    for name in "abcd":
        house.place(name)
    house.place("e")
    house.place("f")
    assert house.cut == ["a", "b"]


def test_a_connection_whose_head_is_whole_does_not_go() -> None:
    house = House()
    first = house.place("a")
    request = house.begins(first)
    for name in "bcde":
        house.place(name)
    assert request is not None and house.cut == ["b"]
    house.doors.end(request)
    house.doors.wait(first, house.now)  # answered, and silent now: the newest in the line
    for name in "fgh":
        house.place(name)
    assert house.cut == ["b", "c", "d", "e"]
    house.place("i")
    assert house.cut[-1] == "a"


def test_none_gets_in_where_all_are_being_answered() -> None:
    house = House()
    places = [house.place(name) for name in "abcd"]
    assert all(house.begins(place) for place in places)
    assert house.comes("e") is None and house.cut == []
    house.doors.leave(places[0])
    assert house.comes("e") is not None


def test_the_peer_with_the_most_goes_first() -> None:
    """An honest client with one connection outlasts a flood, however old it is."""
    house = House()
    house.place("honest")
    for _ in range(3):
        house.place("flood")
    for _ in range(50):
        house.comes("flood")
        house.comes("other flood")
    assert len(house.cut) > 50 and "honest" not in house.cut


def test_a_peer_makes_room_for_itself_in_its_share() -> None:
    house = House()
    for name in ("first", "second", "third", "fourth"):
        house.place("a", name)
    assert house.cut == ["first"]
    for _ in range(2):
        house.comes("b")
    assert house.cut == ["first", "second"]


def test_handshakes_make_room_for_one_another() -> None:
    house = House()
    first = house.comes("a", handshake=True)
    second = house.comes("b", handshake=True)
    assert first and second and house.doors.shakes_hands(second)
    house.doors.secured(second)
    assert not house.doors.shakes_hands(second)
    for name in "cd":
        assert house.comes(name, handshake=True)
    assert house.cut == ["a"] and not second.gone


def test_a_known_peer_keeps_a_place_and_no_more() -> None:
    house = House()
    house.know("referee")
    for name in ("kept", "second"):
        house.place("referee", name)
    house.place("a")
    house.place("b")
    house.place("c")  # strangers go before it
    assert house.cut == ["a"]
    request = [house.begins(house.place(name)) for name in "de"]
    assert all(request) and house.cut == ["a", "b", "c"]
    house.place("f")  # only the referee's are left in the line, and one of them it keeps
    assert house.cut[-1] == "kept"
    assert house.begins(house.place("g")) is not None
    assert house.cut[-1] == "f"
    assert house.comes("h") is None and "second" not in house.cut


def test_peers_that_were_quiet_longest_are_forgotten() -> None:
    house = House()
    for name in ("a", "b", "a", "c"):
        house.know(name)
    assert [house.doors.knows(name) for name in "abc"] == [True, False, True]


def test_a_connection_without_a_head_costs_as_a_bad_request() -> None:
    for shows in (False, True):
        house = House(rate=0.001, burst=50, bad_cost=20)
        came = 0
        while (place := house.comes("a")) is not None:
            came += 1
            if shows:
                request = house.begins(place)
                assert request is not None
                house.doors.end(request)
            house.doors.leave(place)
            house.doors.leave(place)  # once is enough
        assert came == (50 if shows else 3)


def test_requests_that_wait_for_their_peer_make_room() -> None:
    house = House(connections=40, requests=3)
    for n in range(3):
        assert house.asks("flood", f"flood {n}")
    assert house.asks("honest") and house.asks("other") and house.cut == ["flood 0", "flood 1"]
    assert house.asks("third") is None  # each of the three has one
    house.now += BOUNDS.slow_seconds
    assert house.asks("third") and house.cut == ["flood 0", "flood 1", "flood 2"]


def test_requests_that_wait_for_this_server_do_not_go() -> None:
    house = House(connections=40, requests=2)
    for _ in range(2):
        request = house.asks("flood")
        assert request is not None
        house.doors.ours(request)
    house.now += 100
    assert house.asks("honest") is None and house.cut == []
    house.know("referee")  # one more than the bound
    assert house.asks("referee", "first")
    assert house.asks("referee") is None
    house.doors.end(request)
    assert house.asks("honest") is None
    house.doors.theirs(request, house.now)  # over: it is in no line
    assert house.asks("honest") is None


def test_a_peers_own_requests_make_room_after_some_time() -> None:
    house = House(connections=40, peer_connections=20, requests=10, peer_requests=1)
    assert house.asks("a", "first") and house.asks("a") is None
    house.now += BOUNDS.slow_seconds
    assert house.asks("a") and house.cut == ["first"]


def test_room_for_bodies_goes_to_who_has_less() -> None:
    house = House(connections=40, requests=20, peer_requests=10)
    assert house.asks("a", "a", 60) and house.asks("b", "b", 40)
    assert house.asks("a", size=1) is None  # its own share
    assert house.asks("c", size=50) and house.cut == ["a"]
    assert house.asks("d", size=50) is None  # no one has more than that
    house.know("e")
    assert house.asks("e", size=60)
    assert house.cut == ["a", "c"]


def test_a_response_that_is_not_read_makes_room() -> None:
    async def app(_: object, __: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def both() -> list[int]:
        guard = Guard(app, replace(BOUNDS, requests=1, slow_seconds=0), lambda _: None)
        cut, found = asyncio.Event(), []

        async def unread(_: object) -> None:
            await cut.wait()

        async def read(event: Any) -> None:
            found.append(event["status"])

        def asked(peer: str) -> dict[str, Any]:
            place = guard.doors.admit(peer, 0.0, cut.set)
            return {"type": "http", "method": "GET", "headers": [], "state": {PLACE: place}}

        slow = asyncio.create_task(guard(asked("a"), receive, unread))
        await asyncio.sleep(0)
        await guard(asked("b"), receive, read)
        await asyncio.wait_for(slow, 5)
        return found

    assert asyncio.run(both()) == [200]


def test_nothing_is_counted_twice() -> None:
    """After all have left, however they did, the house is empty."""
    house = House(connections=100, peer_connections=50, requests=3, rate=1e9, burst=1e9)
    gone = []
    for n in range(60):
        house.now += 1
        request = house.asks(f"peer {n % 7}", size=n % 50)
        if request is not None:
            gone.append(request)
        if n % 5 == 0 and gone:
            house.doors.leave(gone[-1].place)
    for request in gone:
        house.doors.end(request)
        house.doors.leave(request.place)
    found = vars(house.doors)
    left = [found[name] for name in ("_running", "_held")]
    assert left == [0, 0] and not found["_peer_running"] and not found["_peer_held"]
    assert len(found["_slow"]) == 0
