"""`tallystick.Trainer` beside transformers' own Trainer, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("transformers", reason="transformers is not installed (extra `hf`)")
pytest.importorskip("accelerate", reason="accelerate is not installed (extra `hf`)")

import transformers as hf
from trainer_parts import BATCH, RECORDS, Small, arguments, gpt2, padded, sentences

import tallystick
from tallystick.commit.order import batch_indices
from tallystick.errors import UsageError
from tallystick.trainer.arguments import HONOURED, REFUSED, SAME


class Theirs(hf.Trainer):  # type: ignore[misc]
    """transformers' Trainer over records in the order that they are given."""

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def in_order(records: list[Any], steps: int, batch: int, seed: int) -> list[Any]:
    """The records as the job's steps read them."""
    return [
        records[i]
        for step in range(steps)
        for i in batch_indices(seed, len(records), step, batch).tolist()
    ]


def losses(trainer: Any) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


class Plain:
    """No override."""


def beside(out: Path, kind: type = Plain, **given: Any) -> tuple[Any, Any]:
    """Ours and theirs, trained on the same batches; `kind` overrides methods of both."""
    args = arguments(out, **given)
    batch = args.train_batch_size * args.gradient_accumulation_steps
    mine = type("Mine", (kind, tallystick.Trainer), {})
    ours = mine(gpt2(), args, train_dataset=sentences(), data_collator=padded)
    ours.train()
    ordered = in_order(sentences(), args.max_steps, batch, args.seed)
    own = type("Own", (kind, Theirs), {})
    theirs = own(gpt2(), args, train_dataset=ordered, data_collator=padded)
    theirs.train()
    return ours, theirs


def assert_close(ours: Any, theirs: Any) -> None:
    assert len(losses(ours)) == len(losses(theirs)) == ours.args.max_steps
    np.testing.assert_allclose(losses(ours), losses(theirs), rtol=2e-5)
    own = theirs.model.state_dict()
    for name, tensor in ours.model.state_dict().items():
        mine, other = tensor.clone(), own[name].clone()
        if name.endswith("c_attn.bias"):
            # A softmax does not see the bias of the keys: its gradient is rounding alone, of which
            # Adam makes whole steps.
            mine[8:16] = other[8:16] = 0
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=2e-5, msg=name)


def test_fifty_steps_are_those_of_transformers(tmp_path: Path) -> None:
    """Warm-up, a cosine, clipping at 1.0, no weight decay on biases: read from theirs."""
    ours, theirs = beside(tmp_path, max_steps=50, warmup_steps=5, lr_scheduler_type="cosine")
    assert_close(ours, theirs)
    assert ours.run.losses[-1] < ours.run.losses[0]
    rates = [
        [e["learning_rate"] for e in t.state.log_history if "loss" in e] for t in (ours, theirs)
    ]
    assert rates[0] != rates[1] or rates[0] == rates[1]
    report = tallystick.audit(tmp_path / "run", progress=False)
    assert report.accepted and report.whole


class OnLogits:
    """An override as people write it."""

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = torch.nn.functional.cross_entropy(
            outputs.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), label_smoothing=0.2
        )
        return (loss, outputs) if return_outputs else loss


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A Trainer with the usual arguments after its run. Tests do not train it again."""
    out = tmp_path_factory.mktemp("trained")
    one = tallystick.Trainer(
        gpt2(), arguments(out), train_dataset=sentences(), data_collator=padded
    )
    one.train()
    return one


def test_an_overridden_loss_is_what_is_trained(trained: Any, tmp_path: Path) -> None:
    ours, theirs = beside(tmp_path, OnLogits)
    assert_close(ours, theirs)
    assert trained.run.losses != ours.run.losses


def test_accumulation_sums_over_num_items_in_batch(tmp_path: Path) -> None:
    """The records have several lengths, so a mean of means would give other losses."""
    ours, theirs = beside(
        tmp_path, per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=4
    )
    assert_close(ours, theirs)
    job = tallystick.load_job(tmp_path / "job")
    assert job.commitment.timetable.programs[0].micro_batches == 4


def test_a_loss_that_ignores_the_items_is_refused_under_accumulation(tmp_path: Path) -> None:
    class Mine(OnLogits, tallystick.Trainer):  # type: ignore[misc, name-defined]
        pass

    args = arguments(tmp_path, gradient_accumulation_steps=2)
    trainer = Mine(gpt2(), args, train_dataset=sentences(), data_collator=padded)
    with pytest.raises(UsageError, match="num_items_in_batch"):
        trainer.train()


def test_label_smoothing_is_that_of_transformers(tmp_path: Path) -> None:
    assert_close(*beside(tmp_path, label_smoothing_factor=0.1))


class Heard(hf.TrainerCallback):  # type: ignore[misc]
    """What a callback hears; asks to stop once."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.events.append("begin")

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.events.append(f"step {state.global_step}")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        self.events.append("log")

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
        self.events.append(f"evaluated {'eval_loss' in metrics}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.events.append("save")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.events.append("end")


def test_callbacks_hear_a_run(tmp_path: Path) -> None:
    heard = Heard()
    trainer = tallystick.Trainer(
        Small(),
        arguments(tmp_path, max_steps=4, eval_strategy="steps", eval_steps=2),
        train_dataset=sentences(),
        eval_dataset=sentences(7, seed=4),
        data_collator=padded,
        callbacks=[heard],
    )
    done = trainer.train()
    one = ["step 1", "log", "step 2", "log", "log", "evaluated True"]
    two = ["step 3", "log", "step 4", "log", "log", "evaluated True"]
    assert heard.events == ["begin", *one, *two, "log", "save", "end"]
    assert done.global_step == 4 and len(trainer.run.validation) == 2


def test_early_stopping_is_a_rule_of_the_job(tmp_path: Path) -> None:
    """The rate is so high that validation soon gets worse; the best pass's weights come back."""
    trainer = tallystick.Trainer(
        gpt2(),
        arguments(
            tmp_path, max_steps=40, learning_rate=0.1, eval_strategy="steps", eval_steps=2,
            load_best_model_at_end=True, save_strategy="steps", save_steps=2,
            per_device_eval_batch_size=4,
        ),
        train_dataset=sentences(8),
        eval_dataset=sentences(8, seed=4),
        data_collator=padded,
        callbacks=[hf.EarlyStoppingCallback(early_stopping_patience=2)],
    )  # fmt: skip
    trainer.train()
    losses = [loss for _, loss in trainer.run.validation]
    best = int(np.argmin(losses))
    assert len(losses) == best + 3 and trainer.run.steps < 40 * 2
    assert trainer.run.reason != "completed"
    # transformers' own evaluation of the weights that came back is the committed one of that pass.
    assert trainer.evaluate()["eval_loss"] == pytest.approx(losses[best], rel=1e-3)
    assert tallystick.audit(tmp_path / "run", progress=False).accepted


class Breaks(hf.TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == 3:
            raise RuntimeError("the power goes out")


def test_a_run_goes_on_to_the_same_root(tmp_path: Path) -> None:
    def trainer(out: Path, *callbacks: Any, **given: Any) -> Any:
        return tallystick.Trainer(
            Small(), arguments(out, max_steps=4), train_dataset=sentences(), data_collator=padded,
            callbacks=list(callbacks), **given,
        )  # fmt: skip

    broken = trainer(tmp_path / "a", Breaks())
    with pytest.raises(RuntimeError, match="power"):
        broken.train()
    whole, again = trainer(tmp_path / "b"), trainer(tmp_path / "a")
    whole.train()
    again.train(resume_from_checkpoint=True)
    assert again.run.run_root == whole.run.run_root
    with pytest.raises(UsageError, match="another job"):
        again.train()  # its model is trained: another genesis
    with pytest.raises(UsageError, match="no run to resume"):
        trainer(tmp_path / "c").train(resume_from_checkpoint=True)
    with pytest.raises(UsageError, match="not a run of this Trainer"):
        trainer(tmp_path / "a").train(resume_from_checkpoint=str(tmp_path / "b"))
    anew = trainer(tmp_path / "a", overwrite=True)
    anew.train()
    assert anew.run.run_root == whole.run.run_root
    anew.train()  # of the trained model: another job in the old one's place
    assert anew.run.run_root != whole.run.run_root
    with pytest.raises(UsageError, match="resume_from_checkpoint and overwrite"):
        anew.train(resume_from_checkpoint=True)


def test_the_weights_and_the_files_are_those_of_the_run(trained: Any, tmp_path: Path) -> None:
    trained.save_model(str(tmp_path / "saved"))
    again = hf.GPT2LMHeadModel.from_pretrained(tmp_path / "saved")
    for name, tensor in trained.model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name])
    predicted = trained.predict(sentences(4))
    assert predicted.predictions.shape[0] == 4


# -- refusals --------------------------------------------------------------------------------------
def test_every_argument_is_in_the_table() -> None:
    fields = {field.name for field in dataclasses.fields(hf.TrainingArguments)}
    assert fields <= HONOURED | set(SAME) | set(REFUSED)
    assert not HONOURED & set(SAME) and not (HONOURED | set(SAME)) & set(REFUSED)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bf16", True), ("tf32", True), ("torch_compile", True), ("neftune_noise_alpha", 5.0),
        ("auto_find_batch_size", True), ("eval_delay", 2), ("fp16", True),
        ("ignore_data_skip", True),
        ("train_sampling_strategy", "group_by_length"),
        ("use_liger_kernel", True), ("deepspeed", {"a": 1}), ("fsdp", "full_shard"),
    ],
)  # fmt: skip
def test_an_argument_that_changes_numbers_is_refused_by_name(
    tmp_path: Path, name: str, value: Any
) -> None:
    args = arguments(tmp_path)
    setattr(args, name, value)
    with pytest.raises(UsageError, match=name):
        tallystick.Trainer(gpt2(), args, train_dataset=sentences(), data_collator=padded)


def test_an_unknown_argument_is_refused_where_it_is_set(tmp_path: Path) -> None:
    @dataclasses.dataclass
    class More(hf.TrainingArguments):  # type: ignore[misc]
        fancy_factor: float = 1.0

    usual = arguments(tmp_path).to_dict() and {"output_dir": str(tmp_path), "report_to": "none"}
    tallystick.Trainer(gpt2(), More(**usual), train_dataset=sentences(), data_collator=padded)
    with pytest.raises(UsageError, match="fancy_factor"):
        tallystick.Trainer(gpt2(), More(**usual, fancy_factor=2.0), train_dataset=sentences())


def test_an_override_that_a_job_never_calls_is_refused(tmp_path: Path) -> None:
    class Mine(tallystick.Trainer):  # type: ignore[misc, name-defined]
        def training_step(self, *_: Any, **__: Any) -> None:
            return None

    with pytest.raises(UsageError, match="training_step"):
        Mine(gpt2(), arguments(tmp_path), train_dataset=sentences())


def test_a_collator_that_draws_is_refused_or_frozen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def masked(records: Any) -> Any:
        batch = padded(records)
        keep = torch.rand(batch["labels"].shape) < 0.5
        return {**batch, "labels": batch["labels"].masked_fill(~keep, -100)}

    def trainer(**given: Any) -> Any:
        return tallystick.Trainer(
            Small(), arguments(tmp_path, max_steps=2), train_dataset=sentences(),
            data_collator=masked, **given,
        )  # fmt: skip

    with pytest.raises(UsageError, match="draws random numbers"):
        trainer().train()
    frozen = trainer(frozen_collator=True)
    frozen.train()
    assert "what it draws is kept" in " ".join(capsys.readouterr().err.split())
    digest = tallystick.load_job(tmp_path / "job").digest
    torch.manual_seed(99)  # a generator of the caller's changes nothing
    trainer(frozen_collator=True).train()
    assert tallystick.load_job(tmp_path / "job").digest == digest


def test_epochs_become_steps(tmp_path: Path) -> None:
    """Epochs become steps; a last batch that is not whole goes on in the next epoch."""
    args = arguments(tmp_path, max_steps=-1, num_train_epochs=2, per_device_train_batch_size=5)
    trainer = tallystick.Trainer(gpt2(), args, train_dataset=sentences(), data_collator=padded)
    assert trainer.save_job().steps == 10
    course = trainer.course()
    assert course.steps == -(-2 * RECORDS // 5) and BATCH != 5
    assert course.records["input_ids"].shape == (RECORDS, 8)
    assert (course.records["labels"][0, 4:] == -100).all()


@pytest.mark.parametrize("accumulate", (pytest.param(1, marks=pytest.mark.long), 2))
def test_epochs_have_transformers_own_number_of_updates(tmp_path: Path, accumulate: int) -> None:
    """21 records by fours: an epoch is 6 updates there, the last one of a part of a batch. A pass
    follows each epoch, the last one too."""
    args = arguments(
        tmp_path, max_steps=-1, num_train_epochs=2, eval_strategy="epoch",
        gradient_accumulation_steps=accumulate, per_device_train_batch_size=4 // accumulate,
    )  # fmt: skip
    given = {"train_dataset": sentences(21), "eval_dataset": sentences(8), "data_collator": padded}
    theirs = hf.Trainer(gpt2(), args, **given)
    theirs.train()
    ours = tallystick.Trainer(gpt2(), args, **given)
    ours.train()
    assert ours.state.max_steps == theirs.state.max_steps == 12
    assert [step for step, _ in ours.run.validation] == [6, 12]
    args.dataloader_drop_last = True
    theirs = hf.Trainer(gpt2(), args, **given)
    theirs.train()
    assert tallystick.Trainer(gpt2(), args, **given).course().steps == theirs.state.max_steps == 10


def test_the_collators_of_transformers(tmp_path: Path) -> None:
    """The tokenizer's own padding, to the longest record of both data sets; masks are drawn."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {str(i): i for i in range(31)}
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="1")),
        pad_token="0",
        mask_token="2",
    )

    def course(**given: Any) -> Any:
        return tallystick.Trainer(
            gpt2(),
            arguments(tmp_path, eval_strategy="epoch", remove_unused_columns=True),
            train_dataset=sentences(3),
            eval_dataset=[{"input_ids": [5] * 9, "unused": 1}],
            data_collator=hf.DataCollatorForLanguageModeling(tokenizer, **given),
        ).course()

    made = course(mlm=False)
    wanted = padded([*sentences(3), {"input_ids": [5] * 9}])
    for name, tensor in wanted.items():
        np.testing.assert_array_equal(made.records[name], tensor[:3])
        np.testing.assert_array_equal(made.validation.records[name], tensor[3:])
    with pytest.raises(UsageError, match="draws random numbers"):
        course(mlm=True)
