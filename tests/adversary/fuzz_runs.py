"""Run and job directories changed by whoever may write there, read by every reading command.

    PYTHONPATH=tests python tests/adversary/fuzz_runs.py [--reads 200000] [--seed 1]

A run is changed where its structure lets it be, its checksums made anew (they need no key): journal
records, manifests, states and their roots, logs, traces, job parts, files of other kinds, names.
The signature stays the honest one, or is the liar's own over its own lie. Every command then ends
in this process with an exit code of DESIGN 9 and a typed error, within 10 seconds and 256 MiB; what
it accepts under the honest key is the truth, and no dispute convicts the honest run beside it.
Counts go to docs/proofs/fuzz.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from adversary.limits import bound_memory, bounded_time
from journals import rewrite

from tallystick.cli.main import run as command
from tallystick.commit.encoding import canonical_json
from tallystick.run.job import Job
from tallystick.run.journal import CHECKPOINT, EVALUATION, LOSS, PAUSE, SESSION
from tallystick.run.manifest import DIGEST_KEY, manifest_bytes
from tallystick.run.recipes import new_job
from tallystick.run.state import State
from tallystick.run.store import RunStore
from tallystick.run.trainer import Options, train_job
from tallystick.run.version import tallystick_version

STEPS, INTERVAL = 6, 3
CONTRACTS = ("ordered/1", "replay/1")


@dataclass(frozen=True)
class World:
    """A job, its honest run, evidence against a cheat, and what is true of the run."""

    job: Job
    honest: Path
    evidence: Path
    signer: Path
    root: str
    model: bytes
    validation: dict[str, Any]


def make_world(directory: Path, contract: str) -> World:
    """Everything small: a run of a few kilobytes."""
    from tallystick.run.attacks import Declaration

    directory.mkdir()
    pairs = {"features": "4", "classes": "2", "records": "16", "batch_size": "2"}
    job = new_job(
        "logreg", directory / "job", pairs, steps=STEPS, checkpoint_interval=INTERVAL,
        evaluate_every=3, contract=contract,
    )  # fmt: skip
    honest, cheat = directory / "honest", directory / "cheat"
    made = train_job(job, honest, Options(trace=(2, 3)))
    train_job(job, cheat, Options(declared=Declaration("lie-output", {"step": 4})))
    evidence, signer = directory / "evidence", directory / "signer.pub"
    words = ["dispute", str(honest), str(cheat), "--as-attack", "B", "--job", str(job.directory)]
    assert _run([*words, "--out", str(evidence)])[0] in (1, 2)
    from tallystick.commit.signing import Envelope, verify_run

    envelope = Envelope.from_bytes((honest / "commitment.json").read_bytes())
    signer.write_bytes(verify_run(envelope)[0].signer.pem())
    model = directory / "model.safetensors"
    assert _run(["export", str(honest), "-o", str(model)])[0] == 0
    code, out, _ = _run(["evaluate", str(honest), "--json"])
    assert code == 0
    return World(
        job, honest, evidence, signer, made.run_root.hex(), model.read_bytes(), json.loads(out)
    )


def _run(words: list[str]) -> tuple[int, str, str]:
    """Exit code, standard output and error of a command in this process."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        code = command(words)
    return code, out.getvalue(), errors.getvalue()


# --- changes --------------------------------------------------------------------------------------
Change = Callable[[Path, random.Random], None]


def _files(run: Path) -> list[Path]:
    """Plain files that are not too large to be read here."""
    found = (p for p in run.rglob("*") if p.is_file() and not p.is_symlink())
    return sorted(p for p in found if p.stat().st_size <= 1 << 20)


def _number(rng: random.Random) -> int:
    return rng.choice([0, 1, 2, 7, 2**16, 2**31 - 1, 2**32, 2**53, 2**63 - 1, 2**64 - 1])


def flipped_bytes(run: Path, rng: random.Random) -> None:
    path = rng.choice(_files(run))
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice([1, 1, 4, 40])):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    path.write_bytes(data)


def numbers(run: Path, rng: random.Random) -> None:
    """Where a count, an offset or a length may stand."""
    path = rng.choice(_files(run))
    data = bytearray(path.read_bytes())
    size = rng.choice([4, 8])
    if len(data) >= size:
        at = rng.randrange(len(data) - size + 1)
        data[at : at + size] = (_number(rng) % (1 << 8 * size)).to_bytes(size, "little")
        path.write_bytes(data)


def cut_or_grown(run: Path, rng: random.Random) -> None:
    path = rng.choice(_files(run))
    data = path.read_bytes()
    cut = data[: rng.randrange(len(data) + 1)]
    path.write_bytes(rng.choice([cut, data + rng.randbytes(rng.randrange(300)), b"", data * 3]))


def sparse(run: Path, rng: random.Random) -> None:
    path = rng.choice(_files(run))
    os.truncate(path, rng.choice([1 << 20, 1 << 28, 3 << 30, 1 << 36]))


def exchanged(run: Path, rng: random.Random) -> None:
    a, b = rng.choice(_files(run)), rng.choice(_files(run))
    a.write_bytes(b.read_bytes())


def of_another_kind(run: Path, rng: random.Random) -> None:
    path = rng.choice(_files(run))
    path.unlink()
    how = rng.randrange(6)
    if how == 0:
        os.mkfifo(path)
    elif how == 1:
        path.mkdir()
    elif how == 2:
        path.symlink_to(rng.choice(["/dev/zero", "/dev/null", "/dev/stdin", "nowhere", path.name]))
    elif how == 3:
        target = run.parent / "outside"
        target.write_bytes(b"x" * 100)
        path.symlink_to(target)
    elif how == 4:
        path.mkdir()
        (path / "deep").symlink_to(run)


def directories(run: Path, rng: random.Random) -> None:
    chosen = rng.choice([p for p in [*run.iterdir(), *(run / "job").iterdir()] if p.is_dir()])
    shutil.rmtree(chosen)
    how = rng.randrange(4)
    if how == 0:
        chosen.write_bytes(b"a file")
    elif how == 1:
        chosen.symlink_to(run)
    elif how == 2:
        os.mkfifo(chosen)


NAMES = (
    "step-9999999999999.safetensors", "step-00000001.safetensors", "step-0000000000005.bin",
    "9999999999999.log", "0000000003.log", "override.json", "signer.pem", "scratch-x", "lock",
    "a\nb", "\x1b[31mred", "x" * 250, "job.json.part", "journal.part", "\udcff", "[bold]",
)  # fmt: skip


def strangers(run: Path, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 2, 5])):
        where = rng.choice([run, run / "checkpoints", run / "logs", run / "nodes", run / "job"])
        path = where / rng.choice(NAMES)
        if where.is_dir() and not os.path.lexists(path):
            source = rng.choice(_files(run))
            with contextlib.suppress(OSError):
                path.write_bytes(rng.choice([b"", b"{}", source.read_bytes()]))


def removed(run: Path, rng: random.Random) -> None:
    for _ in range(rng.choice([1, 1, 3])):
        rng.choice(_files(run)).unlink()


def declared(run: Path, rng: random.Random) -> None:
    from tallystick.run.attacks import attack_names

    name: Any = rng.choice([*attack_names(), "../x", "", 7])
    params: Any = rng.choice([{}, {"step": 3}, {"step": "x"}, {"step": 2**50}, {"a": [1]}, 4])
    (run / "override.json").write_bytes(canonical_json({"attack": name, "params": params}))


def journal(run: Path, rng: random.Random) -> None:
    """Any record changed, dropped, doubled, moved or invented, every check made anew."""

    def change(records: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        made = list(records)
        for _ in range(rng.choice([1, 1, 2, 4])):
            at = rng.randrange(len(made))
            kind, payload = made[at]
            how = rng.randrange(7)
            if how == 0:
                made[at] = rng.randrange(10), payload
            elif how == 1 and payload:
                data = bytearray(payload)
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                made[at] = kind, bytes(data)
            elif how == 2:
                del made[at]
            elif how == 3:
                made.insert(at, made[rng.randrange(len(made))])
            elif how == 4:
                made.insert(at, _record(rng))
            elif how == 5:
                made[at] = kind, _session(rng) if kind == SESSION else rng.randbytes(len(payload))
            else:
                made[at] = kind, payload[: rng.randrange(len(payload) + 1)]
            if not made:
                break
        return made

    with contextlib.suppress(FileNotFoundError, struct.error):
        rewrite(run / "journal", change)


def _record(rng: random.Random) -> tuple[int, bytes]:
    step = rng.choice([0, 1, 3, 5, 6, 2**40, 2**64 - 1])
    return rng.choice(
        [
            (PAUSE, struct.pack("<Q32s", step, rng.randbytes(32))),
            (CHECKPOINT, struct.pack("<Q32s", step, rng.randbytes(32))),
            (LOSS, struct.pack("<QI", step, rng.randrange(2**32))),
            (EVALUATION, struct.pack("<QI", step, rng.randrange(2**32))),
            (SESSION, _session(rng)),
        ]
    )


def _anything(rng: random.Random, depth: int = 0) -> Any:
    values: list[Any] = [
        None, True, -1, 2**53 - 1, "", "\x1b]0;x\x07", "\u202e", "a" * 300, [], {}, "nan", "[red]",
    ]  # fmt: skip
    if depth < 3:
        values += [[_anything(rng, depth + 1)], {"k": _anything(rng, depth + 1)}]
    return rng.choice(values)


def _session(rng: random.Random) -> bytes:
    names = ["threads", "isa", "compiler", "keep_checkpoints", "start_step", "replay", "other"]
    return canonical_json({name: _anything(rng) for name in rng.sample(names, rng.randint(0, 5))})


def manifests(run: Path, rng: random.Random) -> None:
    """A member of run.json or job.json changed, its digest made anew."""
    path = rng.choice([run / "run.json", run / "job" / "job.json"])
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return
    value.pop(DIGEST_KEY, None)
    inside = value
    for _ in range(rng.randint(0, 2)):
        deeper = [v for v in inside.values() if isinstance(v, dict) and v]
        if not deeper:
            break
        inside = rng.choice(deeper)
    name = rng.choice(sorted(inside))
    how = rng.randrange(4)
    if how == 0:
        del inside[name]
    elif how == 1:
        inside[f"x{name}"] = _anything(rng)
    elif how == 2 and isinstance(inside[name], int):
        inside[name] = min(_number(rng), 2**53 - 1)
    else:
        inside[name] = _anything(rng)
    with contextlib.suppress(Exception):
        path.write_bytes(manifest_bytes(value))


def states(run: Path, rng: random.Random) -> None:
    """A stored state with another value, and a journal that has its root."""
    store = RunStore(run)
    try:
        job, stored = store.job(), store.stored_steps()
        state = store.read_state(job, rng.choice(stored), copy=True)
    except Exception:
        return
    name = rng.choice(sorted(state.slots))
    array = state.slots[name]
    if array.size:
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice([0, 1, 3])
    step = rng.choice([1, 3, 4, 5, 6])
    made = State(state.slots, rng.choice([state.loss_chain, bytes(32)]), state.log_chain)
    with contextlib.suppress(Exception):
        store.store_state(step, made)
    root = made.root()

    def change(records: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        found = []
        for kind, payload in records:
            if kind == CHECKPOINT and struct.unpack_from("<Q", payload)[0] == step:
                payload = struct.pack("<Q32s", step, root)
            found.append((kind, payload))
        return found

    with contextlib.suppress(Exception):
        rewrite(store.journal_path, change)


def headers(run: Path, rng: random.Random) -> None:
    """A safetensors header with another table."""
    chosen = [p for p in _files(run) if p.suffix == ".safetensors"]
    if not chosen:
        return
    path = rng.choice(chosen)
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    try:
        table = json.loads(data[8 : 8 + length])
        entry = table[rng.choice(sorted(table))]
        key = rng.choice(sorted(entry))
        entry[key] = rng.choice([[], [2**40, 2**40], [0], [-1, 4], "F32", "X", 2**62, [0, 2**53]])
    except (ValueError, IndexError, KeyError, TypeError, AttributeError):
        return
    header = json.dumps(table, separators=(",", ":"), sort_keys=True).encode()
    header += b" " * (-(8 + len(header)) % 64)
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])


CHANGES: list[Change] = [
    flipped_bytes, numbers, cut_or_grown, sparse, exchanged, of_another_kind, directories,
    strangers, removed, declared, journal, journal, journal, manifests, manifests, states, headers,
]  # fmt: skip


# --- reads ----------------------------------------------------------------------------------------
Read = Callable[[World, Path, Path], None]
COMMANDS: Counter[str] = Counter()  # how often each was called


def _checked(words: list[str]) -> tuple[int, str]:
    """Run a command; AssertionError for a traceback, an unknown exit code or raw escapes."""
    with bounded_time():
        code, out, errors = _run(words)
    COMMANDS[words[0]] += 1
    assert code in (0, 1, 2, 3), (code, words)
    assert "this is a bug" not in errors and "Traceback" not in errors, errors[-3000:]
    assert "not enough memory" not in errors, (words, errors)
    raw = [c for c in out + errors if (ord(c) < 32 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0]
    assert not raw, (words, raw[:10])
    return code, out


def read_inspect(world: World, run: Path, _: Path) -> None:
    _checked(["inspect", str(run)])
    _checked(["inspect", str(run), "--json"])


def read_fsck(world: World, run: Path, _: Path) -> None:
    _checked(["fsck", str(run), "--trust", str(world.signer)])


def read_audit(world: World, run: Path, _: Path) -> None:
    words = ["audit", str(run), "--job", str(world.job.directory), "--trust", str(world.signer)]
    code, out = _checked([*words, "--quiet", "--json"])
    if code == 0:
        assert json.loads(out)["run_root"] == world.root


def read_segment(world: World, run: Path, _: Path) -> None:
    code, out = _checked(["audit", str(run), "--steps", "4:5", "--quiet", "--json"])
    if code == 0 and json.loads(out)["job_digest"] == world.job.digest.hex():
        _signed_by_honest(world, run, json.loads(out)["run_root"])


def _signed_by_honest(world: World, run: Path, root: str) -> None:
    """Under the honest key only the honest run root exists."""
    from tallystick.commit.signing import Envelope, verify_run
    from tallystick.disk.keys import load_public_key

    envelope = Envelope.from_bytes((run / "commitment.json").read_bytes())
    if verify_run(envelope)[0].signer == load_public_key(world.signer):
        assert root == world.root


def read_export(world: World, run: Path, scratch: Path) -> None:
    out = scratch / "model"
    code, _ = _checked(["export", str(run), "-o", str(out), "--trust", str(world.signer)])
    if code == 0:
        assert out.read_bytes() == world.model


def read_verify_model(world: World, run: Path, scratch: Path) -> None:
    model = scratch / "honest-model"
    model.write_bytes(world.model)
    _checked(["verify-model", str(model), str(run), "--trust", str(world.signer)])


def read_evaluate(world: World, run: Path, _: Path) -> None:
    code, out = _checked(["evaluate", str(run), "--json"])
    found = json.loads(out) if code == 0 else world.validation
    if found["state_root"] == world.validation["state_root"]:
        assert found == world.validation


def read_sample(world: World, run: Path, _: Path) -> None:
    _checked(["sample", str(run), "--length", "3"])


def read_report(world: World, run: Path, scratch: Path) -> None:
    _checked(["report", str(run), "-o", str(scratch / "page"), "--job", str(world.job.directory)])


def read_report_beside(world: World, run: Path, scratch: Path) -> None:
    words = ["report", str(world.evidence), "-o", str(scratch / "page"), "--run", str(run)]
    _checked([*words, "--job", str(world.job.directory)])


def read_dispute(world: World, run: Path, scratch: Path) -> None:
    """Against the honest run: that one is never convicted, and neither is a run that is signed by
    the honest key, whatever lies beside its signature."""
    words = ["dispute", str(world.honest), str(run), "--job", str(world.job.directory), "--json"]
    code, out = _checked([*words, "--out", str(scratch / "evidence")])
    if code == 1:
        convicted = [c["party"] for c in json.loads(out)["convicted"]]
        assert not convicted, out


def read_job(world: World, run: Path, _: Path) -> None:
    _checked(["inspect", str(run / "job")])
    _checked(["fsck", str(run / "job")])


def read_train(world: World, run: Path, _: Path) -> None:
    """A resume: the finished run stays finished, an unfinished one goes on or is refused."""
    code, out = _checked(
        ["train", str(world.job.directory), "--out", str(run), "--quiet", "--json"]
    )
    assert code != 0 or json.loads(out)["job_digest"] == world.job.digest.hex()


def read_replay(world: World, run: Path, scratch: Path) -> None:
    out = scratch / "follower"
    words = ["train", str(world.job.directory), "--out", str(out), "--replay", str(run), "--quiet"]
    code, text = _checked([*words, "--json"])
    shutil.rmtree(out, ignore_errors=True)
    # Whatever the followed logs say: an auditor's own run is its own.
    assert code in (0, 1, 2, 3), text


# Those that execute steps, or draw, take most of the time: one in HEAVY_EVERY of them is done.
HEAVY = (read_audit, read_segment, read_dispute, read_report, read_report_beside, read_replay,
         read_train)  # fmt: skip
HEAVY_EVERY = 4
READS: list[Read] = [
    read_inspect,
    read_fsck,
    read_export,
    read_verify_model,
    read_evaluate,
    read_sample,
    read_job,
    *HEAVY,  # train last: it may change the run
]


def fuzz(reads: int, seed: int, memory: bool = True) -> dict[str, Any]:
    """At least so many reads of changed directories."""
    rng = random.Random(seed)
    np.random.seed(seed % 2**32)
    changes: Counter[str] = Counter()
    done = 0
    COMMANDS.clear()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        worlds = [make_world(directory / f"w{k}", c) for k, c in enumerate(CONTRACTS)]
        for world in worlds:  # twice: imports and caches are there now
            for read in READS:
                _read(read, world, world.honest, directory, "unchanged")
        COMMANDS.clear()
        if memory:
            bound_memory()
        while done < reads:
            world, run = rng.choice(worlds), directory / "run"
            shutil.copytree(world.honest, run)
            made = [rng.choice(CHANGES) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
            for change in made:
                # A change may find that an earlier one has left it nothing to work on.
                with contextlib.suppress(IndexError, OSError, MemoryError, struct.error):
                    change(run, rng)
                changes[change.__name__] += 1
            what = f"seed {seed}, read {done}, {', '.join(c.__name__ for c in made)}"
            for read in READS:
                if read in HEAVY and rng.randrange(HEAVY_EVERY):
                    continue
                before = COMMANDS.total()
                _read(read, world, run, directory, what)
                done += COMMANDS.total() - before
            _remove(run)
    return {
        "reads": done, "seed": seed, "by_command": dict(sorted(COMMANDS.items())),
        "changes": dict(sorted(changes.items())),
    }  # fmt: skip


def _read(read: Read, world: World, run: Path, directory: Path, what: str) -> None:
    scratch = directory / "scratch"
    scratch.mkdir(exist_ok=True)
    try:
        read(world, run, scratch)
    except BaseException:
        print(f"{what}: {read.__name__}", file=sys.stderr)
        kept = os.environ.get("FUZZ_KEEP")
        if kept:
            shutil.copytree(run, kept, symlinks=True, dirs_exist_ok=True)
        raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove(run: Path) -> None:
    shutil.rmtree(run, ignore_errors=True)
    (run.parent / "outside").unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reads", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    began = time.monotonic()
    found = fuzz(given.reads, given.seed)
    found["seconds"] = round(time.monotonic() - began, 1)
    found["tallystick"], found["date"] = tallystick_version(), time.strftime("%Y-%m-%d")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
