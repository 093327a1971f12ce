"""Ways to change a run's directory, checksums made anew where they need no key (fuzz_runs.py)."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from journals import rewrite

from tallystick.commit.encoding import canonical_json
from tallystick.disk.manifest import DIGEST_KEY, manifest_bytes
from tallystick.program.state import State
from tallystick.run.cheats.attacks import attack_names
from tallystick.run.store.directory import RunStore
from tallystick.run.store.journal import CHECKPOINT, EVALUATION, LOSS, PAUSE, SESSION

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
