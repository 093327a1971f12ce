"""Declared cheats: hooks that trainer and engine honour, and the registry that names them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tallystick
from tallystick.cli.inspect import inspect as inspect_command
from tallystick.commit.tensor import Array
from tallystick.errors import CorruptFileError, UsageError
from tallystick.job.job import Job
from tallystick.program.ir import Node
from tallystick.program.state import State
from tallystick.run.cheats import attacks
from tallystick.run.cheats.attacks import load_attack
from tallystick.run.cheats.engine import CheatingEngine
from tallystick.run.cheats.override import Override
from tallystick.run.cheats.training import Cheat, declared_cheat
from tallystick.run.execute.engine import Engine
from tallystick.run.execute.trainer import Options, RunSummary, train_job
from tallystick.run.show.inspect import inspect_run
from tallystick.run.store.directory import RunStore
from tallystick.run.store.fsck import fsck
from tallystick.run.store.unsigned import Declaration, read_declaration

WRONG = bytes([9]) * 32


def changed(job: Job, out: Path, override: Override, honest: RunSummary) -> list[int]:
    """Steps of checkpoints that a run with `override` has otherwise than `honest`."""
    made = train_job(job, out, Options(maker=Cheat(override)))
    assert [s for s, _ in made.checkpoints] == [s for s, _ in honest.checkpoints]
    pairs = zip(made.checkpoints, honest.checkpoints, strict=True)
    return [a[0] for a, b in pairs if a != b]


class Everything(Override):
    """Uses every hook in one step of mlp_job without changing anything; counts the calls."""

    def __init__(self) -> None:
        self.called: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name in vars(Override) and not name.startswith("_"):
            object.__getattribute__(self, "called").append(name)
        return object.__getattribute__(self, name)

    def watches(self, step: int) -> bool:
        return step == 7


def test_an_override_that_does_nothing_changes_no_bit(
    mlp_job: Job, mlp_run: RunSummary, tmp_path: Path
) -> None:
    """And every hook is called but the prover's and those of logs, which `ordered/1` has not."""
    override = Everything()
    assert changed(mlp_job, tmp_path / "run", override, mlp_run) == []
    others = {"answer", "record", "log", "log_digest"}
    assert set(override.called) == {n for n in vars(Override) if n[0] != "_"} - others


def test_batch_scalars_key_and_state(mlp_job: Job, mlp_run: RunSummary, tmp_path: Path) -> None:
    class Batch(Override):
        def batch(self, step: int, batch: dict[str, Array]) -> None:
            batch["x"][0, 0] += step == 7

    class DataStep(Override):
        def data_step(self, step: int) -> int:
            return 6 if step == 7 else step

    class Scalars(Override):
        def scalars(self, step: int, scalars: dict[str, float]) -> None:
            if step == 7:
                scalars["lr"] *= 2

    class Key(Override):
        def random_key(self, step: int, key: tuple[int, int]) -> tuple[int, int]:
            return (key[0], key[1] + (step == 7))

    class Before(Override):
        def before(self, step: int, state: State) -> None:
            state.slots["param.0.bias"][0] += step == 7

    class After(Override):
        def after(self, step: int, state: State) -> None:
            state.slots["param.0.bias"][0] += step == 7

    class Skips(Override):
        def skips(self, step: int) -> bool:
            return step == 7

    class Loss(Override):
        def loss(self, step: int, bits: int) -> int:
            return bits + (step == 7)

    for kind in (Batch, DataStep, Scalars, Key, Before, After, Skips, Loss):
        assert changed(mlp_job, tmp_path / kind.__name__, kind(), mlp_run) == [10, 12], kind
    losses = RunStore(tmp_path / "Skips").journal().losses
    assert losses[7] == losses[6] and len(set(losses)) == 11
    honest = RunStore(mlp_run.directory).journal().losses
    false = RunStore(tmp_path / "Loss").journal().losses
    assert [s for s in range(12) if false[s] != honest[s]] == [7]


def test_genesis_root_and_end(mlp_job: Job, mlp_run: RunSummary, tmp_path: Path) -> None:
    class Genesis(Override):
        def genesis(self, state: State) -> None:
            state.slots["param.0.bias"][0] += 1

    class Root(Override):
        def root(self, step: int, root: bytes) -> bytes:
            return WRONG if step == 5 else root

    class End(Override):
        def final_step(self, job: Job) -> int:
            return 6

    assert changed(mlp_job, tmp_path / "genesis", Genesis(), mlp_run) == [0, 5, 10, 12]
    assert changed(mlp_job, tmp_path / "root", Root(), mlp_run) == [5]
    short = train_job(mlp_job, tmp_path / "end", Options(maker=Cheat(End())))
    assert [s for s, _ in short.checkpoints] == [0, 5, 6]
    assert short.checkpoints[1] == mlp_run.checkpoints[1]
    for override, end in ((Genesis(), 12), (Root(), 12), (End(), 6)):  # resumed: the same bits
        name = type(override).__name__.lower()
        out = tmp_path / f"{name}-resumed"
        for stop in (4, 5, end - 1, None):
            train_job(mlp_job, out, Options(maker=Cheat(override), stop_before=stop))
        again = RunStore(out).journal()
        assert again.checkpoints == RunStore(tmp_path / name).journal().checkpoints
        assert again.last_step == end


def test_an_end_that_the_job_has_not(mlp_job: Job, tmp_path: Path) -> None:
    for step in (0, 13):
        override = Override()
        override.final_step = lambda job, step=step: step  # type: ignore[method-assign]
        with pytest.raises(UsageError, match="ends after"):
            train_job(mlp_job, tmp_path / str(step), Options(maker=Cheat(override)))


def test_a_changed_output_reaches_later_nodes_and_the_trace(mlp_job: Job) -> None:
    """Every node but COMMIT in turn: the changed bytes are what the records say was made."""
    program = mlp_job.program

    class Change(Override):
        index = -1

        def watches(self, step: int) -> bool:
            return True

        def node(self, step: int, index: int, node: Node, outputs: Sequence[Array]) -> None:
            if index == self.index:
                for output in outputs:
                    output[...] = np.zeros_like(output)

    def trace(override: Override | None) -> tuple[bytes, ...]:
        state = mlp_job.genesis()
        engine = Engine(mlp_job, state)
        if override is not None:
            engine = CheatingEngine(mlp_job, state, override=override)
        found = engine.run(trace=True)[2]
        assert found is not None
        return found.digests

    honest = trace(None)
    assert trace(Change()) == honest
    seen = 0
    for index in range(len(program.nodes) - 1):
        override = Change()
        override.index = index
        lied = trace(override)
        different = {i for i, pair in enumerate(zip(honest, lied, strict=True)) if len({*pair}) > 1}
        if not different:
            continue  # it was zero before
        seen += 1
        readers = {
            i
            for i, node in enumerate(program.nodes)
            if any(v is not None and v.node == index for v in node.inputs)
        }
        # A view shares its operand's bytes: whoever reads them later reads the change too.
        assert readers <= different, index
        assert index in different, index
    assert seen > len(program.nodes) // 2


def test_looking_at_a_step_leaves_it_alone(mlp_job: Job) -> None:
    engine = Engine(mlp_job, mlp_job.genesis())
    tracer = engine.tracer()
    before = engine.state.root()
    computed, entered = engine.look(tracer.tap)
    assert (engine.step, engine.state.root()) == (0, before)
    looked = tracer.finish(computed, entered, engine.state).trace()
    bits, _, traced = engine.run(trace=True)
    assert (bits, bits) == (computed, entered)
    assert traced == looked
    assert tracer.records[-1].outputs[2] == engine.state.root()


# ---- declarations -------------------------------------------------------------------------------

ATTACK = """
from tallystick.errors import UsageError
from tallystick.run.cheats.override import Override
from ._shared import STEP

class Skips(Override):
    def __init__(self, step):
        self.step = step
    def skips(self, step):
        return step == self.step

class Attack:
    def make(self, job, params):
        if set(params) - {"step"}:
            raise UsageError("It has only a step.")
        return Skips(params.get("step", STEP))

ATTACK = Attack()
"""


@pytest.fixture
def lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with one attack, `lazy-one`."""
    directory = tmp_path / "attacks"
    directory.mkdir()
    (directory / "lazy-one.py").write_text(ATTACK)
    (directory / "_shared.py").write_text("STEP = 4\n")
    (directory / "README.md").write_text("Attacks.\n")
    monkeypatch.setattr(attacks, "attacks_directory", lambda: directory)
    return directory


def test_an_installed_copy_has_its_attacks_where_the_wheel_puts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They move with no module of ours: pyproject.toml names the directory."""
    package = Path(tallystick.__file__).parent
    settings = (package.parents[1] / "pyproject.toml").read_text()
    placed = re.search(r'"([a-z/]+)" = "attacks"', settings)
    assert placed is not None
    monkeypatch.setattr(attacks, "checkout", lambda: None)
    assert attacks.attacks_directory() == package.parent / placed[1]


def test_every_attack_of_this_checkout_loads() -> None:
    assert len(attacks.attack_names()) > 20
    for name in attacks.attack_names():
        load_attack(name)


def test_attacks_are_found_by_name(lazy: Path, mlp_job: Job) -> None:
    assert attacks.attack_names() == ["lazy-one"]
    assert load_attack("lazy-one").make(mlp_job, {}).skips(4)
    for name in ("lazy", "../lazy-one", "_shared", "", "README"):
        with pytest.raises(UsageError, match="no attack"):
            load_attack(name)


def test_a_declared_cheat(lazy: Path, mlp_job: Job, tmp_path: Path) -> None:
    out = tmp_path / "run"
    declared = Declaration("lazy-one", {"step": 7})
    train_job(mlp_job, out, Options(maker=declared_cheat(mlp_job, declared), stop_before=3))
    assert json.loads((out / "override.json").read_bytes()) == {
        "attack": "lazy-one",
        "params": {"step": 7},
    }
    with pytest.raises(UsageError, match="lazy-one"):
        train_job(mlp_job, out, Options())
    with pytest.raises(UsageError, match="lazy-one"):
        train_job(
            mlp_job,
            out,
            Options(maker=declared_cheat(mlp_job, Declaration("lazy-one", {"step": 8}))),
        )
    made = train_job(mlp_job, out, Options(maker=declared_cheat(mlp_job, declared)))
    assert made.finished and made.losses[7] == made.losses[6]
    assert read_declaration(out / "override.json") == declared
    assert inspect_run(out)["declared_override"] == "lazy-one"
    shown = CliRunner().invoke(inspect_command, [str(out)])
    assert shown.exit_code == 0
    assert "declared override: lazy-one" in shown.output
    assert [p.path for p in fsck(out).problems] == ["override.json"]  # nobody signs it
    (out / "override.json").write_bytes(b'{"attack":"../x","params":{}}')
    assert [p.path for p in fsck(out).problems] == ["override.json"]
    with pytest.raises(CorruptFileError):
        read_declaration(out / "override.json")


def test_an_honest_run_becomes_no_cheat(lazy: Path, mlp_job: Job, tmp_path: Path) -> None:
    train_job(mlp_job, tmp_path / "run", Options(stop_before=3))
    with pytest.raises(UsageError, match="without an override"):
        train_job(
            mlp_job,
            tmp_path / "run",
            Options(maker=declared_cheat(mlp_job, Declaration("lazy-one"))),
        )
    for name, params in (("nothing", {}), ("lazy-one", {"odd": 1})):
        with pytest.raises(UsageError):
            train_job(
                mlp_job,
                tmp_path / "x",
                Options(maker=declared_cheat(mlp_job, Declaration(name, params))),
            )
        assert not (tmp_path / "x").exists()
    assert inspect_run(tmp_path / "run")["declared_override"] is None
