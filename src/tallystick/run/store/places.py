"""Where each file of a run lies, and its name.

run.json       manifest: format, job digest, contract
job/           a copy of the job
journal        losses and checkpoint roots, append-only
metrics.jsonl  losses, gradient norms and metrics for people (metrics.py); no digest covers them
checkpoints/   some of the hashed states, as safetensors
nodes/         node digests of traced steps
logs/          one rounding log for each step, under a contract that keeps logs
commitment.json  the signed run commitment, once the run is finished
signer.pem     the signing key, mode 0600, where the user gave none (signer.py): keep it secret
override.json  the declared cheat that made the run (declaration.py); an honest run has none
scratch-*/     states of a dispute under way; removed at its end
lock           empty; held by a running trainer
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tallystick.run.logs.writer import log_path

MANIFEST = "run.json"
STATE_NAME = re.compile(r"step-([0-9]{8,13})\.safetensors", re.ASCII)
LOG_NAME = re.compile(r"([0-9]{10,13})\.log", re.ASCII)
TRACE_NAME = re.compile(r"step-([0-9]{8,13})\.bin", re.ASCII)
SCRATCH_PREFIX = "scratch-"


def checkpoint_name(step: int) -> str:
    """File name of a stored state."""
    return f"step-{step:08d}.safetensors"


def trace_name(step: int) -> str:
    """File name of a node trace."""
    return f"step-{step:08d}.bin"


@dataclass(frozen=True)
class RunPaths:
    """The paths of the run in `directory`."""

    directory: Path

    @property
    def manifest_path(self) -> Path:
        return self.directory / MANIFEST

    @property
    def job_path(self) -> Path:
        return self.directory / "job"

    @property
    def journal_path(self) -> Path:
        return self.directory / "journal"

    @property
    def metrics_path(self) -> Path:
        return self.directory / "metrics.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def nodes_path(self) -> Path:
        return self.directory / "nodes"

    @property
    def logs_path(self) -> Path:
        return self.directory / "logs"

    @property
    def commitment_path(self) -> Path:
        return self.directory / "commitment.json"

    @property
    def signer_path(self) -> Path:
        return self.directory / "signer.pem"

    @property
    def override_path(self) -> Path:
        return self.directory / "override.json"

    @property
    def lock_path(self) -> Path:
        return self.directory / "lock"

    @property
    def own_names(self) -> set[str]:
        """The names of files that a run's directory may hold, but for the scratch states of a
        dispute."""
        return {
            path.name
            for path in (
                self.manifest_path,
                self.job_path,
                self.journal_path,
                self.metrics_path,
                self.checkpoints_path,
                self.nodes_path,
                self.logs_path,
                self.commitment_path,
                self.signer_path,
                self.override_path,
                self.lock_path,
            )
        }

    def log_path(self, step: int) -> Path:
        return log_path(self.logs_path, step)

    def checkpoint_path(self, step: int) -> Path:
        return self.checkpoints_path / checkpoint_name(step)

    def trace_path(self, step: int) -> Path:
        return self.nodes_path / trace_name(step)
