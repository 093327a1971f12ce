"""Queries about the rounding log of a step (PROTOCOL 2.1)."""

from __future__ import annotations

from dataclasses import dataclass

from tallystick.commit.encoding import HASH_BYTES
from tallystick.commit.log import Section
from tallystick.commit.signing import RunCommitment
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.protocol import bodies as b
from tallystick.protocol.facts import Facts
from tallystick.protocol.layouts import (
    HASH,
    PARTS,
    U64,
    U64_BYTES,
    Layout,
    blob,
    hashes,
    list_bytes,
    path_bytes,
)
from tallystick.protocol.query import Query, below, parts_bytes, slot_path, subtree


def _check_log(step: int, facts: Facts, run: RunCommitment) -> None:
    below(step, run.final_step, "step")
    if not facts.contract.keeps_log:
        raise UsageError("This job's contract keeps no logs.", "Send no query about logs.")


def _section(number: int, step: int, facts: Facts, run: RunCommitment) -> Section:
    _check_log(step, facts, run)
    sections = facts.at(step).sections
    if number >= len(sections):
        raise UsageError(f"There is no section {number}.", "Name a section of the program.")
    return sections[number]


@dataclass(frozen=True)
class Log(Query[b.LogBody]):
    """The section digests of a step's rounding log, bound to the states before and after it."""

    KIND = 13
    layout = Layout(b.LogBody, (HASH, hashes(), hashes(LIMITS.log_sections), hashes()))
    step: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        _check_log(self.step, facts, run)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return HASH_BYTES + 2 * slot_path(facts) + list_bytes(len(facts.at(self.step).sections))


@dataclass(frozen=True)
class LogHashes(Query[b.BlocksBody]):
    """Hashes of the parts of a range of a section's blocks."""

    KIND = 14
    layout = Layout(b.BlocksBody, (U64, PARTS))
    step: int
    section: int
    first: int
    count: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        subtree(_section(self.section, self.step, facts, run).blocks, self.first, self.count)

    def most(self, facts: Facts, run: RunCommitment) -> int:
        return U64_BYTES + parts_bytes(self.count)


@dataclass(frozen=True)
class LogBlock(Query[b.BlockBody]):
    """One block of a section, proved."""

    KIND = 15
    layout = Layout(b.BlockBody, (blob(LIMITS.log_block_bytes), hashes()))
    step: int
    section: int
    block: int

    def check(self, facts: Facts, run: RunCommitment) -> None:
        if self.block >= _section(self.section, self.step, facts, run).blocks:
            raise UsageError(f"There is no block {self.block}.", "Name a block of the section.")

    def most(self, facts: Facts, run: RunCommitment) -> int:
        blocks = facts.at(self.step).sections[self.section].blocks
        return U64_BYTES + LIMITS.log_block_bytes + path_bytes(blocks)
