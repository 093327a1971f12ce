"""`tallystick model verify`: what it compares, and what it says that it does not (ANSWERS 4.5)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from answer_models import save_model

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tallystick.answers.files import read_statement
from tallystick.answers.layout import Bucket
from tallystick.answers.statement import Adapter, ModelStatement, ProgramName
from tallystick.api.statements import make_statement
from tallystick.cli.main import run

Verified = Callable[[ModelStatement], tuple[int, str]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("verified") / "model"
    made.mkdir()
    save_model("smollm", made)
    make_statement(made, None, [Bucket(8, 2), Bucket(12, 4)], "ordered/1", None, False, None)
    return made


@pytest.fixture(scope="module")
def stated(model: Path) -> ModelStatement:
    return read_statement(model.with_name("model.statement"))


@pytest.fixture
def verified(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Verified:
    def verify(statement: ModelStatement) -> tuple[int, str]:
        place = tmp_path / "statement.json"
        place.write_bytes(statement.to_bytes())
        code = run(["model", "verify", str(place), "--model", str(model)])
        return code, capsys.readouterr().out

    return verify


def test_a_statement_of_some_sets_is_the_models(stated: ModelStatement, verified: Verified) -> None:
    kept = {name: digest for name, digest in stated.programs.items() if name.set == "greedy"}
    code, out = verified(replace(stated, programs=kept))
    assert code == 0 and "MATCH" in out and "not compared" not in out


def test_another_program_is_named_for_people(stated: ModelStatement, verified: Verified) -> None:
    name = ProgramName(12, 4, "draw")
    code, out = verified(replace(stated, programs={**stated.programs, name: bytes(32)}))
    assert code == 1 and "programs: 1 of 6, first draw of bucket 12:4" in out


def test_what_no_directory_proves_is_said(
    stated: ModelStatement, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = replace(stated, run=b"r" * 32)
    (tmp_path / "s.json").write_bytes(more.to_bytes())
    command = ["model", "verify", str(tmp_path / "s.json"), "--model", str(model)]
    assert run(command) == 0
    out = capsys.readouterr().out
    assert "its run is not compared" in out
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unproved"] == ["run"]


def test_an_adapter_that_is_not_given_differs(stated: ModelStatement, verified: Verified) -> None:
    """4.7.4."""
    code, out = verified(replace(stated, adapter=Adapter(b"a" * 32, True)))
    assert code == 1 and out.startswith("MISMATCH      adapter\n")
