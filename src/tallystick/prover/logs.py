"""A run's answers about its rounding logs, from the files it has kept (PROTOCOL 2.1, 13 to 15).

The chain in the state commits to a log. The files are the prover's own, so it answers with their
contents. A file that no longer gives the chain is damaged: the prover never signs it as an answer.
"""

from __future__ import annotations

from tallystick.commit import merkle
from tallystick.commit.log import BLOCK_BYTES, BOUNDED, block_hashes, log_digest
from tallystick.commit.state import LOG_CHAIN_SLOT, extend_log_chain
from tallystick.contracts.replay.entries import Blocks
from tallystick.errors import DigestMismatchError
from tallystick.protocol import queries as q
from tallystick.protocol.bodies import BlockBody, BlocksBody, LogBody
from tallystick.prover.states import RunStates
from tallystick.run.logs.reader import LogReader, LogShape


class Logs:
    """The logs of a run whose contract keeps them. No valid query asks another run for a log."""

    def __init__(self, states: RunStates) -> None:
        self._states = states
        self._shape = LogShape(states.job)
        self._kept: tuple[int, int, Blocks | bytes, merkle.Tree] | None = None

    def hashes(self, query: q.LogHashes) -> BlocksBody:
        """The hashes of a range of a section's blocks."""
        _, tree = self._section(query.step, query.section)
        return BlocksBody(tree.size, tuple(tree.parts(query.first, query.count, q.DEPTH)))

    def block(self, query: q.LogBlock) -> BlockBody:
        """One block of a section."""
        blocks, tree = self._section(query.step, query.section)
        if isinstance(blocks, Blocks):
            data = blocks.block(query.block)
        else:
            data = blocks[query.block * BLOCK_BYTES : (query.block + 1) * BLOCK_BYTES]
        return BlockBody(data, tuple(tree.inclusion(query.block)))

    def log(self, query: q.Log) -> LogBody:
        """The section digests of a step's log, tied to the states around it."""
        step = query.step
        chain = self._states.at(step).state.log_chain
        _, before = self._states.slot(step, LOG_CHAIN_SLOT)
        _, after = self._states.slot(step + 1, LOG_CHAIN_SLOT)
        with self._open(step) as reader:
            digests = tuple(entry.digest for entry in reader.index)
        self._check_chain(step, extend_log_chain(chain, step, log_digest(step, digests)))
        return LogBody(chain, before, digests, after)

    def _check_chain(self, step: int, chain: bytes) -> None:
        """Raise DigestMismatchError unless `chain`, which the log of `step` gives, is the chain in
        the state after the step. A declared cheat's prover leaves this check out."""
        if chain != self._states.at(step + 1).state.log_chain:
            raise DigestMismatchError(
                f"The rounding log of step {step} is not the one this run committed to.",
                "Restore it; `tallystick fsck` lists what is damaged.",
            )

    def _open(self, step: int) -> LogReader:
        """Open the log of `step`, which must be the one that the journal names: the prover answers
        about no other."""
        digest = self._states.journal.logs[step]
        return self._shape.open(self._states.store, step, digest, verify=False)

    def _section(self, step: int, number: int) -> tuple[Blocks | bytes, merkle.Tree]:
        """A section's blocks and their tree. The section that was read last stays in memory."""
        if self._kept is None or self._kept[:2] != (step, number):
            found: Blocks | bytes
            with self._open(step) as reader:
                if self._shape.sections[number].form == BOUNDED:
                    found = reader.bounded(number)
                    hashes = found.hashes()
                else:
                    found = reader.published(number)
                    cuts = range(0, len(found), BLOCK_BYTES)
                    hashes = block_hashes([found[at : at + BLOCK_BYTES] for at in cuts])
            self._kept = (step, number, found, merkle.Tree(hashes))
        return self._kept[2:]
