"""ANSWERS 4.7: models with a low-rank adapter, by peft's own forward and by the clause."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft", reason="peft is not installed (extra `hf`)")

from adapters import logits_of_peft, save_adapter
from answer_models import save_model, text_of
from answer_truth import Truth
from reference.dot import product

from tallystick.answers.adapter import open_adapter
from tallystick.answers.derive import derive
from tallystick.answers.layout import Bucket, Settings
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.programs import answer_program, forward_program
from tallystick.answers.statement import Adapter
from tallystick.commit.encoding import sha256
from tallystick.commit.tensor import dtype_name
from tallystick.errors import CorruptFileError, RefusedModelError, UsageError
from tallystick.generation.engine import AnswerEngine
from tallystick.generation.network import ModelNetwork
from tallystick.generation.sequences import GenerationRequest
from tallystick.program.executor import Executor
from tallystick.program.ir import Program
from tallystick.program.runner import StepInputs

FORMS = pytest.mark.parametrize("merged", [False, True], ids=["unmerged", "merged"])
LONG = 12
QKV = r"model\.layers\.[01]\.self_attn\.[qkv]_proj"
# Options of LoraConfig by name, and the family of the model.
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "names": ("llama", {}),
    "one name in full": ("llama", {"target_modules": ["model.layers.1.mlp.up_proj"]}),
    "a pattern": ("llama", {"target_modules": QKV}),
    "excluded": ("llama", {"target_modules": ["q_proj", "o_proj"],
                           "exclude_modules": ["layers.0.self_attn.o_proj"]}),
    "excluded by a pattern": ("llama", {"exclude_modules": r".*layers\.1.*down.*"}),
    "one layer": ("llama", {"layers_to_transform": 1}),
    "layers of a list": ("llama", {"layers_to_transform": [0], "layers_pattern": "layers"}),
    "ranks and alphas": ("llama", {
        "rank_pattern": {"layers.0.self_attn.q_proj": 7, r".*\.mlp\.down_proj": 2},
        "alpha_pattern": {"down_proj": 1.5, "0.mlp.down_proj": 3},
    }),
    "stabilised": ("llama", {"use_rslora": True, "r": 3}),
    "head": ("llama", {"target_modules": ["lm_head", "v_proj"]}),
    "all linear": ("llama", {"target_modules": "all-linear"}),
    "Conv1D": ("gpt2", {"target_modules": ["c_attn", "mlp.c_proj"], "fan_in_fan_out": True}),
    "tied": ("smollm", {"target_modules": ["gate_proj"], "lora_dropout": 0.5}),
    "experts": ("mixtral", {"target_modules": ["q_proj", "o_proj"]}),
}  # fmt: skip


def saved(family: str, path: Path, **options: Any) -> Any:
    """A model and its adapter in `path`; peft's model."""
    (path / "model").mkdir()
    save_model(family, path / "model")
    return save_adapter(path / "model", path / "lora", **options)


def opened(path: Path, merged: bool) -> Model:
    return open_model(path / "model", path / "lora", merged)


def logits(model: Model, contract: str = "ordered/1") -> np.ndarray:
    program = forward_program(model, LONG, LONG, contract)
    batch = {"text": text_of(LONG), "place": np.arange(LONG)}
    return Executor(program).execute(weights(model), StepInputs(batch)).outputs["logits"]


@FORMS
@pytest.mark.sample(3)
@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_logits_are_those_of_peft(name: str, merged: bool, tmp_path: Path) -> None:
    family, options = OPTIONS[name]
    due = logits_of_peft(saved(family, tmp_path, **options), text_of(LONG))
    found = logits(opened(tmp_path, merged))
    plain = logits(open_model(tmp_path / "model"))
    assert np.abs(found - due).max() < 1e-5 < 0.01 < np.abs(plain - due).max()


@pytest.mark.parametrize(
    ("of_model", "dtype"),
    [
        ("float32", "bfloat16"),
        ("bfloat16", "float16"),
        pytest.param("float32", "float16", marks=pytest.mark.long),
        pytest.param("bfloat16", "bfloat16", marks=pytest.mark.long),
    ],
)
def test_stored_matrices(dtype: str, of_model: str, tmp_path: Path) -> None:
    """4.7.2, 4.7.3: matrices stay in their stored type, and merged weights are f32."""
    import torch

    (tmp_path / "model").mkdir()
    module = save_model("llama", tmp_path / "model").to(getattr(torch, of_model))
    module.save_pretrained(tmp_path / "model")
    adapted = save_adapter(tmp_path / "model", tmp_path / "lora", dtype)
    due = logits_of_peft(adapted, text_of(LONG))
    apart, merged = opened(tmp_path, False), opened(tmp_path, True)
    for model in (apart, merged):
        assert np.abs(logits(model) - due).max() < 2e-5
    kinds = {n: dtype_name(a.dtype) for n, a in weights(apart).items()}
    matrices = {n for n in kinds if ".lora_" in n}
    assert len(matrices) == 8 and {kinds[n] for n in matrices} == {_SHORT[dtype]}
    held = {n: dtype_name(a.dtype) for n, a in weights(merged).items()}
    changed = {n for n in held if n.endswith(("q_proj.weight", "down_proj.weight"))}
    assert {held[n] for n in changed} == {"f32"} and not any(".lora_" in n for n in held)
    others = {n for n in held if n.startswith("param.")} - changed
    assert {held[n] for n in others} == {_SHORT[of_model]}
    for model, slots in ((apart, kinds), (merged, held)):
        types = forward_program(model, LONG, LONG, "ordered/1").state_types
        assert {n: t.dtype for n, t in types.items()} == {n: slots[n] for n in types}


_SHORT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def by_the_clause(w: np.ndarray, a: np.ndarray, b: np.ndarray, s: float) -> np.ndarray:
    """4.7.3 for a weight that is [outputs, inputs], by the reference's products."""
    return w + product(b, a) * np.float32(s)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_merged_weights_are_by_the_clause(family: str, tmp_path: Path) -> None:
    names = ["q_proj", "down_proj"] if family == "llama" else ["c_attn"]
    saved(family, tmp_path, target_modules=names, r=3, lora_alpha=5)
    adapter, plain = open_adapter(tmp_path / "lora"), weights(open_model(tmp_path / "model"))
    matrices, found = adapter.mapped(), weights(opened(tmp_path, True))
    layers = {n.removesuffix(".lora_A.weight") for n in matrices if ".lora_A." in n}
    assert len(layers) == 2 * len(names)
    for layer in layers:
        a, b = (matrices[f"{layer}.lora_{m}.weight"] for m in "AB")
        w = plain[f"param.{layer}.weight"]
        due = by_the_clause(w.T if family == "gpt2" else w, a, b, 5 / 3)
        made = found[f"param.{layer}.weight"]
        assert (made.T if family == "gpt2" else made).tobytes() == due.tobytes()
    same = plain.keys() - {f"param.{layer}.weight" for layer in layers}
    assert all(np.array_equal(plain[n], found[n]) for n in same)
    assert found.keys() == plain.keys()


@pytest.mark.parametrize("stabilised", [False, True])
def test_scales_are_of_binary64(stabilised: bool, tmp_path: Path) -> None:
    saved("llama", tmp_path, r=3, lora_alpha=7, use_rslora=stabilised, target_modules=["q_proj"])
    names = [f"model.layers.{n}.self_attn.q_proj" for n in (0, 1)]
    pairs = open_adapter(tmp_path / "lora").pairs(dict.fromkeys(names, (32, 32)))
    root = math.sqrt(3) if stabilised else 3.0
    assert [(pair.layer, pair.scale) for pair in pairs] == [(name, 7 / root) for name in names]


class Adapted(ModelNetwork):
    """A model with its answer programs."""

    def __init__(self, model: Model, contract: str) -> None:
        super().__init__(model, contract)
        self.model = model

    def answer(self, bucket: Bucket, sampler: str) -> Program:
        return answer_program(self.model, bucket, sampler, self.contract)


@pytest.mark.sample(3)
@FORMS
@pytest.mark.parametrize(("name", "contract", "dtype"), [
    ("ranks and alphas", "ordered/1", "float32"), ("ranks and alphas", "rounded/1", "bfloat16"),
    ("Conv1D", "ordered/1", "float16"),
])  # fmt: skip
def test_answers_are_those_of_the_whole_text(
    name: str, contract: str, dtype: str, merged: bool, tmp_path: Path
) -> None:
    """The engine, which computes row by row with kept keys, as one prefill does."""
    family, options = OPTIONS[name]
    saved(family, tmp_path, dtype=dtype, **options)
    network = Adapted(opened(tmp_path, merged), contract)
    truth = Truth(network)
    asked = [
        GenerationRequest(tuple(map(int, text_of(length, seed=length))), settings, 0)
        for length, settings in (
            (1, Settings(max_tokens=10)),
            (17, Settings(max_tokens=8, temperature=0.9, seed=3)),
            (40, Settings(max_tokens=9)),
        )
    ]
    for engine in (
        AnswerEngine(network, threads=2, chunk=7, memory=1 << 20),
        AnswerEngine(network, threads=1, chunk=64, memory=1 << 20),
    ):
        for request, answer in zip(asked, engine.generate(asked), strict=True):
            truth.check(request, answer)
    assert truth.checked > 50


def test_the_statement_names_the_adapter(tmp_path: Path) -> None:
    saved("llama", tmp_path)
    digest = sha256((tmp_path / "lora" / "adapter_model.safetensors").read_bytes())
    stated = [
        derive(model, [Bucket(8, 2)], "ordered/1")[0]
        for model in (
            open_model(tmp_path / "model"), opened(tmp_path, False), opened(tmp_path, True),
        )
    ]  # fmt: skip
    named = [statement.adapter for statement in stated]
    assert named == [None, Adapter(digest, False), Adapter(digest, True)]
    slots = [set(statement.weights) for statement in stated]
    assert slots[0] == slots[2] < slots[1]
    assert stated[0].programs == stated[2].programs != stated[1].programs


# -- what is refused -------------------------------------------------------------------------------


def edited(path: Path, **members: Any) -> None:
    file = path / "lora" / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **members}))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain")
    saved("llama", path)
    return path


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    shutil.copytree(plain / "lora", tmp_path / "lora")
    (tmp_path / "model").symlink_to(plain / "model")
    return tmp_path


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"peft_type": "IA3"}, "the type 'IA3': only LORA"),
        ({"peft_type": None}, "only LORA"),
        ({"task_type": "SEQ_CLS"}, "the task 'SEQ_CLS'"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"use_dora": True}, "use_dora = True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"lora_bias": True}, "lora_bias"),
        ({"use_qalora": True}, "use_qalora"),
        ({"layer_replication": [[0, 2]]}, "layer_replication"),
        ({"target_parameters": ["x"]}, "target_parameters"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices"),
        ({"something_new": 3}, "something_new = 3"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights = 'pissa_niter_4'"),
        ({"use_rslora": "yes"}, "use_rslora"),
        ({"rank_pattern": [3]}, "rank_pattern or alpha_pattern that is no table"),
        ({"rank_pattern": {"(": 3}}, "the pattern"),
        ({"alpha_pattern": {"(?i)q": 3}}, "the pattern"),
        ({"target_modules": None}, "no target_modules"),
        ({"target_modules": 3}, "no list of names"),
        ({"target_modules": "["}, "the pattern"),
        ({"target_modules": "x" * 2000}, "the pattern"),
        ({"target_modules": ["q_proj"]}, "in its file of weights only"),
        ({"target_modules": ["q_proj", "down_proj", "o_proj"]}, "in its configuration only"),
        ({"layers_to_transform": ["0"]}, "no numbers"),
        ({"r": 5}, "matrices of other sizes"),
        ({"r": 4.0}, "the rank 4.0"),
        ({"r": True}, "r = True"),
        ({"lora_alpha": "6"}, "lora_alpha = 6"),
        ({"lora_alpha": 1e400}, "lora_alpha = inf"),
        ({"lora_alpha": float("nan")}, "lora_alpha = nan"),
        ({"r": 10**400}, "r = 1000"),
    ],
)
def test_configurations_that_are_refused_by_name(
    members: dict[str, Any], why: str, copy: Path
) -> None:
    edited(copy, **members)
    with pytest.raises(RefusedModelError, match=why.replace("[", r"\[")) as error:
        weights(opened(copy, False))
    assert error.value.next_action


def test_files_that_are_none(copy: Path) -> None:
    from safetensors.numpy import load_file, save_file

    file = copy / "lora" / "adapter_model.safetensors"
    known = load_file(file)
    first = min(known)
    for name, why in (
        ("base_model.model.model.embed_tokens.lora_embedding_A", "only matrices"),
        (first.replace("lora_A", "lora_magnitude_vector"), "only matrices"),
        (first.removeprefix("base_model."), "only matrices"),
        (first.replace("down_proj", "other"), "no linear layer of that name"),
        ("base_model.model.model.embed_tokens.lora_A.weight", "no linear layer of that name"),
        ("base_model.model.model.layers.0.mlp.up_proj.lora_A.weight", "file of weights only"),
    ):
        save_file({**known, name: known[first]}, file)
        with pytest.raises(RefusedModelError, match=why):
            weights(opened(copy, True))
    save_file({n: a for n, a in known.items() if n != first}, file)
    with pytest.raises(RefusedModelError, match="matrices of other sizes"):
        weights(opened(copy, False))
    save_file({}, file)
    with pytest.raises(RefusedModelError, match="no matrix at all"):
        opened(copy, False)
    file.rename(copy / "lora" / "adapter_model.bin")
    with pytest.raises(RefusedModelError, match="a pickle"):
        opened(copy, False)
    (copy / "lora" / "adapter_config.json").write_text("[]")
    with pytest.raises(CorruptFileError):
        opened(copy, False)
    with pytest.raises(UsageError, match="no adapter"):
        open_model(copy / "model", copy)


def test_a_weight_of_two_layers_is_not_merged(tmp_path: Path) -> None:
    adapted = saved("smollm", tmp_path, target_modules=["lm_head", "q_proj"])
    with pytest.raises(RefusedModelError, match=r"lm_head\.weight.*is the same weight"):
        weights(opened(tmp_path, True))
    found = logits(opened(tmp_path, False))
    assert np.abs(found - logits_of_peft(adapted, text_of(LONG))).max() < 1e-5


def test_a_copy_of_the_models_head_is_refused(tmp_path: Path) -> None:
    """peft would put it into the model's place."""
    saved("llama", tmp_path, target_modules=["lm_head"], copies=True)
    with pytest.raises(RefusedModelError, match=r"a copy of .*lm_head\.base_layer\.weight"):
        opened(tmp_path, False)


def test_another_nan_in_a_matrix_is_refused(copy: Path) -> None:
    from safetensors.numpy import load_file, save_file

    file = copy / "lora" / "adapter_model.safetensors"
    known = load_file(file)
    known[min(known)].view(np.uint32)[0, 0] = 0x7FC00001
    save_file(known, file)
    with pytest.raises(RefusedModelError, match="NaN"):
        derive(opened(copy, False), [Bucket(8, 2)], "ordered/1")
