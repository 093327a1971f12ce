"""`bench ovt --quick` shows what its parts are to show, and goes on from the results it kept."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

from tallystick.cli.main import run
from tallystick.contracts.replay.stock.emulated import Hardware, kind_named
from tallystick.errors import CannotCheckError, StorageError, UsageError
from tallystick_bench.ovt import measure as ovt
from tallystick_bench.ovt.models import QUICK
from tallystick_bench.ovt.parties import lockstep
from tallystick_bench.ovt.parties.arms import HARDWARE
from tallystick_bench.ovt.parties.lockstep import children, run_arm
from tallystick_bench.ovt.results.plots import draw, have_matplotlib
from tallystick_bench.ovt.results.rows import EXACT_ARMS, PARTS, rows_of
from tallystick_bench.ovt.results.store import part_file, read_all

Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ovt")


@pytest.fixture(scope="module")
def models(is_exhaustive: bool) -> Iterator[tuple[str, ...]]:
    """The models of quick mode; the first one alone by default."""
    chosen = QUICK if is_exhaustive else QUICK[:1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ovt, "QUICK", chosen)
        yield chosen


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short text: the recipe's own takes seconds to gather."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("A tally stick was split in two. " * 200)
    return path


@pytest.fixture(scope="module")
def rows(out: Path, text: Path, models: tuple[str, ...]) -> Rows:
    """Every part, in quick mode, on one thread."""
    return {row["name"]: row for row in ovt.rows(1, quick=True, out=out, text=text)}


def test_divergence(rows: Rows, models: tuple[str, ...]) -> None:
    assert len(HARDWARE) >= 3
    for model in models:
        for arm in ("float32", "round", *EXACT_ARMS):
            start = f"ovt/{model}/divergence/{arm}/"
            found = [row for name, row in rows.items() if name.startswith(start)]
            assert len(found) == 3, "every pair of three kinds"
            for row in found:
                if arm in EXACT_ARMS:
                    assert row["value"] == 0 and row["equal_steps"] == row["steps"]
                    assert row["target"] == 0
    # What makes the zeros worth something: the pairs with another order of sums do part.
    for arm in ("float32", "round"):
        row = rows[f"ovt/gpt2-tiny/divergence/{arm}/plain|split-k/final_l2"]
        assert row["value"] > 0 and row["first_step_apart"] is not None
    assert rows["ovt/gpt2-tiny/divergence/published/plain|split-k/max_l2"]["corrections"] > 0


def test_storage(rows: Rows, out: Path, models: tuple[str, ...]) -> None:
    for model in models:
        size = {
            form: rows[f"ovt/{model}/log/{form}_bytes"]["value"]
            for form in ("naive", "packed", "bounded", "rounded", "weights")
        }
        assert size["naive"] > 4.9 * size["packed"] and size["rounded"] == 0
        assert 0 < size["bounded"] < size["packed"]
        assert rows[f"ovt/{model}/log/packed_bits_per_entry"]["value"] < 1.61
        entries = read_all(out)["storage", model].entries
        for form in ("naive", "packed", "bounded"):
            sums = [
                sum(line.get(form, 0) for line in entries[kind].values())
                for kind in ("classes", "places")
            ]
            assert sums == pytest.approx([size[form]] * 2)


def test_other_parts(rows: Rows, out: Path) -> None:
    assert 0 < rows["ovt/gpt2-tiny/escalation/b32/share"]["value"] < 0.05
    for side in ("rounded", "trainer", "auditor", "published-trainer", "published-auditor"):
        time = rows[f"ovt/gpt2-tiny/time/{side}_ratio"]
        assert time["value"] == pytest.approx(time["seconds"] / time["anchor_seconds"])
    for side in ("trainer", "auditor"):
        memory = rows[f"ovt/gpt2-tiny/memory/{side}_ratio"]
        assert memory["value"] == pytest.approx(memory["bytes"] / memory["anchor_bytes"])
    for bits in (32, 26):
        counted = rows[f"ovt/gpt2-tiny/corrections/b{bits}/forward_per_step"]
        assert counted["entries"] > 10_000 and counted["value"] >= 0
    for layer in ("convolution", "batch_norm", "linear", "layer_norm"):
        assert 0.25 <= rows[f"ovt/thresholds/{layer}/tau"]["value"] <= 0.5
    assert {part for part, _ in read_all(out)} == set(PARTS)


def test_results_are_taken_up_again(
    rows: Rows, out: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is there: no process is started, and the rows are the same."""
    monkeypatch.setattr(lockstep.subprocess, "Popen", None)
    again = ovt.rows(1, parts=("divergence", "storage"), quick=True, out=out, text=text)
    assert {row["name"]: row for row in again} == {
        name: row for name, row in rows.items() if "/divergence/" in name or "/log/" in name
    }
    with pytest.raises(UsageError, match="other settings"):
        ovt.rows(2, parts=("divergence",), quick=True, out=out, text=text)


def test_the_page(rows: Rows, out: Path, tmp_path: Path) -> None:
    page = _script("ovt_page").page(read_all(out), set())
    for title in ("Divergence", "Storage", "Corrections", "Thresholds", "Time", "Memory"):
        assert f"## {title}\n" in page
    assert "gpt2-tiny" in page and str(out) not in page


def test_rows_do_not_depend_on_what_measured_them(rows: Rows, out: Path) -> None:
    assert {row["name"]: row for row in rows_of(read_all(out))} == rows


def test_entries_are_kept_and_a_file_has_one_writer(tmp_path: Path) -> None:
    about = {"steps": 3}
    with part_file(tmp_path, "time", "m", about) as part:
        assert part.get("a", lambda: {"x": 1.5}) == {"x": 1.5}
        with pytest.raises(RuntimeError, match="cut off"):
            part.get("b", _cut_off)
        with (
            pytest.raises(StorageError, match="ovt-time-m"),
            part_file(tmp_path, "time", "m", about),
        ):
            pass
    with part_file(tmp_path, "time", "m", about) as part:
        assert part.get("a", _cut_off) == {"x": 1.5}
    with (
        pytest.raises(UsageError, match="other settings"),
        part_file(tmp_path, "time", "m", {"steps": 4}),
    ):
        pass
    (tmp_path / "ovt-time-n.json").write_text(json.dumps({"bench": "gemm"}))
    with pytest.raises(UsageError, match="no results"):
        read_all(tmp_path)


@pytest.mark.parametrize(
    ("part", "first"),
    [("storage", "sections of zstd"), ("memory", "trainer"), ("corrections", "")],
)
def test_what_was_cut_off_early_is_left_out(part: str, first: str, tmp_path: Path) -> None:
    """The other parts' rows, plots and page do not wait for it."""
    with part_file(tmp_path, part, "gpt2-tiny", {}) as file:
        if first:
            file.get(first, lambda: [{"node": 0, "output": 0, "payload": 1.0, "stored": 1.0}])
    results = read_all(tmp_path)
    assert rows_of(results) == []
    assert "gpt2-tiny" not in _script("ovt_page").page(results, set())
    if have_matplotlib():
        assert draw(results, tmp_path) == []


def test_a_process_that_died_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(CannotCheckError, match="process for plain failed"),
        children([kind_named("plain")], tmp_path, 1) as made,
    ):
        made[0].process.kill()
        made[0].process.wait()
        made[0].ask(do="stop")
        made[0].answer()


class Writer:
    """In place of a process: every step writes a log and takes no time."""

    def __init__(self, kind: Hardware, home: Path) -> None:
        self.hardware, self.home = kind, home
        self.asked: list[dict[str, Any]] = []

    def ask(self, **command: Any) -> None:
        self.asked.append(command)

    def answer(self) -> dict[str, Any]:
        command = self.asked.pop(0)
        if command["do"] != "step":
            return {}
        log = self.home / f"{self.hardware.name}-{command['lane']}.log"
        log.write_bytes(b"log")
        return {"loss": 1.0, "state": "same", "log": str(log), "log_bytes": 3}


def test_logs_do_not_pile_up(tmp_path: Path) -> None:
    made: list[Any] = [Writer(kind_named(name), tmp_path) for name in HARDWARE]
    found = run_arm(made, tmp_path, "bounded", "replay/1", 2, logged=True)
    assert [pair["equal"] for pair in found["pairs"].values()] == [2, 2, 2]
    assert list(tmp_path.iterdir()) == [], "a follower's own logs are as large as its trainer's"


def _cut_off() -> None:
    raise RuntimeError("cut off")


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "ovt", "--part", "space"]) == 3
    assert "'space'" in capsys.readouterr().err
    assert run(["bench", "gemm", "--quick"]) == 3
    assert "takes no --quick" in capsys.readouterr().err


def _script(name: str) -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
