"""Every attack, both seats, three recipes: the cheat convicted, the honest party never (P1, P2).

`EXPECTED` is also what attacks/README.md says.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from format_three import CYCLE, make_stream_job
from format_two import make_micro_job
from unit.protocol.validated import make_validated_job

from tallystick.commit.signing import PrivateKey
from tallystick.errors import CannotCheckError, UsageError
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.job.recipes.base import Sources
from tallystick.protocol.judge import judge
from tallystick.prover.cheating import party_of
from tallystick.prover.local import Played, play
from tallystick.prover.prover import Prover
from tallystick.run.cheats.attacks import attack_names, attacks_directory, load_attack
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import Declaration
from tallystick_bench.process import environment

STEPS, INTERVAL = 24, 5
RECIPES = {
    "logreg": {"features": "16", "records": "200", "batch_size": "8", "momentum": "0.9"},
    "mlp": {"records": "200", "batch_size": "8", "dropout": "0.1"},
    "gpt2": {"n_layer": "1", "n_head": "2", "n_embd": "16", "block_size": "8", "batch_size": "2",
             "dropout": "0.1", "text_bytes": "4000"},
}  # fmt: skip
# Attack: case and clauses that may convict (where the recipes' programs differ).
EXPECTED: dict[str, tuple[str, set[str]]] = {
    "backdoor-label-flip": ("2c", {"5.6.3"}),
    "data-poisoning": ("2c", {"5.6.3"}),
    "extra-entry": ("3", {"6.13"}),
    "false-fold": ("3", {"6.5"}),
    "false-stop": ("3", {"6.5"}),
    "false-validation": ("3", {"6.5"}),
    "fewer-steps": ("0", {"4.9", "4.11"}),
    "forged-entry": ("3", {"6.11"}),
    "ignored-stop": ("0", {"4.11"}),
    "impossible-unlogged-value": ("3", {"6.11"}),
    "lie-attribute": ("1", {"5.5"}),
    "lie-edge": ("2a 2b 2c", {"5.6.1", "5.6.2", "5.6.3"}),
    "lie-genesis": ("0", {"3.4"}),
    "lie-input-digest": ("2a 2b", {"5.6.1", "5.6.2"}),
    "lie-loss-curve": ("3", {"5.8"}),
    "lie-node-count": ("1", {"5.2"}),
    "lie-optimizer-state": ("3", {"6.5"}),
    "lie-output": ("3", {"6.5"}),
    "lie-partial": ("3", {"6.5", "6.6", "6.8", "6.9"}),
    "log-not-committed": ("-", {"6.10"}),
    "low-precision": ("3", {"6.5"}),
    "no-augmentation": ("3", {"6.5"}),
    "other-held-out": ("2c", {"5.6.3"}),
    "padded-steps": ("-", {"5.3"}),
    "patched-commitments": ("-", {"5.3"}),
    "refuses": ("-", {"2.8"}),
    "reordered-data": ("2c", {"5.6.3"}),
    "silent": ("-", {"2.10"}),
    "skipped-steps": ("-", {"5.3"}),
    "stale-optimizer-state": ("-", {"5.3"}),
    "swapped-frozen-weight": ("-", {"5.3"}),
    "unreproducible-root": ("-", {"5.3"}),
    "wrong-learning-rate": ("2d", {"5.6.4"}),
    "wrong-seed": ("2d", {"5.6.4"}),
}
# These need a contract with logs, and are played against a run that follows the cheat's.
OF_LOGS = ("extra-entry", "forged-entry", "impossible-unlogged-value", "log-not-committed")
# These need a job of format 2.
OF_FORMAT_2 = ("false-fold", "false-stop", "false-validation", "ignored-stop", "other-held-out")
LOGGED = {
    "mlp": {"records": "40", "batch_size": "4", "hidden": "16"},
    "gpt2": {"n_layer": "1", "n_head": "2", "n_embd": "8", "block_size": "8", "batch_size": "2",
             "text_bytes": "2000"},
    "resnet50": {"size": "tiny", "batch_size": "2", "records": "16"},
}  # fmt: skip
REFEREE = PrivateKey(bytes([5]) * 32)


def as_party(runs: list[Path], seat: int, party: int) -> Prover:
    """The prover of a run; the one at `seat` plays the cheat that it declares."""
    return party_of(runs[party], as_attack=party == seat)


@dataclass
class World:
    """A job, its honest run, and cheating runs made when asked for."""

    job: Job
    directory: Path

    @property
    def honest(self) -> Path:
        return self.directory / "honest"

    def cheat(self, name: str, **params: int) -> Path:
        run = self.directory / "-".join([name, *(f"{k}{v}" for k, v in params.items())])
        if not run.exists():
            train_job(
                self.job, run, Options(maker=declared_cheat(self.job, Declaration(name, params)))
            )
        return run

    def game(self, name: str, seat: int, **params: int) -> Played:
        runs = [self.honest, self.honest]
        runs[seat] = self.cheat(name, **params)
        provers = [as_party(runs, seat, party) for party in (0, 1)]
        try:
            return play(self.job.terms, provers, key=REFEREE)
        finally:
            for prover in provers:
                prover.close()


@pytest.fixture(scope="module", params=sorted(RECIPES))
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    directory = tmp_path_factory.mktemp(request.param)
    text = directory / "text"
    text.write_text("a lie has short legs, and so has this text. " * 100)
    sources = Sources(text=text if request.param == "gpt2" else None)
    job = new_job(
        request.param, directory / "job", RECIPES[request.param], sources, steps=STEPS,
        checkpoint_interval=INTERVAL, evaluate_every=0,
    )  # fmt: skip
    train_job(job, directory / "honest", Options())
    return World(job, directory)


def test_every_attack_has_an_expected_outcome() -> None:
    assert set(EXPECTED) == set(attack_names())


def check_convicted(world: World, name: str) -> None:
    """From both seats the cheat alone is convicted, by a clause that is expected; the judge agrees,
    and believes a silence only by a referee's key."""
    case, clauses = EXPECTED[name]
    for seat in (0, 1):
        played = world.game(name, seat)
        verdict = played.verdict
        assert [c.party for c in verdict.convicted] == [seat]
        assert verdict.accepted == 1 - seat
        assert verdict.convicted[0].clause in clauses
        assert (verdict.case or "-") in case.split()
        data = played.evidence.to_bytes()
        assert judge(world.job.terms, data, trust_referees=[REFEREE.public]).verdict == verdict
        if name == "silent":
            with pytest.raises(CannotCheckError):
                judge(world.job.terms, data)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(OF_LOGS)))
def test_the_cheat_is_convicted_and_the_honest_party_never(world: World, name: str) -> None:
    try:
        world.cheat(name)
    except UsageError as error:
        assert "nothing to do" in str(error)
        pytest.skip(f"{name}: {error.message}")
    check_convicted(world, name)


# Attacks that a job of format 2 gives nothing to do; each other one is convicted in both.
NOTHING_TO_DO = {
    "validated": {"false-fold", "no-augmentation", "wrong-seed"},
    "micro": {
        "false-stop", "false-validation", "ignored-stop", "lie-partial", "no-augmentation",
        "other-held-out",
    },
    "streams": {"lie-partial", "no-augmentation"},
}  # fmt: skip


@pytest.fixture(scope="module", params=sorted(NOTHING_TO_DO))
def world_2(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Jobs of format 2: committed validation that stops a run early; micro-batches. One of format
    3: short batches, in the training and in the pass."""
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "micro":
        job = make_micro_job(directory / "job", steps=12, interval=INTERVAL)
    elif request.param == "streams":
        job = make_stream_job(
            directory / "job", steps=12, interval=CYCLE, validates=True, patience=1
        )
    else:
        # At a lower rate than elsewhere: saturated gradients would swallow a false number.
        job = make_validated_job(directory / "job", rate=0.1, min_delta=1)
    train_job(job, directory / "honest", Options())
    return World(job, directory)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(set(EXPECTED) - set(OF_LOGS)))
def test_the_cheat_is_convicted_about_a_job_of_a_later_format(world_2: World, name: str) -> None:
    c = world_2.job.commitment
    which = "validated" if c.stop_on_slot else "micro"
    which = which if c.timetable.plain else "streams"
    if name in NOTHING_TO_DO[which]:
        with pytest.raises(UsageError, match=r"nothing to do|no node"):
            world_2.cheat(name)
        assert not (world_2.directory / name).exists()
        return
    check_convicted(world_2, name)


LAST = STEPS - 1
VARIANTS: list[tuple[str, dict[str, int]]] = [
    ("patched-commitments", {"checkpoint": STEPS}),  # the final state
    ("patched-commitments", {"checkpoint": 1}),
    ("lie-output", {"step": 0, "element": 0, "bit": 30}),
    ("lie-output", {"step": LAST, "element": 1, "bit": 22}),
    ("lie-output", {"step": LAST, "node": 0}),  # a view of its input, in some
    ("fewer-steps", {"step": 1}),
    ("fewer-steps", {"step": LAST}),
    ("data-poisoning", {"step": 0}),
    ("data-poisoning", {"step": LAST}),
    ("swapped-frozen-weight", {"step": 0}),
    ("swapped-frozen-weight", {"step": LAST}),
    ("padded-steps", {"step": 0}),
    ("padded-steps", {"step": LAST}),
    ("lie-loss-curve", {"step": LAST}),
    ("skipped-steps", {"every": 1}),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("name", "params"), VARIANTS, ids=lambda v: str(v).replace(" ", ""))
def test_at_the_ends_of_the_run(world: World, name: str, params: dict[str, int]) -> None:
    case, clauses = EXPECTED[name]
    for seat in (0, 1):
        played = world.game(name, seat, **params)
        verdict = played.verdict
        assert [c.party for c in verdict.convicted] == [seat]
        assert verdict.accepted == 1 - seat
        assert verdict.convicted[0].clause in clauses
        assert (verdict.case or "-") in case.split()
        assert judge(world.job.terms, played.evidence.to_bytes()).verdict == verdict


@pytest.fixture(scope="module", params=sorted(LOGGED))
def logged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    """A job under replay/1; there is no one honest run, for each follows the cheat's logs."""
    directory = tmp_path_factory.mktemp(f"logged-{request.param}")
    text = directory / "text"
    text.write_text("what is not in the log was never said. " * 60)
    sources = Sources(text=text if request.param == "gpt2" else None)
    job = new_job(
        request.param, directory / "job", LOGGED[request.param], sources, steps=4,
        checkpoint_interval=2, evaluate_every=0, contract="replay/1;b=24",
    )  # fmt: skip
    return World(job, directory)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OF_LOGS)
def test_lies_about_logs(logged: World, name: str) -> None:
    cheat, follower = logged.cheat(name), logged.directory / f"{name}-followed"
    train_job(logged.job, follower, Options(replay=cheat))
    case, clauses = EXPECTED[name]
    for seat in (0, 1):
        runs = [follower, follower]
        runs[seat] = cheat
        with as_party(runs, seat, 0) as first, as_party(runs, seat, 1) as second:
            played = play(logged.job.terms, [first, second], key=REFEREE)
        verdict = played.verdict
        assert [c.party for c in verdict.convicted] == [seat], verdict
        assert verdict.accepted == 1 - seat
        assert verdict.convicted[0].clause in clauses
        assert (verdict.case or "-") in case.split()
        assert judge(logged.job.terms, played.evidence.to_bytes()).verdict == verdict


@pytest.mark.parametrize("name", ("extra-entry", "forged-entry"))
def test_a_lie_about_logs_is_taken_up_where_it_was_left(logged: World, name: str) -> None:
    """The steps that are repeated follow a log that nobody else would write."""
    whole, out = logged.cheat(name), logged.directory / f"{name}-again"
    maker = declared_cheat(logged.job, Declaration(name))
    train_job(logged.job, out, Options(maker=maker, stop_before=3))
    for path in (out / "checkpoints").iterdir():
        path.unlink()
    done = train_job(logged.job, out, Options(maker=maker))
    assert done.run_root == RunStore(whole).journal().run_root


# Published logs: every operator's elements are bounded (NUMERICS 14.10, 14.11).
PUBLISHED = {
    "lie-output": {"6.11"},
    "lie-optimizer-state": {"6.11"},
    "log-not-committed": {"6.10"},
    "data-poisoning": {"5.6.3"},
}


def test_lies_under_published_logs(tmp_path: Path) -> None:
    job = new_job(
        "mlp", tmp_path / "job", LOGGED["mlp"], steps=4, checkpoint_interval=2, evaluate_every=0,
        contract="replay/1;b=24;form=published",
    )  # fmt: skip
    for name, clauses in PUBLISHED.items():
        cheat, follower = tmp_path / name, tmp_path / f"{name}-followed"
        train_job(job, cheat, Options(maker=declared_cheat(job, Declaration(name))))
        train_job(job, follower, Options(replay=cheat))
        for seat in (0, 1):
            runs = [follower, follower]
            runs[seat] = cheat
            with as_party(runs, seat, 0) as first, as_party(runs, seat, 1) as second:
                played = play(job.terms, [first, second], key=REFEREE)
            verdict = played.verdict
            assert judge(job.terms, played.evidence.to_bytes()).verdict == verdict
            assert [c.party for c in verdict.convicted] == [seat]
            assert verdict.convicted[0].clause in clauses
            assert verdict.accepted == 1 - seat


def test_an_honest_run_and_its_follower_agree(logged: World) -> None:
    train_job(logged.job, logged.honest, Options())
    follower = logged.directory / "followed"
    train_job(logged.job, follower, Options(replay=logged.honest))
    with Prover(logged.honest) as first, Prover(follower) as second:
        assert play(logged.job.terms, [first, second], key=REFEREE).verdict.agreement


ROW = re.compile(r"^\| \[([a-z-]+)\]\S* \|[^|]*\| (\S[^|]*?) \| (\S[^|]*?) \|", re.M)


def test_the_readme_says_what_happens() -> None:
    text = (attacks_directory() / "README.md").read_text().split("## Attacks on answers")[0]
    rows = {name: (case, clause) for name, case, clause in ROW.findall(text)}
    assert set(rows) == set(EXPECTED)
    for name, (case, clauses) in EXPECTED.items():
        assert rows[name][0].replace(",", "").split() == case.split(), name
        assert set(rows[name][1].replace(",", "").split()) == clauses, name


def test_judged_where_torch_cannot_be_imported(
    world: World, tmp_path: Path, is_exhaustive: bool
) -> None:
    """Every attack's evidence (a silent party's by trusting the referee), both cheats' seats. By
    default a third of them in each recipe, and what needs random numbers where a model draws some:
    so each attack is judged."""
    names = sorted(set(EXPECTED) - set(OF_LOGS))
    if not is_exhaustive:
        # The sample above has made runs of these.
        recipes = sorted(RECIPES)
        recipe = next(n for n, r in enumerate(recipes) if world.directory.name.startswith(r))
        more = ["wrong-seed"] if recipes[recipe] == "mlp" else []
        names = sorted({*names[-recipe % 3 :: 3], *more})
    left_out = set()
    files, trusted = [], tmp_path / "referee.pub"
    trusted.write_bytes(REFEREE.public.pem())
    for name in names:
        try:
            data = world.game(name, len(files) % 2).evidence.to_bytes()
        except UsageError:
            left_out.add(name)  # nothing to do in this job, as the test above says
            continue
        path = tmp_path / name
        path.write_bytes(data)
        files.append(str(path))
    # `wrong-seed` and `no-augmentation` need random numbers.
    assert left_out <= {*OF_FORMAT_2, "no-augmentation", "wrong-seed"}
    assert "wrong-seed" not in left_out or world.directory.name.startswith("logreg")
    # Only the terms of the job: no state, no records.
    terms = tmp_path / "terms"
    terms.mkdir()
    for part in ("job.json", "program.txt"):
        (terms / part).write_bytes((world.job.directory / part).read_bytes())
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from tallystick_bench.memory import peak_bytes\n"
        "from tallystick.cli.main import run\n"
        f"for path in {files!r}:\n"
        f"    judge = ['judge', path, '--job', {str(terms)!r}]\n"
        f"    judge += ['--trust-referee', {str(trusted)!r}]\n"
        "    assert run(judge) == 1, path\n"
        "assert peak_bytes() < 200 << 20, peak_bytes()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("CONVICTED") == len(files)


def test_a_frozen_weight_that_no_operator_makes(tmp_path: Path) -> None:
    """The lie leaves every operator's output true: only COMMIT binds what is passed through."""
    import numpy as np
    import torch

    import tallystick

    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    for parameter in model[0].parameters():
        parameter.requires_grad = False
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((40, 4), np.float32), rng.integers(0, 2, 40)
    loss = torch.nn.functional.cross_entropy
    batch = {"x": torch.tensor(x[:4]), "y": torch.tensor(y[:4])}
    captured = tallystick.capture(
        model, lambda m, b: loss(m(b["x"]), b["y"]), batch, tallystick.SGD(lr=0.1)
    )
    captured.save_job(tmp_path / "job", {"x": x, "y": y}, steps=12, checkpoint_interval=4)
    job = load_job(tmp_path / "job")
    world = World(job, tmp_path)
    train_job(job, world.honest, Options())
    train_job(
        job,
        tmp_path / "swap",
        Options(maker=declared_cheat(job, Declaration("swapped-frozen-weight"))),
    )
    before, after = (
        load_attack("swapped-frozen-weight").make(job, {}).slot,  # type: ignore[attr-defined]
        {name for name, value in job.program.next_state.items() if value.is_input},
    )
    assert before in after == {"param.0.weight", "param.0.bias"}
    for seat in (0, 1):
        runs = [world.honest, world.honest]
        runs[seat] = tmp_path / "swap"
        with as_party(runs, seat, 0) as first, as_party(runs, seat, 1) as second:
            verdict = play(job.terms, [first, second]).verdict
        assert [(c.party, c.clause) for c in verdict.convicted] == [(seat, "5.3")]
