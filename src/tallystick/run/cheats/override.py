"""The hooks of a declared cheat (DESIGN 7). In this base class every hook changes nothing.

A cheating run is a signed run plus the override that produced it. The trainer makes the run with
the override, and the prover answers with it, through the parts of this room and `prover.cheating`.
The rest is an honest party's code. The files of `attacks/` have the subclasses. A run names its
override in `override.json`, and no code of another party is ever executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.commit.tensor import Array

if TYPE_CHECKING:
    from tallystick.commit.log import Section
    from tallystick.contracts.replay.entries import Entries
    from tallystick.job.job import Job
    from tallystick.program.ir import Node
    from tallystick.program.state import State
    from tallystick.run.execute.nodes import NodeDigests


class Override:
    """Every hook that an attack may use. A hook may change in place the arrays that it gets."""

    def begin(self, job: Job) -> None:
        """Prepare for `job`. Trainer and prover both call this once, before any other hook."""

    def genesis(self, state: State) -> None:
        """Change state[0] before it is hashed."""

    def final_step(self, job: Job) -> int:
        """The step after which the run claims to have ended."""
        return job.steps

    def goes_on(self) -> bool:
        """True if the run goes on to its last step where an honest run stops before."""
        return False

    def skips(self, step: int) -> bool:
        """True if the run skips the step: the state stays, and the loss is that of the last
        step."""
        return False

    def batch(self, step: int, batch: dict[str, Array]) -> None:
        """Change the batch of `step` (its arrays are copies)."""

    def data_step(self, step: int) -> int:
        """The step whose batch the run takes instead."""
        return step

    def scalars(self, step: int, scalars: dict[str, float]) -> None:
        """Change the per-step scalars."""

    def random_key(self, step: int, key: tuple[int, int]) -> tuple[int, int]:
        """The program's rng input (seed, step)."""
        return key

    def before(self, step: int, state: State) -> None:
        """Change state[step] before the step."""

    def watches(self, step: int) -> bool:
        """True if the engine is to call `node` in this step, which it then executes node by
        node."""
        return False

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        """Change the outputs of a node just executed; all later nodes read the changed values."""

    def log(self, step: int, section: Section, entries: Entries) -> Entries:
        """The entries of one section of a bounded log, before they are written."""
        return entries

    def log_digest(self, step: int, digest: bytes) -> bytes:
        """The digest of the step's log as it enters the log chain."""
        return digest

    def after(self, step: int, state: State) -> None:
        """Change state[step + 1] after the step, before it is hashed."""

    def loss(self, step: int, bits: int) -> int:
        """The loss that enters the loss chain."""
        return bits

    def root(self, step: int, root: bytes) -> bytes:
        """The state root that the run commits to for state[step]."""
        return root

    def record(self, step: int, index: int, record: NodeDigests) -> NodeDigests:
        """The record to state of node `index` as executed, before the step's node tree is made."""
        return record

    def answer(self, query: object, body: object) -> object:
        """The body of a prover's answer (protocol.bodies); None to answer *unable*."""
        return body
