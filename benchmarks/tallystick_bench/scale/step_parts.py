"""The parts of one distributed step's time, by stated formulas. Nothing overlaps: an upper bound.

Data parallel by gather-to-owner: each worker sends every owner its partial sums of the owner's
tensors; the owner folds them in the job's order, updates, and sends the new tensors to all
(run/distributed). As built an owner has whole tensors. Where the job says `cut`, owners have equal
shares, and each stores and loads its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist, fmean

from tallystick_bench.scale.assumed import value
from tallystick_bench.scale.jobs import ScaleJob
from tallystick_bench.scale.split import largest_share, most_subtrees
from tallystick_bench.scale.units import Measured, Shape

# Of one exchange: what a message carries at most.
BUNDLE_BYTES = 4 << 20
# Exchanges of one small message of every worker with every other one in a step, at most (ADR 20),
# and their bytes.
AGREEMENTS, AGREEMENT_BYTES = 5, 8
# A signed claim about one share: job digest, signature, message digest, and one for each fold.
CLAIM_BYTES, CLAIM_EACH = 32 + 64 + 32, 32


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step of `job` with `workers` workers, part by part.

    `checked`: shares are signed, so that some can be computed again.
    """

    job: ScaleJob
    found: Measured
    workers: int
    checked: bool = False

    @cached_property
    def micro_batch_s(self) -> float:
        """Seconds of one micro-batch on one worker: 6 N tokens / (GPUs x FLOP/s)."""
        shape = self._shape
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
    def _shape(self) -> Shape:
        return self.found.shapes[self.job.shape]

    @property
    def _gradient(self) -> int:
        return self._shape.gradient_bytes

    @cached_property
    def owned(self) -> float:
        """Bytes of the gradients that the largest owner folds."""
        if self.job.cut:
            return self._gradient / self.workers
        return largest_share(tuple(map(tuple, self._shape.tensors)), self.workers)

    @property
    def gathered_bytes(self) -> float:
        """Bytes that the largest owner receives: every other worker's partial sums."""
        return self.partial_sums * (self.workers - 1) * self.owned

    @property
    def spread_bytes(self) -> float:
        """Bytes that the largest owner sends: its new tensors, to every other worker."""
        return (self.workers - 1) * self.owned

    @property
    def sent_bytes(self) -> float:
        """Bytes that a worker sends in a step, in the mean: partial sums to owners, its new tensors
        to all. 2 (W - 1)/W of the parameters, and more with several partial sums."""
        return (self.partial_sums + 1) * (self.workers - 1) / self.workers * self._gradient

    @property
    def network_rate(self) -> float:
        """Bytes a second of a worker's network, each way."""
        return self.job.gpus * value("nic_bytes_s") * value("network_share")

    @property
    def network_s(self) -> float:
        """The largest owner receives, then sends; nobody has more to do."""
        return (self.gathered_bytes + self.spread_bytes) / self.network_rate

    @property
    def messages_s(self) -> float:
        """A message of at most 4 MiB after the other, from and to each other worker."""
        rounds = 2 * math.ceil(self.owned / BUNDLE_BYTES) + AGREEMENTS
        return rounds * (self.workers - 1) * value("message_s")

    @property
    def fold_s(self) -> float:
        """The largest owner reads every worker's partial sums."""
        read = self.partial_sums * self.workers * self.owned
        return read / (self.cores * self.found.units.fold_of_one)

    @property
    def cores(self) -> float:
        """Host cores of a worker."""
        return self.job.gpus * value("cores_a_gpu")

    @property
    def hash_rate(self) -> float:
        """Bytes a second that a worker hashes."""
        return self.cores * self.found.units.digest_of_one

    @property
    def hash_s(self) -> float:
        """Where shares are signed: a worker hashes its claim, the parameters that it read, and the
        sums that arrive."""
        if not self.checked:
            return 0.0
        own = self.partial_sums * self._gradient
        return (own + self._gradient + self.gathered_bytes) / self.hash_rate

    @property
    def checksum_s(self) -> float:
        """Checksums of messages: of what the largest owner sends, and of what it receives."""
        own = self.partial_sums * self._gradient
        carried = own + self.gathered_bytes + self.owned + self._gradient
        return carried / (self.cores * self.found.units.checksum_of_one)

    @property
    def claim_bytes(self) -> int:
        """Bytes of the claims of one worker, where shares are signed."""
        return self.partial_sums * (CLAIM_BYTES + CLAIM_EACH * self._shape.folds)

    @property
    def rank0_s(self) -> float:
        """Worker 0 verifies every claim, and appends one durable record."""
        claims = self.workers * self.partial_sums if self.checked else 0
        return claims * self.found.units.verify_s + self.found.units.journal_s

    @property
    def rank0_bytes(self) -> int:
        """Bytes that worker 0 receives in a step, without gradients and parameters."""
        each = AGREEMENTS * AGREEMENT_BYTES + (self.claim_bytes if self.checked else 0)
        return (self.workers - 1) * each

    @property
    def state_hash_s(self) -> float:
        """Seconds to hash a state, each owner its slots: 3 times the gradients' bytes."""
        return 3 * self.owned / self.hash_rate

    @property
    def checkpoint_s(self) -> float:
        """Seconds to hash and store a state, beside the steps."""
        if self.job.cut:
            return self.state_hash_s + self._shape.state_bytes / self.store_bytes_s
        fetched = self._shape.state_bytes / self.network_rate
        return (
            self.state_hash_s + fetched + self._shape.state_bytes / self.found.units.write_bytes_s
        )

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
        """Steps between stored states: the next one is stored when the last one is."""
        return max(1, math.ceil(max(value("store_every_s"), self.checkpoint_s) / self._busy_s))

    @property
    def load_s(self) -> float:
        """Seconds in which the workers have a state again. As built worker 0 reads it alone, and
        sends every other worker all parameters."""
        state = self._shape.state_bytes
        if self.job.cut:
            rate = min(self.workers * self.found.units.read_bytes_s, value("store_bytes_s"))
            return state / rate + self.spread_bytes / self.network_rate
        sent = (self.workers - 1) * self._gradient + state
        return state / self.found.units.read_bytes_s + sent / self.network_rate

    @property
    def _busy_s(self) -> float:
        return self.compute_s + sum(self.fixed().values())

    def fixed(self) -> dict[str, float]:
        """Seconds by cause, of all that follows the micro-batches."""
        return {
            "network": self.network_s,
            "messages": self.messages_s,
            "fold": self.fold_s,
            "checksums": self.checksum_s,
            "digests": self.hash_s,
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
