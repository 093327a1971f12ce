"""Tampering with a run or its job: every byte of every file, and what only a repetition sees."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tallystick.cli import main
from tallystick.cli.main import run as command
from tallystick.commit.signing import PrivateKey, RunCommitment, sign_run
from tallystick.commit.tensor import Array
from tallystick.disk.manifest import manifest_bytes
from tallystick.disk.tensorfile import read_tensors
from tallystick.errors import (
    CannotCheckError,
    CorruptFileError,
    DigestMismatchError,
    TallystickError,
)
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.program.state import State
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat
from tallystick.run.execute.auditor import audit_run
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.store.claim import check_own_key, read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import export_model, verify_model
from tallystick.run.store.fsck import fsck

Copy = Callable[[Path], Path]


def _caught(run: Path) -> bool:
    """fsck reports it or, failing that, an audit refuses or rejects it."""
    if not fsck(run).clean:
        return True
    try:
        return not audit_run(run).accepted
    except TallystickError:
        return True


def _files(run: Path) -> list[Path]:
    return sorted(p for p in run.rglob("*") if p.is_file() and p.name != "lock")


def test_an_honest_run_is_clean_and_accepted(logreg_run: RunSummary) -> None:
    report = fsck(logreg_run.directory)
    assert report.clean, report.problems
    assert audit_run(logreg_run.directory).accepted


def _part_check(run: Path, path: Path, job: Job) -> Callable[[], object]:
    """The one check of fsck (and of audit, before it executes) that reads this file."""
    store = RunStore(run)
    roots = dict(store.journal().checkpoints)
    signer = read_claim(store, job).commitment.signer
    name = path.relative_to(run).as_posix()
    if name.startswith("checkpoints/"):
        step = int(path.stem[len("step-") :])
        return lambda: store.load_state(job, step, roots[step], copy=False)
    if name.startswith("nodes/"):
        return lambda: store.load_trace(job, int(path.stem[len("step-") :]))

    def job_part(use: Callable[[Job], object]) -> Callable[[], object]:
        # A fresh object each time: a loaded job keeps what it has read and checked.
        return lambda: use(replace(job, directory=run / "job"))

    return {
        "run.json": store.manifest,
        "journal": lambda: read_claim(store, job),
        "commitment.json": lambda: read_claim(store, job),
        "signer.pem": lambda: check_own_key(path, signer),
        "job/job.json": lambda: load_job(run / "job"),
        "job/program.txt": job_part(lambda j: j.program),
        "job/eval.txt": job_part(lambda j: j.eval_program),
        "job/forward.txt": job_part(lambda j: j.forward_program),
        "job/state0.safetensors": job_part(lambda j: j.genesis()),
        "job/data/train.safetensors": job_part(lambda j: j.verify_data()),
        "job/data/validation.safetensors": job_part(lambda j: j.verify_validation()),
    }[name]


def _refused(check: Callable[[], object]) -> bool:
    try:
        check()
    except TallystickError:
        return True
    return False


def test_every_byte_of_every_file(logreg_run: RunSummary, copied: Copy) -> None:
    """Headers, manifests, states, data, journal, node digests, signature: no byte is free.

    Each byte is flipped under the check that reads its file; every 50th under all of fsck.
    """
    run = copied(logreg_run.directory)
    job = load_job(run / "job")
    free = []
    flipped = 0
    for path in _files(run):
        check = _part_check(run, path, job)
        check()
        original = path.read_bytes()
        changed = bytearray(original)
        with open(path, "r+b", buffering=0) as file:
            for at in range(len(original)):
                changed[at] ^= 1 << (at * 5 + 3) % 8
                file.seek(at)
                file.write(changed[at : at + 1])
                if not _refused(check) or (flipped % 50 == 0 and fsck(run).clean):
                    free.append((path.relative_to(run), at))
                changed[at] = original[at]
                file.seek(at)
                file.write(original[at : at + 1])
                flipped += 1
    assert not free
    assert flipped > 5000
    assert fsck(run).clean


def test_every_file_cut_short_grown_or_gone(logreg_run: RunSummary, copied: Copy) -> None:
    run = copied(logreg_run.directory)
    optional = {"nodes", "checkpoints"}
    for path in _files(run):
        original = path.read_bytes()
        for bad in (original[:-1], original[: len(original) // 2], b"", original + b"\0"):
            path.write_bytes(bad)
            assert _caught(run), (path, len(bad))
        path.unlink()
        # A stored state or a trace may be given up; what is left must still be sound.
        last = path.name == f"step-{logreg_run.steps:08d}.safetensors"
        # So may the key, by who shows a copy of a run to others.
        kept = path.parent.name not in optional and path.name != "signer.pem"
        if kept or last:
            assert _caught(run), path
        else:
            assert not _caught(run), path
        path.write_bytes(original)


def test_files_swapped_within_a_run(mlp_run: RunSummary, copied: Copy) -> None:
    """A state under another step's name is not that step's state."""
    run = copied(mlp_run.directory)
    states = sorted((run / "checkpoints").iterdir())
    assert len(states) >= 2
    shutil.copyfile(states[1], states[0])
    assert not fsck(run).clean


def test_a_foreign_file_is_named(mlp_run: RunSummary, copied: Copy) -> None:
    run = copied(mlp_run.directory)
    (run / "checkpoints" / "notes.txt").write_text("hello")
    (problem,) = fsck(run).problems
    assert problem.path == "checkpoints/notes.txt"
    assert "Remove it" in problem.next_action


def test_a_flipped_weight_is_named(mlp_run: RunSummary, copied: Copy) -> None:
    """One bit of one stored weight: the audit names file, step and slot (issue 2, item 1)."""
    run = copied(mlp_run.directory)
    store = RunStore(run)
    path = store.checkpoint_path(5)
    data = bytearray(path.read_bytes())
    data[-70] ^= 4
    path.write_bytes(data)
    report = audit_run(run)
    assert not report.accepted
    assert report.difference is not None
    assert report.difference.kind == "checkpoint"
    assert report.difference.step == 5
    assert report.difference.slot
    segment = audit_run(run, steps=(6, 12))
    assert not segment.accepted


def test_a_flipped_batch_is_refused(mlp_run: RunSummary, mlp_job: Job, copied: Copy) -> None:
    run = copied(mlp_run.directory)
    path = run / "job" / "data" / "train.safetensors"
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)
    with pytest.raises(DigestMismatchError) as caught:
        audit_run(run)
    assert caught.value.exit_code == 1
    assert "train.safetensors" in caught.value.message
    # The client's own job is untouched: the run's commitment still holds, the copy is named.
    report = audit_run(run, mlp_job)
    assert report.accepted
    assert any("train.safetensors" in notice for notice in report.notices)


def _cheat(job: Job, out: Path, trace: tuple[int, int] | None = None) -> None:
    """Train with one bit of one batch flipped in step 7, and sign that."""

    class Flip(Override):
        def batch(self, step: int, batch: dict[str, Array]) -> None:
            if step == 7:
                batch["x"].view("u4")[0, 0] ^= 1 << 20

    train_job(job, out, Options(maker=Cheat(Flip()), trace=trace))


def test_training_on_other_data_is_found(mlp_job: Job, tmp_path: Path) -> None:
    _cheat(mlp_job, tmp_path / "run")
    assert fsck(tmp_path / "run").clean  # every digest fits: only repeating it tells
    report = audit_run(tmp_path / "run", mlp_job)
    assert report.difference is not None
    assert report.difference.kind == "state"
    assert report.difference.interval == (5, 10)
    assert report.difference.operator is None


def test_node_digests_name_step_and_operator(mlp_job: Job, tmp_path: Path) -> None:
    _cheat(mlp_job, tmp_path / "run", trace=(6, 9))
    report = audit_run(tmp_path / "run", mlp_job)
    d = report.difference
    assert d is not None
    assert (d.interval, d.step) == ((5, 10), 7)
    assert d.node is not None
    reads = mlp_job.program.nodes[d.node].inputs
    names = {mlp_job.program.inputs[v.out].name for v in reads if v is not None and v.is_input}
    assert "batch.x" in names
    assert d.operator == mlp_job.program.nodes[d.node].op


def test_a_changed_state_is_found_in_its_interval(mlp_job: Job, tmp_path: Path) -> None:
    class Flip(Override):
        def before(self, step: int, state: State) -> None:
            if step == 11:
                state.slots["param.0.bias"].view("u4")[0] ^= 1

    train_job(mlp_job, tmp_path / "run", Options(maker=Cheat(Flip())))
    report = audit_run(tmp_path / "run", mlp_job)
    assert report.difference is not None
    assert report.difference.interval == (10, 12)


def _resigned(run: Path, key: PrivateKey, **changes: object) -> None:
    store = RunStore(run)
    old = read_claim(store, store.job()).commitment
    fields = {
        name: getattr(old, name)
        for name in ("job_digest", "run_root", "final_step", "final_state_root", "checkpoints")
    }
    new = RunCommitment(**{**fields, **changes, "signer": key.public})  # type: ignore[arg-type]
    store.commitment_path.write_bytes(sign_run(key, new).to_bytes())


@pytest.mark.parametrize(
    "changes",
    [
        {"run_root": bytes(32)},
        {"job_digest": bytes(32)},
        {"final_state_root": bytes(32)},
        {"final_step": 5},
        {"checkpoints": 3},
    ],
)
def test_a_signed_lie_about_the_journal(
    changes: dict[str, object], mlp_run: RunSummary, copied: Copy
) -> None:
    run = copied(mlp_run.directory)
    _resigned(run, PrivateKey(bytes(range(32))), **changes)
    assert not fsck(run).clean
    with pytest.raises(DigestMismatchError):
        audit_run(run)


def test_trust_decides_about_the_signer(mlp_run: RunSummary, copied: Copy) -> None:
    run = copied(mlp_run.directory)
    key, other = PrivateKey(bytes(range(32))), PrivateKey(bytes(range(1, 33)))
    _resigned(run, key)
    assert audit_run(run).trusted is None
    assert audit_run(run, trust=[other.public, key.public]).trusted is True
    with pytest.raises(TallystickError) as caught:
        audit_run(run, trust=[other.public])
    assert caught.value.exit_code == 1
    assert not fsck(run, [other.public]).clean


def test_an_unfinished_run_makes_no_claim(mlp_job: Job, tmp_path: Path) -> None:
    train_job(mlp_job, tmp_path / "run", Options(stop_before=7))
    with pytest.raises(CannotCheckError):
        audit_run(tmp_path / "run")
    assert fsck(tmp_path / "run").clean


def test_an_exported_model_is_bound_to_the_run(mlp_run: RunSummary, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    exported = export_model(mlp_run.directory, path)
    assert verify_model(path, mlp_run.directory) == exported
    data = bytearray(path.read_bytes())
    for at in range(len(data) - 200, len(data), 17):
        data[at] ^= 1
        path.write_bytes(data)
        with pytest.raises(DigestMismatchError):
            verify_model(path, mlp_run.directory)
        data[at] ^= 1
    path.write_bytes(data)
    assert verify_model(path, mlp_run.directory).run_root == mlp_run.run_root


def test_a_model_rewritten_by_another_library_is_another_file(
    mlp_run: RunSummary, tmp_path: Path
) -> None:
    """Only the canonical file matches: another writer's may carry bytes that no digest covers."""
    safetensors = pytest.importorskip("safetensors.numpy")
    path, again = tmp_path / "model.safetensors", tmp_path / "again.safetensors"
    export_model(mlp_run.directory, path)
    tensors = safetensors.load_file(str(path))
    assert set(tensors) == {"0.weight", "0.bias", "3.weight", "3.bias"}
    safetensors.save_file(tensors, str(again))
    with pytest.raises(DigestMismatchError, match=r"tensors of .* are those") as caught:
        verify_model(again, mlp_run.directory)
    assert "tallystick export" in caught.value.next_action
    tensors["0.bias"] = np.nextafter(tensors["0.bias"], np.float32(9))
    safetensors.save_file(tensors, str(again))
    with pytest.raises(DigestMismatchError, match=r"0\.bias"):
        verify_model(again, mlp_run.directory)


def _split(path: Path) -> tuple[bytes, bytes]:
    """The header (JSON) and the data of a safetensors file."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return data[8:end].rstrip(b" "), data[end:]


def _file(header: bytes, data: bytes) -> bytes:
    header += b" " * (-(8 + len(header)) % 64)
    return len(header).to_bytes(8, "little") + header + data


def test_a_model_file_with_anything_else_in_it(mlp_run: RunSummary, tmp_path: Path) -> None:
    """Each of these has the committed tensors in it; none is the file that was exported."""
    path = tmp_path / "model.safetensors"
    export_model(mlp_run.directory, path)
    header, data = _split(path)
    assert _file(header, data) == path.read_bytes()
    table, whole = json.loads(header), len(data)
    first = min(table.keys() - {"__metadata__"}, key=lambda name: table[name]["data_offsets"][0])
    twice = header.replace(b'{"0.bias"', b'{"0.bias":%s,"0.bias"' % json.dumps(
        table["0.bias"], separators=(",", ":")).encode(), 1)  # fmt: skip
    assert twice != header
    moved = json.loads(header)
    for name in moved.keys() - {"__metadata__"}:
        moved[name]["data_offsets"] = [at + 64 for at in moved[name]["data_offsets"]]
    hidden = json.loads(header)
    for name in hidden.keys() - {"__metadata__", first}:
        hidden[name]["data_offsets"] = [at + 16 for at in hidden[name]["data_offsets"]]
    end = table[first]["data_offsets"][1]
    more = {**table, "__metadata__": {**table["__metadata__"], "note": "hidden"}}
    other = {**table, "__metadata__": {**table["__metadata__"], "tallystick.step": "1"}}
    bare = {name: entry for name, entry in table.items() if name != "__metadata__"}
    extra = {**table, first: {**table[first], "note": 1}}

    def dumped(value: object) -> bytes:
        return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()

    files = {
        "a tensor twice": _file(twice, data),
        "trailing bytes": _file(header, data + bytes(64)),
        "bytes before the tensors": _file(dumped(moved), b"h" * 64 + data),
        "bytes between the tensors": _file(dumped(hidden), data[:end] + b"h" * 16 + data[end:]),
        "more metadata": _file(dumped(more), data),
        "other metadata": _file(dumped(other), data),
        "no metadata": _file(dumped(bare), data),
        "more in an entry": _file(dumped(extra), data),
        "another order of keys": _file(
            json.dumps(dict(reversed(table.items())), separators=(",", ":")).encode(), data
        ),
        "more spaces": len(header + b" " * 512).to_bytes(8, "little") + header + b" " * 512 + data,
        "cut": path.read_bytes()[:-1],
        "empty": b"",
    }  # fmt: skip
    assert whole > end and len(set(files.values())) == len(files)
    for name, content in files.items():
        path.write_bytes(content)
        with pytest.raises(DigestMismatchError) as caught:
            verify_model(path, mlp_run.directory)
        assert "tallystick export" in caught.value.next_action, name
        assert main.run(["verify-model", str(path), str(mlp_run.directory)]) == 1, name


def test_one_tensor_at_two_names_is_not_read(tmp_path: Path) -> None:
    """Overlapping ranges: a safetensors reader of any strictness takes each byte once."""
    header = (
        b'{"a":{"data_offsets":[0,8],"dtype":"F32","shape":[2]},'
        b'"b":{"data_offsets":[4,8],"dtype":"F32","shape":[1]}}'
    )
    path = tmp_path / "t"
    path.write_bytes(_file(header, bytes(8)))
    for strict in (True, False):
        with pytest.raises(CorruptFileError):
            read_tensors(path, "file", strict=strict)


def test_a_false_validation_loss_is_not_told(
    logreg_run: RunSummary, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    """No state covers validation records: found by fuzzing, as a loss of altered ones."""
    run = copied(logreg_run.directory)
    path = run / "job" / "data" / "validation.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x40
    path.write_bytes(data)
    assert command(["evaluate", str(run)]) == 1
    said = capsys.readouterr()
    assert "validation loss" not in said.out and "altered" in said.err


@pytest.mark.parametrize("member", ["batch_size", "record_count", "every"])
def test_impossible_numbers_of_validation_records(
    member: str, logreg_run: RunSummary, copied: Copy, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by fuzzing: a division by zero, the manifest's own digest made anew."""
    run = copied(logreg_run.directory)
    path = run / "job" / "job.json"
    value = json.loads(path.read_bytes())
    value.pop("manifest_digest")
    value["evaluation"][member] = -1 if member == "every" else 0
    path.write_bytes(manifest_bytes(value))
    assert command(["evaluate", str(run)]) == 2
    assert "impossible" in capsys.readouterr().err
