"""`bench paper --quick` makes its rows and goes on from what it kept; its page names conditions."""

from __future__ import annotations

import importlib.util
import json
import statistics
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("torch")

from tallystick.cli.main import run
from tallystick.errors import UsageError
from tallystick_bench.ovt.results.store import PartFile, read_part
from tallystick_bench.paper import measure as paper
from tallystick_bench.paper.models import CELLS, CONTRACTS
from tallystick_bench.paper.parts import runs as runs_part
from tallystick_bench.paper.results.row import Machine, Row, shown
from tallystick_bench.paper.results.sections import SECTIONS
from tallystick_bench.paper.results.sections import rows as rows_of

Rows = dict[str, dict[str, Any]]
# The parts that start no process; `ovt`, `steps` and `corrections` are `bench ovt`'s measurements.
PARTS = ("runs", "rounding", "products", "verde")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short text: the recipe's own takes seconds to gather."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("A tally stick was split in two. " * 200)
    return path


@pytest.fixture(scope="module")
def rows(out: Path, text: Path) -> Rows:
    found = paper.rows(1, parts=PARTS, quick=True, out=out, text=text)
    return {row["name"]: row for row in found}


def test_runs_are_signed_and_audited(rows: Rows, out: Path) -> None:
    names = {name for name in rows if name.startswith("paper/runs/")}
    assert len(names) == sum(map(len, CELLS["runs"][True].values()))
    for name in names:
        row = rows[name]
        assert row["signed"] and row["accepted"] and row["audited"] == "whole"
        assert (row["log_bytes"] > 0) is ("replay" in name)
        assert row["value"] == row["seconds"] / row["plain_seconds"]
    # The plain steps are of the same model on the same batches: the first losses agree.
    part = read_part(out / "paper-runs-resnet-tiny.exact-b22.json", "paper")
    train = part.entries["train"]
    assert train["plain_losses"][0] == pytest.approx(train["losses"][0], rel=1e-4)
    assert part.entries["audit"]["run_root"] == train["run_root"]


def test_a_finished_run_leaves_only_its_results(rows: Rows, out: Path) -> None:
    assert not list((out / "work").rglob("*.safetensors"))


def test_every_row_names_its_conditions(rows: Rows) -> None:
    for row in rows.values():
        assert row["size"] and row["steps"] and row["hardware"], row["name"]
    assert all(rows_of_section(rows, s) for s in ("runs", "verde-tables", "verde-figure-3"))


def rows_of_section(rows: Rows, section: str) -> list[dict[str, Any]]:
    return [row for name, row in rows.items() if name.startswith(f"paper/{section}/")]


def test_verde_adds_up_pieces(rows: Rows, out: Path) -> None:
    row = rows["paper/verde-tables/llama-tiny, training, ordered/1"]
    entries = read_part(out / "paper-verde-llama-tiny.training.json", "paper").entries
    layer, head = (entries[f"{piece}.ordered"]["seconds"]["ours"] for piece in ("layer", "head"))
    assert row["seconds"] == 2 * statistics.median(layer) + statistics.median(head)


def test_what_is_kept_is_not_measured_again(
    rows: Rows, out: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(runs_part, "made_run", fails)
    again = paper.rows(1, parts=("runs",), quick=True, out=out, text=text)
    assert {row["name"]: row["value"] for row in again}.items() <= {
        name: row["value"] for name, row in rows.items()
    }.items()


def test_page(rows: Rows, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = _script()
    arguments = ["paper_page.py", str(out), "--docs", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    script.main()
    text = (tmp_path / "PAPERS.md").read_text()
    for name in ("runs", "verde-tables", "verde-figure-3", "ovt-table-1"):
        assert SECTIONS[name].title in text
    for row in rows_of_section(rows, "runs"):
        assert row["run_root"][:16] in text


def _script() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "paper_page.py"
    spec = importlib.util.spec_from_file_location("paper_page", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_miss_is_marked() -> None:
    def row(value: float, paper: float | None) -> Row:
        return Row("s", "n", value, "bytes", "size", "1", Machine("here"), paper, "there", True)

    assert row(2, 1).missed and not row(1, 2).missed and not row(2, None).missed
    assert [shown(v, "bytes") for v in (0, 999, 1500, 2.78e9)] == [
        "0 B",
        "999 B",
        "1.5 KB",
        "2.78 GB",
    ]
    assert shown(-0.2, "overhead") == "-20%"


def test_ratios_come_from_turns_where_these_exist() -> None:
    machine = {"cores": 2, "isa": "avx2", "threads": 2}
    train = {
        "steps": 20, "parameters": 1, "seconds": {"ours": [9.0], "plain": [1.0]}, "load": [8, 9],
        "all_seconds": [9.0], "run_root": "00", "signed": True, "log_bytes": 0, "nodes": 1,
        "checkpoint_bytes": {"one": 1}, "losses": [1.0], "checkpoints": [],
    }  # fmt: skip
    about = {"machine": machine, "model": "resnet50", "settings": {}, "data": "CIFAR-10"}
    turns = {"ordered": {"seconds": {"ours": [2.0], "float32": [4.0]}, "load": 0.1}}
    parts = {
        ("runs", "resnet50.ordered"): PartFile(
            Path("a"), "runs", "resnet50.ordered", about, {"train": train}, "paper"
        ),
        ("steps", "resnet50"): PartFile(Path("b"), "steps", "resnet50", about, turns, "paper"),
    }
    (found,) = (row for row in rows_of(parts) if row.section == "runs")
    assert found.value == 0.5 and found.hardware.load == 0.1 and found.more["accepted"] is None


def test_both_benches_files_of_one_part_are_read(tmp_path: Path) -> None:
    for bench in ("paper", "ovt"):
        (tmp_path / bench).mkdir()
        path = tmp_path / bench / f"{bench}-storage-gpt2-124m.json"
        PartFile(path, "storage", "gpt2-124m", {}, {}, bench).write()
    for order in (("paper", "ovt"), ("ovt", "paper")):
        found = paper.results(*(tmp_path / name for name in order))
        assert {file.bench for file in found.values()} == {"paper", "ovt"}


def test_every_contract_is_run_at_the_papers_sizes() -> None:
    assert CELLS["runs"][False] == {"gpt2-124m": tuple(CONTRACTS), "resnet50": tuple(CONTRACTS)}
    assert len(CONTRACTS) == 7


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "paper", "--quick", "--part", "rounding", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bench"] == "paper" and len(found["rows"]) == 4
    with pytest.raises(UsageError, match="no part"):
        paper.rows(1, parts=("nothing",))


def test_every_part(is_exhaustive: bool, text: Path, tmp_path: Path) -> None:
    """The parts that take seconds, or processes of their own."""
    if not is_exhaustive:
        pytest.skip("runs with --exhaustive")
    parts = tuple(part for part in paper.PARTS if part not in PARTS)
    found = paper.rows(1, parts=parts, quick=True, out=tmp_path, text=text)
    sections = {row["name"].split("/")[1] for row in found}
    assert {"ovt-table-2", "ovt-table-3", "ovt-figure-5-bits", "proofs"} <= sections
    exact = [row for row in found if row["name"].endswith("gpt2-tiny, rounded/1")]
    assert exact and all(row["value"] == 0 for row in exact)
    assert set(read_part(tmp_path / "paper-steps-gpt2-tiny.json", "paper").entries) == set(
        CONTRACTS
    )
