"""Programs that take turns in one job (COMMITMENTS 7.6, PROGRAM 5.18): a GAN; what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tallystick
from tallystick.commit.order import batch_indices
from tallystick.commit.timetable import ScheduleTurn
from tallystick.errors import UsageError
from tallystick.report.facts import read_run
from tallystick.report.run_page import run_page
from tallystick.run.cheats.training import declared_cheat
from tallystick.run.execute.trainer import Options, train_job
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import Which, weights_of
from tallystick.run.store.unsigned import Declaration

BATCH, RECORDS, SEED, ROUNDS = 6, 20, 7, 12
_RNG = np.random.default_rng(0)
X = _RNG.standard_normal((RECORDS, 4)).astype(np.float32)
Z = _RNG.standard_normal((RECORDS, 3)).astype(np.float32)
DATA = {"x": X, "z": Z}
SCHEDULE = [("discriminator", 2), ("generator", 1)]
NETS = ("discriminator", "generator")


class Gan(nn.Module):
    """With running statistics that both programs move."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.generator = nn.Sequential(
            nn.Linear(3, 5, bias=False), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4)
        )
        self.discriminator = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1))


def of_d(gan: Any, batch: dict[str, Tensor]) -> Tensor:
    made = gan.generator(batch["z"]).detach()
    return F.softplus(-gan.discriminator(batch["x"])).mean() + (
        F.softplus(gan.discriminator(made)).mean()
    )


def of_g(gan: Any, batch: dict[str, Tensor]) -> Tensor:
    return F.softplus(-gan.discriminator(gan.generator(batch["z"]))).mean()


def optimizers(gan: Any) -> dict[str, torch.optim.Optimizer]:
    """torch's own, each over its net."""
    return {
        "discriminator": torch.optim.Adam(gan.discriminator.parameters(), lr=0.01),
        "generator": torch.optim.AdamW(gan.generator.parameters(), lr=0.02, betas=(0.5, 0.99)),
    }


def batch_of(*names: str) -> dict[str, Any]:
    return {name: DATA[name][:BATCH] for name in names}


def programs(gan: nn.Module | None = None, **given: Any) -> dict[str, tallystick.Capture]:
    gan = gan or Gan()
    rules = optimizers(gan)
    return {
        "discriminator": tallystick.capture(
            gan, of_d, batch_of("x", "z"), rules["discriminator"], trains="discriminator", **given
        ),
        "generator": tallystick.capture(
            gan, of_g, batch_of("z"), rules["generator"], trains="generator", **given
        ),
    }


@cache
def pair() -> dict[str, tallystick.Capture]:
    """The programs of a fresh GAN; a job changes nothing in them."""
    return programs()


def save(path: Path, captured: Any = None, **given: Any) -> tallystick.Job:
    usual: dict[str, Any] = {
        "programs": captured or pair(), "schedule": SCHEDULE, "steps": 3 * ROUNDS, "seed": SEED,
        "own_data": {"generator": {"z": Z}}, "compare_first_step": False,
    }  # fmt: skip
    return tallystick.save_job(path, DATA, **{**usual, **given})


def torchs(rounds: int) -> tuple[dict[str, list[float]], nn.Module]:
    """The usual loop, over the batches that the job's programs read."""
    gan = Gan()
    rules, done = optimizers(gan), dict.fromkeys(NETS, 0)
    losses: dict[str, list[float]] = {name: [] for name in NETS}
    with tallystick.reproducible("ordered/1"):
        for name in [name for _ in range(rounds) for name, count in SCHEDULE for _ in range(count)]:
            at = batch_indices(SEED, RECORDS, done[name], BATCH)
            loss = {"discriminator": of_d, "generator": of_g}[name](
                gan, {field: torch.from_numpy(DATA[field][at]) for field in DATA}
            )
            gan.zero_grad()
            loss.backward()
            rules[name].step()
            losses[name].append(loss.item())
            done[name] += 1
    return losses, gan


def test_a_gan_by_turns_has_the_bits_of_torchs_own_loop(tmp_path: Path) -> None:
    job = save(tmp_path / "job", compare_first_step=True)
    names = [program.name for program in job.commitment.timetable.programs]
    assert (names, job.steps, job.interval) == ([*NETS], 36, 20)
    assert not any("first step" in key for key in job.about), "both were compared with the module"
    run = tallystick.train(job, tmp_path / "run", progress=False)
    losses, gan = torchs(ROUNDS)
    assert {name: list(found) for name, found in run.losses_of.items()} == losses
    assert run.losses[:3] == (*losses["discriminator"][:2], losses["generator"][0])
    found = weights_of(tmp_path / "run", None, Which()).tensors
    for name, tensor in gan.state_dict().items():
        assert found[name].tobytes() == tensor.numpy().tobytes(), name
    assert tallystick.audit(tmp_path / "run", job, threads=1, progress=False).accepted
    shown = run_page(read_run(tmp_path / "run"))
    assert shown.count("<figure") == 2, "a curve for each program"
    assert all(f"Training loss of {name}" in shown for name in NETS)


def test_a_pass_changes_no_number_of_the_training_and_may_end_the_run(tmp_path: Path) -> None:
    alone = tallystick.train(save(tmp_path / "alone"), tmp_path / "run-alone", progress=False)
    held = {"x": X[:BATCH], "z": Z[:BATCH]}
    job = save(
        tmp_path / "job", validation=held, evaluate="discriminator", evaluate_every=6,
        stop_rule=tallystick.StopRule(1, min_delta=100.0),
    )  # fmt: skip
    timetable = job.commitment.timetable
    assert timetable.turns == (
        *[ScheduleTurn(0, 2), ScheduleTurn(1, 1)] * 2,
        ScheduleTurn(2, 1),
        ScheduleTurn(3, 1),
    )
    assert "1 batches of 6 after every 6 steps" in job.about["validation"]
    run = tallystick.train(job, tmp_path / "run", progress=False)
    assert [step for step, _ in run.validation] == [6, 12]  # the second is no better by 100
    assert run.losses == alone.losses[:12]
    assert tallystick.audit(tmp_path / "run", job, progress=False).accepted


def test_a_run_of_turns_is_continued(tmp_path: Path) -> None:
    whole = tallystick.train(save(tmp_path / "job"), tmp_path / "run", progress=False)
    half = save(tmp_path / "half", steps=18)
    first = tallystick.train(half, tmp_path / "first", progress=False)
    more = tallystick.continue_run(tmp_path / "first", tmp_path / "more", 18)
    assert more.steps == 18
    second = tallystick.train(more, tmp_path / "second", progress=False)
    assert first.losses + second.losses == whole.losses


def test_the_last_round_may_be_broken_off(tmp_path: Path) -> None:
    job = save(tmp_path / "job", steps=5)
    assert job.steps == 5
    run = tallystick.train(job, tmp_path / "run", progress=False)
    assert {name: len(found) for name, found in run.losses_of.items()} == {
        "discriminator": 4, "generator": 1,
    }  # fmt: skip


def test_a_dispute_about_the_second_program(tmp_path: Path) -> None:
    """The generator's step, which reads no batch of the discriminator's."""
    job = save(tmp_path / "job", steps=9)
    tallystick.train(job, tmp_path / "honest", progress=False)
    maker = declared_cheat(job, Declaration("lie-output", {"step": 5}))
    train_job(job, tmp_path / "cheat", Options(maker=maker))
    found = tallystick.dispute(
        tmp_path / "honest", tmp_path / "cheat", job, as_attack=["B"], out=tmp_path / "evidence"
    )
    assert found.convicted == ("B",)
    assert found.verdict.place.step == 5
    assert tallystick.judge(tmp_path / "evidence", job).verdict == found.verdict


def test_programs_without_a_batch_and_rates_by_program(tmp_path: Path) -> None:
    gan = Gan()
    rates = {"discriminator": [0.01 / (1 + t) for t in range(6)], "generator": lambda t: 0.1}
    captured = {
        "discriminator": tallystick.capture(
            gan, of_d, batch_of("x", "z"), tallystick.SGD(lr="rate"), trains="discriminator"
        ),
        "generator": tallystick.capture(
            gan,
            lambda gan, _: F.softplus(-gan.discriminator(gan.generator(torch.randn(4, 3)))).mean(),
            {},
            tallystick.ParameterGroups(
                {
                    "norm": tallystick.ParameterGroup(
                        tallystick.Adam(lr="rate"), ("generator.1.weight", "generator.1.bias")
                    ),
                    "rest": tallystick.ParameterGroup(tallystick.Adam(lr=0.5)),
                }
            ),
            trains="generator",
        ),
    }
    job = save(
        tmp_path / "job", captured, own_data=None, steps=9,
        schedules={name: {"rate": table} for name, table in rates.items()},
    )  # fmt: skip
    assert job.scalars == {
        "lr.discriminator": rates["discriminator"],
        "lr.norm.generator": [0.1] * 3,
        "lr.rest.generator": 0.5,
    }
    assert [p.data for p in job.commitment.timetable.programs] == [0, None]
    slots = {n for n in job.texts[0].state_types if n.startswith("opt.beta1")}
    assert slots == {"opt.beta1_power.norm.generator", "opt.beta1_power.rest.generator"}
    run = tallystick.train(job, tmp_path / "run", progress=False)
    assert run.finished
    assert tallystick.audit(tmp_path / "run", job, threads=1, progress=False).accepted


def test_two_tasks_share_one_optimizer(tmp_path: Path) -> None:
    """Programs that train the same parameters by the same rule have one set of moments."""
    torch.manual_seed(1)
    net = nn.Linear(4, 2)
    rule = tallystick.Adam(lr=0.01)
    tasks = {
        "squares": tallystick.capture(net, lambda m, b: m(b["x"]).square().mean(), batch_of("x"),
                                      rule),
        "sums": tallystick.capture(net, lambda m, b: m(b["x"]).sum().abs(), batch_of("x"), rule),
    }  # fmt: skip
    job = tallystick.save_job(tmp_path / "job", {"x": X}, programs=tasks, steps=10)
    assert job.commitment.timetable.turns == (ScheduleTurn(0, 1), ScheduleTurn(1, 1))
    run = tallystick.train(job, tmp_path / "run", progress=False)
    store = RunStore(tmp_path / "run")
    state = store.read_state(job, 10)
    power = float(state.slots["opt.beta1_power"])
    assert power == pytest.approx(0.9**10, rel=1e-12), "ten steps of one optimizer"
    assert run.finished


def refused(words: str, path: Path, captured: Any = None, **given: Any) -> None:
    with pytest.raises(UsageError, match=words):
        save(path / "refused", captured, **given)
    assert not (path / "refused" / "job.json").exists()


def test_what_is_refused(tmp_path: Path) -> None:
    refused("not a program of the job", tmp_path, schedule=[("critic", 1)])
    refused("has no turn", tmp_path, schedule=[("generator", 1)])
    refused("not a multiple of the", tmp_path, validation=DATA, evaluate_every=4)
    refused("'critic' is not the name of a program", tmp_path, validation=DATA, evaluate="critic")
    refused("needs held-out records", tmp_path, evaluate_every=6)
    refused(
        "own_data names 'critic', which is not a program", tmp_path, own_data={"critic": {"z": Z}}
    )
    refused("fields", tmp_path, own_data=None)
    refused("schedules names 'lr', which is not a program", tmp_path, schedules={"lr": [0.1]})
    refused("would train nothing", tmp_path, steps=0)
    refused("names no program of a job", tmp_path, {"D 1": pair()["discriminator"]}, schedule=None,
            own_data=None)  # fmt: skip
    other = Gan()
    torch.nn.init.ones_(other.generator[0].weight)
    mixed = {**pair(), "generator": programs(other)["generator"]}
    refused("start with different values of param.generator.0.weight", tmp_path, mixed)
    mixed = {**pair(), "generator": programs(contract="rounded/1")["generator"]}
    refused("2 different contracts", tmp_path, mixed)
    refused("one program", tmp_path, programs(contract="replay/1"))


def test_optimizers_that_cannot_be_told_apart_are_refused(tmp_path: Path) -> None:
    """Each over its own net by requires_grad, without a name: one set of beta powers for two."""
    gan, captured = Gan(), {}
    for name, loss, fields in (("discriminator", of_d, "xz"), ("generator", of_g, "z")):
        for other in NETS:
            getattr(gan, other).requires_grad_(other == name)
        rule = optimizers(gan)[name]
        captured[name] = tallystick.capture(gan, loss, batch_of(*fields), rule)
    refused("share opt.beta1_power", tmp_path, captured)
    plain = {}
    for name, loss, fields in (("discriminator", of_d, "xz"), ("generator", of_g, "z")):
        for other in NETS:
            getattr(gan, other).requires_grad_(other == name)
        rate = 0.1 if name == "generator" else 0.2
        plain[name] = tallystick.capture(gan, loss, batch_of(*fields), tallystick.SGD(lr=rate))
    refused("have the scalar lr", tmp_path, plain)


def test_what_trains_must_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="belongs to trains='critic'"):
        tallystick.capture(Gan(), of_g, batch_of("z"), tallystick.Adam(lr=0.1), trains="critic")
    with pytest.raises(UsageError, match="several optimizers, which trains each"):
        tallystick.capture(
            Gan(), of_g, batch_of("z"), {"generator": tallystick.Adam(lr=0.1)}, trains="generator"
        )


def test_programs_that_read_no_record(tmp_path: Path) -> None:
    def alone(gan: Any, batch: dict[str, Tensor]) -> Tensor:
        return F.softplus(-gan.discriminator(gan.generator(torch.randn(4, 3)))).mean()

    step = tallystick.capture(Gan().train(), alone, {}, tallystick.SGD(lr="lr"))
    rates = {"only": {"lr": np.float32(0.5)}}
    job = tallystick.save_job(
        tmp_path / "job", None, programs={"only": step}, schedules=rates, steps=3, seed=SEED
    )
    assert job.commitment.timetable.data == () and job.scalars == {"lr": 0.5}
    run = tallystick.train(job, tmp_path / "run", progress=False)
    assert len(run.losses) == 3
    assert tallystick.audit(tmp_path / "run", job, progress=False).accepted


def test_the_names_of_two_modules_are_kept(tmp_path: Path) -> None:
    """Each with a buffer that it does not save."""

    def captured(name: str) -> Any:
        net = nn.Module()
        net.add_module(name, nn.Linear(4, 1))
        net.register_buffer(f"scale_{name}", torch.ones(1), persistent=False)

        def loss(net: Any, batch: dict[str, Tensor]) -> Tensor:
            return (getattr(net, name)(batch["x"]) * getattr(net, f"scale_{name}")).square().mean()

        batch = {"x": torch.from_numpy(X[:BATCH])}
        return tallystick.capture(net.train(), loss, batch, tallystick.SGD(0.1))

    programs = {name: captured(name) for name in ("one", "two")}
    job = tallystick.save_job(tmp_path / "job", {"x": X}, programs=programs, steps=2)
    tallystick.train(job, tmp_path / "run", progress=False)
    names = set(weights_of(tmp_path / "run", None, Which()).tensors)
    assert names == {"one.weight", "one.bias", "two.weight", "two.bias"}
