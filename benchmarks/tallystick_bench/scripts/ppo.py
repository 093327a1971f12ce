"""PPO in one file, in the manner of cleanrl: discrete actions and continuous ones."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from tallystick_bench.scripts.environments import Chase, cart_poles

ENVIRONMENTS, STEPS, UPDATES, EPOCHS, MINIBATCH = 4, 32, 3, 2, 32
GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, MAX_NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
RATE = 2.5e-4


def layer_init(layer: nn.Linear, std: float = float(np.sqrt(2)), bias: float = 0.0) -> nn.Linear:
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias)
    return layer


def _net(inputs: int, outputs: int, std: float) -> nn.Sequential:
    return nn.Sequential(
        layer_init(nn.Linear(inputs, 64)), nn.Tanh(),
        layer_init(nn.Linear(64, 64)), nn.Tanh(),
        layer_init(nn.Linear(64, outputs), std=std),
    )  # fmt: skip


class Agent(nn.Module):
    """Actor and critic."""

    def __init__(self, inputs: int, actions: int, continuous: bool) -> None:
        super().__init__()
        self.critic = _net(inputs, 1, 1.0)
        self.actor = _net(inputs, actions, 0.01)
        self.logstd = nn.Parameter(torch.zeros(1, actions)) if continuous else None

    def act(self, seen: Tensor, action: Tensor | None = None) -> tuple[Tensor, ...]:
        """Action, its log-probability, entropy, value."""
        logits = self.actor(seen)
        if self.logstd is None:
            choices: Any = Categorical(logits=logits)
            action = choices.sample() if action is None else action
            return action, choices.log_prob(action), choices.entropy(), self.critic(seen)
        spread = torch.exp(self.logstd.expand_as(logits))
        moves: Any = Normal(logits, spread)
        action = moves.sample() if action is None else action
        likely, entropy = moves.log_prob(action).sum(1), moves.entropy().sum(1)
        return action, likely, entropy, self.critic(seen)


def _train(envs: Any, inputs: int, actions: int, continuous: bool) -> tuple[nn.Module, list[float]]:
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    agent = Agent(inputs, actions, continuous)
    optimizer = torch.optim.Adam(agent.parameters(), lr=RATE, eps=1e-5)
    shape = (STEPS, ENVIRONMENTS)
    seen = torch.zeros((*shape, inputs))
    taken = torch.zeros((*shape, actions) if continuous else shape)
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    first, _ = envs.reset(seed=1)
    next_seen, next_done = torch.Tensor(first), torch.zeros(ENVIRONMENTS)
    losses: list[float] = []
    for update in range(1, UPDATES + 1):
        optimizer.param_groups[0]["lr"] = (1.0 - (update - 1.0) / UPDATES) * RATE
        for step in range(STEPS):
            seen[step], dones[step] = next_seen, next_done
            with torch.no_grad():
                action, logprob, _, value = agent.act(next_seen)
                values[step] = value.flatten()
            taken[step], logprobs[step] = action, logprob
            found, reward, terminated, truncated, _ = envs.step(action.cpu().numpy())
            rewards[step] = torch.tensor(reward).view(-1)
            next_seen = torch.Tensor(found)
            next_done = torch.Tensor(np.logical_or(terminated, truncated))
        with torch.no_grad():
            next_value = agent.critic(next_seen).reshape(1, -1)
            advantages, last = torch.zeros_like(rewards), torch.zeros(1)
            for t in reversed(range(STEPS)):
                after = 1.0 - (next_done if t == STEPS - 1 else dones[t + 1])
                delta = rewards[t] + GAMMA * after * (
                    next_value if t == STEPS - 1 else values[t + 1]
                ) - values[t]  # fmt: skip
                advantages[t] = last = delta + GAMMA * GAE_LAMBDA * after * last
            returns = advantages + values
        flat = [x.reshape(-1, *x.shape[2:]) for x in (seen, taken, logprobs, advantages, returns)]
        old_values, order = values.reshape(-1), np.arange(STEPS * ENVIRONMENTS)
        for _ in range(EPOCHS):
            np.random.shuffle(order)
            for start in range(0, len(order), MINIBATCH):
                mb = order[start : start + MINIBATCH]
                b_seen, b_taken, b_logprobs, b_advantages, b_returns = (x[mb] for x in flat)
                b_taken = b_taken if continuous else b_taken.long()
                _, logprob, entropy, value = agent.act(b_seen, b_taken)
                ratio = (logprob - b_logprobs).exp()
                adv = (b_advantages - b_advantages.mean()) / (b_advantages.std() + 1e-8)
                bounded = torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
                policy = torch.max(-adv * ratio, -adv * bounded).mean()
                value, old = value.view(-1), old_values[mb]
                near = old + torch.clamp(value - old, -CLIP, CLIP)
                worse = torch.max((value - b_returns) ** 2, (near - b_returns) ** 2)
                loss = policy - ENTROPY * entropy.mean() + VALUE * 0.5 * worse.mean()
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(agent.parameters(), MAX_NORM)
                optimizer.step()
                losses.append(loss.item())
    return agent, losses


def discrete(workers: int) -> tuple[nn.Module, list[float]]:
    """CartPole; PPO has no loader, so `workers` is not read."""
    return _train(cart_poles(ENVIRONMENTS), 4, 2, continuous=False)


def continuous(workers: int) -> tuple[nn.Module, list[float]]:
    """An environment of our own."""
    return _train(Chase(ENVIRONMENTS), Chase.observation_size, Chase.action_size, continuous=True)
