"""The unchanged MLflow, TensorBoard and Weights & Biases: they read what a training has logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from claim_tools import needs, python

from tallystick.run.show.summary import RunSummary

_TRAIN = """
import json, os
import tallystick
from tallystick.trackers import {name}
job, out, place = sys.argv[1:]
made = tallystick.train(job, out, track=[{call}], progress=False)
"""


def trained(name: str, call: str, more: str, run: RunSummary, place: Path) -> Any:
    """What `more` prints after a training of the run's job that was tracked."""
    code = _TRAIN.format(name=name, call=call) + more
    said = python(code, run.directory / "job", place / "run", place / "log", cwd=place)
    return json.loads(said.splitlines()[-1])


def of(run: RunSummary) -> dict[str, Any]:
    return {
        "losses": [[step, loss] for step, loss in enumerate(run.losses, 1)],
        "run_root": run.run_root.hex(),
        "job_digest": run.job_digest.hex(),
    }


def test_tensorboard(mlp_run: RunSummary, tmp_path: Path) -> None:
    needs("tensorboard")
    found = trained(
        "TensorBoard",
        "TensorBoard(place)",
        "from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n"
        "from tensorboard.util import tensor_util\n"
        "read = EventAccumulator(place); read.Reload()\n"
        "def text(tag):\n"
        "    tag = 'tallystick/' + tag\n"
        "    return tensor_util.make_ndarray(read.Tensors(tag)[0].tensor_proto).item().decode()\n"
        "print(json.dumps(dict(losses=[[e.step, e.value] for e in read.Scalars('loss')],\n"
        "    run_root=text('run_root'), job_digest=text('job_digest'))))\n",
        mlp_run,
        tmp_path,
    )
    expected = of(mlp_run)
    steps, values = zip(*found["losses"], strict=True)
    assert [*steps] == [step for step, _ in expected["losses"]]
    assert values == pytest.approx([loss for _, loss in expected["losses"]], rel=1e-6)
    assert (found["run_root"], found["job_digest"]) == (
        expected["run_root"],
        expected["job_digest"],
    )


def test_the_command_tracks(mlp_run: RunSummary, tmp_path: Path) -> None:
    needs("tensorboard")
    code = (
        "from tallystick.cli.main import run\n"
        "job, out, place = sys.argv[1:]\n"
        "assert run(['train', job, '--out', out, '--track', 'tensorboard=' + place]) == 0\n"
        "import os; print(len(os.listdir(place)))\n"
    )
    said = python(code, mlp_run.directory / "job", tmp_path / "run", tmp_path / "log")
    assert said.splitlines()[-1] == "1" and mlp_run.run_root.hex() in said


def test_mlflow(mlp_run: RunSummary, tmp_path: Path) -> None:
    needs("mlflow")
    found = trained(
        "MLflow",
        "MLflow('small', uri='sqlite:///' + place)",
        "from mlflow.tracking import MlflowClient\n"
        "client = MlflowClient(tracking_uri='sqlite:///' + place)\n"
        "number = client.get_experiment_by_name('small').experiment_id\n"
        "(run,) = client.search_runs([number])\n"
        "losses = client.get_metric_history(run.info.run_id, 'loss')\n"
        "tags = run.data.tags\n"
        "assert run.info.status == 'FINISHED', run.info.status\n"
        "print(json.dumps(dict(losses=[[m.step, m.value] for m in losses],\n"
        "    run_root=tags['tallystick.run_root'], job_digest=tags['tallystick.job_digest'])))\n",
        mlp_run,
        tmp_path,
    )
    assert found == of(mlp_run)


# The package has no reader in Python: records in blocks of 32 KiB behind a header of 7 bytes, as
# LevelDB logs them. What is in them is read by the package's own messages.
# W&B's own service writes them, and may do so after the process that trained has ended.
_RECORDS = """
import glob, json, time
from wandb.proto import wandb_internal_pb2 as pb
place, ends = sys.argv[1], time.monotonic() + 120
(path,) = glob.glob(place + "/wandb/offline-run-*/*.wandb")
records = []
while not any(record.WhichOneof("record_type") == "exit" for record in records):
    assert time.monotonic() < ends, [record.WhichOneof("record_type") for record in records]
    time.sleep(0.1)
    data, at, joined, records = open(path, "rb").read(), 7, b"", []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        if at + 7 + size > len(data):
            break
        joined += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):
            records.append(pb.Record.FromString(joined))
            joined = b""
named = lambda items: {i.key or "/".join(i.nested_key): json.loads(i.value_json) for i in items}
losses, known = [], {}
for record in records:
    row = named(record.history.item)
    if "loss" in row:
        losses.append([record.history.step.num or row["_step"], row["loss"]])
    known |= named(record.summary.update) | named(record.run.config.update)
root, job = known["tallystick/run_root"], known["tallystick/job_digest"]
print(json.dumps(dict(losses=losses, run_root=root, job_digest=job)))
"""


def test_wandb_offline(mlp_run: RunSummary, tmp_path: Path) -> None:
    needs("wandb")
    log = tmp_path / "log"
    log.mkdir()
    call = "WandB('small', directory=place)"
    trained("WandB", call, "print(json.dumps(made.steps))", mlp_run, tmp_path)
    assert json.loads(python(_RECORDS, log).splitlines()[-1]) == of(mlp_run)
