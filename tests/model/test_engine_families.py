"""The engine over the families of models: the bits of the whole text, whatever else it computes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from answer_models import CONFIGS, LONGEST, VOCABULARY, save_model
from answer_truth import Truth

from tallystick.answers.layout import Bucket, Settings
from tallystick.answers.model import Model, open_model
from tallystick.answers.programs import answer_programs, engine_program
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import GenerationRequest
from tallystick.numerics.contracts import find_contract
from tallystick.program.ir import Program

_SETTINGS = [
    Settings(max_tokens=14),
    Settings(max_tokens=10, temperature=0.8, seed=3),
    Settings(max_tokens=12, temperature=1.2, top_k=12, top_p=0.9, min_p=0.02, repetition=1.3,
             presence=0.2, frequency=0.4, bias=((4, 1.5),), stop=(1, 2, 3), seed=9),
]  # fmt: skip


_CONTRACTS = ("ordered/1", "rounded/1")


class Family(ModelNetwork):
    """A small model under a contract, which changes what a program means and not its nodes."""

    def __init__(self, model: Model, contract: str, known: Family | None = None) -> None:
        if known is None:
            super().__init__(model, find_contract(contract).text)
        else:
            self.__dict__ |= known.__dict__
            self.contract = find_contract(contract).text
        self.model = model

    def program(self, rows: int) -> Program:
        return replace(super().program(rows), contract=self.contract)

    def answer(self, bucket: Bucket, sampler: str) -> Program:
        found = _programs(self.model.directory, bucket)[sampler]
        return replace(found, contract=self.contract)


@cache
def _programs(directory: Path, bucket: Bucket) -> dict[str, Program]:
    return answer_programs(open_model(directory), bucket, "ordered/1")


def requests() -> list[GenerationRequest]:
    random = np.random.default_rng(5)
    shared = random.integers(0, VOCABULARY, 40)
    found = []
    for i, length in enumerate((1, 16, 33, 48, 7, 40, 17, 35)):
        own = random.integers(0, VOCABULARY, length)
        if i % 2:
            own[:40] = shared[:length]
        prompt = tuple(int(t) for t in own)
        found.append(GenerationRequest(prompt, _SETTINGS[i % len(_SETTINGS)], choice=i % 2))
    return found


# By default a family is under one of the two, in turn: a contract changes what an operator means,
# whatever the family. Of families that are alike one is taken: three more are Llama's code, and
# others have the normalisation of Gemma 3, the window of Qwen 2 and the experts of Qwen 3.
_ALIKE = ("gemma", "mistral", "mixtral", "smollm", "yarn")
_TURNS = [
    pytest.param(
        name,
        contracts,
        marks=[pytest.mark.long] * (len(contracts) > 1 or name in _ALIKE),
    )
    for i, name in enumerate(sorted(CONFIGS))
    for contracts in (_CONTRACTS[i % 2 :][:1], _CONTRACTS)
]


@pytest.mark.parametrize(("name", "contracts"), _TURNS)
def test_answers_are_those_of_the_whole_text(
    name: str, contracts: tuple[str, ...], tmp_path: Path
) -> None:
    save_model(name, tmp_path)
    model = open_model(tmp_path)
    first = Family(model, contracts[0])
    assert first.length == LONGEST
    for family in (first, *(Family(model, other, first) for other in contracts[1:])):
        truth = Truth(family)
        engine = AnswerEngine(family, threads=2, chunk=7, memory=1 << 20)
        wanted = requests()
        handles = []
        for request in wanted:
            handles.append(engine.submit(request.prompt, request.settings, request.choice))
            engine.step()
        engine.run()
        wide = AnswerEngine(family, threads=1, chunk=64, memory=1 << 20)
        again = wide.generate(wanted)
        for request, handle, other in zip(wanted, handles, again, strict=True):
            assert handle.answer is not None
            truth.check(request, handle.answer)
            truth.check(request, other)
        assert truth.checked > 100


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["smollm", "gemma2", "mixtral", "gpt2", "phi"])
@pytest.mark.parametrize("rows", [1, 5])
def test_sizes_are_those_of_a_capture(name: str, rows: int, tmp_path: Path) -> None:
    save_model(name, tmp_path)
    model = open_model(tmp_path)
    contract = find_contract("ordered/1").text
    made = ModelNetwork(model, contract).program(rows)
    captured = engine_program(model, rows, contract)
    assert [n.op for n in made.nodes] == [n.op for n in captured.nodes] or rows == 1
    assert made.outputs[0][0] == "logits"
    assert made.type_of(made.outputs[0][1]) == captured.type_of(captured.outputs[0][1])
    if rows != 1:
        assert made.text() == captured.text()
