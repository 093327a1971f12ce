"""Vectors of environments with gymnasium's interface, for PPO: rewards and flags are numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class Chase:
    """A point follows a moving goal in the plane, in float64, with nothing but sums and products.

    Each of `count` environments begins anew after 20 steps.
    """

    observation_size, action_size = 4, 2

    def __init__(self, count: int) -> None:
        self.count = count

    def reset(self, seed: int) -> tuple[Array, dict[str, Any]]:
        self.random = np.random.default_rng(seed)
        self.ages = np.arange(self.count) % 20
        self.points = self.random.random((self.count, 2)) - 0.5
        self.goals = self.random.random((self.count, 2)) - 0.5
        return self._seen(), {}

    def _seen(self) -> Array:
        return np.concatenate([self.points, self.goals], 1)

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        moves = np.clip(actions.astype(np.float64), -1.0, 1.0)
        self.points = self.points + 0.1 * moves
        self.goals = self.goals + 0.02 * (self.random.random((self.count, 2)) - 0.5)
        rewards = -((self.points - self.goals) ** 2).sum(1)
        self.ages = self.ages + 1
        ended = self.ages >= 20
        self.points[ended], self.ages[ended] = 0.0, 0
        return self._seen(), rewards, ended, np.zeros_like(ended), {}


def cart_poles(count: int) -> Any:
    """CartPole of gymnasium."""
    import gymnasium

    return gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * count)
