"""A job's random seed is what the random operators take; its order seed is any u64."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tallystick.commit.encoding import Writer
from tallystick.commit.job import JOB_TAG, JobCommitment
from tallystick.disk.manifest import DIGEST_KEY, manifest_bytes
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import MANIFEST, Job
from tallystick.job.job_file import load_job, load_terms
from tallystick.job.save import save_job
from tallystick.kernels.evaluate import evaluate

LARGEST = 2**63 - 1


def digest_with_seed(c: JobCommitment, seed: int) -> str:
    """The job digest by COMMITMENTS 7.2 with another random seed, whatever the seed."""
    out = Writer(JOB_TAG).u32(c.format_version).text(c.contract)
    for digest in (c.program_digest, c.genesis_root, c.data_root):
        out.hash(digest)
    for number in (c.record_count, c.batch_size, c.order_seed, seed, c.steps):
        out.u64(number)
    out.u64(c.checkpoint_interval).hash(c.scalars_digest).u8(int(c.stop_on_non_finite))
    return out.digest().hex()


def job_with_seed(job: Job, seed: int, target: Path) -> Path:
    """A copy of `job` whose manifest and digests are whole, with another random seed."""
    shutil.copytree(job.directory, target)
    body = json.loads((target / MANIFEST).read_bytes())
    del body[DIGEST_KEY]
    body["commitment"]["rng_seed"] = str(seed)
    body["job_digest"] = digest_with_seed(job.commitment, seed)
    (target / MANIFEST).write_bytes(manifest_bytes(body))
    return target


def test_the_operators_bound_is_the_jobs() -> None:
    """NUMERICS 8.3: the key is i64[2], so no kernel takes a seed of 2^63."""
    key = np.array([LARGEST, 0], np.int64)
    assert np.shape(evaluate("tallystick.uniform", key, shape=(1,))) == (1,)
    with pytest.raises(OverflowError):
        np.array([LARGEST + 1, 0], np.int64)


def test_the_largest_seed_loads(mlp_job: Job, tmp_path: Path) -> None:
    directory = job_with_seed(mlp_job, LARGEST, tmp_path / "job")
    assert load_terms(directory).commitment.rng_seed == LARGEST


@pytest.mark.parametrize("seed", [LARGEST + 1, 2**64 - 1])
def test_a_seed_that_no_operator_takes_is_refused_at_load(
    mlp_job: Job, tmp_path: Path, seed: int
) -> None:
    """COMMITMENTS 7.1: before the game's referee or an operator meets it (PROTOCOL 5.6.4)."""
    directory = job_with_seed(mlp_job, seed, tmp_path / "job")
    for load in (load_job, load_terms):
        with pytest.raises(CorruptFileError, match="rng_seed") as caught:
            load(directory)
        assert caught.value.next_action


def test_it_is_refused_at_save_and_a_large_order_seed_is_not(tmp_path: Path) -> None:
    import torch
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture
    from tallystick.program.optimizers import SGD

    captured = capture(
        torch.nn.Linear(3, 2),
        lambda m, b: F.cross_entropy(m(b["x"]), b["y"]),
        {"x": ((4, 3), "f32"), "y": ((4,), "i64")},
        SGD(lr=0.1),
    )
    data = {"x": np.ones((8, 3), "f4"), "y": np.zeros(8, "i8")}
    with pytest.raises(UsageError, match="rng_seed") as caught:
        save_job(captured, tmp_path / "job", data, steps=2, seed=LARGEST + 1)
    assert caught.value.next_action and not (tmp_path / "job" / MANIFEST).exists()
    job = save_job(captured, tmp_path / "job", data, steps=2, seed=LARGEST, order_seed=2**64 - 1)
    assert (job.commitment.rng_seed, job.commitment.order_seed) == (LARGEST, 2**64 - 1)
