"""ANSWERS 11.5, 11.6: encoders of every family against torch's own, and no bit by any bucket.

TALLYSTICK_MINILM names the directory of all-MiniLM-L6-v2, for its real weights.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from encoder_models import (
    CLASSES,
    CONFIGS,
    LABELS,
    PLACES,
    VOCABULARY,
    save_classifier,
    save_encoder,
    write_modules,
)

from tallystick import _core
from tallystick.answers.encoding_programs import VALUES, encoding_program, encoding_slots
from tallystick.answers.layout import Bucket, EncodingBucket
from tallystick.answers.model import Model, open_model, weights
from tallystick.answers.programs import engine_program, forward_program
from tallystick.api.statements import make_statement, verify_statement
from tallystick.commit.tensor import DTYPES
from tallystick.devices.context import DEFAULT, ExecutionContext
from tallystick.errors import CorruptFileError, DigestMismatchError, RefusedModelError, UsageError
from tallystick.numerics.contracts import resolve_contract
from tallystick.program.executor import Executor
from tallystick.program.runner import StepInputs

ORDERED, ROUNDED = (resolve_contract(name) for name in ("ordered/1", "rounded/1"))
LENGTHS = (8, 64, 300)
MINILM = Path(os.environ.get("TALLYSTICK_MINILM", "/nowhere"))
needs_minilm = pytest.mark.skipif(
    not (MINILM / "config.json").exists(), reason="TALLYSTICK_MINILM is not set"
)
CLOSE = 1e-5


class Encodes:
    """A model with its weights bound; the values of a text in any bucket."""

    def __init__(self, model: Model) -> None:
        assert model.encoding is not None
        self.model, self.held, self.size = model, weights(model), model.encoding.values
        self.program = cache(lambda length, contract: encoding_program(model, length, contract))

    def __call__(
        self,
        length: int,
        tokens: Sequence[int],
        rest: int = 0,
        contract: str = ORDERED,
        context: ExecutionContext = DEFAULT,
    ) -> np.ndarray:
        """With `rest` in every absent place."""
        text, slots = self.program(length, contract), dict(self.held)
        for name, type_ in encoding_slots(EncodingBucket(length, self.size)).items():
            slots[name] = np.zeros(type_.shape, DTYPES[type_.dtype])
        batch = {
            "text": np.full((1, length), rest, np.int64),
            "length": np.array([[len(tokens)]], np.int64),
            "salt": np.zeros((1, 4), np.int64),
        }
        batch["text"][0, : len(tokens)] = tokens
        state = {n: slots[n] for n in text.state_types}
        Executor(text, context).execute(state, StepInputs(batch))
        return np.array(slots[VALUES], np.float32)


def tokens_of(count: int, vocabulary: int = VOCABULARY) -> list[int]:
    # Not the pad token of RoBERTa, whose own numbering of places leaves it out.
    return [int(t) for t in np.random.default_rng(5).integers(2, vocabulary, count)]


def by_torch(module: Any, tokens: Sequence[int], mode: str, normalised: bool) -> np.ndarray:
    """What sentence-transformers computes of a text without padding."""
    with torch.no_grad():
        rows = module(input_ids=torch.tensor([tokens])).last_hidden_state[0]
    pooled = {"mean": rows.mean(0), "cls": rows[0], "max": rows.amax(0)}[mode]
    found = torch.nn.functional.normalize(pooled, dim=0) if normalised else pooled
    return np.asarray(found.numpy())


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", sorted(CONFIGS))
@pytest.mark.parametrize(("mode", "normalised"), [("mean", True), ("cls", False), ("max", False)])
def test_an_embedding_is_torchs(family: str, mode: str, normalised: bool, tmp_path: Path) -> None:
    module = save_encoder(family, tmp_path, mode, normalised)
    encode, tokens = Encodes(open_model(tmp_path)), tokens_of(7)
    theirs = by_torch(module, tokens, mode, normalised)
    ours = encode(8, tokens)
    assert np.abs(ours - theirs).max() <= CLOSE * max(1, np.abs(theirs).max())
    made = {encode(n, tokens, rest).tobytes() for n in LENGTHS for rest in (0, 9)}
    assert made == {ours.tobytes()}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The directory of an encoder, and its module. Never change it: copy it."""
    place = tmp_path_factory.mktemp("bert") / "model"
    return place, save_encoder("bert", place)


@pytest.fixture(scope="module")
def encodes_bert(bert: tuple[Path, Any]) -> Encodes:
    return Encodes(open_model(bert[0]))


# The heads of CamemBERT and XLM-R are RoBERTa's; as bodies they are tested above.
HEADS = [
    pytest.param(family, marks=[pytest.mark.long] * (family in ("camembert", "xlm-roberta")))
    for family in sorted(CONFIGS)
]


@pytest.mark.parametrize("family", HEADS)
def test_class_numbers_are_torchs(family: str, tmp_path: Path) -> None:
    module = save_classifier(family, tmp_path)
    model = open_model(tmp_path)
    assert model.encoding is not None
    assert model.encoding.values == CLASSES and model.encoding.labels == tuple(LABELS.values())
    tokens = tokens_of(7)
    with torch.no_grad():
        theirs = module(input_ids=torch.tensor([tokens])).logits[0].numpy()
    encode = Encodes(model)
    ours = encode(8, tokens)
    assert np.abs(ours - theirs).max() <= CLOSE * max(1, np.abs(theirs).max())
    made = {encode(n, tokens, rest).tobytes() for n in LENGTHS[:2] for rest in (0, 9)}
    assert made == {ours.tobytes()}


@pytest.mark.parametrize(
    ("changes", "error", "why"),
    [
        ({"num_labels": 10**9}, RefusedModelError, "num_labels"),
        ({"num_labels": "3"}, RefusedModelError, "num_labels"),
        ({"id2label": {"0": "a", "x": "b"}}, RefusedModelError, "ValueError"),
        ({"id2label": {"0": "\ud800", "1": "b", "2": "c"}}, CorruptFileError, "not text"),
    ],
)
def test_labels_that_are_refused(
    changes: dict[str, object], error: type[Exception], why: str, tmp_path: Path
) -> None:
    save_classifier("bert", tmp_path)
    edit(tmp_path / "config.json", **changes)
    with pytest.raises(error, match=why):
        open_model(tmp_path)


@pytest.mark.parametrize("count", (1, 64, 300))
def test_a_whole_bucket_and_a_single_token(
    count: int, bert: tuple[Path, Any], encodes_bert: Encodes
) -> None:
    """300 places make three chunks of a DOT and two blocks of a SUM."""
    module, encode, tokens = bert[1], encodes_bert, tokens_of(count)
    lengths = [n for n in (1, 64, 128, 129, 256, 257, 300, PLACES) if n >= count]
    found = {n: encode(n, tokens) for n in lengths}
    assert len({values.tobytes() for values in found.values()}) == 1
    assert np.abs(found[lengths[0]] - by_torch(module, tokens, "mean", True)).max() <= CLOSE


@pytest.fixture(scope="module")
def encodes_roberta(tmp_path_factory: pytest.TempPathFactory) -> Encodes:
    place = tmp_path_factory.mktemp("roberta")
    save_encoder("roberta", place)
    return Encodes(open_model(place))


@pytest.mark.parametrize("isa", _core.supported_isas())
@pytest.mark.parametrize("contract", (ORDERED, ROUNDED))
def test_threads_and_instruction_sets(isa: str, contract: str, encodes_roberta: Encodes) -> None:
    encode, tokens = encodes_roberta, tokens_of(33)
    plain = encode(64, tokens, contract=contract, context=ExecutionContext(1, "scalar"))
    for threads in (1, 2, 3):
        context = ExecutionContext(threads, isa)
        found = encode(64, tokens, contract=contract, context=context)
        assert found.tobytes() == plain.tobytes()


def test_stored_types_and_older_files(tmp_path: Path) -> None:
    """bf16 weights compute as the same values in float32 do; a pooler and numbers of places that
    older versions saved are left out."""
    from safetensors.numpy import load_file
    from safetensors.torch import save_file

    save_encoder("bert", tmp_path / "m")
    file = tmp_path / "m" / "model.safetensors"
    tensors = {n: torch.from_numpy(a.copy()) for n, a in load_file(file).items()}
    assert "pooler.dense.weight" in tensors and "param.pooler.dense.weight" not in weights(
        open_model(tmp_path / "m")
    )
    half = {n: t.to(torch.bfloat16) for n, t in tensors.items()}
    half["embeddings.position_ids"] = torch.arange(PLACES)[None]
    tokens, found = tokens_of(9), []
    for kind in (half, {n: t.float() for n, t in half.items() if t.is_floating_point()}):
        save_file(kind, file)
        found.append(Encodes(open_model(tmp_path / "m"))(16, tokens).tobytes())
    assert found[0] == found[1]
    save_file({f"bert.{n}": t for n, t in half.items()}, file)
    assert Encodes(open_model(tmp_path / "m"))(16, tokens).tobytes() == found[0]
    save_file({"more": torch.zeros(1), **half}, file)
    with pytest.raises(RefusedModelError, match="'more'"):
        weights(open_model(tmp_path / "m"))


# -- what is refused by name (11.6) ----------------------------------------------------------------
def edit(path: Path, **changes: object) -> None:
    table = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**table, **changes}))


@pytest.mark.parametrize(
    ("file", "changes", "why"),
    [
        ("config.json", {"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM"),
        ("config.json", {"architectures": None}, "architecture None"),
        ("config.json", {"is_decoder": True}, "is_decoder"),
        ("config.json", {"add_cross_attention": True}, "add_cross_attention"),
        ("config.json", {"position_embedding_type": "relative_key"}, "relative_key"),
        ("config.json", {"auto_map": {}}, "auto_map"),
        ("config.json", {"quantization_config": {}}, "quantised"),
        ("config.json", {"model_type": "deberta"}, "'deberta'"),
        ("sentence_bert_config.json", {"do_lower_case": True}, "do_lower_case"),
        ("config_sentence_transformers.json", {"default_prompt_name": "q"}, "default_prompt_name"),
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "pooling_mode_lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode_cls_token": True}, "cls_token, pooling_mode_mean"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": False}, "of no mode"),
    ],
)
def test_models_that_are_refused(
    file: str, changes: dict[str, object], why: str, bert: tuple[Path, Any], tmp_path: Path
) -> None:
    shutil.copytree(bert[0], tmp_path, dirs_exist_ok=True)
    edit(tmp_path / file, **changes)
    with pytest.raises(RefusedModelError, match=why):
        open_model(tmp_path)


@pytest.mark.parametrize(
    ("listed", "error", "why"),
    [
        (["Transformer", "Pooling", "Dense"], RefusedModelError, "Dense"),
        (["Transformer"], RefusedModelError, "modules Transformer"),
        (["Pooling", "Transformer"], RefusedModelError, "modules Pooling"),
        (None, RefusedModelError, r"no modules\.json"),
        ([1], CorruptFileError, "not a list of modules"),
        (["Transformer", "Pooling", "../x"], CorruptFileError, "no folder"),
    ],
)
def test_modules_that_are_refused(
    listed: list[Any] | None,
    error: type[Exception],
    why: str,
    bert: tuple[Path, Any],
    tmp_path: Path,
) -> None:
    shutil.copytree(bert[0], tmp_path, dirs_exist_ok=True)
    path = tmp_path / "modules.json"
    modules = json.loads(path.read_text())
    if listed is None:
        path.unlink()
    elif listed == [1]:
        path.write_text("[1]")
    elif listed[-1] == "../x":
        modules[1]["path"] = "../x"
        path.write_text(json.dumps(modules))
    else:
        made = [{"path": "" if not n else "1_Pooling", "type": f"sentence_transformers.models.{t}"}
                for n, t in enumerate(listed)]  # fmt: skip
        path.write_text(json.dumps(made))
    with pytest.raises(error, match=why):
        open_model(tmp_path)


def test_a_longer_text_is_never_cut(tmp_path: Path) -> None:
    save_encoder("bert", tmp_path / "m", most=20)
    model = open_model(tmp_path / "m")
    assert model.longest == 20
    with pytest.raises(UsageError, match="1 to 20 places"):
        encoding_program(model, 21, ORDERED)
    with pytest.raises(UsageError, match="The model has 20 places, fewer than the bucket's 21"):
        make_statement(tmp_path / "m", None, [21], "ordered/1", None, False, None)
    save_encoder("roberta", tmp_path / "r")
    assert open_model(tmp_path / "r").longest == PLACES - 2


def test_encoders_and_other_models_are_told_apart(tmp_path: Path) -> None:
    from answer_models import save_model

    save_encoder("bert", tmp_path / "m")
    save_model("smollm", tmp_path / "d")
    encoder, decoder = open_model(tmp_path / "m"), open_model(tmp_path / "d")
    for refused in (
        lambda: engine_program(encoder, 1, ORDERED),
        lambda: forward_program(encoder, 8, 2, ORDERED),
    ):
        with pytest.raises(RefusedModelError, match="does not generate text"):
            refused()
    with pytest.raises(UsageError, match="cannot be encoded"):
        encoding_program(decoder, 8, ORDERED)
    for place, bucket, why in (("m", Bucket(8, 2), "a length, L"), ("d", 8, "L:A")):
        with pytest.raises(UsageError, match=why):
            make_statement(tmp_path / place, None, [bucket], "ordered/1", None, False, None)
    stated, place = make_statement(tmp_path / "m", None, [8, 16], "ordered/1", None, False, None)
    assert [(p.length, p.answer, p.set) for p in stated.programs] == [
        (8, 24, "embedding"), (16, 24, "embedding"),
    ]  # fmt: skip
    assert verify_statement(place, tmp_path / "m", None)[1] == []
    with pytest.raises(DigestMismatchError, match="is an encoder's, but not both"):
        verify_statement(place, tmp_path / "d", None)
    write_modules(tmp_path / "m", "cls")
    assert verify_statement(place, tmp_path / "m", None)[1] == [
        "programs: 2 of 2, first embedding of bucket 16:24"
    ]


# -- real weights ----------------------------------------------------------------------------------
TEXTS = (
    "A tally stick was split in two so that neither party could alter the record.",
    "Whoever repeats it, on other hardware, gets the same bits.",
    "hello",
)


@pytest.fixture(scope="module")
def minilm(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The model with as many places as its table has, to see it in a bucket of 512."""
    place = tmp_path_factory.mktemp("minilm") / "model"
    shutil.copytree(MINILM, place)
    (place / "sentence_bert_config.json").unlink()
    return open_model(place)


@needs_minilm
def test_minilm_is_torchs_and_the_same_in_every_bucket(minilm: Model) -> None:
    from tokenizers import Tokenizer
    from transformers import BertModel

    module = BertModel.from_pretrained(MINILM).eval()
    tokenizer = Tokenizer.from_file(str(MINILM / "tokenizer.json"))
    tokenizer.no_padding()
    encode = Encodes(minilm)
    for text in TEXTS:
        tokens = tokenizer.encode(text).ids
        theirs = by_torch(module, tokens, "mean", True)
        found = {
            (length, rest): encode(length, tokens, rest)
            for length, rest in ((64, 0), (64, 2000), (128, 0), (128, 7), (512, 0), (512, 30521))
        }
        assert len({values.tobytes() for values in found.values()}) == 1
        assert np.abs(found[64, 0] - theirs).max() <= CLOSE


@needs_minilm
@pytest.mark.parametrize("isa", _core.supported_isas())
def test_minilm_on_every_instruction_set(minilm: Model, isa: str) -> None:
    encode, tokens = Encodes(minilm), tokens_of(40, 30522)
    plain = encode(64, tokens)
    for threads in (1, 2, 3):
        found = encode(64, tokens, context=ExecutionContext(threads, isa))
        assert found.tobytes() == plain.tobytes()
