"""The run of an answer, for a dispute about it (ANSWERS 7.6)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tallystick.answers.derive import check_adapter, stated_model
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import check_weights
from tallystick.answers.model import weights
from tallystick.answers.receipt import AnswerReceipt
from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import ExecutionContext
from tallystick.disk.files import new_directory, remove_tree
from tallystick.disk.regular import os_errors
from tallystick.job.job import STATE0
from tallystick.run.execute.trainer import Options, train_job


@dataclass(frozen=True)
class AnswerRun:
    """The run of an answer's job: its root, and the receipt's. `defends` says that the receipt's
    own key signed it."""

    receipt: AnswerReceipt
    root: bytes
    defends: bool

    @property
    def same(self) -> bool:
        return self.root == self.receipt.root


def answer_run_of(
    place: Path,
    directory: Path,
    out: Path,
    key: PrivateKey | None,
    overwrite: bool = False,
    threads: int | None = None,
    adapter: Path | None = None,
) -> AnswerRun:
    """Execute the job of the receipt at `place` into the run directory `out` (ANSWERS 7.6).

    The directory has the weights twice: in state[0], and in the state at the end.
    Raises as `check`, and as `train`.
    """
    signed, answer, program = AnswerFiles.read(place).bound()
    model = stated_model(directory, adapter, answer.statement)
    check_adapter(model, answer.statement)
    held = weights(model)
    check_weights(answer.statement, held)
    answer.check_program(program)
    beside = new_directory(f".{out.name}.job-", out.absolute().parent)
    try:
        job = answer.write(beside / "job", program, held, overwrite=False)
        # The run gets a second name of the weights, and not a copy (disk.files.share_or_copy).
        with os_errors(job.directory):
            os.chmod(job.directory / STATE0, 0o444)
        options = Options(ExecutionContext(threads), key=key, overwrite=overwrite)
        made = train_job(job, out, options)
    finally:
        remove_tree(beside)
    assert made.run_root is not None
    defends = key is not None and key.public == signed.receipt.signer
    return AnswerRun(signed.receipt, made.run_root, defends)
