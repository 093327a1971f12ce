"""A job in words: what its digest covers is said, and what it does not is said apart."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from format_three import make_stream_job
from format_two import make_micro_job

from tallystick.cli.main import run as command
from tallystick.commit.job import JobCommitment2, ScalarTable, scalars_digest
from tallystick.commit.stream import SEQUENTIAL
from tallystick.commit.timetable import ScheduleTurn
from tallystick.job.job import Job
from tallystick.job.job_file import load_job
from tallystick.job.recipes import new_job
from tallystick.job.words import (
    JobInWords,
    against,
    beside,
    job_in_words,
    rows,
    sentences,
    words_of,
)
from tallystick.job.words.parts import LayerWords, ParameterWords, TableWords
from tallystick.job.words.sentences import table_words
from tallystick.program.ir import Program, input_value
from tallystick.program.terms import Terms

VECTORS = Path(__file__).resolve().parents[3] / "vectors" / "protocol"


def told(words: JobInWords) -> dict[str, str]:
    """The sentences but those of digests, which say nothing to people."""
    digests = ("text ", "initial ", "records ", "scalars")
    return {label: text for label, text in rows(words) if not label.startswith(digests)}


# -- golden words ----------------------------------------------------------------------------------
def test_softmax_regression(logreg_job: Job) -> None:
    assert told(words_of(logreg_job)) == {
        "model": "Trains 6 parameters in 2 tensors of 1 layer; none is frozen.",
        "layer 0": "Layer 0: bias 2 f32, weight 2 × 2 f32.",
        "optimizer": "SGD changes all trained tensors, at the rate lr, with momentum 0, weight "
        "decay 0.",
        "rate lr": "lr is 0.1 in every step.",
        "loss": "The loss is cross entropy (mean, without the label -100).",
        "batches": "6 steps (training) of 2 records of train: 12 records read, 0.8571 epochs.",
        "data train": "14 records of x 2 f32, y one i64, shuffled in each epoch by the seed 0.",
        "steps": "A whole run has 6 steps.",
        "checkpoints": "The state is signed at the start, every 2 steps, and at the end.",
        "stop": "The run ends early if a loss is not finite.",
        "contract": "Its arithmetic is that of ordered/1-draft.1, job format 1.",
        "seed": "Random numbers follow from the seed 0.",
    }


def test_a_transformer(gpt2_job: Job) -> None:
    assert told(words_of(gpt2_job)) == {
        "model": "Trains 7,536 parameters in 16 tensors of 9 layers; none is frozen.",
        "layer h.0.attn.c_attn": "Layer h.0.attn.c_attn: bias 48 f32, weight 48 × 16 f32.",
        "layer h.0.attn.c_proj": "Layer h.0.attn.c_proj: bias 16 f32, weight 16 × 16 f32.",
        "layer h.0.ln_1": "Layer h.0.ln_1: bias 16 f32, weight 16 f32.",
        "layer h.0.ln_2": "Layer h.0.ln_2: bias 16 f32, weight 16 f32.",
        "layer h.0.mlp.c_fc": "Layer h.0.mlp.c_fc: bias 64 f32, weight 64 × 16 f32.",
        "layer h.0.mlp.c_proj": "Layer h.0.mlp.c_proj: bias 16 f32, weight 16 × 64 f32.",
        "layer ln_f": "Layer ln_f: bias 16 f32, weight 16 f32.",
        "layer wpe": "Layer wpe: weight 8 × 16 f32.",
        "layer wte": "Layer wte: weight 256 × 16 f32.",
        "optimizer": "AdamW changes h.0.attn.c_attn.bias, h.0.attn.c_proj.bias, h.0.ln_1.bias, "
        "h.0.ln_1.weight, h.0.ln_2.bias and 5 more, at the rate lr, with beta1 0.9, "
        "beta2 0.95, eps 1e-08, weight decay 0; gradients are clipped to the norm 1.",
        "optimizer 2": "AdamW changes h.0.attn.c_attn.weight, h.0.attn.c_proj.weight, "
        "h.0.mlp.c_fc.weight, h.0.mlp.c_proj.weight, wpe.weight and wte.weight, at the "
        "rate lr, with beta1 0.9, beta2 0.95, eps 1e-08, weight decay 0.1; gradients "
        "are clipped to the norm 1.",
        "rate lr": "lr is 0.0005 in its first step, then rises over 1 step to 0.001, then falls "
        "over 5 steps to 0.0001602885752916336.",
        "loss": "The loss is cross entropy (mean, without the label -100).",
        "random": "Random operators, in each micro-batch: dropout with p 0.1, 4 times.",
        "batches": "8 steps (training) of 2 records of train: 16 records read, 0.01498 epochs.",
        "data train": "1,068 records of tokens 9 i64, shuffled in each epoch by the seed 0.",
        "steps": "A whole run has 8 steps.",
        "checkpoints": "The state is signed at the start, every 3 steps, and at the end.",
        "stop": "The run ends early if a loss is not finite.",
        "contract": "Its arithmetic is that of ordered/1-draft.1, job format 1.",
        "seed": "Random numbers follow from the seed 0.",
    }


def test_micro_batches_and_random_masks(tmp_path: Path) -> None:
    assert told(words_of(make_micro_job(tmp_path / "job"))) == {
        "model": "Trains 3 parameters in 1 tensor of 1 layer; none is frozen.",
        "layer (the model itself)": "Layer (the model itself): w 3 × 1 f32.",
        "buffers": "Its state has 1 buffer besides, of which steps change 1.",
        "optimizer": "SGD changes all trained tensors, at the rate lr, with momentum 0.9, weight "
        "decay 0.",
        "rate lr": "lr is 0.05 in its first step, then falls over 3 steps to 0.0125.",
        "loss": "The loss is mean squared error; the mean over micro-batches.",
        "random": "Random operators, in each micro-batch: dropout with p 0.25, 1 time.",
        "batches": "4 steps (training) of 4 records of train, in 2 micro-batches of 2: 16 records "
        "read, 1.333 epochs.",
        "data train": "12 records of x 3 f32, y 1 f32, shuffled in each epoch by the seed 9.",
        "steps": "A whole run has 4 steps.",
        "checkpoints": "The state is signed at the start, every 2 steps, and at the end.",
        "stop": "The run ends early if a loss is not finite.",
        "contract": "Its arithmetic is that of ordered/1-draft.1, job format 2.",
        "seed": "Random numbers follow from the seed 5.",
    }


def test_committed_validation_ends_the_run(tmp_path: Path) -> None:
    said = told(words_of(make_stream_job(tmp_path / "job", validates=True, patience=2)))
    assert said["stop"] == (
        "The run ends early if a loss is not finite or if 2 validation passes in turn have no "
        "better loss by more than 1."
    )
    assert said["steps"] == (
        "A whole run has 21 steps, in turns of 2 steps of step, 1 step of step-short, 2 steps of "
        "validate, 1 step of validate-short and 1 step of decide."
    )
    assert said["batches step-short"] == (
        "3 steps of the program step-short (training) of 3 records of train: 9 records read, "
        "0.8182 epochs, of the stream step of batches of 4; an epoch ends with a short batch if "
        "its records are not whole batches."
    )


# -- optimizers ------------------------------------------------------------------------------------
OPTIMIZERS = {
    "adafactor": "Adafactor (torch's) changes all trained tensors, by the scalars lr, part and "
    "rate, with eps1 1.1920928955078125e-07, eps2 0.001, d 1, weight decay 0.125",
    "adagrad": "Adagrad changes all trained tensors, at the rate lr, with weight decay 0.125, "
    "eps 1e-10",
    "adam": "Adam changes all trained tensors, at the rate lr, with beta1 0.9, beta2 0.999, "
    "eps 1e-08, weight decay 0.125",
    "adamw": "AdamW changes all trained tensors, at the rate lr, with beta1 0.9, beta2 0.999, "
    "eps 1e-08, weight decay 0.125",
    "lamb": "LAMB changes all trained tensors, at the rate lr, with beta1 0.9, beta2 0.999, "
    "eps 1e-06, weight decay 0.125, bias correction on, always adapt on",
    "lion": "Lion changes all trained tensors, at the rate lr, with beta1 0.9, beta2 0.99, "
    "weight decay 0.125",
    "rmsprop": "RMSprop changes all trained tensors, at the rate lr, with alpha 0.99, eps 1e-08, "
    "weight decay 0.125, momentum 0.75, centered off",
    "sgd": "SGD changes all trained tensors, at the rate lr, with momentum 0.75, weight decay "
    "0.125",
}


def optimizer_job(path: Path, optimizer: str, clip: str = "0") -> Job:
    given = {
        "features": "4", "classes": "3", "records": "32", "hidden": "5", "batch_size": "4",
        "optimizer": optimizer, "momentum": "0.75", "weight_decay": "0.125", "lr": "0.01",
        "clip_norm": clip,
    }  # fmt: skip
    return new_job("mlp", path, given, steps=4)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_are_recognised_number_for_number(name: str, tmp_path: Path) -> None:
    plain, clipped = (optimizer_job(tmp_path / c, name, c) for c in ("0", "2.5"))
    assert told(words_of(plain))["optimizer"] == f"{OPTIMIZERS[name]}."
    ends = "; gradients are clipped to the norm 2.5."
    assert told(words_of(clipped))["optimizer"] == OPTIMIZERS[name] + ends


def test_muon_and_the_optimizer_of_the_rest(tmp_path: Path) -> None:
    said = told(words_of(optimizer_job(tmp_path / "job", "muon")))
    assert said["optimizer"].startswith("AdamW changes 0.bias, ")
    assert said["optimizer 2"].startswith(
        "Muon changes 0.weight and 2.weight, at the rate lr.hidden, with weight decay 0.125, "
        "momentum 0.95, nesterov on, ns coefficient1 3.4445,"
    )


def changed(program: Program, op: str, **attrs: Any) -> Program:
    """The program with other attributes in its nodes `op`."""
    nodes = [
        replace(node, attrs={**node.attrs, **attrs}) if node.op == op else node
        for node in program.nodes
    ]
    return replace(program, nodes=tuple(nodes))


def test_what_only_looks_like_an_optimizer_has_no_name(tmp_path: Path) -> None:
    terms = optimizer_job(tmp_path / "job", "lion").terms
    bent = changed(terms.texts[0], "aten.clamp", max=2.0)
    said = told(job_in_words(replace(terms, texts=(bent,))))
    assert said["optimizer"].startswith("A rule without a known name changes all trained tensors")


# -- frozen parameters -----------------------------------------------------------------------------
def test_a_parameter_that_is_passed_through_is_frozen(logreg_job: Job) -> None:
    terms = logreg_job.terms
    (program,) = terms.texts
    kept = program.input_index["param.0.bias"]
    outputs = tuple(
        (name, input_value(kept) if name == "param.0.bias" else value)
        for name, value in program.outputs
    )
    words = job_in_words(replace(terms, texts=(replace(program, outputs=outputs),)))
    assert (words.trained, words.frozen) == (4, 2)
    assert told(words)["layer 0"] == "Layer 0: bias 2 f32 (frozen), weight 2 × 2 f32."


# -- what differs ----------------------------------------------------------------------------------
def with_scalars(terms: Terms, **tables: ScalarTable) -> Terms:
    digest = scalars_digest(tables)
    return replace(
        terms, scalars=tables, commitment=replace(terms.commitment, scalars_digest=digest)
    )


def labels(first: Terms, second: Terms) -> set[str]:
    assert first.digest != second.digest
    return {entry.label for entry in against(job_in_words(first), job_in_words(second))}


def test_the_rates_of_two_jobs(logreg_job: Job) -> None:
    first, second = (with_scalars(logreg_job.terms, lr=rate) for rate in (0.01, 0.02))
    found = {entry.label: entry for entry in against(job_in_words(first), job_in_words(second))}
    assert found.keys() == {"rate lr", "scalars"}
    assert found["rate lr"].first == "lr is 0.01 in every step."
    assert found["rate lr"].second == "lr is 0.02 in every step."


def layers(*sizes: tuple[str, int]) -> tuple[LayerWords, ...]:
    return tuple(
        LayerWords(path, (ParameterWords("weight", "f32", (size,), True),)) for path, size in sizes
    )


def test_a_layer_that_both_have_is_not_said_to_be_missing(logreg_job: Job) -> None:
    """Layers share a sentence only where they are alike in both jobs."""
    words = job_in_words(logreg_job.terms)
    first = replace(words, layers=layers(("0", 8), ("2", 16), ("4", 10)))
    second = replace(words, layers=layers(("0", 8), ("2", 16), ("4", 16), ("6", 10)))
    assert [row for row in against(first, second) if row.label.startswith("layer")] == [
        ("layer 4", "Layer 4: weight 10 f32.", "Layer 4: weight 16 f32."),
        ("layer 6", None, "Layer 6: weight 10 f32."),
    ]
    back = {row.label for row in against(second, first)}
    assert back == {"model", "layer 4", "layer 6"}


def test_layers_that_differ_alike_share_a_sentence(logreg_job: Job) -> None:
    words = job_in_words(logreg_job.terms)
    first = replace(words, layers=layers(*((f"h.{n}.fc", 8) for n in range(12)), ("head", 4)))
    second = replace(words, layers=layers(*((f"h.{n}.fc", 9) for n in range(12)), ("head", 4)))
    assert against(first, second)[1:] == [
        ("layer h.0-11.fc", "Layer h.0-11.fc: weight 8 f32.", "Layer h.0-11.fc: weight 9 f32.")
    ]


def test_one_number_inside_of_a_table(logreg_job: Job) -> None:
    tables = ([0.5, 0.4, 0.3, 0.25, 0.2, 0.1], [0.5, 0.4, 0.3, 0.21, 0.2, 0.1])
    first, second = (with_scalars(logreg_job.terms, lr=table) for table in tables)
    (entry, *_) = against(job_in_words(first), job_in_words(second))
    assert entry.label == "numbers lr"
    assert (entry.first, entry.second) == (
        "0.25 in step 3 of the steps that read it",
        "0.21 in step 3 of the steps that read it",
    )


FIRST = {
    "contract": "ordered/9",
    "program_digest": bytes(range(32)),
    "genesis_root": bytes(range(32)),
    "data_root": bytes(range(32)),
    "record_count": 999,
    "batch_size": 7,
    "order_seed": 77,
    "rng_seed": 78,
    "steps": 7,
    "checkpoint_interval": 3,
    "scalars_digest": bytes(range(32)),
    "stop_on_non_finite": False,
}


@pytest.mark.parametrize("field", FIRST)
def test_each_field_of_format_1_is_in_the_words(field: str, logreg_job: Job) -> None:
    terms = logreg_job.terms
    assert labels(
        terms, replace(terms, commitment=replace(terms.commitment, **{field: FIRST[field]}))
    )  # type: ignore[arg-type]


def _timetable(**given: Callable[[Any], Any]) -> Callable[[JobCommitment2], JobCommitment2]:
    def put(c: JobCommitment2) -> JobCommitment2:
        return replace(
            c, timetable=replace(c.timetable, **{n: f(c.timetable) for n, f in given.items()})
        )

    return put


def _stream(**given: Any) -> Callable[[JobCommitment2], JobCommitment2]:
    return _timetable(
        programs=lambda t: tuple(
            replace(p, stream=replace(p.stream, **given)) if p.stream.name == "step" else p
            for p in t.programs
        )
    )


def _data(**given: Any) -> Callable[[JobCommitment2], JobCommitment2]:
    return _timetable(data=lambda t: (replace(t.data[0], **given), *t.data[1:]))


def _held_out(**given: Any) -> Callable[[JobCommitment2], JobCommitment2]:
    return _timetable(data=lambda t: (t.data[0], replace(t.data[1], **given)))


def _program(**given: Any) -> Callable[[JobCommitment2], JobCommitment2]:
    return _timetable(programs=lambda t: (replace(t.programs[0], **given), *t.programs[1:]))


SECOND: dict[str, Callable[[JobCommitment2], JobCommitment2]] = {
    "stop_on_slot": lambda c: replace(c, stop_on_slot=False),
    "continues": lambda c: replace(c, continues=bytes(range(32))),
    "rng_seed": lambda c: replace(c, rng_seed=99),
    "interval": lambda c: replace(c, checkpoint_interval=99),
    "micro-batches": _program(micro_batches=1),
    "name of a program": _program(name="other"),
    "text of a program": _program(digest=bytes(range(32))),
    "name of a stream": _stream(name="other"),
    "first batch": _stream(first=10),
    "order": _data(order=SEQUENTIAL),
    "order seed": _data(order_seed=123),
    "name of a data set": _data(name="other"),
    "root of a data set": _data(root=bytes(range(32))),
    "records of a data set": _data(record_count=99),
    "order seed that is not used": _held_out(order_seed=123),
    "order that is not used": _held_out(order=SEQUENTIAL),
    "turns": _timetable(
        turns=lambda t: (*t.turns[:-1], ScheduleTurn(t.turns[-1].program, t.turns[-1].steps + 1))
    ),
}


@pytest.fixture(scope="module")
def stream_terms(tmp_path_factory: pytest.TempPathFactory) -> Terms:
    path = tmp_path_factory.mktemp("words") / "job"
    return make_stream_job(path, None, validates=True, patience=2).terms


@pytest.mark.parametrize("field", SECOND)
def test_each_field_of_later_formats_is_in_the_words(field: str, stream_terms: Terms) -> None:
    c = stream_terms.commitment
    assert isinstance(c, JobCommitment2)
    assert labels(stream_terms, replace(stream_terms, commitment=SECOND[field](c)))


# -- tables ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("values", "said"),
    [
        (0.1, "0.1 in every step"),
        ((0.25, 0.25), "0.25 in every step"),
        ((), "no number"),
        (
            (1.0, 2.0, 3.0, 3.0, 2.5, 1.0),
            "1 in its first step, then rises in a straight line over 2 steps to 3, then falls over "
            "2 steps to 1",
        ),
        (
            (3.0, 3.0, 3.0, 1.0),
            "3 in its first step, then stays so over 2 steps, then falls over 1 step to 1",
        ),
        (
            (0.0, 1.0) * 4,
            "0 in its first step, 1 in its last, 0 to 1 over 8 steps, with 6 turns",
        ),
    ],
)
def test_tables_in_words(values: ScalarTable, said: str) -> None:
    assert table_words(TableWords("lr", values)) == said


# -- what is not committed -------------------------------------------------------------------------
def test_a_lie_about_the_model_stands_apart(
    mlp_job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tallystick.disk.manifest import manifest_bytes
    from tallystick.job.job_file import copy_job, job_manifest

    path = tmp_path / "lie"
    copied = copy_job(mlp_job, path, tmp_path)
    lying = replace(
        copied, about={"model": "Colossus-9"}, recipe={"name": "colossus", "settings": {}}
    )
    (path / "job.json").write_bytes(manifest_bytes(job_manifest(lying)))
    words = words_of(load_job(path))
    assert words.digest == mlp_job.digest
    assert not any("olossus" in sentence for sentence in sentences(words))
    assert beside(words)[:2] == ["recipe: colossus", "model: Colossus-9"]
    for arguments in (["job", "show", str(path)], ["inspect", str(path)]):
        assert command(arguments) == 0
        covered, label, rest = capsys.readouterr().out.partition("Not committed")
        assert label and "olossus" not in covered and rest.count("olossus") == 2
    assert command(["job", "show", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["words"]
    assert "olossus" in json.dumps(said.pop("not_committed"))
    assert "olossus" not in json.dumps(said)


# -- the vectors -----------------------------------------------------------------------------------
@pytest.mark.parametrize("number", range(5))
def test_the_jobs_of_the_vectors(number: int, tmp_path: Path) -> None:
    index = json.loads((VECTORS / "format-two.json").read_text())
    data = (VECTORS / index["data"]).read_bytes()
    for name, (begin, size) in index["jobs"][number].items():
        (tmp_path / name).write_bytes(data[begin : begin + size])
    said = told(words_of(load_job(tmp_path)))
    assert said["optimizer"].startswith("SGD changes all trained tensors, at the rate lr")
    assert "momentum 0.9" in said["optimizer"]


def test_against_on_the_command_line(
    logreg_job: Job, mlp_job: Job, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = str(logreg_job.directory), str(mlp_job.directory)
    assert command(["job", "show", first, "--against", first]) == 0
    assert "they are one job" in capsys.readouterr().out
    assert command(["job", "show", first, "--against", second, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert not found["same"]
    assert {"model", "optimizer", "rate lr"} <= {entry["label"] for entry in found["apart"]}


def test_words_load_no_torch(logreg_job: Job) -> None:
    code = (
        "import sys; from tallystick.cli.main import run; "
        f"run(['inspect', {str(logreg_job.directory)!r}]); sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
