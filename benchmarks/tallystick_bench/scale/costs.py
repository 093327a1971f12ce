"""What a run costs: each line a formula over measured unit costs, counts and assumptions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tallystick.limits import LIMITS
from tallystick.run.store.journal import journal_bytes
from tallystick_bench.scale.assumed import HOUR, value
from tallystick_bench.scale.checking import missed_by_sample
from tallystick_bench.scale.jobs import ScaleJob
from tallystick_bench.scale.split import mean_subtrees
from tallystick_bench.scale.step_parts import StepParts
from tallystick_bench.scale.units import Measured, Shape


@dataclass(frozen=True)
class Training:
    """A job on its workers, with what was measured."""

    job: ScaleJob
    found: Measured

    @property
    def shape(self) -> Shape:
        return self.found.shapes[self.job.shape]

    @property
    def parts(self) -> StepParts:
        return StepParts(self.job, self.found, self.job.workers)

    @property
    def tokens_a_step(self) -> int:
        return self.job.micro_batches * self.job.records * self.shape.tokens

    @property
    def steps(self) -> int:
        return math.ceil(value("tokens_a_parameter") * self.shape.parameters / self.tokens_a_step)

    @property
    def gpus(self) -> int:
        return self.job.workers * self.job.gpus

    @property
    def flops(self) -> float:
        tokens = self.steps * self.tokens_a_step
        return value("flops_a_token") * self.shape.parameters * tokens

    @property
    def gpu_hours(self) -> float:
        return self.flops / value("gpu_flops") / HOUR

    @property
    def step_s(self) -> float:
        return sum(self.parts.parts().values())

    @property
    def checkpoints(self) -> int:
        return math.ceil(self.steps / self.job.interval) + 1

    @property
    def worker_memory(self) -> float:
        """Parameters, the gradients of one micro-batch, a partial sum for each power of two below
        V/W, and the share of the moments. Activations come on top."""
        held = max(1, self.job.micro_batches // self.job.workers).bit_length() - 1
        moments = self.shape.state_bytes - self.shape.gradient_bytes
        return (2 + held) * self.shape.gradient_bytes + moments / self.job.workers

    @property
    def nodes(self) -> int:
        """Of the expanded step, about: the lower levels of folds are left out."""
        return self.job.micro_batches * self.shape.section_nodes + self.shape.tail_nodes

    @property
    def rounds(self) -> int:
        """Rounds of a dispute, at most (PROTOCOL 7.2); N = 20, d = 16, o = 8."""
        leaves = self.shape.largest_tensor_bytes * self.job.records // 2048
        return (
            10
            + 2 * _log(self.checkpoints, 20)
            + _log(self.job.interval, 20)
            + _log(self.nodes, 32)
            + _log(leaves, 32)
            + 4 * 16
            + 8
        )

    @property
    def logged_elements(self) -> float:
        return self.job.micro_batches * self.job.records * self.shape.product_elements

    @property
    def segment_s(self) -> float:
        """Seconds in which one machine repeats the steps between two kept states."""
        steps = self.steps / self.job.kept
        one = self.job.micro_batches * self.parts.micro_batch_s * self.found.units.audit_ratio
        return steps * one


def _log(count: float, base: int) -> int:
    return max(0, math.ceil(math.log(count, base) - 1e-12)) if count > 1 else 0


@dataclass(frozen=True)
class Cost:
    """A line of the table: `of` gives the value in `unit`; `formula` says how."""

    group: str
    name: str
    formula: str
    unit: str
    of: Callable[[Training], float]


_RUN, _HASH, _STORE = "The training", "Hashing", "Storage"
_NET, _AUDIT, _GAME, _LOG = "Network", "Audit", "A dispute", "Rounding logs under `replay/1`"
COSTS = (
    Cost(_RUN, "parameters N", "counted", "count", lambda t: t.shape.parameters),
    Cost(_RUN, "micro-batches V", "the job", "count", lambda t: t.job.micro_batches),
    Cost(_RUN, "workers W, of so many GPUs", "the job", "count", lambda t: t.gpus),
    Cost(_RUN, "tokens a step", "V · records · length", "count", lambda t: t.tokens_a_step),
    Cost(_RUN, "steps", "20 N / tokens a step", "count", lambda t: t.steps),
    Cost(_RUN, "computation", "6 N · tokens / FLOP/s", "GPU hours", lambda t: t.gpu_hours),
    Cost(_RUN, "a step", "all parts below, none beside another", "s", lambda t: t.step_s),
    Cost(_RUN, "the run", "steps · a step", "days", lambda t: t.steps * t.step_s / 86400),
    Cost(
        _RUN,
        "memory of a worker, without activations",
        "(2 + partial sums held) · 4 N + 8 N / W",
        "B",
        lambda t: t.worker_memory,
    ),
    Cost(
        _RUN,
        "GPU memory of a worker",
        "GPUs · 80 GB",
        "B",
        lambda t: t.job.gpus * value("gpu_bytes"),
    ),
    Cost(_HASH, "a state", "12 N bytes and its slots", "B", lambda t: t.shape.state_bytes),
    Cost(
        _HASH,
        "a state, each owner its slots",
        "3 · largest owner's tensors / (cores · rate)",
        "s",
        lambda t: t.parts.state_hash_s,
    ),
    Cost(
        _HASH,
        "the same, share of the run's time",
        "… / (interval · a step)",
        "share",
        lambda t: t.parts.state_hash_s / (t.job.interval * t.step_s),
    ),
    Cost(
        _HASH,
        "checksums of a step's messages, at the largest owner",
        "sent + received / (cores · rate)",
        "s",
        lambda t: t.parts.checksum_s,
    ),
    Cost(
        _HASH,
        "the same, share of a step",
        "… / a step",
        "share",
        lambda t: t.parts.checksum_s / t.step_s,
    ),
    Cost(
        _HASH,
        "all nodes of one micro-batch, in a dispute only",
        "output bytes / (cores · rate)",
        "s",
        lambda t: t.job.records * t.shape.node_output_bytes / t.parts.hash_rate,
    ),
    Cost(_STORE, "a stored state", "12 N bytes", "B", lambda t: t.shape.state_bytes),
    Cost(
        _STORE,
        "the states that are kept",
        "100 · state",
        "B",
        lambda t: t.job.kept * t.shape.state_bytes,
    ),
    Cost(
        _STORE,
        "writing one, beside the steps",
        "hash + state / (disk of worker 0; if cut min(W · disk, store))",
        "s",
        lambda t: t.parts.checkpoint_s,
    ),
    Cost(
        _STORE,
        "the journal, without sessions",
        "33 B a step, 61 B a checkpoint",
        "B",
        lambda t: journal_bytes(t.steps, t.checkpoints),
    ),
    Cost(
        _NET,
        "partial sums that a worker sends of a gradient",
        "subtrees of its share, mean",
        "count",
        lambda t: mean_subtrees(t.job.micro_batches, t.job.workers),
    ),
    Cost(
        _NET,
        "a worker sends in a step, mean",
        "(partial sums + 1) · (W − 1)/W · 4 N",
        "B",
        lambda t: t.parts.sent_bytes,
    ),
    Cost(
        _NET,
        "gradients of the largest owner",
        "whole tensors, or 4 N / W if cut",
        "B",
        lambda t: t.parts.owned,
    ),
    Cost(
        _NET,
        "the largest owner receives in a step",
        "partial sums · (W − 1) · owned",
        "B",
        lambda t: t.parts.gathered_bytes,
    ),
    Cost(
        _NET,
        "time of both exchanges",
        "(received + (W − 1) · owned) / (GPUs · network)",
        "s",
        lambda t: t.parts.network_s,
    ),
    Cost(
        _NET,
        "all workers, the whole run",
        "W · steps · …",
        "B",
        lambda t: t.job.workers * t.steps * t.parts.sent_bytes,
    ),
    Cost(
        _NET,
        "worker 0 receives in a step, beside tensors",
        "(W − 1) · 72 B",
        "B",
        lambda t: t.parts.rank0_bytes,
    ),
    Cost(
        _NET,
        "a worker's bytes through gloo on loopback, to compare",
        "sent / measured rate",
        "s",
        lambda t: t.parts.sent_bytes / t.found.units.gloo_bytes_s,
    ),
    Cost(
        _AUDIT,
        "whole",
        "audit over training · computation",
        "GPU hours",
        lambda t: t.found.units.audit_ratio * t.gpu_hours,
    ),
    Cost(
        _AUDIT,
        "one segment of 100, on one worker's machine",
        "steps/100 · V micro-batches",
        "days",
        lambda t: t.segment_s / 86400,
    ),
    Cost(
        _AUDIT,
        "10 of 100 segments drawn",
        "whole / 10",
        "GPU hours",
        lambda t: 0.1 * t.found.units.audit_ratio * t.gpu_hours,
    ),
    Cost(
        _AUDIT,
        "… 1 false segment is found with",
        "1 − C(99,10)/C(100,10)",
        "share",
        lambda t: 1 - missed_by_sample(100, 1, 10),
    ),
    Cost(
        _AUDIT,
        "… 20 false ones with",
        "1 − C(80,10)/C(100,10)",
        "share",
        lambda t: 1 - missed_by_sample(100, 20, 10),
    ),
    Cost(
        _GAME,
        "nodes of a step",
        "V · section + tail",
        "count",
        lambda t: t.nodes,
    ),
    Cost(_GAME, "rounds, at most", "PROTOCOL 7.2", "count", lambda t: t.rounds),
    Cost(
        _GAME,
        "bytes, at the measured bytes a round",
        "rounds · bytes a round",
        "B",
        lambda t: t.rounds * t.found.units.dispute_bytes_a_round,
    ),
    Cost(_GAME, "evidence, at most", "PROTOCOL 8.5", "B", lambda t: LIMITS.evidence_bytes),
    Cost(
        _GAME,
        "a party executes again, at most: steps",
        "between two kept states, and two more",
        "count",
        lambda t: math.ceil(t.steps / t.job.kept) + 2,
    ),
    Cost(_GAME, "… and from the nodes on", "one micro-batch", "s", lambda t: t.parts.micro_batch_s),
    Cost(
        _LOG,
        "bounded form, a step",
        "measured bytes an element · products' elements",
        "B",
        lambda t: t.found.log_bytes * t.logged_elements,
    ),
    Cost(
        _LOG,
        "bounded form, the run",
        "steps · …",
        "B",
        lambda t: t.steps * t.found.log_bytes * t.logged_elements,
    ),
    Cost(
        _LOG,
        "published form, products alone, a step",
        "elements / 5",
        "B",
        lambda t: t.logged_elements / 5,
    ),
    Cost(_LOG, "`ordered/1`, `rounded/1`, `exact/1`", "no log", "B", lambda t: 0.0),
)
