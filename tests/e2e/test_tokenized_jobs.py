"""Jobs of tokenized text: the tokenizer file is fixed by its digest, and `sample` decodes by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Run, as_json

from tallystick.cli.output import shown
from tallystick.data.freeze import freeze
from tallystick.job.job import TOKENIZER_DIGEST
from tallystick.job.job_file import load_job
from tallystick.job.recipes import find_recipe, settings_for
from tallystick.job.recipes.base import Sources
from tallystick.job.recipes.text_records import whole_characters

pytest.importorskip("torch", reason="torch is not installed")
tokenizers: Any = pytest.importorskip("tokenizers", reason="tokenizers is not installed")

TEXT = "Ein Kerbholz wurde gespalten, damit keiner fälschen konnte. " * 60
TINY = ("--set", "size=tiny", "--set", "text_bytes=0", "--steps", "3", "--seed", "4")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level BPE tokenizer of 300 tokens with a mask, a smaller one, and a text."""
    directory = tmp_path_factory.mktemp("tokenized")
    (directory / "text.txt").write_text(TEXT, encoding="utf-8")
    for name, size, special in (("tokenizer", 300, ["[MASK]"]), ("other", 290, [])):
        made = tokenizers.Tokenizer(tokenizers.models.BPE())
        made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = tokenizers.decoders.ByteLevel()
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
        )
        made.train_from_iterator([TEXT], trainer)
        made.save(str(directory / f"{name}.json"))
    return directory


def new(ts: Run, files: Path, recipe: str, out: Path, *more: str) -> tuple[int, str, str]:
    return ts(
        *("job", "new", recipe, "--out", out, "--text", files / "text.txt"),
        *("--tokenizer", files / "tokenizer.json", *TINY, *more),
    )


def test_llama_on_tokens(ts: Run, files: Path, tmp_path: Path) -> None:
    """The records are those of `data freeze`, the job names the tokenizer, `sample` needs it."""
    made = as_json(new(ts, files, "llama", tmp_path / "job", "--json"))
    assert made["settings"]["vocab_size"] == "300"
    job = load_job(tmp_path / "job")
    assert len(job.about[TOKENIZER_DIGEST]) == 64
    frozen = freeze(
        files / "text.txt", tmp_path / "f", tokenizer=files / "tokenizer.json", block=16
    )
    tokens = np.concatenate([job.columns["tokens"], job.validation_columns["tokens"]])
    np.testing.assert_array_equal(tokens, frozen.columns["tokens"])
    code, _, err = ts(
        *("job", "new", "llama", "--out", tmp_path / "g", "--data", tmp_path / "f"),
        *("--set", "size=tiny", "--set", "vocab_size=300"),
    )
    assert code == 0, err
    assert load_job(tmp_path / "g").about[TOKENIZER_DIGEST] == job.about[TOKENIZER_DIGEST]
    assert ts("train", tmp_path / "job", "--out", tmp_path / "run", "--quiet")[0] == 0
    ask = ("sample", tmp_path / "run", "--prompt", "Kerbholz fä", "--length", "20")
    code, _, err = ts(*ask)
    assert code == 3 and job.about[TOKENIZER_DIGEST] in err and "--tokenizer" in err
    code, _, err = ts(*ask, "--tokenizer", files / "other.json")
    assert code == 3 and "the file that the job was made with" in err
    ask = (*ask, "--tokenizer", files / "tokenizer.json")
    sampled = as_json(ts(*ask, "--json"))
    code, said, _ = ts(*ask)
    assert code == 0 and said == shown(f"Kerbholz fä{sampled['text']}\n", "\n\t")


def test_what_a_tokenizer_decides(ts: Run, files: Path, tmp_path: Path) -> None:
    """Its vocabulary and its mask, unless `--set` gives others; what does not fit is refused."""
    code, _, err = new(ts, files, "llama", tmp_path / "a", "--set", "vocab_size=260")
    assert code == 3 and "vocab_size=300" in err
    sources = Sources(text=files / "text.txt", tokenizer=files / "tokenizer.json")
    assert settings_for(find_recipe("gpt2"), {}, sources).vocab_size == 300
    sources = Sources(text=files / "text.txt", tokenizer=files / "tokenizer.json")
    mask = json.loads((files / "tokenizer.json").read_text())["model"]["vocab"]["[MASK]"]
    distilbert = find_recipe("distilbert")
    s = settings_for(distilbert, {"task": "mlm"}, sources)
    assert (s.vocab_size, s.mask_token) == (300, mask)
    other = Sources(text=files / "text.txt", tokenizer=files / "other.json")
    s = settings_for(distilbert, {"task": "mlm"}, other)
    assert (s.vocab_size, s.mask_token) == (291, 290)
    s = settings_for(distilbert, {"task": "mlm"}, Sources(text=files / "text.txt"))
    assert (s.vocab_size, s.mask_token) == (257, 256)
    code, _, err = new(ts, files, "distilbert", tmp_path / "b")
    assert code == 3 and "task=mlm" in err
    code, _, err = ts(
        *("job", "new", "mlp", "--out", tmp_path / "c", "--tokenizer", files / "other.json")
    )
    assert code == 3 and "takes no --tokenizer" in err


def test_a_text_is_cut_between_characters() -> None:
    data = "aé漢😀".encode()
    for end in range(1, len(data) + 1):
        whole = whole_characters(data[:end])
        assert data[:end].startswith(whole) and whole.decode() == "aé漢😀"[: len(whole.decode())]
        assert end - len(whole) < 4
    assert whole_characters(b"ab\xff") == b"ab\xff"  # no UTF-8: what reads it refuses it by name
