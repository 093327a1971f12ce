"""A run that another job continues: its digest, and the proof of the state in between
(COMMITMENTS 7.6.8)."""

from __future__ import annotations

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
