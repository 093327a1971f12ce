"""The job of an answer or of an encoding, and the run that its claim implies (ANSWERS 2, 11)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from reference.answers.asked import Request
from reference.answers.files import Name, Said, Statement
from reference.floats import F32, rn32
from reference.judge.encoding import RefusedError, sha, tag, text, u32, u64
from reference.judge.manifest import job_digest, scalars_digest
from reference.judge.merkle import Type, digest_of_bytes, header, leaf_hash, root, size
from reference.rounded_operators import sums as exact_sums
from reference.sampler import places, seed_of_choice
from reference.sums import total

RECORD_BYTES = 1048576
CHAIN: Type = ("u8", (32,))
Fields = dict[str, np.ndarray]
Digests = dict[str, bytes]


def fields_of(name: Name, vocabulary: int) -> dict[str, Type]:
    """The fields of a record (3.3, 11.3)."""
    length, answer, set_ = name
    text_of: Type = ("i64", (length,))
    if set_ in ("embedding", "classes"):
        return {"text": text_of, "length": ("i64", (1,)), "salt": ("i64", (4,))}
    found: dict[str, Type] = {
        "text": text_of, "place": ("i64", (answer,)), "live": ("i64", (answer,)),
        "salt": ("i64", (4,)),
    }  # fmt: skip
    if set_ != "greedy":
        found["temperature"] = ("f32", (1,))
    if set_ == "full":
        found |= {"prompt": ("i64", (1,)), "top_k": ("i64", (1,)), "bias": ("f32", (vocabulary,))}
        numbers = ("top_p", "min_p", "repetition", "presence", "frequency")
        found |= dict.fromkeys(numbers, ("f32", (1,)))
    return found


def slots_of(name: Name) -> dict[str, Type]:
    """The slots that the step fills (2.5, 11.4)."""
    _, answer, set_ = name
    salt: dict[str, Type] = {"buffer.answer.salt": ("i64", (4,))}
    if set_ in ("embedding", "classes"):
        return {**salt, "buffer.answer.values": ("f32", (answer,))}
    tokens, logs = "buffer.answer.tokens", "buffer.answer.logprobs"
    return {**salt, tokens: ("i64", (answer,)), logs: ("f32", (answer,))}


def rooms(statement: Statement, set_: str) -> Iterator[Name]:
    """The programs of a set that have answers, ascending (2.3, 10.2)."""
    for name in sorted(statement.programs):
        record = fields_of(name, statement.vocabulary)
        if name[2] == set_ and sum(map(size, record.values())) <= RECORD_BYTES:
            yield name


def tensor_of(array: np.ndarray) -> bytes:
    dtype = {"<f4": "f32", "<i8": "i64", "|u1": "u8"}[array.dtype.str]
    return digest_of_bytes((dtype, array.shape), array.tobytes())


def state_root(slots: Digests) -> bytes:
    """COMMITMENTS 5.2, 5.3."""
    names = sorted(slots, key=str.encode)
    leaves = [leaf_hash(tag("slot/1") + text(n) + slots[n]) for n in names]
    return sha(tag("state/1") + u64(len(names)) + root(leaves))


def run_root(job: bytes, states: list[bytes]) -> bytes:
    """COMMITMENTS 6.1, 6.4."""
    leaves = [leaf_hash(tag("checkpoint/1") + u64(n) + s) for n, s in enumerate(states)]
    return sha(tag("run/1") + job + u64(len(leaves)) + root(leaves))


def data_root(fields: Fields, types: dict[str, Type]) -> bytes:
    """Of one record (COMMITMENTS 8.1 to 8.3)."""
    names = sorted(types, key=str.encode)
    schema = tag("schema/1") + u64(len(names))
    schema += b"".join(text(n) + header(types[n]) for n in names)
    record = b"".join(fields[n].tobytes() for n in names)
    return sha(tag("data/1") + sha(schema) + u64(1) + root([leaf_hash(record)]))


def genesis(statement: Statement, name: Name) -> Digests:
    """The tensor digests of state[0], chains included."""
    slots = {n: digest_of_bytes(t, bytes(size(t))) for n, t in slots_of(name).items()}
    chain = digest_of_bytes(CHAIN, bytes(32))
    return {**statement.weights, **slots, "chain.loss": chain, "chain.log": chain}


def digest_of_job(statement: Statement, name: Name, data: bytes, seed: int) -> bytes:
    """2.1, 2.2."""
    return job_digest(
        {
            "format_version": 1,
            "contract": statement.contract,
            "program_digest": statement.programs[name].hex(),
            "genesis_root": state_root(genesis(statement, name)).hex(),
            "data_root": data.hex(),
            "record_count": 1,
            "batch_size": 1,
            "order_seed": "0",
            "rng_seed": str(seed),
            "steps": 1,
            "checkpoint_interval": 1,
            "scalars_digest": scalars_digest({}).hex(),
            "stop_on_non_finite": False,
        }
    )


@dataclass
class Job:
    """A job of one step; RefusedError where there is no such answer."""

    statement: Statement
    request: Request
    said: Said
    choice: int

    def __post_init__(self) -> None:
        if self.request.is_of_encoding != (self.said.tokens is None):
            raise RefusedError("of two kinds")
        self.name  # noqa: B018

    @property
    def set(self) -> str:
        if self.request.is_of_encoding:
            if self.statement.encodes is None:
                raise RefusedError("no encoder")
            return self.statement.encodes
        return self.request.asked.sampler()

    @property
    def answer(self) -> list[int]:
        return self.said.tokens or []

    @property
    def text(self) -> list[int]:
        return [*self.said.prompt, *self.answer]

    @cached_property
    def name(self) -> Name:
        """2.3, 11.2."""
        for found in rooms(self.statement, self.set):
            fits = self.request.is_of_encoding or len(self.answer) <= found[1]
            if fits and len(self.text) <= found[0]:
                if self.request.is_of_encoding and found[1] != len(self.said.numbers):
                    raise RefusedError("another number of values")
                return found
        raise RefusedError("no bucket")

    @property
    def seed(self) -> int:
        """2.6, 11.7."""
        if self.request.is_of_encoding:
            return 0
        return seed_of_choice(self.request.seed, self.choice)

    @cached_property
    def record(self) -> Fields:
        """2.4, 3.3, 11.3."""
        length, rows, set_ = self.name
        prompt, answer = len(self.said.prompt), len(self.answer)
        whole = np.zeros(length, np.int64)
        whole[: len(self.text)] = self.text
        salt = np.frombuffer(self.request.salt("record"), "<i8").copy()
        if self.said.tokens is None:
            return {"text": whole, "length": np.array([prompt], np.int64), "salt": salt}
        live = np.array([r < answer for r in range(rows)], np.int64)
        place = np.array(places(prompt, answer, rows), np.int64)
        found = {"text": whole, "place": place, "live": live, "salt": salt}
        asked = self.request.asked
        if set_ != "greedy":
            found["temperature"] = np.array([asked.temperature], F32)
        if set_ == "full":
            for name in ("top_p", "min_p", "repetition", "presence", "frequency"):
                found[name] = np.array([getattr(asked, name)], F32)
            found["prompt"] = np.array([prompt], np.int64)
            found["top_k"] = np.array([asked.top_k], np.int64)
            bias = np.zeros(self.statement.vocabulary, F32)
            for token, value in asked.bias.items():
                if token >= self.statement.vocabulary:
                    raise RefusedError("a bias of no token")
                bias[token] = rn32(value)
            found["bias"] = bias
        return found

    @cached_property
    def digest(self) -> bytes:
        data = data_root(self.record, fields_of(self.name, self.statement.vocabulary))
        return digest_of_job(self.statement, self.name, data, self.seed)

    def claimed(self) -> Fields:
        """The slots of the answer in state[1], as they are claimed (2.5, 2.8, 11.4)."""
        rows = self.name[1]
        salt = {"buffer.answer.salt": self.record["salt"]}
        if self.said.tokens is None:
            return {**salt, "buffer.answer.values": np.array(self.said.numbers, F32)}
        tokens, logs = np.zeros(rows, np.int64), np.zeros(rows, F32)
        tokens[: len(self.answer)] = self.answer
        logs[: len(self.answer)] = self.said.numbers
        return {**salt, "buffer.answer.tokens": tokens, "buffer.answer.logprobs": logs}

    def loss(self, slots: Fields) -> np.float32:
        """0 − aten.sum, one rounded subtraction (2.5)."""
        numbers = slots.get("buffer.answer.values", slots.get("buffer.answer.logprobs"))
        with np.errstate(all="ignore"):
            return F32(0) - added(numbers, self.statement.contract)  # type: ignore[arg-type]

    def state(self, slots: Fields) -> bytes:
        """The root of state[1] with these slots of the answer (COMMITMENTS 5.5)."""
        bits = np.array([self.loss(slots)], F32)
        number = 0x7FC00000 if np.isnan(bits[0]) else int(bits.view(np.uint32)[0])
        chain = sha(tag("loss-chain/1") + bytes(32) + u64(0) + u32(number))
        own = {n: tensor_of(np.ascontiguousarray(a)) for n, a in slots.items()}
        first = genesis(self.statement, self.name)
        return state_root({**first, **own, "chain.loss": digest_of_bytes(CHAIN, chain)})

    def root(self, state: bytes) -> bytes:
        """The run root with this final state."""
        return run_root(self.digest, [state_root(genesis(self.statement, self.name)), state])


def added(x: np.ndarray, contract: str) -> np.float32:
    """`aten.sum` of all elements under a contract (NUMERICS 3.1, 13.3)."""
    if contract.startswith("rounded/"):
        return F32(exact_sums(x, (0,), 32, False))
    return total(x)
