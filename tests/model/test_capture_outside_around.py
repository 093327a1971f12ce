"""What surrounds the slots of PROGRAM 5.20: refusals, evaluation, micro-batches, `fit`, export."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from outside_models import CASES, SIZE, net, records
from torch import Tensor, nn

import tallystick
from tallystick.disk.tensorfile import read_tensors
from tallystick.errors import UsageError
from tallystick.program.capture.api import capture as capture_step
from tallystick.program.capture.api import capture_eval
from tallystick.run.store.claim import read_claim
from tallystick.run.store.directory import RunStore
from tallystick.run.store.export import export_model

HERE = re.escape(Path(__file__).name)
Loss = Callable[[nn.Module, Mapping[str, Tensor]], Tensor]


def batch(size: int = SIZE) -> dict[str, Tensor]:
    return {k: v[:size] for k, v in records().items() if k != "t"}


def captured(loss: Loss, module: nn.Module | None = None, **given: Any) -> Any:
    return tallystick.capture(module or net(), loss, batch(), tallystick.SGD(0.1), **given)


def slots(step: Any) -> list[str]:
    return [name for name in step.program.state_types if name.startswith("buffer.outside.")]


def usual(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
    return F.cross_entropy(module(given["x"]), given["y"])


# -- refused by name -------------------------------------------------------------------------------
def lazy_hidden_state() -> Loss:
    hidden = None

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        nonlocal hidden
        scores = module(given["x"])
        if hidden is not None:
            scores = scores + hidden
        hidden = scores.detach().mean(0)
        return F.cross_entropy(scores, given["y"])

    return loss


def bank_that_grows() -> Loss:
    bank: list[Tensor] = []

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        bank.append(given["x"].mean(0)[:3])
        value = F.cross_entropy(scores, given["y"])
        return value + (scores * bank[-1]).mean() if len(bank) >= 7 else value

    return loss


def queue_that_grows() -> Loss:
    state = {"queue": torch.zeros(0, 5)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        state["queue"] = torch.cat([state["queue"], given["x"][:1]])[-8:]
        return usual(module, given) + state["queue"].sum()

    return loss


def numpy_view() -> Loss:
    weight = torch.ones(3)
    seen = weight.numpy()

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        seen[0] *= 0.5
        return F.cross_entropy(module(given["x"]) * weight, given["y"])

    return loss


def numpy_of_the_call() -> Loss:
    weight = torch.ones(3)

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        weight.numpy()[...] += 1
        return F.cross_entropy(module(given["x"]) * weight, given["y"])

    return loss


def view_of_a_parameter() -> Loss:
    state = {"before": torch.zeros(3, 6)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        value = usual(module, given) + (module[2].weight - state["before"]).square().sum()
        state["before"] = module[2].weight.detach()
        return value

    return loss


def data_of_a_parameter() -> Loss:
    slow = net()

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        value = F.mse_loss(module(given["x"]), slow(given["x"]).detach())
        for one, other in zip(slow.parameters(), module.parameters(), strict=True):
            one.data = other.data
        return value

    return loss


def graph_that_goes_on() -> Loss:
    mean = torch.zeros(())

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        nonlocal mean
        mean = 0.9 * mean + 0.1 * usual(module, given)
        return mean

    return loss


def parameter_outside() -> Loss:
    scale = nn.Parameter(torch.ones(3))

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(module(given["x"]) * scale, given["y"])

    return loss


def another_type() -> Loss:
    state = {"best": torch.tensor(0)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        value = usual(module, given)
        state["best"] = torch.maximum(state["best"].float(), value.detach())
        return value * (1 + state["best"])

    return loss


def half_precision() -> Loss:
    mean = torch.zeros(3, dtype=torch.bfloat16)

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        mean.mul_(0.5)
        return F.cross_entropy(scores + mean.float(), given["y"])

    return loss


def two_that_share_memory() -> Loss:
    state = {"a": torch.zeros(3), "b": torch.zeros(3)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        state["a"].mul_(0.5)
        state["b"].add_(1.0)
        state["a"] = state["b"]
        return F.cross_entropy(scores + state["a"], given["y"])

    return loss


def in_a_set() -> Loss:
    class Mean:
        def __init__(self) -> None:
            self.value = torch.zeros(3)

    means = {Mean()}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        for mean in means:
            scores = scores + mean.value
            mean.value = scores.detach().mean(0)
        return F.cross_entropy(scores, given["y"])

    return loss


def in_no_place() -> Loss:
    def counting() -> Any:
        held = torch.zeros(3)
        while True:
            held.add_(0.5)
            yield held

    numbers = counting()
    next(numbers)

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(module(given["x"]) + next(numbers), given["y"])

    return loss


def none_in_the_end() -> Loss:
    state = {"bias": torch.ones(3)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        bias = state.get("bias")
        state["bias"] = None
        return F.cross_entropy(module(given["x"]) + (0 if bias is None else bias), given["y"])

    return loss


def taken_from_a_list() -> Loss:
    biases = [torch.full((3,), float(i)) for i in range(9)]

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(module(given["x"]) + biases.pop(), given["y"])

    return loss


AT = rf"\(.*{HERE}:\d+\)"
REFUSED: dict[Callable[[], Loss], str] = {
    lazy_hidden_state: rf"hidden in the closure of loss {AT}.*{AT}",
    bank_that_grows: rf"bank in the closure of loss {AT} gets another tensor at every call",
    queue_that_grows: rf"state\['queue'\] in .* its type from float32\[0, 5\] to .*\[1, 5\] {AT}",
    numpy_view: rf"weight in the closure of loss {AT}, .* is changed by something.*numpy.* {AT}",
    numpy_of_the_call: rf"reads a tensor through numpy {AT}",
    view_of_a_parameter: rf"state\['before'\] in .* the memory of the module's 2\.weight.* {AT}",
    data_of_a_parameter: rf"`x\.data = y` lets x share the memory of a state tensor {AT}",
    graph_that_goes_on: r"The loss has a gradient by a tensor \(\) that is kept outside .* detach",
    parameter_outside: rf"requires a gradient but is not a registered parameter {AT}",
    another_type: rf"state\['best'\] in the .* changes its type from int64\S* to float32.* {AT}",
    half_precision: rf"a constant tensor of bfloat16 on cpu {AT}",
    two_that_share_memory: r"state.*is changed in place, and|shares memory with another kept",
    in_a_set: r"value.*is reached through a set",
    in_no_place: rf"changes a tensor in place that capture finds nowhere {AT}",
    taken_from_a_list: rf"biases\[8\] in the .* is gone after the call {AT}",
    none_in_the_end: rf"state\['bias'\] in the .* is a NoneType after the call {AT}",
}


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_what_no_state_can_have_is_refused_by_name(make: Callable[[], Loss]) -> None:
    with pytest.raises(UsageError, match=f"(?s){REFUSED[make]}") as caught:
        assert captured(make()).program  # what no one program has may become a job's (5.25)
    assert caught.value.next_action


def test_a_report_that_grows_is_no_matter() -> None:
    history: list[Tensor] = []

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        value = usual(module, given)
        history.append(value.detach())
        return value

    assert captured(loss).program.text() == captured(usual).program.text()
    assert history == []


def replaced_on_real_values() -> Loss:
    state = {"bias": torch.zeros(3)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        if not scores.is_meta:
            state["bias"] = state["bias"] + 1
        return F.cross_entropy(scores + state["bias"], given["y"])

    return loss


def changed_on_real_values() -> Loss:
    bias = torch.zeros(3)

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        if not scores.is_meta:
            bias.add_(1)
        return F.cross_entropy(scores + 0 * bias, given["y"])

    return loss


@pytest.mark.parametrize("make", [replaced_on_real_values, changed_on_real_values])
def test_a_change_that_only_real_values_bring_is_seen(
    make: Callable[[], Loss], tmp_path: Path
) -> None:
    """PROGRAM 5.9: the comparison of the first step runs the loss in torch."""
    data = {k: v.numpy() for k, v in batch(8).items()}
    with pytest.raises(UsageError, match=r"in a call on real values|that no program sees"):
        captured(make()).save_job(tmp_path / "job", data, steps=2)


def test_a_step_with_several_optimizers_keeps_an_average(tmp_path: Path) -> None:
    """The average reads the parameters after the first update, as the loop does."""
    module = Two()
    mean = copy.deepcopy(module.one)

    def step(m: nn.Module, given: Mapping[str, Tensor], update: Any) -> Tensor:
        first = usual(m.one, given)
        update("one", first)
        with torch.no_grad():
            for slow, fast in zip(mean.parameters(), m.one.parameters(), strict=True):
                slow.mul_(0.5).add_(fast, alpha=0.5)
        second = F.mse_loss(m.two(given["x"]), mean(given["x"]).detach())
        update("two", second)
        return first + second

    optimizers = {"one": tallystick.SGD(0.1), "two": tallystick.SGD(0.1)}
    taken = tallystick.capture(module, step, batch(), optimizers)
    data = {k: v.numpy() for k, v in batch().items()}
    job = taken.save_job(tmp_path / "job", data, steps=1)
    assert "first step" not in job.about
    tallystick.train(job, tmp_path / "run", progress=False)
    store = RunStore(tmp_path / "run")
    found = store.load_state(job, 1, read_claim(store, job, None).roots[1]).slots
    for name, before in mean.named_parameters():
        after = 0.5 * before.detach().numpy() + 0.5 * found[f"param.one.{name}"]
        own = found[f"buffer.outside.mean.{name}"]
        np.testing.assert_allclose(own, after, rtol=1e-5, atol=1e-7, err_msg=name)
        assert own.tobytes() != before.detach().numpy().tobytes()


# -- what stays a constant, and what is one slot ---------------------------------------------------
def test_a_tensor_that_never_changes_is_a_constant() -> None:
    weight, offset = torch.tensor([1.0, 2.0, 0.5]), {"b": torch.ones(3)}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(module(given["x"]) * weight + offset["b"], given["y"])

    assert slots(captured(loss)) == []


def test_a_large_frozen_tensor_is_a_slot_that_is_passed_through() -> None:
    """PROGRAM 5.10: no constant of more than 4096 elements."""
    torch.manual_seed(2)
    table, unused = torch.randn(5, 1000), torch.zeros(5000)

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        assert unused.shape == (5000,)
        return usual(module, given) + (given["x"] @ table).square().mean()

    step = captured(loss)
    assert slots(step) == ["buffer.outside.table"]
    assert "output buffer.outside.table @buffer.outside.table" in step.program.text()


def test_a_frozen_teacher_that_requires_gradients() -> None:
    teacher = net()

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.mse_loss(module(given["x"]), teacher(given["x"]).detach())

    assert len(slots(captured(loss))) == 4


def test_two_places_of_one_tensor_are_one_slot() -> None:
    mean = torch.zeros(3)
    state = {"also": mean, "view": mean[1:]}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        mean.mul_(0.5).add_(scores.detach().mean(0))
        return F.cross_entropy(scores - state["also"] + state["view"].sum(), given["y"])

    assert slots(captured(loss)) == ["buffer.outside.mean"]


def test_the_first_value_stays_where_another_place_keeps_it() -> None:
    first = torch.ones(3)
    state = {"now": first}

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = module(given["x"])
        state["now"] = 0.5 * state["now"] + scores.detach().mean(0)
        return F.cross_entropy(scores - state["now"] + first, given["y"])

    step = captured(loss)
    assert slots(step) == ["buffer.outside.state.now"]
    assert "full" in step.program.text()


def test_equal_names_are_numbered_in_the_order_of_the_walk() -> None:
    def made(start: float) -> Callable[[Tensor], Tensor]:
        mean = torch.full((3,), start)

        def centred(scores: Tensor) -> Tensor:
            mean.mul_(0.9).add_(scores.detach().mean(0))
            return scores - mean

        return centred

    one, two = made(0.0), made(1.0)

    def loss(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(two(one(module(given["x"]))), given["y"])

    step = captured(loss)
    assert slots(step) == ["buffer.outside.mean", "buffer.outside.mean.2"]
    state = step.step.initial_state
    assert state["buffer.outside.mean"][0] == 0 and state["buffer.outside.mean.2"][0] == 1


# -- evaluation, micro-batches, several programs ---------------------------------------------------
def test_an_evaluation_reads_the_slots_and_writes_none() -> None:
    made = CASES["baseline_by_nonlocal"]()
    step = captured(made.loss, made.module)
    assert "buffer.outside.baseline" in step.evaluation.state_types
    assert [o for o in step.evaluation.text().splitlines() if o.startswith("output")] != []
    assert "output buffer" not in step.evaluation.text()


SEEN = torch.zeros(())


def test_an_evaluation_may_count_but_not_compute_from_that() -> None:
    made = CASES["baseline_by_nonlocal"]()
    step = capture_step(made.module, made.loss, batch(), tallystick.SGD(0.1))

    def counts(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        global SEEN
        SEEN = SEEN + 1
        return made.loss(module, given)

    def weighs(module: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return counts(module, given) * SEEN

    found = capture_eval(made.module, counts, batch(), step=step)
    assert found.text() == capture_eval(made.module, made.loss, batch(), step=step).text()
    with pytest.raises(UsageError, match=r"SEEN, .* changes in the evaluation"):
        capture_eval(made.module, weighs, batch(), step=step)
    assert float(SEEN) == 0


def test_micro_batches_hand_the_slots_on(tmp_path: Path) -> None:
    """Two micro-batches of four are one update of the loop that takes both in turn."""
    made = CASES["criterion_with_a_buffer"]()
    step = tallystick.capture(
        made.module, made.loss, batch(8), tallystick.SGD(0.1), micro_batches=2
    )
    assert "carry buffer.outside.criterion.centre" in step.program.text()
    data = {k: v.numpy() for k, v in batch(8).items()}
    job = step.save_job(tmp_path / "job", data, steps=1)
    assert "first step" not in job.about
    tallystick.train(job, tmp_path / "run", progress=False)
    store = RunStore(tmp_path / "run")
    found = store.load_state(job, 1, read_claim(store, job, None).roots[1]).slots
    plain = CASES["criterion_with_a_buffer"]()
    order = tallystick_order(8)
    for part in (order[:4], order[4:]):
        loss = plain.loss(plain.module, {k: torch.from_numpy(v[part]) for k, v in data.items()})
        (loss / 2).backward()
    centre = plain.read()["criterion.centre"].numpy()
    np.testing.assert_allclose(found["buffer.outside.criterion.centre"], centre, rtol=1e-5)
    weight = plain.module[0].weight - 0.1 * plain.module[0].weight.grad
    np.testing.assert_allclose(
        found["param.0.weight"], weight.detach().numpy(), rtol=1e-4, atol=1e-6
    )


def tallystick_order(count: int) -> np.ndarray:
    from tallystick.commit.order import batch_indices

    return batch_indices(0, count, 0, count)


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = net(), net()


def test_two_programs_of_one_job_agree_about_a_slot(tmp_path: Path) -> None:
    mean, module = torch.zeros(3), Two()
    data = {k: v.numpy() for k, v in batch(8).items()}

    def first(m: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        scores = m.one(given["x"])
        mean.mul_(0.9).add_(scores.detach().mean(0))
        return F.cross_entropy(scores - mean, given["y"])

    def second(m: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        return F.cross_entropy(m.two(given["x"]) - mean, given["y"])

    def third(m: nn.Module, given: Mapping[str, Tensor]) -> Tensor:
        mean.mul_(0.5)
        return F.cross_entropy(m.two(given["x"]) - mean, given["y"])

    def step(loss: Loss, trains: str) -> Any:
        return tallystick.capture(module, loss, batch(), tallystick.SGD(0.1), trains=trains)

    a, b, c = step(first, "one"), step(second, "two"), step(third, "two")
    with pytest.raises(
        UsageError, match=r"mean .* changes in the program a, and b reads its first"
    ):
        tallystick.save_job(tmp_path / "no", data, programs={"a": a, "b": b}, steps=4)
    job = tallystick.save_job(tmp_path / "job", data, programs={"a": a, "c": c}, steps=4)
    assert "first step" not in job.about


# -- fit, export, continuation ---------------------------------------------------------------------
def test_fit_gives_the_slots_back_to_their_places(tmp_path: Path) -> None:
    """The names, and the objects that change in place, have the values of the run's last state."""
    baseline, scale = torch.zeros(()), torch.ones(3)
    held = scale

    def loss(module: nn.Module, given: Any) -> Tensor:
        nonlocal baseline
        x, y = given
        scores = module(x) * scale.clone()
        chosen = scores.log_softmax(-1).gather(1, y[:, None]).squeeze(1)
        value = -((x[:, 0] - baseline) * chosen).mean()
        if module.training:  # a pass of validation leaves no slot changed
            baseline = 0.9 * baseline + 0.1 * x[:, 0].mean()
            scale.mul_(0.99)
        return value

    module = net()
    known = records()
    data = list(zip(known["x"], known["y"], strict=True))
    tallystick.fit(
        module, loss, data, tallystick.SGD(0.1), steps=6, batch_size=4, out=tmp_path / "out",
        validation=data[:8], evaluate_every=3, progress=False,
    )  # fmt: skip
    store = RunStore(tmp_path / "out" / "run")
    job = store.job()
    claim = read_claim(store, job, None)
    state = store.load_state(job, claim.last_step, claim.roots[claim.last_step]).slots
    assert float(baseline) == float(state["buffer.outside.baseline"]) != 0
    assert held is scale
    assert scale.numpy().tobytes() == state["buffer.outside.scale"].tobytes()
    assert float(scale[0]) == pytest.approx(0.99**6, rel=1e-5)
    export_model(tmp_path / "out" / "run", tmp_path / "m.safetensors")
    tensors, _ = read_tensors(tmp_path / "m.safetensors", "model file", strict=False)
    assert set(tensors) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_continued_job_begins_with_the_last_slots(tmp_path: Path) -> None:
    made = CASES["global_name"]()
    step = captured(made.loss, made.module)
    data = {k: v.numpy() for k, v in records().items() if k != "t"}
    whole = step.save_job(tmp_path / "whole", data, steps=8, checkpoint_interval=4)
    half = step.save_job(tmp_path / "half", data, steps=4, checkpoint_interval=4)
    tallystick.train(whole, tmp_path / "run", progress=False)
    tallystick.train(half, tmp_path / "first", progress=False)
    later = tallystick.continue_run(tmp_path / "first", tmp_path / "later", 4)
    tallystick.train(later, tmp_path / "second", progress=False)
    found = []
    for name, job in (("run", whole), ("second", later)):
        store = RunStore(tmp_path / name)
        claim = read_claim(store, job, None)
        found.append(store.load_state(job, claim.last_step, claim.roots[claim.last_step]).slots)
    assert set(found[0]) == set(found[1]) and "buffer.outside.GLOBAL" in found[0]
    for slot in found[0]:
        assert found[0][slot].tobytes() == found[1][slot].tobytes(), slot
