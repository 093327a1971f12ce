"""The bar of a notebook: drawn in its cell, updated there, and left in its last state."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tallystick import api
from tallystick.run.show.summary import RunSummary
from tallystick.terminal.notebook_bar import DrawnBar, NotebookBar, notebook_display


class ZMQInteractiveShell:
    """The name of a Jupyter kernel's shell."""


class ColabShell(ZMQInteractiveShell):
    pass


class TerminalInteractiveShell:
    """IPython on a terminal: no notebook."""


class Cell:
    """What IPython would show: the outputs of a cell, each as it was drawn last."""

    def __init__(self) -> None:
        self.outputs: list[str] = []
        self.texts: list[str] = []
        self.draws = 0

    def display(self, obj: DrawnBar, *, display_id: bool) -> Output:
        assert display_id
        self.outputs.append("")
        self.texts.append("")
        output = Output(self, len(self.outputs) - 1)
        output.update(obj)
        return output


class Output:
    def __init__(self, cell: Cell, number: int) -> None:
        self._cell, self._number = cell, number

    def update(self, obj: DrawnBar) -> None:
        self._cell.draws += 1
        self._cell.outputs[self._number] = obj._repr_html_()
        self._cell.texts[self._number] = repr(obj)


def in_shell(monkeypatch: pytest.MonkeyPatch, shell: object) -> Cell:
    """An IPython that is loaded, with this shell."""
    cell, ipython, shows = Cell(), ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: shell  # type: ignore[attr-defined]
    shows.display = cell.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", shows)
    return cell


@pytest.mark.parametrize("shell", [ZMQInteractiveShell, ColabShell])
def test_training_draws_one_bar_and_prints_nothing(
    shell: type, logreg_run: RunSummary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    cell = in_shell(monkeypatch, shell())
    result = api.train(logreg_run.directory / "job", tmp_path / "run", threads=1)
    steps = result.steps
    assert capfd.readouterr() == ("", "")
    assert len(cell.outputs) == 1 and cell.draws > 1
    [last], [text] = cell.outputs, cell.texts
    assert f'<progress value="{steps}" max="{steps}"></progress>' in last
    for said in (last, text):
        assert f"train step {steps}/{steps}" in said and re.search(r"loss \d+\.\d{4}", said)
        assert "left" not in said


def test_an_audit_draws_its_bar(
    logreg_run: RunSummary, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cell = in_shell(monkeypatch, ZMQInteractiveShell())
    assert api.audit(logreg_run.directory, threads=1).accepted
    assert capfd.readouterr() == ("", "")
    assert len(cell.outputs) == 1 and f"audit step {logreg_run.steps}/" in cell.texts[0]


def test_no_bar_where_none_is_wanted(
    logreg_run: RunSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = in_shell(monkeypatch, ZMQInteractiveShell())
    api.audit(logreg_run.directory, threads=1, progress=False)
    assert cell.outputs == []


def test_no_display_without_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for shell in (None, TerminalInteractiveShell()):
        in_shell(monkeypatch, shell)
        assert notebook_display() is None
    monkeypatch.delitem(sys.modules, "IPython")
    assert notebook_display() is None and "IPython" not in sys.modules


def test_a_script_prints_as_before(
    logreg_run: RunSummary, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    api.audit(logreg_run.directory, threads=1)
    told = capfd.readouterr()
    assert told.out == "" and "audit step" in told.err and "<progress" not in told.err


def test_steps_time_left_and_what_it_is_told(
    logreg_run: RunSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = api.load_job(logreg_run.directory / "job")
    monkeypatch.setattr("tallystick.terminal.notebook_bar.INTERVAL_S", 0.0)
    cell = Cell()
    with NotebookBar("train", cell.display) as bar:
        bar.begin(job, 0)
        bar.step(0, 0.5, 2.0)
        left = f"train step 1/{job.steps}, loss 0.5000, 2 s/step"
        assert cell.texts[0].startswith(left) and cell.texts[0].endswith(" left")
        bar.notice("<b>\u202e")
        bar.evaluated(1, 0.25)
        bar.step(1, 0.375, 2.0)
        assert "loss 0.3750  validation 0.2500" in cell.texts[0]
        assert "&lt;b&gt;" in cell.outputs[0] and "<b>" not in cell.outputs[0]
        assert "\u202e" not in cell.outputs[0] + cell.texts[0]
    assert len(cell.outputs) == 1 and "train step 2/" in cell.texts[0]


def test_segments_of_an_audit_in_parallel(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0] * 3 + [14.0] * 3)
    monkeypatch.setattr("tallystick.terminal.notebook_bar.time.monotonic", lambda: next(clock))
    cell = Cell()
    bar = NotebookBar("audit", cell.display)
    bar.segments(0, 8, 0, 2)
    bar.segments(4, 8, 1, 2)
    assert '<progress value="4" max="8">' in cell.outputs[0]
    assert cell.texts[0] == "audit step 4/8, 1 of 2 segments, 1 steps/s, 4.0 s left"
