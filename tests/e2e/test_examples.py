"""The examples run as a reader runs them, and what they claim is asserted in them."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SAID = {
    "train_and_audit": "MATCH",
    "catch_a_cheat": "judged  the same",
    "same_bits": "3fd3094c",
}
# Trainings of 100 updates and more: with --exhaustive (docs/proofs/trained.md), and the package
# that each needs. A short run of one is in tests/e2e/test_trained.py.
TRAINED = {"finetune_trainer": "accelerate", "lora": "peft", "image_net": "torch", "gan": "torch"}


def test_each_example_is_run() -> None:
    found = {path.stem for path in EXAMPLES.glob("*.py") if not path.stem.startswith("_")}
    assert found == {*SAID, *TRAINED}


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_an_example_of_training(name: str, tmp_path: Path, is_exhaustive: bool) -> None:
    if not is_exhaustive:
        pytest.skip("a whole training: --exhaustive")
    pytest.importorskip(TRAINED[name])
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "audit  MATCH" in done.stdout and done.stdout.count("the judge says the same") >= 2
    assert not list(tmp_path.iterdir())


def test_an_example_in_an_interpreter_of_its_own(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "catch_a_cheat.py")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert SAID["catch_a_cheat"] in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", sorted(set(SAID) - {"catch_a_cheat"}))
def test_an_example(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this interpreter, which has torch already."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(EXAMPLES / f"{name}.py")])
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert SAID[name] in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
