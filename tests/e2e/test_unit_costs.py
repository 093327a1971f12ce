"""`unit_costs.py` measures every unit cost that docs/SCALE.md reckons with; models are counted."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("torch")

import unit_costs
from tallystick.errors import UsageError
from tallystick.program.expand import numbering
from tallystick.program.ir import Program
from tallystick_bench.scale.measure import shapes
from tallystick_bench.scale.units import Shape, Units


@pytest.mark.long
def test_every_unit_cost_is_measured(tmp_path: Path) -> None:
    found = unit_costs.measure(1, True, tmp_path)
    units = found["units"]
    assert {field.name for field in fields(Units)} <= units.keys()
    made = Units(**{field.name: units[field.name] for field in fields(Units)})
    assert made.digest_of_one == made.digest_bytes_s["1"] > 1e6
    assert min(made.fold_bytes_s, made.write_bytes_s, made.read_bytes_s, made.gloo_bytes_s) > 1e5
    for seconds in (made.sign_s, made.verify_s, made.node_s, made.append_s, made.journal_s):
        assert 0 < seconds < 1
    assert all(game["rounds"] > 5 for game in units["disputes"].values())
    assert found["about"]["quick"] is True


def test_a_step_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    programs: list[Program] = []
    most = shapes.most_micro_batches
    monkeypatch.setattr(shapes, "most_micro_batches", lambda p: programs.append(p) or most(p))
    found = Shape(**shapes.shape("tiny"))
    (program,) = programs
    numbering(program, found.most_micro_batches)
    with pytest.raises(UsageError, match=r"PROGRAM 6\.8"):
        numbering(program, found.most_micro_batches + 1)
    assert found.section_nodes + found.tail_nodes == len(program.nodes)
    weights = [t.nbytes for name, t in program.state_types.items() if name.startswith("param.")]
    assert found.gradient_bytes == sum(weights)
    assert 3 * found.gradient_bytes <= found.state_bytes < 3.2 * found.gradient_bytes
    assert 0 < 4 * found.product_elements < found.node_output_bytes
    assert found.layers == 2 and found.tokens == 16
