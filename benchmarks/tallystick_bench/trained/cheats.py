"""Every attack on a job that gives it something to do: a referee convicts it, a judge agrees."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.job.job_file import load_job
from tallystick.prover.cheating import party_of
from tallystick.prover.local import Played, play
from tallystick.run.cheats.attacks import attack_names
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import Declaration
from tallystick_bench.trained.ways import tallystick

REFEREE = PrivateKey(bytes([5]) * 32)


def terms_alone(job: Path, out: Path) -> Path:
    """What a judge needs of a job: the manifest and the programs; no weight and no record."""
    out.mkdir()
    for file in [job / "job.json", *job.glob("program*.txt")]:
        shutil.copy(file, out)
    return out


def cheats(job_path: Path, honest: Path, out: Path, only: tuple[str, ...] = ()) -> dict[str, Any]:
    """Play every attack against the honest run, in the seats by turns.

    The result has `convicted` (a row each), `nothing` (a reason by name), `without_effect` (the
    names of those whose run is the honest one, bit for bit) and `misses`.
    """
    out.mkdir()
    judges = terms_alone(job_path, out / "terms")
    key = out / "referee.pub"
    key.write_bytes(REFEREE.public.pem())
    found: dict[str, Any] = {"convicted": [], "nothing": {}, "without_effect": [], "misses": []}
    root = RunStore(honest).journal().run_root
    for number, name in enumerate(only or attack_names()):
        started = time.perf_counter()
        job = load_job(job_path)
        run = out / name
        try:
            maker = declared_cheat(job, Declaration(name, {}))
            lied = train_job(job, run, Options(ExecutionContext(1), maker=maker))
        except UsageError as error:
            found["nothing"][name] = error.message
            continue
        if lied.run_root == root:  # as a stop that is ignored where none comes
            found["without_effect"].append(name)
            continue
        seat = number % 2
        played = _game(job_path, honest, run, seat)
        evidence = out / f"{name}.evidence"
        evidence.write_bytes(played.evidence.to_bytes())
        verdict = played.verdict
        row: dict[str, Any] = {
            "attack": name,
            "case": verdict.case or "-",
            "clause": verdict.convicted[0].clause if verdict.convicted else None,
            "step": verdict.place.step,
            "operator": verdict.place.operator,
            "bytes": evidence.stat().st_size,
        }
        row["seconds"] = time.perf_counter() - started
        convicted = [c.party for c in verdict.convicted] == [seat]
        judged = tallystick(
            None, "judge", evidence, "--job", judges, "--trust-referee", key, codes=(0, 1)
        )
        same = [c["party"] for c in judged["convicted"]] == ["AB"[seat]]
        same = same and [c["clause"] for c in judged["convicted"]] == [row["clause"]]
        right = convicted and verdict.accepted == 1 - seat and same
        found["convicted" if right else "misses"].append(row)
        shutil.rmtree(run)
    return found


def _game(job: Path, honest: Path, cheat: Path, seat: int) -> Played:
    runs = [honest, honest]
    runs[seat] = cheat
    with (
        party_of(runs[0], as_attack=seat == 0) as first,
        party_of(runs[1], as_attack=seat == 1) as second,
    ):
        return play(load_job(job).terms, [first, second], key=REFEREE)
