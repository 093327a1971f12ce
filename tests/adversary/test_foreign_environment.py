"""Nobody is convicted, and no bit differs, because a stranger changed the floating-point
environment: before tallystick began, or between two of its uses (NUMERICS 1.7, PROTOCOL P2)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from environment_shim import MODES, disturb, disturbed, preloaded, shim_path
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

import tallystick
from tallystick.commit.tensor import Array
from tallystick.devices.context import ExecutionContext
from tallystick.job.job import Job
from tallystick.program.executor import Executor
from tallystick.program.ir import Node
from tallystick.protocol.judge import judge
from tallystick.prover.local import Played, play
from tallystick.prover.prover import Prover
from tallystick.run.execute.evaluation import Evaluator
from tallystick.run.execute.listener import Silent
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.show.inspect import inspect_run

torch = pytest.importorskip("torch")
STEPS, LIES_AT, RECORDS = 6, 3, 12
BIT = np.uint32(1 << 19)  # of a lie: small, and not too small to change the state


@pytest.fixture(autouse=True)
def _stranger() -> Iterator[None]:
    shim_path()  # skips, with its reason, where it cannot be made
    yield
    disturb("default")


class Delicate(torch.nn.Module):
    """Its numbers are subnormal on the way, and all depend on how sums are rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.small = torch.nn.Parameter(torch.linspace(0.9e-3, 1.3e-3, 6))
        self.head = torch.nn.Linear(4, 3)
        with torch.no_grad():
            self.head.weight.copy_(torch.linspace(-0.7, 0.9, 12).reshape(3, 4))
            self.head.bias.copy_(torch.linspace(-0.1, 0.1, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = (x * self.small).mean(dim=2) * 1e36
        h = torch.nn.functional.layer_norm(h, (4,)) + torch.tanh(h) / 3.0
        y = torch.nn.functional.gelu(self.head(h))
        return torch.exp(y).sum(dim=1) - y.amax(dim=1)


def _loss(module: torch.nn.Module, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return ((module(batch["x"]) - batch["t"]) ** 2).mean()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    """Six steps of `Delicate`, committed every two, validated every three."""
    rng = np.random.default_rng(7)
    x = (rng.standard_normal((RECORDS, 4, 6)) * 1e-36).astype(np.float32)
    data = {"x": x, "t": rng.standard_normal(RECORDS).astype(np.float32)}
    example = {name: torch.from_numpy(array[:4]) for name, array in data.items()}
    captured = tallystick.capture(Delicate(), _loss, example, tallystick.SGD(1e-6))
    return captured.save_job(
        tmp_path_factory.mktemp("delicate") / "job",
        data,
        steps=STEPS,
        checkpoint_interval=2,
        validation=data,
        evaluate_every=3,
    )


# -- judge and report ------------------------------------------------------------------------------


def _lie(index: int) -> Lie:
    """One bit of the last element of each float output of one node, at one step."""

    def node(step: int, at: int, _: Node, outputs: Sequence[Array]) -> None:
        if (step, at) == (LIES_AT, index):
            for out in outputs:
                if out.dtype == np.float32 and out.size:
                    last = tuple(n - 1 for n in out.shape)
                    out[last] = (out[last].view(np.uint32) ^ BIT).view(np.float32)

    return Lie(node=node)


@pytest.fixture(scope="module")
def games(job: Job) -> dict[str, Played]:
    """An honest party against a liar at every operator that computes floats, by its name."""
    honest, found = Party(job), dict[str, Played]()
    for index, node in enumerate(job.program.nodes[:-1]):
        liar = Party(job, _lie(index))
        if liar.run != honest.run:
            played = play(job.terms, [honest, liar])
            if played.verdict.agreement:  # the lie had no effect on any state
                continue
            assert [c.party for c in played.verdict.convicted] == [1], (index, node.op)
            found[f"{index}: {node.op}"] = played
    return found


def test_the_games_are_about_many_operators(games: dict[str, Played]) -> None:
    operators = {name.partition(": ")[2] for name in games}
    assert {"aten.mean.dim", "aten.mul.Tensor", "aten.native_layer_norm"} <= operators
    assert len(operators) >= 15


@pytest.mark.parametrize("mode", MODES)
def test_the_verdict_is_the_same_in_every_environment(
    job: Job, games: dict[str, Played], mode: str
) -> None:
    wrong = []
    for name, played in games.items():
        data = played.evidence.to_bytes()
        with disturbed(mode):
            verdict = judge(job.terms, data).verdict
        if verdict != played.verdict:
            wrong.append((name, verdict.convicted))
    assert not wrong


@pytest.mark.parametrize("mode", MODES)
def test_a_referee_disturbed_between_messages(
    job: Job, games: dict[str, Played], mode: str
) -> None:
    honest = Party(job)
    name, before = next((n, p) for n, p in games.items() if n.endswith("aten.mean.dim"))
    liar = Party(job, _lie(int(name.partition(":")[0])))
    disturb(mode)
    played = play(job.terms, [honest, liar])
    assert played.verdict == before.verdict


@pytest.mark.parametrize("mode", ["upward", pytest.param("flush", marks=pytest.mark.long)])
def test_judge_and_report_where_a_library_was_loaded_first(
    job: Job, games: dict[str, Played], mode: str, tmp_path: Path, is_exhaustive: bool
) -> None:
    terms = ["--job", str(job.directory), "--json"]
    chosen = [n for n in games if n.endswith(("aten.mean.dim", "aten.mul.Tensor", "aten.tanh"))]
    for number, name in enumerate(chosen[: 3 if is_exhaustive else 1]):
        evidence = tmp_path / f"{number}.evidence"
        evidence.write_bytes(games[name].evidence.to_bytes())
        judge_it = ["-m", "tallystick", "judge", str(evidence), *terms]
        said = {m: preloaded(judge_it, m) for m in ("default", mode)}
        assert said[mode].returncode == said["default"].returncode == 1, said[mode].stderr
        assert said[mode].stdout == said["default"].stdout
        convicted = json.loads(said[mode].stdout)["convicted"]
        assert [party["party"] for party in convicted] == ["B"]
    pages = []
    for m in ("default", mode):
        page = tmp_path / f"{m}.html"
        report = ["-m", "tallystick", "report", str(tmp_path / "0.evidence"), "-o", str(page)]
        made = preloaded([*report, "--job", str(job.directory)], m)
        assert made.returncode == 0, made.stderr
        pages.append(page.read_bytes())
    assert pages[0] == pages[1]


# -- training --------------------------------------------------------------------------------------
class Stranger(Silent):
    """A listener that changes the environment after each step."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def step(self, step: int, loss: float, seconds: float) -> None:
        self._act()


@pytest.fixture(scope="module")
def clean(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    out = tmp_path_factory.mktemp("clean") / "run"
    train_job(job, out, Options(keep=STEPS))
    return out


def _root(run: Path) -> dict[str, object]:
    shown = inspect_run(run)
    return {key: shown[key] for key in ("run_root", "loss", "validation", "final_state_root")}


@pytest.mark.parametrize("mode", MODES)
def test_training_disturbed_between_steps(job: Job, clean: Path, mode: str, tmp_path: Path) -> None:
    train_job(job, tmp_path / "run", Options(ExecutionContext(2)), Stranger(lambda: disturb(mode)))
    disturb("default")
    assert _root(tmp_path / "run") == _root(clean)


def test_training_where_torch_flushes_between_steps(job: Job, clean: Path, tmp_path: Path) -> None:
    stranger = Stranger(lambda: torch.set_flush_denormal(True))
    try:
        train_job(job, tmp_path / "run", Options(ExecutionContext(2)), stranger)
    finally:
        torch.set_flush_denormal(False)
    assert _root(tmp_path / "run") == _root(clean)


@pytest.mark.sample(5)
@pytest.mark.parametrize("mode", MODES[::-1])  # toward zero by default
def test_training_and_auditing_where_a_library_was_loaded_first(
    job: Job, clean: Path, mode: str, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    arguments = ["-m", "tallystick", "train", str(job.directory), "--out", str(out)]
    trained = preloaded([*arguments, "--threads", "2"], mode)
    assert trained.returncode == 0, trained.stderr
    assert _root(out) == _root(clean)
    audited = preloaded(["-m", "tallystick", "audit", str(out)], mode)
    assert audited.returncode == 0, audited.stderr


# -- the other uses --------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_a_prover_disturbed_between_answers(
    job: Job, clean: Path, games: dict[str, Played], mode: str
) -> None:
    """It says twice what it has said once: anything else would be an equivocation (2.9)."""
    name = next(n for n in games if n.endswith("aten.mean.dim"))
    liar = Party(job, _lie(int(name.partition(":")[0])))
    asked: list[bytes] = []

    class Listening:
        def __init__(self, prover: Prover) -> None:
            self.commitment, self._prover = prover.commitment, prover

        def answer(self, query: bytes) -> bytes:
            asked.append(query)
            return self._prover.answer(query)

    with Prover(clean) as prover:
        played = play(job.terms, [Listening(prover), liar])
        assert [c.party for c in played.verdict.convicted] == [1]
        said = {query: prover.answer(query) for query in asked}
    with Prover(clean) as again:
        disturb(mode)
        answers = {query: again.answer(query) for query in asked}
    assert answers == said and len(said) > 8


@pytest.mark.parametrize("mode", MODES)
def test_a_tap_that_disturbs(job: Job, mode: str) -> None:
    def traced(act: Callable[[], object]) -> list[bytes]:
        seen: list[bytes] = []

        def tap(
            _index: int, _node: Node, _inputs: Sequence[Array | None], outputs: Sequence[Array]
        ) -> None:
            seen.extend(out.tobytes() for out in outputs)
            act()

        state = {name: array.copy() for name, array in job.genesis().slots.items()}
        batch = {name: np.ascontiguousarray(c[:4]) for name, c in job.columns.items()}
        Executor(job.program, ExecutionContext(2)).run_step(state, batch, {"lr": 1e-6}, tap=tap)
        return seen

    assert traced(lambda: disturb(mode)) == traced(lambda: None)


@pytest.mark.parametrize("mode", MODES)
def test_validation_in_every_environment(job: Job, mode: str) -> None:
    slots = job.genesis().slots
    expected = Evaluator(job).loss(slots)
    with disturbed(mode):
        got = Evaluator(job).loss(slots)
    assert got.hex() == expected.hex()


@pytest.mark.parametrize("mode", MODES)
def test_eager_torch_in_every_environment(mode: str) -> None:
    module = Delicate()
    x = torch.linspace(-1.0, 1.0, 96).reshape(4, 4, 6) * 1e-36

    def gradients() -> list[bytes]:
        module.zero_grad()
        with tallystick.reproducible():
            module(x).sum().backward()
        return [p.grad.numpy().tobytes() for p in module.parameters()]

    expected = gradients()
    disturb(mode)
    got = gradients()
    disturb("default")
    assert got == expected
