"""Augmentation in a captured step: what it does, how often, the same bits everywhere, disputed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from adversary.games import Answers
from torch import Tensor, nn
from unit.protocol.scenarios import Lie
from unit.protocol.simulator import Party

import tallystick
from tallystick import augment
from tallystick.errors import UsageError
from tallystick.job.job import Job
from tallystick.program.executor import Executor
from tallystick.protocol.judge import judge
from tallystick.prover.local import play

N, SIDE = 4, 6


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(torch.relu(self.conv(x)).mean((2, 3)))
        return out


def loss(module: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    x, y = augment.normalize(batch["x"], [0.5, 0.4, 0.3], 0.25), batch["y"]
    if not module.training:
        return F.cross_entropy(module(x), y)
    x = augment.horizontal_flip(augment.random_crop(x, 1))
    x, y, other, weight = augment.mixup(augment.cutout(x, 2), y, 0.4)
    out = module(x)
    return weight * F.cross_entropy(out, y) + (1 - weight) * F.cross_entropy(out, other)


@pytest.fixture(scope="module")
def captured() -> Any:
    torch.manual_seed(1)
    batch = {
        "x": torch.zeros(N, 3, SIDE, SIDE, dtype=torch.uint8),
        "y": torch.zeros(N, dtype=torch.int64),
    }
    return tallystick.capture(Net(), loss, batch, tallystick.SGD(lr=0.1))


@pytest.fixture(scope="module")
def job(captured: Any, tmp_path_factory: pytest.TempPathFactory) -> Job:
    rng = np.random.default_rng(0)
    data = {
        "x": rng.integers(0, 256, (24, 3, SIDE, SIDE), dtype=np.uint8),
        "y": rng.integers(0, 3, 24),
    }
    where = tmp_path_factory.mktemp("augmented")
    frozen = tallystick.freeze(data, where / "data", hold_out=0.25, progress=False)
    made: Job = captured.save_job(
        where / "job", frozen, steps=6, checkpoint_interval=2, validation=frozen.validation,
        evaluate_every=3,
    )  # fmt: skip
    return made


def test_an_evaluation_is_not_augmented(captured: Any) -> None:
    assert captured.program.uses_rng and not captured.evaluation.uses_rng
    drawing = [n.op for n in captured.program.nodes if n.op == "tallystick.uniform"]
    assert len(drawing) == 6  # crop and cutout two each, flip and mixup one
    assert not [n.op for n in captured.evaluation.nodes if n.op == "tallystick.uniform"]


def test_the_first_step_is_the_modules(job: Job) -> None:
    """`save_job` compared it with the module in float64, with the same draws."""
    assert "first step" not in job.about


def test_eager_torch_with_the_same_draws_has_the_same_bits(job: Job, captured: Any) -> None:
    indices = job.commitment.timetable.indices(job.commitment.timetable.at(0))
    batch = {name: column[indices] for name, column in job.columns.items()}
    done = Executor(job.program).run_step(
        {k: v.copy() for k, v in job.genesis().slots.items() if k in job.program.state_types},
        batch, {name: job.terms.scalar(name, 0) for name in job.program.scalar_names}, (0, 0),
    )  # fmt: skip
    torch.manual_seed(1)
    module = Net()
    with tallystick.reproducible("ordered/1", seed=0):
        value = loss(module, {name: torch.from_numpy(a.copy()) for name, a in batch.items()})
    assert np.float32(value.item()) == np.float32(done.loss)


def test_runs_agree_over_threads_and_are_audited(job: Job, tmp_path: Path) -> None:
    roots = set()
    for threads in (1, 2):
        out = tmp_path / str(threads)
        roots.add(tallystick.train(job, out, threads=threads, progress=False).run_root)
        assert tallystick.audit(out, threads=3 - threads, progress=False).accepted
    assert len(roots) == 1


# Which draw is whose: in forward order.
DRAWS = {"crop": 0, "flip": 2, "cutout": 3, "mixup": 5}


@pytest.mark.sample(3)
@pytest.mark.parametrize("what", [*DRAWS, "all at one step", "none"])
@pytest.mark.parametrize("seat", [0, 1])
def test_other_augmentation_is_convicted(job: Job, what: str, seat: int) -> None:
    """A trainer who draws otherwise, or who leaves the augmentation out, at one step."""
    drawing = [i for i, n in enumerate(job.program.nodes) if n.op == "tallystick.uniform"]
    chosen = [drawing[DRAWS[what]]] if what in DRAWS else []

    def node(step: int, index: int, at: Any, outputs: Any) -> None:
        if step != 3:
            return
        if index in chosen:
            outputs[0][...] = np.float32(1) - np.float32(2.0**-24) - outputs[0]
        if what == "none" and index in drawing:
            outputs[0][...] = np.float32(0.5)

    def key(step: int, pair: tuple[int, int]) -> tuple[int, int]:
        return (pair[0], pair[1] + 1) if step == 3 and what == "all at one step" else pair

    honest, cheat = Answers(Party(job)), Answers(Party(job, Lie(node=node, random_key=key)))
    players = [cheat, honest] if seat == 0 else [honest, cheat]
    played = play(job.terms, players)
    assert [c.party for c in played.verdict.convicted] == [seat]
    assert played.verdict.accepted == 1 - seat
    assert judge(job.terms, played.evidence.to_bytes()).verdict == played.verdict


# -- what the functions do -------------------------------------------------------------------------


def test_crop_is_a_window_of_the_padded_image_and_every_place_is_as_likely() -> None:
    torch.manual_seed(0)
    image = torch.arange(1.0, 1 + 3 * 5 * 4).view(1, 3, 5, 4)
    padded = F.pad(image, (2, 2, 1, 1))
    windows = {
        padded[0, :, top : top + 5, left : left + 4].numpy().tobytes(): (top, left)
        for top in range(3)
        for left in range(5)
    }
    counts = dict.fromkeys(windows.values(), 0)
    for found in augment.random_crop(image.expand(6000, 3, 5, 4), (1, 2)):
        counts[windows[found.contiguous().numpy().tobytes()]] += 1
    assert min(counts.values()) > 300 and max(counts.values()) < 500  # 400 each, sigma 19
    assert torch.equal(augment.random_crop(image, 0), image)


def test_flip_mirrors_the_share_that_was_asked_for() -> None:
    torch.manual_seed(0)
    x = torch.rand(4000, 1, 2, 3)
    found = augment.horizontal_flip(x, 0.25)
    flipped = (found == x.flip(3)).all(3).all(2).all(1)
    same = (found == x).all(3).all(2).all(1)
    assert (flipped ^ same).all()
    assert 900 < int(flipped.sum()) < 1100
    assert torch.equal(augment.horizontal_flip(x, 0.0), x)
    assert torch.equal(augment.horizontal_flip(x, 1.0), x.flip(3))


def test_cutout_sets_a_square_to_zero_around_any_pixel() -> None:
    torch.manual_seed(0)
    x = torch.ones(5000, 2, 6, 5)
    holes = augment.cutout(x, 3) == 0
    assert torch.equal(holes[:, 0], holes[:, 1])
    ends = [(h.nonzero().amin(0), h.nonzero().amax(0)) for h in holes[:, 0]]
    corners = {(*first.tolist(), *last.tolist()) for first, last in ends}
    assert len(corners) == 30  # one for each middle
    assert int(holes[:, 0].flatten(1).sum(1).max()) == 9


def test_normalize_has_the_channels_mean_and_deviation() -> None:
    x = torch.randint(0, 256, (3, 2, 4, 4), dtype=torch.uint8)
    found = augment.normalize(x, [0.5, 0.25], [0.5, 2.0])
    wanted = (x.double() / 255 - torch.tensor([0.5, 0.25]).view(1, 2, 1, 1)) / torch.tensor(
        [0.5, 2.0]
    ).view(1, 2, 1, 1)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)
    assert augment.normalize(torch.ones(2, 3), 1.0, 2.0).abs().max() == 0


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5, 1.0, 2.0, 8.0])
def test_the_weight_has_the_beta_distribution(alpha: float) -> None:
    """Kolmogorov's distance to numpy's beta generator, at a thousandth of significance."""
    torch.manual_seed(int(alpha * 10))
    mine = np.sort([augment.beta(alpha).item() for _ in range(4000)])
    drawn = np.random.default_rng(1).beta(alpha, alpha, 200_000)
    theirs = np.sort(drawn.astype(np.float32))  # near 1 many of them are one float32
    assert np.isfinite(mine).all() and mine[0] >= 0 and mine[-1] <= 1
    at = np.unique(np.concatenate([mine, theirs]))
    shares = [np.searchsorted(each, at, "right") / len(each) for each in (mine, theirs)]
    assert np.abs(shares[0] - shares[1]).max() < 0.033


def test_mixup_mixes_each_record_with_the_next() -> None:
    torch.manual_seed(0)
    x, y = torch.rand(5, 3), torch.arange(5)
    mixed, mine, other, weight = augment.mixup(x, y, 0.4)
    assert mine.tolist() == [0, 1, 2, 3, 4] and other.tolist() == [1, 2, 3, 4, 0]
    torch.testing.assert_close(mixed, weight * x + (1 - weight) * x[other])


def test_what_makes_no_sense_is_refused_by_name() -> None:
    image = torch.zeros(2, 3, 4, 4)
    for call, words in (
        (lambda: augment.random_crop(torch.zeros(2, 3), 1), "random_crop takes images"),
        (lambda: augment.random_crop(image, -1), "random_crop has the padding -1"),
        (lambda: augment.horizontal_flip(image, 1.5), "horizontal_flip has the probability"),
        (lambda: augment.cutout(image, 0), "cutout has the size 0"),
        (lambda: augment.normalize(image, [1.0, 2.0], 1.0), "2 values of mean for 3 channels"),
        (lambda: augment.normalize(image, 0.0, 0.0), "std above 0"),
        (lambda: augment.normalize(torch.zeros(3), 0.0, 1.0), "normalize takes"),
        (lambda: augment.mixup(image.long(), torch.zeros(2), 1.0), "mixup has x of torch.int64"),
        (lambda: augment.mixup(image, torch.zeros(2), 0.0), "alpha=0"),
    ):
        with pytest.raises(UsageError, match=words):
            call()
