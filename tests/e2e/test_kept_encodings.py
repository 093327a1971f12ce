"""A kept embedding is defended as an answer is, and a false one is convicted (ANSWERS 7.7.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from answer_words import save_words
from encoder_models import save_encoder

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tallystick
from tallystick.answers.files import read_statement
from tallystick.answers.receipt import read_receipt, sign_receipt
from tallystick.cli.main import run
from tallystick.commit.signing import PrivateKey
from tallystick.devices.context import DEFAULT
from tallystick.protocol.judge import judge
from tallystick.prover.local import play
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.reader import KeptReader
from tallystick.serving.kept.space import LEAST_BUDGET


def test_a_false_embedding_is_convicted_out_of_what_is_kept(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    save_encoder("bert", model, most=32)
    save_words(model)
    assert run(["model", "statement", str(model), "--bucket", "8"]) == 0
    key, liar = PrivateKey.generate(), PrivateKey.generate()
    (true,) = tallystick.embed(model, "abc", key=key)
    values = np.array(true.job.encoded.values)
    values[0] += np.float32(1)
    job = replace(true.job, encoded=replace(true.job.encoded, values=values))
    final, root = job.roots()
    lie = replace(read_receipt(true.receipt).receipt, state=final, root=root, signer=liar.public)
    false = replace(true, job=job, receipt=sign_receipt(liar, lie))
    with KeptAnswers(tmp_path / "kept", LEAST_BUDGET) as kept:
        kept.uses(read_statement(tmp_path / "model.statement"), model)
        ids = [kept.keep(one, "anna") for one in (true, false)]
        assert kept.damaged() == []
        found = kept.find(ids[0], "anna")
        assert found is not None and found.receipt == true.receipt
    with KeptReader(tmp_path / "kept") as reader:
        disputed = [reader.disputed(row) for row in reader.of_job(job.digest)]
    keys = (key, liar)
    parties = [one.prover(own, DEFAULT, print) for one, own in zip(disputed, keys, strict=True)]
    played = play(disputed[0].job().terms, parties)
    for party in parties:
        party.close()
    assert [one.party for one in played.verdict.convicted] == [1]
    terms, evidence = disputed[0].job().terms, played.evidence.to_bytes()
    assert judge(terms, evidence).verdict == played.verdict
