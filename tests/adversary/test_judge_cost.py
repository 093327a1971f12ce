"""What evidence that is refused may cost a judge: at most 128 MiB, whatever its bytes are (P5).

The files are judged one after the other in one process, whose peak memory is read after each.
Before sizes were looked at first, the worst of these took 809 MiB and 6 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from unit.protocol.scenarios import SCENARIOS, liar
from unit.protocol.simulator import Party

from tallystick.commit.encoding import Writer, sha256
from tallystick.commit.signing import RUN_COMMITMENT_TYPE, Envelope, PrivateKey, Signature
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.limits import LIMITS
from tallystick.protocol.evidence import EVIDENCE_TAG
from tallystick.protocol.forfeit import FORFEIT_TYPE, Forfeit, sign_forfeit
from tallystick.protocol.messages import ANSWERED, Answer, sign_answer
from tallystick.protocol.queries import decode_query
from tallystick.protocol.referee import Referee
from tallystick_bench.process import environment

MIB = 1 << 20
WHOLE = 16 * MIB - 70_000  # what one part may fill of a file that is just not too long
ROOM = LIMITS.answer_bytes - 2000  # of a body
PEAK, ABOVE_BASELINE = 128 * MIB, 48 * MIB
Messages = list[tuple[int, bytes]]

CHILD = """
import contextlib, io, json, sys
from tallystick.cli.main import run
from tallystick_bench.memory import peak_bytes
for _ in sys.stdin:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = run(["judge", sys.argv[1], "--job", sys.argv[2]])
    print(json.dumps([code, peak_bytes(), said.getvalue()]), flush=True)
"""


class Judge:
    """A process that judges the file at `path` as often as it is asked to."""

    def __init__(self, path: Path, job: Path) -> None:
        self.path = path
        command = [sys.executable, "-c", CHILD, str(path), str(job)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment()
        )

    def judged(self, data: bytes) -> tuple[int, int, str]:
        """Exit code, peak memory so far in bytes, and what was said."""
        self.path.write_bytes(data)
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        code, peak, said = json.loads(self.process.stdout.readline())
        return code, peak, said


def layout(
    job: Job, commitments: tuple[bytes, bytes], messages: Messages, forfeit: bytes | None = None
) -> bytes:
    """Evidence of any content under a true digest."""
    out = Writer(EVIDENCE_TAG).hash(job.digest).u64(20).blob(commitments[0]).blob(commitments[1])
    out.u64(len(messages))
    for party, message in messages:
        out.u8(party).blob(message)
    out.u64(0 if forfeit is None else 1)
    body = (out if forfeit is None else out.blob(forfeit)).finish()
    return body + sha256(body)


def wide(size: int) -> dict[str, bytes]:
    """Canonical JSON of about `size` bytes that makes many values of few bytes."""
    return {
        "brackets": b"[" + b"[]," * (size // 3) + b"[]]",
        "members": b"{" + b",".join(b'"%07d":0' % n for n in range(size // 12)) + b"}",
        "numbers": b"[" + b"1," * (size // 2) + b"1]",
        "escapes": b'"' + rb"\u0001" * (size // 6) + b'"',
        "one wide letter": ('"' + "a" * size + '\U0001f600"').encode(),
        "depth": b"[" * (size // 2) + b"]" * (size // 2),
    }


def files(job: Job, a: Party, b: Party) -> dict[str, bytes]:
    """Evidence by name; every one of them is refused."""
    runs, key = (a.commitment, b.commitment), PrivateKey(bytes([3]) * 32)
    found: dict[str, bytes] = {}
    for size in (WHOLE, LIMITS.commitment_bytes - 100):
        for name, data in wide(size).items():
            found[f"commitment {name} {size}"] = layout(job, (data, b.commitment), [])
    for name, data in wide(LIMITS.commitment_bytes // 2).items():
        signature = Signature(a.key.public.key_id, bytes(64))
        envelope = Envelope(RUN_COMMITMENT_TYPE, data, (signature,)).to_bytes()
        found[f"payload {name}"] = layout(job, (envelope, b.commitment), [])
    for size in (8 * MIB, LIMITS.forfeit_bytes - 100):
        for name, data in wide(size).items():
            found[f"forfeit {name} {size}"] = layout(job, runs, [], data)
    roots = (a.run.run_root, b.run.run_root)
    word = Forfeit(job.digest, roots, 0, bytes(5 * MIB), key.public)
    found["forfeit of a long query"] = layout(job, runs, [], sign_forfeit(key, word))
    found["messages of no byte"] = layout(job, runs, [(0, b"")] * (WHOLE // 9))
    found["messages of few bytes"] = layout(job, runs, [(0, bytes(200))] * (WHOLE // 209))
    found["messages of zeros"] = layout(job, runs, [(0, bytes(ROOM))] * 2)
    # A true game up to a query; then a signed answer of the greatest length, and nothing more.
    referee, kinds = Referee(job.terms, runs), set()
    hashes = (ROOM // 32).to_bytes(8, "little") + bytes(ROOM // 32 * 32)
    while referee.verdict is None:
        for party, query in sorted(referee.pending.items()):
            name = type(decode_query(query)).__name__
            if name not in kinds:
                kinds.add(name)
                many = Writer().text("aten.mm").blob(b"").raw(hashes).finish()
                for n, body in enumerate((hashes, bytes(64) + hashes[:-64], many[:-64])):
                    answer = Answer(job.digest, a.run.run_root, query, ANSWERED, body)
                    long = sign_answer(a.key, answer)
                    messages = [*referee.transcript, (party, long)]
                    found[f"long {name} {n}"] = layout(job, runs, messages)
            referee.receive(party, (a, b)[party].answer(query))
            if referee.verdict is not None:
                break
    assert len(kinds) > 6
    found["one message missing"] = layout(job, runs, referee.transcript[:-1])
    found["zeros"] = bytes(16 * MIB)
    return found


def test_no_refused_evidence_costs_much(tmp_path: Path) -> None:
    pairs = {"features": "700", "classes": "2", "records": "16", "batch_size": "2", "lr": "0.0001"}
    job = new_job(
        "logreg", tmp_path / "job", pairs, steps=13, checkpoint_interval=4, evaluate_every=0
    )
    a, b = Party(job), liar(job, SCENARIOS["a wrong product"])
    judge = Judge(tmp_path / "evidence", job.directory)
    code, baseline, said = judge.judged(layout(job, (a.commitment, b.commitment), []))
    assert code == 2 and "messages are missing" in said
    for name, data in files(job, a, b).items():
        assert len(data) <= LIMITS.evidence_bytes, name
        code, peak, said = judge.judged(data)
        assert code in (1, 2) if name.startswith("long") else code == 2, (name, said)
        assert "Traceback" not in said, name
        assert peak <= PEAK and peak - baseline <= ABOVE_BASELINE, (name, peak, baseline)
    with judge.process:
        judge.process.communicate()


@pytest.mark.parametrize("name", sorted(wide(12)))
def test_a_forfeit_of_strange_json_is_refused(name: str) -> None:
    """2.10: with a signature or without."""
    from tallystick.commit.signing import sign_envelope
    from tallystick.errors import CounterpartyError
    from tallystick.protocol.forfeit import open_forfeit

    data = wide(1200)[name]
    envelope = sign_envelope(PrivateKey(bytes(32)), FORFEIT_TYPE, data).to_bytes()
    for given in (data, envelope):
        with pytest.raises(CounterpartyError):
            open_forfeit(given)
