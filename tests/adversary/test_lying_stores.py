"""S3 servers that lie: every lie ends in a StoreError, in bounded time and memory (THREATS 4.6.1).

What is read stays as little trusted as any file: tests/unit/objects has lies about content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("obstore", reason="the package obstore is not installed (extra `objects`)")

from unit.objects.lying_server import BODY, SIZE, Lies, lying, page, part

from tallystick.cli import main
from tallystick.disk.objects import store
from tallystick.disk.objects.address import Address
from tallystick.disk.objects.store import Found, Objects
from tallystick.errors import StoreError

HERE = Found(SIZE, '"e"')


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., tuple[Objects, type[Lies]]]]:
    """A client of a server with these lies."""
    places = []

    def made(**lies: Any) -> tuple[Objects, type[Lies]]:
        place = lying(**lies)
        environment, kind = place.__enter__()
        places.append(place)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return Objects(Address("s3", "bucket", "run")), kind

    yield made
    for place in places:
        place.__exit__(None, None, None)


def test_an_honest_server(served: Any) -> None:
    objects, _ = served()
    assert objects.listing() == {"a": HERE}
    assert bytes(objects.read("a", 0, SIZE, HERE)) == BODY


@pytest.mark.parametrize(
    ("answer", "match"),
    [
        (lambda: part(stated=f"bytes 5000-5999/{SIZE}"), "Requested 0..1000, got 5000..6000"),
        (lambda: part(stated=f"bytes 0-499/{SIZE}"), "Requested 0..1000, got 0..500"),
        (lambda: part(stated=f"bytes 0-999/{1 << 63}"), "but the store lists 1000"),
        (lambda: part(stated="bytes 999-0/x"), "failed to read"),
        (lambda: part(status=200), "non-partial"),
        (lambda: part(BODY[:999]), "gave 999 bytes instead of 1000"),
        (lambda: part(BODY + b"x"), "gave more bytes than"),
    ],
)
def test_other_ranges_than_asked_for(served: Any, answer: Any, match: str) -> None:
    objects, _ = served(answer=answer)
    with pytest.raises(StoreError, match=match):
        objects.read("a", 0, SIZE, HERE)


def test_a_body_without_an_end_is_not_taken_whole(served: Any) -> None:
    """All of it came into memory first: 500 MB for an object of 1000 bytes."""
    block, times = bytes(1 << 20), 500
    objects, kind = served(answer=lambda: part(block, times=times))
    with pytest.raises(StoreError, match="gave more bytes than"):
        objects.read("a", 0, SIZE, HERE)
    assert kind.sent < len(block) * times / 4


def test_a_listing_without_an_end(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both went on for ever: pages without objects, and the same page again and again."""
    monkeypatch.setattr(store, "LISTING_SECONDS", 2.0)
    objects, kind = served(listing=lambda number: page("", more=True, number=number))
    with pytest.raises(StoreError, match=r"for 2\.0 seconds"):
        objects.listing()
    assert kind.pages > 1
    objects, kind = served(listing=lambda number: page(more=number < 1000, number=number))
    monkeypatch.setattr(store, "LISTING_SECONDS", 60.0)
    with pytest.raises(StoreError, match=r"lists s3://bucket/run/a twice"):
        objects.listing()


@pytest.mark.parametrize("key", ["run/../../etc/passwd", "run//a", "run/./a"])
def test_names_that_lead_elsewhere(served: Any, key: str) -> None:
    objects, _ = served(listing=lambda number: page(key))
    with pytest.raises(StoreError, match="failed to list"):
        objects.listing()


def test_no_lie_is_a_finding_about_the_run(
    served: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither exit code 1 nor a word of a mismatch."""
    monkeypatch.setattr(store, "LISTING_SECONDS", 2.0)
    for listing in (
        lambda number: page("", more=True, number=number),
        lambda number: page(size=1 << 63),
        lambda number: "<html>",
        lambda number: page("run/job/job.json"),
    ):
        served(listing=listing)
        for command in (["audit", "s3://bucket/run", "--json"], ["fsck", "s3://bucket/run"]):
            assert main.run(command) in (2, 3)  # 3: no run there
            said = capsys.readouterr()
            assert "MISMATCH" not in said.out + said.err
