"""A little of what adversary/fuzzing does at length (docs/proofs/fuzz.md, `make fuzz`).

Every decoder of a counterparty's bytes meets real messages, and the same with small changes. It
takes them or refuses them with a typed error, and what it takes has no second form.
"""

from __future__ import annotations

import random

import pytest
from adversary.fuzzing.targets import TARGETS, target, tried
from adversary.fuzzing.world import World, make_world

CHANGES = 60  # of each target's seeds
# Seeds of these carry no signature or digest of their own parts: some changes must be taken.
TAKEN = {"answer", "body", "evidence", "query"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Jobs, runs, games and their messages."""
    return make_world(tmp_path_factory.mktemp("fuzz") / "world")


def changed(seeds: list[bytes], rng: random.Random) -> bytes:
    """One of `seeds` with a bit, a length, a piece or an end changed."""
    data = bytearray(rng.choice(seeds))
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(data) + 1)
        move = rng.randrange(6)
        if move == 0 and data:
            data[at % len(data)] ^= 1 << rng.randrange(8)
        elif move == 1:
            data[at : at + 8] = rng.choice([0, 1, 1 << 31, (1 << 64) - 1]).to_bytes(8, "little")
        elif move == 2:
            del data[at:]
        elif move == 3:
            data[at:at] = rng.randbytes(rng.randint(1, 40))
        elif move == 4:
            other = rng.choice(seeds)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        else:
            del data[at : at + rng.randint(1, 33)]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_decoder(world: World, name: str) -> None:
    """COMMITMENTS 11.1, PROTOCOL 2.6, 2.7, 8.3: a value, or a typed error."""
    check = target(name, world)
    seeds = [path.read_bytes() for path in sorted(world.seeds(name).iterdir())]
    assert seeds
    rng = random.Random(name)
    took = [tried(name, check, seed) for seed in seeds]
    assert any(took), "no real message is taken"
    more = [tried(name, check, changed(seeds, rng)) for _ in range(CHANGES)]
    assert name not in TAKEN or any(more)
    assert not all(more) or name in ("merkle", "journal")
