"""The hooks of a declared cheat (DESIGN 7): here every one of them changes nothing.

A cheating run is a signed run plus the override that produced it. The trainer makes the run with
it, and the prover answers with it, through the parts of this room and `prover.cheating`; the rest
is an honest party's code. Subclasses are the files of `attacks/`. A run names its override in
`override.json`, and no code of another party is ever executed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tallystick.commit.tensor import Array

if TYPE_CHECKING:
    from tallystick.commit.log import Section
    from tallystick.job.job import Job
    from tallystick.program.ir import Node
    from tallystick.program.state import State
    from tallystick.rounding.blocks import Entries
    from tallystick.run.execute.nodes import NodeRecord


class Override:
    """Every hook that an attack may use. It may change the arrays it gets in place."""

    def begin(self, job: Job) -> None:
        """Called once before anything else, by trainer and prover alike."""

    def genesis(self, state: State) -> None:
        """state[0] before it is hashed."""

    def final_step(self, job: Job) -> int:
        """The step after which the run claims to have ended."""
        return job.steps

    def skips(self, step: int) -> bool:
        """True if the step is not executed: the state stays, the loss is that of the last step."""
        return False

    def batch(self, step: int, batch: dict[str, Array]) -> None:
        """The batch of `step` (arrays are copies)."""

    def data_step(self, step: int) -> int:
        """The step whose batch is taken instead."""
        return step

    def scalars(self, step: int, scalars: dict[str, float]) -> None:
        """The per-step scalars."""

    def random_key(self, step: int, key: tuple[int, int]) -> tuple[int, int]:
        """The program's rng input (seed, step)."""
        return key

    def before(self, step: int, state: State) -> None:
        """state[step] before the step."""

    def watches(self, step: int) -> bool:
        """True if `node` is to be called in this step (it is then executed node by node)."""
        return False

    def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
        """Outputs of a node just executed; changes reach all later nodes."""

    def log(self, step: int, section: Section, entries: Entries) -> Entries:
        """The entries of one section of a bounded log, before they are written."""
        return entries

    def log_digest(self, step: int, digest: bytes) -> bytes:
        """The digest of the step's log as it enters the log chain."""
        return digest

    def after(self, step: int, state: State) -> None:
        """state[step + 1] after the step, before it is hashed."""

    def loss(self, step: int, bits: int) -> int:
        """The loss that enters the loss chain."""
        return bits

    def root(self, step: int, root: bytes) -> bytes:
        """The state root that is committed to for state[step]."""
        return root

    def record(self, step: int, index: int, record: NodeRecord) -> NodeRecord:
        """What is stated of node `index` as executed, before the step's node tree is made."""
        return record

    def answer(self, query: object, body: object) -> object:
        """The body of an answer of the prover (protocol.bodies), None to be unable."""
        return body
