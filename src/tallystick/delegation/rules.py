"""The rules of a session, fixed in its first log entry (PROTOCOL 10.1.1, 11.2), and the size of a
step's work, from its program alone: an estimate for the rules' clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tallystick.commit.encoding import HASH_BYTES, Reader, Writer
from tallystick.commit.signing import PublicKey
from tallystick.delegation.seals import read_key
from tallystick.errors import UsageError
from tallystick.limits import LIMITS
from tallystick.numerics.types import TensorType
from tallystick.program.expand import kinds, times
from tallystick.program.ir import Node, Program
from tallystick.protocol.referee import MAX_ARITY, MIN_ARITY

# Terms that the slowest machine worth counting on computes in a second: one core, no vectors. A
# machine with two cores and AVX2 does a hundred times as many.
SLOWEST_TERMS = 1_000_000_000
_FIXED_MS = 50  # a step's calls from Python, files and hashing of small states

Types = Sequence[TensorType]


def _filter(weight: TensorType) -> int:
    """Terms of one output element of a convolution."""
    return weight.numel // max(1, weight.shape[0])


# Operator of class dot -> terms, from the types of its operands and outputs.
TERMS_OF: dict[str, Callable[[Types, Types], int]] = {
    "aten.mm": lambda a, out: out[0].numel * a[0].shape[-1],
    "aten.addmm": lambda a, out: out[0].numel * a[1].shape[-1],
    "aten.bmm": lambda a, out: out[0].numel * a[0].shape[-1],
    "aten.convolution": lambda a, out: out[0].numel * _filter(a[1]),
    "aten.convolution_backward": lambda a, out: 2 * a[0].numel * _filter(a[2]),
}


def node_terms(program: Program, node: Node) -> int:
    operands = [program.type_of(v) for v in node.inputs if v is not None]
    elements = sum(t.numel for t in (*operands, *node.out_types))
    product = TERMS_OF.get(node.op)
    return elements if product is None else elements + product(operands, node.out_types)


def step_terms(program: Program) -> int:
    """Products and elements that a step of `program` computes, about."""
    return sum(times(program, n) * node_terms(program, program.nodes[n]) for n in kinds(program))


def step_milliseconds(program: Program) -> int:
    """The time of a step on a slow machine: an honest party's is shorter."""
    return _FIXED_MS + -(-1000 * step_terms(program) // SLOWEST_TERMS)


NO_OFFER = bytes(HASH_BYTES)
LATEST = (1 << 53) - 1  # of a time; a number that JSON keeps exact
MIN_PARTIES = 2


@dataclass(frozen=True)
class Rules:
    """What a session's first entry fixes.

    `sealing` is a time in milliseconds since 1970 (11.1). `opening`, `budget`, `step` and
    `extension` are durations in milliseconds, `steps` is a number of steps (11.2). `allowed` are
    the keys that may take part, ascending; none of them means any key. `offer` is the digest of the
    offer, or NO_OFFER. Raises UsageError for numbers out of range.
    """

    job_digest: bytes
    nonce: bytes
    referee: PublicKey
    arity: int
    most: int
    sealing: int
    opening: int
    budget: int
    step: int
    steps: int
    extension: int
    allowed: tuple[PublicKey, ...] = ()
    offer: bytes = NO_OFFER

    def __post_init__(self) -> None:
        _within("arity", self.arity, MIN_ARITY, MAX_ARITY)
        _within("number of parties", self.most, MIN_PARTIES, LIMITS.parties)
        _within("sealing deadline", self.sealing, 0, LATEST)
        for name in ("opening", "budget", "step", "steps", "extension"):
            _within(name, getattr(self, name), 0, LIMITS.duration_ms)
        _within("time of a game", self.game_budget, 0, LIMITS.duration_ms)
        raw = [key.raw for key in self.allowed]
        if raw != sorted(set(raw)) or len(raw) > LIMITS.parties:
            raise UsageError(
                "The keys that may take part are not in ascending order, or too many.",
                f"Name each once, at most {LIMITS.parties}.",
            )
        if self.referee in self.allowed:
            raise UsageError("The referee's key is a party's key.", "Name another key (2.10.1).")

    @property
    def game_budget(self) -> int:
        """The milliseconds that a party has at the beginning of a game (11.3)."""
        return self.budget + self.step * self.steps

    def write(self, out: Writer) -> Writer:
        """The fields of an entry of kind 1 (12.2)."""
        out.hash(self.job_digest).hash(self.nonce, "nonce").raw(self.referee.raw)
        for number in (self.arity, self.most, self.sealing, self.opening, self.budget, self.step,
                       self.steps, self.extension, len(self.allowed)):  # fmt: skip
            out.u64(number)
        for key in self.allowed:
            out.raw(key.raw)
        return out.hash(self.offer)


def _within(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise UsageError(
            f"The {name} of a session's rules is {value}.", f"Choose {least} to {most}."
        )


def read_rules(source: Reader) -> Rules:
    """The rules in the fields of an untrusted entry. Raises CorruptFileError."""
    job, nonce, referee = source.hash(), source.hash(), read_key(source)
    arity, most, sealing, opening, budget, step, steps, extension = (source.u64() for _ in range(8))
    allowed = tuple(read_key(source) for _ in range(source.count(LIMITS.parties, "keys")))
    offer = source.hash()
    try:
        return Rules(
            job, nonce, referee, arity, most, sealing, opening, budget, step, steps, extension,
            allowed, offer,
        )  # fmt: skip
    except UsageError as error:
        source.fail(error.message)
