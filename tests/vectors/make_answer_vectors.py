"""Writes vectors/answers: requests, receipts and what a check says of each (ANSWERS).

PYTHONPATH=tests:tests/vectors python tests/vectors/make_answer_vectors.py [--check]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from answer_cases import SAMPLED, Signed, answers, honest_spoken, models, requests
from answer_format import DATA, INDEX, LISTS, ROOT, Object, Place, Pool, splice, text_of
from answer_pairs import pairs
from answer_refusals import refused
from reference.data import Gen
from unit.answers.sampled import sampled
from unit.answers.toy import receipt_of

from tallystick.answers.check import AnswerReport, bound, check_answer, check_words
from tallystick.answers.encoding_job import AnyRequest, EncodingJob
from tallystick.answers.layout import Bucket, Settings, choice_seed
from tallystick.answers.receipt import read_receipt
from tallystick.answers.request import ModelRequest, part_digest, salt_of
from tallystick.answers.shown import ShownRequest, check_shown
from tallystick.answers.two_receipts import NothingFollowsError, TwoReceipts
from tallystick.api.samples import drawn, receipt_digest, set_digest
from tallystick.commit.encoding import float_hex, sha256


class Maker:
    def __init__(self) -> None:
        self.pool = Pool()
        self.lists: dict[str, list[Object]] = {name: [] for name in LISTS}
        self._requests: dict[bytes, int] = {}

    def place(self, data: bytes) -> Place:
        return self.pool.place(data)

    def make(self) -> tuple[str, bytes]:
        for name, model in models().items():
            texts = {f"{k.length}-{k.answer}-{k.set}": p for k, p in model.texts.items()}
            self.lists["models"].append({
                "name": name,
                "digest": model.statement.digest.hex(),
                "statement": self.place(model.statement.to_bytes()),
                "weights": {n: self.place(a.tobytes()) for n, a in model.held.items()},
                "programs": {n: self.place(p.text().encode()) for n, p in texts.items()},
            })  # fmt: skip
        for asked in requests().values():
            self.request(asked.name, asked.request)
        signed = list(answers())
        for one in signed:
            self.answer(one)
        self.strangers()
        self.shown()
        self.pairs()
        for kind, name, clause, honest, data in refused(signed, self.convicting, self.pair):
            at, drop, put = splice(honest, data)
            self.lists["refused"].append({
                "kind": kind, "name": name, "clause": clause, "honest": self.place(honest),
                "cut": [at, drop], "put": self.place(put),
            })  # fmt: skip
        self.lists["draws"] += draws(self.pool)
        self.samples(signed)
        return text_of(self.lists), self.pool.data

    def request(self, name: str, request: AnyRequest) -> int:
        if request.digest in self._requests:
            return self._requests[request.digest]
        salts = {part: salt_of(request.secret, part) for part in request.parts}
        seeds = [0]
        if isinstance(request, ModelRequest):
            seeds = [choice_seed(request.seed, choice) for choice in range(request.choices)]
        number = self._requests[request.digest] = len(self.lists["requests"])
        self.lists["requests"].append({
            "name": name,
            "digest": request.digest.hex(),
            "file": self.place(request.to_bytes()),
            "parts": {
                part: [salt.hex(), part_digest(part, salt, request.parts[part]).hex()]
                for part, salt in salts.items()
            },
            "record": salt_of(request.secret, "record").hex(),
            "seeds": [str(seed) for seed in seeds],
        })  # fmt: skip
        return number

    def answer(self, one: Signed) -> None:
        said = one.said
        index = next(
            n for n, m in enumerate(models().values())
            if m.statement.digest == said.statement.digest
        )  # fmt: skip
        beside = said.encoded if isinstance(said, EncodingJob) else said.spoken
        state, root = said.roots()
        entry: Object = {
            "name": one.name,
            "model": index,
            "request": self.request(one.asked, said.request),
            "said": self.place(beside.to_bytes()),
            "receipt": self.place(one.receipt),
            "cancellation": None if one.cancellation is None else self.place(one.cancellation),
            "job": said.digest.hex(),
            "state": state.hex(),
            "root": root.hex(),
        }
        signed, found = bound(one.receipt, said.statement, said.request, beside)
        words = check_words(signed, found, one.cancellation)
        entry["words"] = clauses(words)
        entry["run"] = None
        if not words.contradictions:
            model = list(models().values())[index]
            text = model.text_of(found)  # type: ignore[arg-type]
            report = check_answer(signed, found, text, model.held, cancellation=one.cancellation)
            row = None if report.difference is None else report.difference.row
            made = model.executed(found)  # type: ignore[arg-type]
            slots = {n: np.asarray(made.slots[n]) for n in found.slot_types()}
            entry["run"] = {
                **clauses(report), "state_differs": report.state_differs, "row": row,
                "state": made.root().hex(),
                "slots": {n: self.place(a.tobytes()) for n, a in slots.items()},
            }  # fmt: skip
            if report.convicting is not None:
                self.conviction(one.name, report)
        self.lists["answers"].append(entry)

    def conviction(self, name: str, report: AnswerReport) -> None:
        assert report.convicting is not None
        found = report.convicting.convicts()
        self.lists["convictions"].append({
            "name": name, "file": self.place(report.convicting.to_bytes()),
            "convicted": found.receipt.signer.key_id, "row": found.row,
            "claimed": found.claimed, "drawn": found.drawn,
        })  # fmt: skip

    @property
    def convicting(self) -> bytes:
        """The first file of evidence."""
        at, length = self.lists["convictions"][0]["file"]
        return self.pool.data[at : at + length]

    @property
    def pair(self) -> bytes:
        """The first file about two answers."""
        one = next(entry for entry in self.lists["pairs"] if entry["clause"] == "6.10.2")
        at, length = one["file"]
        return self.pool.data[at : at + length]

    def pairs(self) -> None:
        """6.10: what two receipts say of each other; `clause` is null where nothing follows."""
        for name, file in pairs():
            data = file.to_bytes()
            entry: Object = {"name": name, "file": self.place(data), "clause": None}
            try:
                found = TwoReceipts.from_bytes(data).convicts()
            except NothingFollowsError:
                pass
            else:
                tokens = None if found.tokens is None else list(found.tokens)
                entry |= {"clause": found.clause, "row": found.row, "tokens": tokens}
            self.lists["pairs"].append(entry)

    def strangers(self) -> None:
        """8.3: files that are not what was signed."""
        asked = requests()["greedy ordered"]
        said, finish = honest_spoken(asked, 0)
        receipt = receipt_of(said, finish)
        other = requests()["draw ordered"]
        tokens = replace(said.spoken, tokens=(0,) * len(said.spoken.tokens))
        long = replace(said.spoken, prompt=(1,) * 30)
        encoding = next(one for one in answers() if isinstance(one.said, EncodingJob))
        assert isinstance(encoding.said, EncodingJob)
        beside = encoding.said.encoded.to_bytes()
        for name, model, request, data, signed in (
            ("another model", 1, asked, said.spoken.to_bytes(), receipt),
            ("another request", 0, other, said.spoken.to_bytes(), receipt),
            ("other tokens", 0, asked, tokens.to_bytes(), receipt),
            ("a text without a bucket", 0, asked, long.to_bytes(), receipt),
            ("the job of another seed", 0, asked, said.spoken.to_bytes(),
             receipt_of(said, finish, job=replace(said, choice=1).digest)),
            ("an encoding beside an answer's receipt", 0, asked, beside, receipt),
        ):  # fmt: skip
            self.lists["strangers"].append({
                "name": name, "model": model, "request": self._requests[request.request.digest],
                "said": self.place(data), "receipt": self.place(signed),
            })  # fmt: skip

    def shown(self) -> None:
        for name, names, odd in (
            ("full ordered", ("model", "settings"), {}),
            ("full ordered", ("client", "choices", "input", "seed"), {}),
            ("messages", ("input", "date"), {}),
            ("greedy ordered", ("settings",), {"answer": 5}),
            ("greedy ordered", ("input", "choices", "model"), {"prompt": 4}),
            ("greedy ordered", ("choices",), {"choice": 1}),
            ("greedy ordered", ("date",), {"request": bytes(32)}),
        ):
            asked = requests()[name]
            assert isinstance(asked.request, ModelRequest)
            said, finish = honest_spoken(asked, 0)
            receipt = receipt_of(said, finish, **odd)
            file = ShownRequest.of(asked.request, names)
            report = check_shown(file, read_receipt(receipt))
            changed = f", {', '.join(odd)} of the receipt" if odd else ""
            self.lists["shown"].append({
                "name": f"{', '.join(names)} of {name}{changed}",
                "file": self.place(file.to_bytes()), "receipt": self.place(receipt),
                "digest": file.digest.hex(), "proved": report.proved,
                "contradictions": sorted({one.clause for one in report.contradictions}),
            })  # fmt: skip

    def samples(self, signed: list[Signed]) -> None:
        """8.8.1, 8.8.2."""
        whole = [one.receipt for one in signed[:12]]
        for name, receipts, count in (
            ("five of twelve", whole, 5), ("two of these, one twice", [*whole, whole[3]], 2),
            ("one of one", whole[:1], 1),
        ):  # fmt: skip
            seed, digests = sha256(name.encode()), [receipt_digest(data) for data in receipts]
            self.lists["samples"].append({
                "name": name, "receipts": [self.place(data) for data in receipts],
                "seed": seed.hex(), "set": set_digest(digests).hex(),
                "drawn": [digest.hex() for digest in drawn(seed, digests, count)],
            })  # fmt: skip


def clauses(report: AnswerReport) -> Object:
    lists = {"contradictions": report.contradictions, "findings": report.findings,
             "notes": report.notes}  # fmt: skip
    return {name: sorted({one.clause for one in found}) for name, found in lists.items()}


def draws(pool: Pool) -> Iterator[Object]:
    """Tokens of small logits (3.5, 3.6): settings one by one and together, ties, infinities."""
    gen = Gen("draws of answers")
    odd = np.array([0, -0.0, np.inf, -np.inf, 5, 5, -1e38, 1e-40, -3, 3, 0.5, 0.25, 2], np.float32)
    every: list[dict[str, Any]] = [
        {}, {"temperature": 1.0}, {"temperature": 0.1}, {"temperature": 1e-38},
        {"temperature": 80.0},
        {"top_k": 1}, {"top_k": 3, "temperature": 2.0}, {"top_p": 0.3, "temperature": 2.0},
        {"top_p": 1e-30, "temperature": 2.0}, {"min_p": 0.4, "temperature": 2.0},
        {"min_p": 1.0, "temperature": 2.0}, {"repetition": 1.7}, {"repetition": 0.6},
        {"presence": 2.0}, {"frequency": 0.75}, {"presence": -1.5, "frequency": -0.5},
        {"bias": ((1, 4.0), (6, -4.0))}, {"bias": ((0, -2.5),), "temperature": 1.5}, SAMPLED,
    ]  # fmt: skip
    for n, settings in enumerate(every):
        for logits in (gen.floats(3, 13, scale=4.0), np.tile(odd, (3, 1)), gen.floats(3, 5)):
            prompt, answer, bucket = (1, 0, 3), (4, 1, 1), Bucket(8, 3)
            classes = logits.shape[1]
            bias = tuple(pair for pair in settings.get("bias", ()) if pair[0] < classes)
            own = {**settings, "bias": bias}
            asked = Settings(**{**own, "seed": 77 + n})
            seed = choice_seed(asked.seed, n)
            found = sampled(bucket, asked, prompt, answer, logits, seed)
            yield {
                "settings": {
                    name: value if isinstance(value, int) else float_hex(value)
                    if isinstance(value, float) else [[t, float_hex(x)] for t, x in value]
                    for name, value in own.items()
                },
                "seed": str(asked.seed), "choice": n, "prompt": list(prompt),
                "answer": list(answer), "classes": classes, "logits": pool.place(logits.tobytes()),
                "tokens": found.tokens.tolist(), "logprobs": found.logprobs.tobytes().hex(),
            }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare with the stored files")
    check = parser.parse_args().check
    index, data = Maker().make()
    if check:
        same = (INDEX.read_text(), DATA.read_bytes()) == (index, data)
        sys.exit(0 if same else "vectors/answers is not what this code makes.")
    ROOT.mkdir(parents=True, exist_ok=True)
    INDEX.write_text(index)
    DATA.write_bytes(data)


if __name__ == "__main__":
    main()
