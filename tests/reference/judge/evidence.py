"""The judge: evidence in, verdict out (PROTOCOL 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_public_key,
)

from reference.judge.encoding import (
    MalformedError,
    Reader,
    RefusedError,
    digest_of,
    envelope,
    sha,
    signed,
)
from reference.judge.game import Referee
from reference.judge.rounds import Party, UndecidedError, VerdictError
from reference.judge.terms import Terms

COMMITMENT = "application/vnd.tallystick.run-commitment.v1+json"
FORFEIT = "application/vnd.tallystick.forfeit.v1+json"
ANSWER = "application/vnd.tallystick.answer.v1"
LIMIT = 16777216


def read_party(data: bytes, job: bytes) -> Party:
    """COMMITMENTS 9.5, PROTOCOL 3.1."""
    c = envelope(data, COMMITMENT, "signer")
    names = "kind job_digest run_root final_step final_state_root checkpoints signer".split()
    if set(c) != set(names) or c["kind"] != "tallystick/run-commitment/1":
        raise MalformedError("no run commitment")
    numbers = (c["final_step"], c["checkpoints"])
    if any(type(n) is not int or n < 0 for n in numbers) or digest_of(c["job_digest"]) != job:
        raise MalformedError("a commitment of another job")
    return Party(
        digest_of(c["run_root"]),
        digest_of(c["final_state_root"]),
        c["final_step"],
        c["checkpoints"],
        digest_of(c["signer"]),
    )


class Messages:
    """Signed answers, checked one by one (2.5, 2.6)."""

    def __init__(self, job: bytes, parties: list[Party]) -> None:
        self.job, self.parties = job, parties

    def read(self, party: int, data: bytes) -> tuple[bytes, int, bytes]:
        """Query, status and body of a signed answer; MalformedError if it is none."""
        if len(data) > 4194304:
            raise MalformedError("longer than an answer")
        r = Reader(data)
        answer = r.blob(4194304)
        signature = r.take(64)
        r.end()
        p = self.parties[party]
        if not signed(p.signer, signature, ANSWER, answer):
            raise MalformedError("a signature that does not verify")
        a = Reader(answer)
        a.tag("answer/1")
        if a.hash() != self.job or a.hash() != p.run_root:
            raise MalformedError("of another job or run")
        query = a.blob(65536)
        return query, a.u8(), a.data[a.at :]


def keys(pems: Sequence[str]) -> set[bytes]:
    found = [load_pem_public_key(p.encode()) for p in pems]
    return {k.public_bytes(Encoding.Raw, PublicFormat.Raw) for k in found}


def _evidence(data: bytes, job: bytes) -> tuple[int, list[bytes], list[tuple[int, bytes]], Any]:
    """8.1."""
    if len(data) > LIMIT or len(data) < 32 or sha(data[:-32]) != data[-32:]:
        raise MalformedError("too long, or another hash")
    r = Reader(data[:-32])
    r.tag("evidence/1")
    if r.hash() != job:
        raise MalformedError("of another job")
    arity = r.u64()
    if not 2 <= arity <= 256:
        raise MalformedError("no arity")
    commitments = [r.blob(65536), r.blob(65536)]
    messages = []
    for _ in range(r.u64()):
        party = r.u8()
        if party > 1:
            raise MalformedError("no party")
        messages.append((party, r.blob(4194304)))
    forfeits = r.u64()
    if forfeits > 2:
        raise MalformedError("more than two forfeits")
    words = [r.blob(262144) for _ in range(forfeits)]
    r.end()
    return arity, commitments, messages, words


def _check_forfeit(
    data: bytes, job: bytes, parties: list[Party], waiting: dict[int, bytes], referees: set[bytes]
) -> tuple[int, bytes]:
    """The silent party and the referee's key (2.10, 2.10.1)."""
    f = envelope(data, FORFEIT, "referee")
    if set(f) != set("kind job_digest run_roots party query referee".split()):
        raise MalformedError("no forfeit")
    key = digest_of(f["referee"])
    if key in {p.signer for p in parties} or key not in referees:
        raise MalformedError("not of a referee who is believed")
    same = (
        f["kind"] == "tallystick/forfeit/1"
        and digest_of(f["job_digest"]) == job
        and f["run_roots"] == [p.run_root.hex() for p in parties]
        and type(f["party"]) is int
        and f["party"] in waiting
        and f["query"] == waiting[f["party"]].hex()
    )
    if not same:
        raise MalformedError("of another game")
    return int(f["party"]), key


def _play(terms: Terms, data: bytes, referees: set[bytes]) -> list[tuple[int, str]]:
    arity, commitments, messages, forfeits = _evidence(data, terms.digest)
    parties = [read_party(c, terms.digest) for c in commitments]
    read = Messages(terms.digest, parties).read
    said: dict[tuple[int, bytes], tuple[int, bytes]] = {}
    game = Referee(terms, parties, arity).run()
    rest = list(messages)
    answers: Any = None
    try:
        while True:
            try:
                waiting = dict(game.send(answers))
            except StopIteration:
                raise VerdictError([]) from None
            answers = {}
            while waiting:
                if not rest:
                    if not forfeits:
                        raise MalformedError("messages missing")
                    words = [
                        _check_forfeit(f, terms.digest, parties, waiting, referees)
                        for f in forfeits
                    ]
                    forfeits = []
                    # 2.10.2: one of each party, party 0's first, by one referee
                    silent = [party for party, _ in words]
                    if silent != sorted(set(silent)) or len({key for _, key in words}) > 1:
                        raise MalformedError("two forfeits that are not one of each")
                    raise VerdictError([(party, "2.10") for party in silent])
                party, message = rest.pop(0)
                query, status, body = read(party, message)
                if waiting.get(party) == query:
                    del waiting[party]
                    said[party, query] = answers[party] = (status, body)
                elif said.get((party, query), (status, body)) != (status, body):
                    raise VerdictError([(party, "2.9")])
                else:
                    raise MalformedError("not asked for")
    except VerdictError as verdict:
        if rest or forfeits:
            raise MalformedError("something left over") from None
        return verdict.convicted
    except UndecidedError:
        if rest or forfeits:
            raise MalformedError("something left over") from None
        raise


def judge(
    job_json: bytes,
    program_text: bytes | Sequence[bytes],
    evidence: bytes,
    referees: Sequence[str] = (),
) -> dict[str, Any]:
    """The verdict: agreement, undecided, convicted [(party, clause)], or {"refused": why}.

    `program_text`: the text, or of a job of format 2 the texts in the order of its programs.

    `referees` are PEM public keys whose word is taken (2.10).
    """
    try:
        terms = Terms(job_json, program_text)
        convicted = _play(terms, evidence, keys(referees))
    except (MalformedError, RefusedError) as why:
        return {"refused": str(why)}
    except UndecidedError:
        return {"agreement": False, "undecided": True, "convicted": []}
    named = [("AB"[p], clause) for p, clause in convicted]
    return {"agreement": not named, "undecided": False, "convicted": named}
