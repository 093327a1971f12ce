"""`bench dispute` measures what it says, on a model small enough for the suite."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

from tallystick.cli.bench import bench
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.recipes import new_job
from tallystick.program.ir import COMMIT, Program
from tallystick.run.execute.trainer import Options, train_job
from tallystick_bench import dispute

TINY = {"size": "small", "n_layer": "1", "n_embd": "16", "block_size": "8", "batch_size": "2"}


def test_rows_of_an_operator() -> None:
    operator = "aten.native_layer_norm"
    found = dispute.rows(1, TINY, (operator,), ((40, 10, 4, 0.4),))
    prefix = f"dispute/gpt2-set/{operator}/"
    rows = {row["name"].removeprefix(prefix): row for row in found}
    assert rows["rounds"]["value"] > 5
    assert rows["rounds"]["terms"] <= 256
    received, evidence = rows["received_bytes"]["value"], rows["evidence_bytes"]["value"]
    assert 5000 < received < evidence < received + 10_000
    assert 0 < rows["referee_seconds"]["value"] < rows["referee_seconds"]["target"]
    assert 0 < rows["judge_seconds"]["value"] < rows["judge_seconds"]["target"]
    # The interpreter with numpy is more than 10 MiB; with torch it would be more than 150.
    assert 10 < rows["referee_peak_mb"]["value"] < 150
    assert rows["reexecuted_steps"]["value"] == 3 + 2
    share = rows["dispute/40-steps/keep-4/reexecuted_share"]
    assert share["value"] == share["steps"] / 40 == (9 + 2) / 40


def test_operators_of_a_gpt2_are_disputed_to_their_end(tmp_path: Path, is_exhaustive: bool) -> None:
    """PROTOCOL 6, P4, P5: with provers that execute again, and the lie found where it was told.

    Every operator with --exhaustive, else every third.
    """
    job = new_job(
        "gpt2",
        tmp_path / "job",
        {**dispute.GPT2, **TINY},
        steps=dispute.STEPS,
        checkpoint_interval=dispute.STEPS,
        evaluate_every=0,
    )
    honest, liar = tmp_path / "honest", tmp_path / "liar"
    train_job(job, honest, Options(keep=1))
    operators = sorted({node.op for node in job.program.nodes} - {COMMIT})
    assert len(operators) > 25
    for operator in operators if is_exhaustive else operators[::3]:
        node = dispute.largest_node(job.program, operator)
        lie = dispute.told(job, honest, liar, node, None)
        verdict = dispute.play_out(job, honest, liar, lie, None).played.verdict
        assert (verdict.place.step, verdict.place.node) == (dispute.STEP, node), operator
        assert verdict.accepted == 1
        assert verdict.terms <= 256
        shutil.rmtree(liar)


def test_what_the_program_has_not_is_refused() -> None:
    for operator in ("aten.nothing", "tallystick.commit"):
        with pytest.raises(UsageError, match="no disputable operator"):
            dispute.rows(1, TINY, (operator,), ())


def test_a_lie_found_elsewhere_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    right = dispute.largest_node

    class Elsewhere(dispute.OneNumber):
        def __init__(self, node: int, pick: int) -> None:
            super().__init__(node - 1, pick=pick)

    monkeypatch.setattr(dispute, "OneNumber", Elsewhere)
    monkeypatch.setattr(dispute, "largest_node", lambda p, o: before_a_gelu(p, right(p, o)))
    with pytest.raises(CannotCheckError, match="elsewhere"):
        dispute.rows(1, TINY, ("aten.gelu",), ())


def before_a_gelu(program: Program, node: int) -> int:
    """A node after one that can be disputed."""
    assert program.nodes[node].op == "aten.gelu"
    norms = [i for i, n in enumerate(program.nodes) if n.op == "aten.native_layer_norm"]
    return norms[0] + 1


def test_the_command_line() -> None:
    runner = CliRunner()
    settings = [word for k, v in TINY.items() for word in ("--set", f"{k}={v}")]
    refused = runner.invoke(bench, ["step", "--operator", "aten.mm"])
    assert isinstance(refused.exception, UsageError)
    refused = runner.invoke(bench, ["dispute", "--set", "n_layer=0"])
    assert isinstance(refused.exception, UsageError)
    unknown = runner.invoke(bench, ["dispute", "--operator", "aten.nothing", *settings])
    assert isinstance(unknown.exception, UsageError)
