"""The segments of a run: from one stored state to the next, each repeated without the others.

A segment begins at genesis or at a stored state, which must hash to its committed root, and ends at
the next stored state, or at the end. docs/adr/0021-parallel-audit.md says why the segments' results
in order are the result of one execution of the whole.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tallystick.commit.encoding import Writer, tag
from tallystick.installed import tallystick_version
from tallystick.run.execute.auditor import Checked, part_of, start_step
from tallystick.run.show.estimate import human_seconds
from tallystick.run.store.claim import Claim

_BINDING = tag("parallel-audit/1")


@dataclass(frozen=True, order=True)
class Segment:
    """Steps `first` to `last` - 1."""

    first: int
    last: int

    @property
    def steps(self) -> int:
        return self.last - self.first

    def __str__(self) -> str:
        return f"steps {self.first}:{self.last}"


def segments_of(checked: Checked, steps: tuple[int, int] | None = None) -> list[Segment]:
    """The segments of the run, or of `steps` = (A, B), in order; at least one.

    Those of (A, B) begin at the newest stored state at or before A and end at the first checkpoint
    at or after B. Raises UsageError for steps that the run has not.
    """
    claim = checked.claim
    first, last = part_of(steps, claim.last_step)
    first = start_step(checked.store, claim, first)
    last = min((step for step in claim.roots if step >= last), default=last)
    inner = [s for s in checked.store.stored_steps() if first < s < last and s in claim.roots]
    points = [first, *inner, last]
    return [Segment(a, b) for a, b in pairwise(points)]


def binding(claim: Claim) -> bytes:
    """A digest of all that a segment's result rests on beside the run's files that are checked by
    digests of their own: job, signed commitment, journal, and the version of this build."""
    import numpy as np

    journal, signed = claim.journal, claim.commitment
    writer = Writer(_BINDING)
    writer.hash(journal.job_digest, "job digest").hash(claim.run_root, "run root")
    writer.blob(signed.signer.key_id.encode()).blob(tallystick_version().encode())
    writer.blob(np.array(journal.losses, "<u4").tobytes()).blob(b"".join(journal.logs))
    return writer.digest()


def makespan(segments: Sequence[Segment], workers: int) -> int:
    """The steps that the busiest worker executes when the longest segments go first."""
    loads = [0] * max(1, min(workers, len(segments)))
    for segment in sorted(segments, key=lambda s: -s.steps):
        heapq.heappushpop(loads, loads[0] + segment.steps)
    return max(loads)


def foretell(segments: Sequence[Segment], workers: int, step_seconds: float | None) -> str:
    """What can be said before the first step: the segments, how much they gain, and the time if a
    step takes `step_seconds`, which is the trainer's word."""
    total = sum(s.steps for s in segments)
    longest = max(s.steps for s in segments)
    busiest = makespan(segments, workers)
    gain = total / busiest if busiest else 1.0
    text = (
        f"{len(segments)} segments between stored states, the longest "
        f"{100 * longest / (total or 1):.0f} % of {total} steps"
    )
    if workers > 1:
        text += f": {workers} workers are at most {gain:.3g} times as fast as one"
    if step_seconds:
        text += f"; about {human_seconds(busiest * step_seconds)} at the trainer's speed"
    if gain < 0.9 * workers:
        text += ". `train --keep-checkpoints N` stores more states"
    return text + "."
