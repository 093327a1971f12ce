"""The bounds of 10.7, against every choice of an adversary (PROTOCOL 10.5, 10.7)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache
from typing import Any

from tallystick.delegation.match import pairs_of

Counts = tuple[int, ...]  # the signers that are left, of each side in its order


def rounds_from(counts: Counts) -> Iterator[list[tuple[Counts, int]]]:
    """What a round can leave: (signers that are left, games). Any or both of a game may lose."""
    sides = [[i] * n for i, n in enumerate(counts) if n]
    pairs: list[tuple[Any, Any]] = pairs_of(sides)  # type: ignore[arg-type, assignment]
    if not pairs:
        return
    ends = []
    for losers in itertools.product(("0", "1", "01"), repeat=len(pairs)):
        left = list(counts)
        for pair, lost in zip(pairs, losers, strict=True):
            for seat in lost:
                left[pair[int(seat)]] -= 1
        ends.append((tuple(left), len(pairs)))
    yield ends


@cache
def most(counts: Counts) -> tuple[int, int]:
    """The most rounds, and the most games, that can follow."""
    rounds = games = 0
    for ends in rounds_from(counts):
        for left, played in ends:
            r, g = most(left)
            rounds, games = max(rounds, r + 1), max(games, g + played)
    return rounds, games


def compositions(k: int) -> Iterator[Counts]:
    for cuts in itertools.product((False, True), repeat=k - 1):
        sizes = [1]
        for cut in cuts:
            if cut:
                sizes.append(1)
            else:
                sizes[-1] += 1
        yield tuple(sizes)


def test_games_and_rounds_of_every_session() -> None:
    """10.7: k parties on m sides, whoever loses; the games' bound is reached."""
    for k in range(1, 9):
        found = {counts: most(counts) for counts in compositions(k)}
        for counts, (rounds, games) in found.items():
            m = len(counts)
            assert games <= k - 1
            assert rounds <= (k - m) + math.ceil(math.log2(m))
        assert max(games for _, games in found.values()) == k - 1


@cache
def honest_games(counts: Counts, side: int, before: int) -> tuple[int, int]:
    """(games of the honest party, rounds before it plays), at most.

    `before` other signers of its side stand before it and may lose. It loses to no one.
    """
    sides = [[i] * n for i, n in enumerate(counts) if n]
    pairs: list[tuple[Any, Any]] = pairs_of(sides)  # type: ignore[arg-type, assignment]
    best = (0, 0)
    if not pairs:
        return best
    for losers in itertools.product(("0", "1", "01"), repeat=len(pairs)):
        left, own, lost_before = list(counts), 0, before
        fits = True
        for pair, lost in zip(pairs, losers, strict=True):
            fits = fits and not (side in pair and before == 0 and str(pair.index(side)) in lost)
            for seat in lost:
                left[pair[int(seat)]] -= 1
                lost_before -= pair[int(seat)] == side
            own += side in pair
        if not fits:
            continue
        games, waited = honest_games(tuple(left), side, lost_before)
        plays = before == 0 and own
        games += own if before == 0 else 0
        best = max(best[0], games), max(best[1], 0 if plays else waited + 1)
    return best


def test_the_honest_partys_own_games() -> None:
    """10.7: with s parties on one false claim, and on s false claims."""
    for s in range(1, 7):
        for side in (0, 1):
            one = (1, s) if side == 0 else (s, 1)
            assert honest_games(one, side, 0)[0] == s
        alone = max(honest_games((1,) * (s + 1), side, 0)[0] for side in range(s + 1))
        assert alone == math.ceil(math.log2(s + 1))


def test_a_side_may_wait_while_others_play() -> None:
    """10.5, 10.7: s rounds are a bound for the honest party's first game only where two sides are
    left. The last of an odd number waits."""
    for s in (1, 2, 3):
        assert honest_games((1, s + 1), 1, s)[1] == honest_games((s + 1, 1), 0, s)[1] == s
        assert honest_games((3, 3, s + 1), 2, s)[1] > s
