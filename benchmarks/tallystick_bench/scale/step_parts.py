"""The parts of one distributed step's time, by stated formulas. Nothing overlaps: an upper bound.

Data parallel by gather-to-owner: each worker sends every owner of a share of the parameters its
partial sums of that share; the owner folds them in the job's order, updates, and sends the new
share to all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist, fmean

from tallystick_bench.scale.assumed import value
from tallystick_bench.scale.jobs import ScaleJob
from tallystick_bench.scale.split import most_subtrees
from tallystick_bench.scale.units import Measured

# A worker's report of a step to rank 0: the digest of what it sent, that of what it received, the
# loss of its share, step and rank, and a signature.
REPORT_BYTES = 32 + 32 + 4 + 16 + 64


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step of `job` with `workers` workers, part by part."""

    job: ScaleJob
    found: Measured
    workers: int

    @cached_property
    def micro_batch_s(self) -> float:
        """Seconds of one micro-batch on one worker: 6 N tokens / (GPUs x FLOP/s)."""
        shape = self.found.shapes[self.job.shape]
        flops = value("flops_a_token") * shape.parameters * shape.tokens * self.job.records
        return flops / (self.job.gpus * value("gpu_flops"))

    @property
    def compute_s(self) -> float:
        """The worker with most micro-batches: ceil(V/W) of them."""
        return math.ceil(self.job.micro_batches / self.workers) * self.micro_batch_s

    @property
    def ideal_s(self) -> float:
        """V/W micro-batches: no worker waits."""
        return self.job.micro_batches / self.workers * self.micro_batch_s

    @cached_property
    def partial_sums(self) -> int:
        """Partial sums that a worker sends of each gradient, at most."""
        return most_subtrees(self.job.micro_batches, self.workers)

    @property
    def _gradient(self) -> int:
        return self.found.shapes[self.job.shape].gradient_bytes

    @property
    def _elsewhere(self) -> float:
        return (self.workers - 1) / self.workers

    @property
    def sent_bytes(self) -> float:
        """Bytes that a worker sends in a step: partial sums to owners, its new share to all."""
        return (self.partial_sums + 1) * self._elsewhere * self._gradient

    @property
    def network_s(self) -> float:
        rate = self.job.gpus * value("nic_bytes_s") * value("network_share")
        return self.sent_bytes / rate

    @property
    def messages_s(self) -> float:
        """A message to each other worker, and one from each; twice."""
        return 2 * (self.workers - 1) * value("message_s")

    @property
    def fold_s(self) -> float:
        """The owner reads every worker's partial sums of its share: as many bytes for any W."""
        cores = self.job.gpus * value("cores_a_gpu")
        return self.partial_sums * self._gradient / (cores * self.found.units.fold_of_one)

    @property
    def hash_s(self) -> float:
        """Digests before each update: a worker hashes what it sends, and what it receives."""
        cores = self.job.gpus * value("cores_a_gpu")
        hashed = 2 * self.partial_sums * self._gradient
        return hashed / (cores * self.found.units.digest_of_one)

    @property
    def rank0_s(self) -> float:
        """Rank 0 verifies a signed report of each worker and appends one durable record."""
        return self.workers * self.found.units.verify_s + self.found.units.journal_s

    @property
    def rank0_bytes(self) -> int:
        """Bytes that rank 0 receives in a step."""
        return (self.workers - 1) * REPORT_BYTES

    @property
    def checkpoint_s(self) -> float:
        """Seconds to hash and store a state, each worker its share, beside the steps."""
        shape, units = self.found.shapes[self.job.shape], self.found.units
        cores = self.job.gpus * value("cores_a_gpu")
        hashing = shape.state_bytes / self.workers / (cores * units.digest_of_one)
        return hashing + shape.state_bytes / self.store_bytes_s

    @property
    def store_bytes_s(self) -> float:
        """The workers' own disks at the measured rate, or the shared store if that is less."""
        return min(self.workers * self.found.units.write_bytes_s, value("store_bytes_s"))

    @property
    def checkpoint_stall_s(self) -> float:
        """What a step waits, in the mean, since at most two states are in flight."""
        return max(0.0, self.checkpoint_s / self.interval - self._busy_s)

    @property
    def interval(self) -> int:
        """Steps between stored states."""
        return max(1, round(value("store_every_s") / self._busy_s))

    @property
    def load_s(self) -> float:
        """Seconds in which the workers load a state again: its share each, then all parameters."""
        state = self.found.shapes[self.job.shape].state_bytes
        rate = min(self.workers * self.found.units.read_bytes_s, value("store_bytes_s"))
        return state / rate + self.network_s

    @property
    def _busy_s(self) -> float:
        return self.compute_s + sum(self.fixed().values())

    def fixed(self) -> dict[str, float]:
        """Seconds by cause, of all that follows the micro-batches."""
        return {
            "network": self.network_s,
            "messages": self.messages_s,
            "fold": self.fold_s,
            "digests of gradients": self.hash_s,
            "rank 0": self.rank0_s,
        }

    @property
    def straggler_s(self) -> float:
        """What the slowest of W log-normal times adds in the mean: the step waits for it."""
        return self.compute_s * (mean_slowest(self.workers) - 1)

    @property
    def failures_s(self) -> float:
        """What failures cost a step in the mean: restarting, loading, half an interval done again
        and half a step cut off."""
        between = value("gpu_mtbf_s") / (self.workers * self.job.gpus)
        step = self._busy_s + self.straggler_s + self.checkpoint_stall_s
        lost = value("restart_s") + self.load_s + (0.5 * self.interval + 0.5) * step
        return step * lost / between

    def parts(self) -> dict[str, float]:
        """All parts of a step's time, compute first."""
        return {
            "compute": self.ideal_s,
            "uneven shares": self.compute_s - self.ideal_s,
            "stragglers": self.straggler_s,
            **self.fixed(),
            "checkpoints": self.checkpoint_stall_s,
            "failures": self.failures_s,
        }


def slowest(level: float, workers: int, sigma: float | None = None) -> float:
    """The quantile `level` of the slowest of `workers` log-normal factors of median 1.

    The largest of W has the distribution function F^W, so its quantile is F's at level^(1/W).
    """
    sigma = value("straggler_sigma") if sigma is None else sigma
    at = min(level ** (1 / workers), 1 - 1e-16)
    return math.exp(sigma * NormalDist().inv_cdf(at))


@lru_cache
def mean_slowest(workers: int) -> float:
    """The mean of that factor, over 256 quantiles."""
    return fmean(slowest((i + 0.5) / 256, workers) for i in range(256))
