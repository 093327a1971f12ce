"""A manifest that names what the job does not commit to, its own digest made anew: no reader shows
it as if it were so (COMMITMENTS 7.4, 7.5)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Run

from tallystick.commit.encoding import parse_canonical_json
from tallystick.disk.manifest import DIGEST_KEY, manifest_bytes
from tallystick.job.job import Job
from tallystick.run.show.summary import RunSummary

Forge = Callable[[dict[str, Any]], None]


def _forged(path: Path, forge: Forge) -> None:
    body: Any = parse_canonical_json(path.read_bytes(), "manifest")
    del body[DIGEST_KEY]
    forge(body)
    path.write_bytes(manifest_bytes(body))


def _rename_field(body: dict[str, Any]) -> None:
    body["schema"][0]["name"] = "forged"


def _reshape_field(body: dict[str, Any]) -> None:
    body["schema"][0]["shape"] = [*body["schema"][0]["shape"], 1]


def _rename_format(body: dict[str, Any]) -> None:
    body["format"] = "tallystick-jobs/1"


def _rename_contract(body: dict[str, Any]) -> None:
    body["contract"] = "rounded/1-draft.1"


_OF_RUN = [
    ["inspect", "RUN"],
    ["inspect", "RUN", "--json"],
    ["report", "RUN", "-o", "OUT/page"],
    ["audit", "RUN", "--quiet"],
    ["export", "RUN", "-o", "OUT/model"],
    ["verify-model", "MODEL", "RUN"],
    ["evaluate", "RUN"],
    ["dispute", "GOOD", "RUN", "--job", "JOB", "--out", "OUT/evidence"],
]
_OF_JOB = [
    ["inspect", "RUN/job"],
    ["job", "show", "RUN/job"],
    ["job", "verify", "RUN/job"],
    ["attack", "--list", "RUN/job"],
    ["train", "RUN/job", "--out", "OUT/run", "--quiet"],
    ["judge", "MODEL", "--job", "RUN/job"],
]


@pytest.mark.parametrize(
    ("name", "forge", "lines"),
    [
        ("job/job.json", _rename_field, [*_OF_RUN, *_OF_JOB]),
        ("job/job.json", _reshape_field, [*_OF_RUN, *_OF_JOB]),
        ("job/job.json", _rename_format, [*_OF_RUN, *_OF_JOB]),
        ("run.json", _rename_contract, _OF_RUN),
    ],
)
def test_every_reader_refuses_it(
    name: str,
    forge: Forge,
    lines: list[list[str]],
    logreg_job: Job,
    logreg_run: RunSummary,
    tmp_path: Path,
    ts: Run,
) -> None:
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(logreg_run.directory, run)
    out.mkdir()
    model = max((run / "checkpoints").iterdir())
    places = {"RUN": run, "OUT": out, "MODEL": model, "GOOD": logreg_run.directory,
              "JOB": logreg_job.directory}  # fmt: skip
    _forged(run / name, forge)
    codes = {}
    for line in lines:
        words = [line[0], *(_placed(word, places) for word in line[1:])]
        codes[" ".join(line)] = ts(*words)[0]
    assert codes == dict.fromkeys(codes, 2)
    assert ts("fsck", run)[0] == 1


def _placed(word: str, places: dict[str, Path]) -> str:
    first, slash, rest = word.partition("/")
    return str(places[first]) + slash + rest if first in places else word
