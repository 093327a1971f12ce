"""Micro-batches computed again against workers that lie: share, cost, probability of being caught.

In each step every share (a worker's micro-batches, cut into subtrees of the fold) is drawn with
probability q, by a secret that no other worker knows before it has signed; another worker computes
the drawn ones again. All is per worker that lies, and needs a checker that does not lie for it:
`colluding` is the share of checkers that do.
"""

from __future__ import annotations

import math


def caught_in_a_step(q: float, false: int = 1, share: float = 1.0, colluding: float = 0.0) -> float:
    """The probability that a step catches a worker that falsifies, in a `share` of its steps,
    `false` shares."""
    return share * (1 - (1 - q * (1 - colluding)) ** false)


def caught_within(
    steps: int, q: float, false: int = 1, share: float = 1.0, colluding: float = 0.0
) -> float:
    """The probability of being caught within `steps` steps: 1 - (1 - p)^n."""
    return 1 - (1 - caught_in_a_step(q, false, share, colluding)) ** steps


def steps_to_catch(
    probability: float, q: float, false: int = 1, share: float = 1.0, colluding: float = 0.0
) -> int:
    """The least n for which `caught_within` is at least `probability`."""
    once = caught_in_a_step(q, false, share, colluding)
    return 1 if once >= 1 else math.ceil(math.log1p(-probability) / math.log1p(-once))


def false_steps_before(q: float, false: int = 1, colluding: float = 0.0) -> float:
    """The mean number of false steps that stand in the run when a liar is caught: 1/p - 1 for the
    probability p that a false step is caught, since that step ends before its update. It does not
    depend on the share of steps that are false."""
    return 1 / caught_in_a_step(q, false, 1.0, colluding) - 1


def missed_by_sample(segments: int, false: int, drawn: int) -> float:
    """The probability that an audit of `drawn` of `segments` segments meets none of the `false`
    ones: drawn without putting back."""
    if drawn > segments - false:
        return 0.0
    return math.exp(sum(math.log((segments - false - i) / (segments - i)) for i in range(drawn)))


def longer(q: float, workers: int) -> float:
    """A step's computation, over one without checks, where each worker has one share and those that
    are drawn are computed again before the update, each by one of the other workers: one more than
    the mean of the most that one of them gets."""
    # A checker gets Poisson(q) shares, about: the most of W is at least k with 1 - F(k-1)^W.
    mean, below, term = 0.0, 0.0, math.exp(-q)
    for k in range(1, 60):
        below += term
        mean += 1 - below**workers
        term *= q / k
    return 1 + mean
