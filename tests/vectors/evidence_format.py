"""Reading and writing vectors/protocol (see its README.md for the format)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FORMAT = "tallystick-evidence-vectors/1"
ROOT = Path(__file__).resolve().parents[2] / "vectors" / "protocol"


def terms_of(manifest: bytes) -> list[str]:
    """The files of a job that a judge needs: the manifest, then the programs in their order."""
    programs = json.loads(manifest)["commitment"].get("programs")
    if programs is None:
        return ["job.json", "program.txt"]
    return ["job.json", *(f"program-{p['name']}.txt" for p in programs)]


def texts(job: dict[str, bytes]) -> list[bytes]:
    """The texts of a stored job's programs, in their order."""
    return [job[name] for name in terms_of(job["job.json"])[1:]]


@dataclass(frozen=True)
class Case:
    """An evidence file about job number `job`, and what `judge --json` prints of it.

    `referees`: public keys (PEM text) given as `--trust-referee`. `code`: the exit code. `found`:
    the JSON object, without the keys that are about the file; an error's is its kind only.
    """

    name: str
    job: int
    evidence: bytes
    code: int
    found: dict[str, Any]
    referees: tuple[str, ...] = ()


@dataclass
class Bundle:
    """Jobs, each as its files that a judge needs, and cases about them."""

    jobs: list[dict[str, bytes]] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)

    def add_job(self, directory: Path) -> int:
        """The number of the job in `directory`."""
        names = terms_of((directory / "job.json").read_bytes())
        self.jobs.append({name: (directory / name).read_bytes() for name in names})
        return len(self.jobs) - 1

    def write_job(self, number: int, directory: Path) -> Path:
        """The job's terms as a directory that `--job` takes."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in self.jobs[number].items():
            (directory / name).write_bytes(data)
        return directory


def encode(bundle: Bundle, name: str) -> tuple[str, bytes]:
    """(index text, data) of one bundle."""
    data = bytearray()

    def place(part: bytes) -> list[int]:
        data.extend(part)
        return [len(data) - len(part), len(part)]

    def lines(items: Iterable[Any]) -> str:
        return ",\n".join(json.dumps(item, separators=(",", ":")) for item in items)

    jobs = lines([{k: place(v) for k, v in job.items()} for job in bundle.jobs])
    cases = lines(
        [
            {
                "name": c.name,
                "job": c.job,
                "evidence": place(c.evidence),
                "referees": c.referees,
                "code": c.code,
                "found": c.found,
            }
            for c in bundle.cases
        ]
    )
    head = f'{{"format":"{FORMAT}","data":"{name}.bin","jobs":[\n'
    return f'{head}{jobs}\n],"cases":[\n{cases}\n]}}\n', bytes(data)


def bundles() -> list[str]:
    """Names of the bundles of evidence that are stored."""
    return sorted(p.stem for p in ROOT.glob("*.bin") if p.stem != "sessions")


def load(name: str) -> Bundle:
    """A stored bundle."""
    index = json.loads((ROOT / f"{name}.json").read_text())
    assert index["format"] == FORMAT
    data = (ROOT / index["data"]).read_bytes()

    def part(place: list[int]) -> bytes:
        return data[place[0] : place[0] + place[1]]

    return Bundle(
        [{k: part(v) for k, v in job.items()} for job in index["jobs"]],
        [
            Case(
                c["name"], c["job"], part(c["evidence"]), c["code"], c["found"],
                tuple(c["referees"]),
            )
            for c in index["cases"]
        ],
    )  # fmt: skip
