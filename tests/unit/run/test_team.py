"""Several workers execute a run: the bits of one, whatever fails."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from team_threads import with_team, root_by

from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import make_job
from tallystick.kernels.context import ExecutionContext
from tallystick.program.faults import NodeError
from tallystick.run.distributed.engine import TeamEngine
from tallystick.run.distributed.faults import TransportFaultError, WorkerError
from tallystick.run.distributed.hello import difference, introduction
from tallystick.run.distributed.launch import train_with, workers_of
from tallystick.run.distributed.team import owners_of
from tallystick.run.distributed.transport import launched
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, train_job


def made(directory: Path, name: str, contract: str = "ordered/1", **settings: object) -> Job:
    given = {k: str(v) for k, v in settings.items()}
    raise NotImplementedError(name, contract, given)
