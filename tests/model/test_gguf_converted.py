"""A GGUF file of a model gives the bits of the model's directory, family by family (ANSWERS 12)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import save_model
from answer_truth import Truth
from model.gguf_converted import (
    FORMS,
    Form,
    config_changes,
    from_q8_0,
    is_matrix,
    write_converted,
)
from test_engine_families import Family, requests

from tallystick.answers.model import open_model, weights
from tallystick.answers.programs import engine_program, forward_program
from tallystick.generation.engine import AnswerEngine
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

TOKENS = [5, 17, 40, 3, 3, 21, 9, 0, 33, 46, 1]


def logits(model: Any) -> bytes:
    """Of every place of a text, under ordered/1."""
    program = forward_program(model, len(TOKENS), len(TOKENS), "ordered/1")
    batch = {"text": np.array(TOKENS, np.int64), "place": np.arange(len(TOKENS))}
    found = Executor(program).execute(weights(model), StepInputs(batch)).outputs["logits"]
    assert np.isfinite(found).all()
    return bytes(found.tobytes())


def saved(form: Form, directory: Path) -> Any:
    return save_model(form.model, directory, **config_changes(form))


def rounded(form: Form, module: Any, directory: Path) -> None:
    """The directory again, each matrix as Q8_0 has it. Norms are vectors, and the order of rows
    changes no block; so the file's matrices are the model's in this."""
    import torch

    for name, parameter in module.named_parameters():
        array = parameter.detach().numpy()
        if is_matrix(name.replace("mlp.gate.", "ffn_gate_inp."), array):
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(from_q8_0(array)))
    module.save_pretrained(directory)


@pytest.mark.parametrize("name", sorted(FORMS))
def test_the_logits_are_those_of_the_directory(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    module = saved(form, tmp_path / "model")
    file = tmp_path / "m.gguf"
    write_converted(file, form, module, "f32")
    assert logits(open_model(file)) == logits(open_model(tmp_path / "model"))
    write_converted(file, form, module, "q8_0")
    quantised = logits(open_model(file))
    rounded(form, module, tmp_path / "rounded")
    assert quantised == logits(open_model(tmp_path / "rounded"))


@pytest.mark.parametrize("name", ["gemma3", "mixtral"])
def test_answers_are_those_of_the_whole_text(name: str, tmp_path: Path) -> None:
    form = FORMS[name]
    file = tmp_path / "m.gguf"
    write_converted(file, form, saved(form, tmp_path / "model"), "q8_0")
    family = Family(open_model(file), "ordered/1")
    truth = Truth(family)
    wanted = requests()
    for threads, chunk in ((2, 7), (1, 64)):
        engine = AnswerEngine(family, threads=threads, chunk=chunk, memory=1 << 22)
        for request, answer in zip(wanted, engine.generate(wanted), strict=True):
            truth.check(request, answer)
    assert truth.checked > 100


def test_experts_become_numbers_one_by_one(tmp_path: Path) -> None:
    """No program has the numbers of all experts, nor those of one outside of a product."""
    form = FORMS["mixtral"]
    file = tmp_path / "m.gguf"
    write_converted(file, form, saved(form, tmp_path / "model"), "q8_0")
    program = engine_program(open_model(file), 1, "ordered/1")
    made = [n.out_types[0] for n in program.nodes if n.op == "tallystick.dequantize"]
    assert all(len(t.shape) == 2 for t in made)
    assert len(made) == 2 * (4 + 4 * 2) + 2
    assert Executor(program).arena_bytes < 64 * 96 * 4
