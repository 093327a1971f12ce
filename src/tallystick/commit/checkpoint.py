"""Checkpoints, the run tree and the run root (COMMITMENTS 6), and the digest of a run that another
job continues, with the proof of the state in between (7.6.8).

A checkpoint holds only a step and a state root, so honest digests always agree. The run tree grows
at its end only, so a proof exists that a journal's later root extends an earlier one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tallystick.commit import merkle
from tallystick.commit.encoding import Writer, tag
from tallystick.commit.state import (
    CHAIN_SLOTS,
    CHAIN_START,
    LOG_CHAIN_SLOT,
    LOSS_CHAIN_SLOT,
    chain_digest,
    slot_leaf,
    slot_order,
    state_root_of,
    state_tree,
)
from tallystick.errors import UsageError
from tallystick.limits import LIMITS

CHECKPOINT_TAG = tag("checkpoint/1")
RUN_TAG = tag("run/1")

Checkpoint = tuple[int, bytes]


def checkpoint_steps(last_step: int, interval: int) -> list[int]:
    """Steps that are committed: 0 (genesis), every `interval`-th, and the last one (6.2)."""
    if last_step < 0 or interval < 1:
        raise UsageError(
            f"{last_step} steps at interval {interval} are out of range.",
            "Choose a number of steps from 0 and an interval from 1.",
        )
    if last_step // interval + 2 > LIMITS.checkpoints:
        raise UsageError(
            f"{last_step} steps at interval {interval} exceed {LIMITS.checkpoints} checkpoints.",
            "Choose a longer interval.",
        )
    steps = list(range(0, last_step + 1, interval))
    if steps[-1] != last_step:
        steps.append(last_step)
    return steps


def checkpoint_count(last_step: int, interval: int) -> int:
    """The number of steps of checkpoint_steps, computed without the list (COMMITMENTS 6.2)."""
    return last_step // interval + 1 + (last_step % interval != 0)


def checkpoint_leaf(step: int, state_root: bytes) -> bytes:
    """Leaf hash of the checkpoint after `step` steps (COMMITMENTS 6.1)."""
    data = Writer(CHECKPOINT_TAG).u64(step).hash(state_root, "state root").finish()
    return merkle.leaf_hash(data)


def run_tree(checkpoints: Sequence[Checkpoint]) -> merkle.Tree:
    """The tree over (step, state root) pairs in ascending step order from step 0 (6.3)."""
    if len(checkpoints) > LIMITS.checkpoints:
        raise UsageError(
            f"{len(checkpoints)} checkpoints exceed {LIMITS.checkpoints}.", "Commit less often."
        )
    steps = [step for step, _ in checkpoints]
    if steps and steps[0] != 0:
        raise UsageError("The first checkpoint must be step 0.", "Commit the genesis state first.")
    if any(a >= b for a, b in itertools.pairwise(steps)):
        raise UsageError("Checkpoint steps must ascend.", "Sort them and drop repeats.")
    return merkle.Tree([checkpoint_leaf(step, root) for step, root in checkpoints])


def run_root_of(job_digest: bytes, size: int, tree_root: bytes) -> bytes:
    """The run root over `size` checkpoints under `tree_root` (COMMITMENTS 6.4)."""
    out = Writer(RUN_TAG).hash(job_digest, "job digest").u64(size)
    return out.hash(tree_root, "run tree root").digest()


def run_root(job_digest: bytes, checkpoints: Sequence[Checkpoint]) -> bytes:
    """The run root, over the job digest, the number of checkpoints and the run tree (6.4)."""
    tree = run_tree(checkpoints)
    return run_root_of(job_digest, tree.size, tree.root())


@dataclass(frozen=True)
class CheckpointProof:
    """Proves that checkpoint `index` of `size` is (`step`, `state_root`) (COMMITMENTS 6.5)."""

    step: int
    state_root: bytes
    index: int
    size: int
    path: tuple[bytes, ...]

    def proves(self, job_digest: bytes, run_root: bytes, step: int, index: int, size: int) -> bool:
        """True if this proves the checkpoint of `step` under `run_root`.

        The verifier takes `index` and `size` from the job's schedule, for `step` and for the run's
        last step, and never from the proof.
        """
        if (self.step, self.index, self.size) != (step, index, size):
            return False
        leaf = checkpoint_leaf(self.step, self.state_root)
        root = merkle.inclusion_root(leaf, index, size, self.path)
        return root is not None and run_root_of(job_digest, size, root) == run_root


def prove_checkpoint(checkpoints: Sequence[Checkpoint], index: int) -> CheckpointProof:
    """Prove checkpoint `index`. Raises UsageError if there is none."""
    tree = run_tree(checkpoints)
    path = tuple(tree.inclusion(index))
    step, root = checkpoints[index]
    return CheckpointProof(step, root, index, tree.size, path)


CONTINUES_TAG = tag("continues/1")


@dataclass(frozen=True)
class ContinuedRun:
    """The run that goes on: job, run root, and the state in which it ended."""

    job_digest: bytes
    run_root: bytes
    final_step: int
    final_state_root: bytes

    def digest(self) -> bytes:
        """What the continuing job commits to, 32 bytes."""
        out = Writer(CONTINUES_TAG).hash(self.job_digest).hash(self.run_root)
        return out.u64(self.final_step).hash(self.final_state_root).digest()


@dataclass(frozen=True)
class ContinuationProof:
    """The final state's chains, and the hashes of the multi-proof of their slots. Untrusted until
    `proves` is true."""

    loss_chain: bytes
    log_chain: bytes
    hashes: tuple[bytes, ...]

    def proves(self, names: Sequence[str], final_root: bytes, genesis_root: bytes) -> bool:
        """True if the genesis state has the slots of the final state, with both chains begun anew.

        `names` are the state's slots without the chains, from the verifier's own program.
        """
        before = {LOSS_CHAIN_SLOT: self.loss_chain, LOG_CHAIN_SLOT: self.log_chain}
        if any(len(chain) != len(CHAIN_START) for chain in before.values()):
            return False
        after = dict.fromkeys(CHAIN_SLOTS, CHAIN_START)
        return (self._root(names, before), self._root(names, after)) == (final_root, genesis_root)

    def _root(self, names: Sequence[str], chains: Mapping[str, bytes]) -> bytes | None:
        order = slot_order([*names, *CHAIN_SLOTS])
        leaves = {order.index(n): slot_leaf(n, chain_digest(c)) for n, c in chains.items()}
        tree = merkle.multi_root(leaves, len(order), self.hashes)
        return None if tree is None else state_root_of(len(order), tree)


def prove_continuation(
    slots: Mapping[str, bytes], loss_chain: bytes, log_chain: bytes
) -> ContinuationProof:
    """The proof for a final state with these digests of slots, chains included."""
    order = slot_order(list(slots))
    indices = sorted(order.index(name) for name in CHAIN_SLOTS)
    return ContinuationProof(loss_chain, log_chain, tuple(state_tree(slots).multi(indices)))
