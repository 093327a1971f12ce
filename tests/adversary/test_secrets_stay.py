"""Keys and nonces in what commands write and print: their bytes are in their own file, and nowhere
else (COMMITMENTS 9.1, PROTOCOL 10.2).
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from service.parties import A, Script, honest, make_job, registered
from service.parties import Player as Answering
from service.processes import Served, run

from tallystick.cli.main import run as main
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.turns import Message
from tallystick.disk.keys import save_private_key
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.prover.sessions import nonce_of


def spellings(secret: bytes) -> Iterator[bytes]:
    """Ways in which 32 bytes are written down: as they are, in base 16, 64, 32, 85, 10, as Python
    and as C write bytes, and reversed."""
    yield from (secret, secret[::-1])
    yield from (secret.hex().encode(), secret.hex().upper().encode(), secret.hex(" ").encode())
    yield from (secret.hex(":").encode(), repr(secret)[2:-1].encode(), repr(list(secret)).encode())
    for start in range(3):  # base64 of a text that has it anywhere
        text = base64.b64encode(bytes(start) + secret).decode()
        yield text[4 if start else 0 : 40].encode()
        yield text[4 if start else 0 : 40].replace("+", "-").replace("/", "_").encode()
    yield from (base64.b32encode(secret)[:48], base64.b85encode(secret))
    yield str(int.from_bytes(secret, "big")).encode()
    yield str(int.from_bytes(secret, "little")).encode()


def found_in(secret: bytes, data: bytes) -> bool:
    return any(spelling in data for spelling in spellings(secret))


def leaks(secret: bytes, directory: Path, own: set[Path]) -> list[str]:
    """The files below a directory that have the secret, but those in `own`; and whose names do."""
    return [
        str(path)
        for path in sorted(directory.rglob("*"))
        if found_in(secret, os.fsencode(path))
        or (path.is_file() and path not in own and found_in(secret, path.read_bytes()))
    ]


def test_the_search_finds_what_it_should(tmp_path: Path) -> None:
    secret = bytes(range(100, 132))
    key = PrivateKey(secret)
    assert found_in(secret, key.pem()) and found_in(secret, b"x" + secret + b"y")
    assert found_in(secret, b'{"seed": "' + secret.hex().encode())
    assert not found_in(secret, key.public.pem() + key.sign(b"message"))
    (tmp_path / "a").write_bytes(secret)
    assert leaks(secret, tmp_path, set()) == [str(tmp_path / "a")]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    pairs = {"features": "24", "classes": "2", "records": "16", "batch_size": "2"}
    path = tmp_path_factory.mktemp("secrets") / "job"
    return new_job("logreg", path, pairs, steps=9, checkpoint_interval=4, evaluate_every=0)


def test_keys_are_in_no_file_and_no_output(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that has a key, in text and in JSON, and a key in every other place."""
    secrets = {name: os.urandom(32) for name in ("trainer", "referee")}
    files = {name: tmp_path / f"{name}.pem" for name in secrets}
    for name, secret in secrets.items():
        save_private_key(PrivateKey(secret), files[name])
        (tmp_path / f"{name}.pub").write_bytes(PrivateKey(secret).public.pem())
    run_, lie, evidence = tmp_path / "run", tmp_path / "lie", tmp_path / "evidence"
    own, where = str(files["trainer"]), ["--job", str(job.directory)]
    commands = [
        ["keys", "show", own], ["keys", "show", own, "--json"],
        ["train", str(job.directory), "--out", str(run_), "--key", own],
        ["attack", "lie-output", str(job.directory), "--out", str(lie)],
        ["audit", str(run_), "--json", "--trust", str(tmp_path / "trainer.pub")],
        ["audit", str(run_), "--trust", own],
        ["dispute", str(run_), str(lie), *where, "--key-a", own, "--as-attack", "B", "--out",
         str(evidence), "--key", str(files["referee"])],
        ["judge", str(evidence), *where, "--json", "--statement", str(tmp_path / "statement"),
         "--key", str(files["referee"])],
        ["judge", str(evidence), *where, "--claim", str(tmp_path / "conviction"), "--key",
         str(files["referee"])],
        ["audit", str(run_), "--claim", str(tmp_path / "audited"), "--key", own],
        *([["claim", name, str(run_), "-o", str(tmp_path / f"{name}.claim"), "--key", own]
           for name in ("run", "provenance")]),
        ["claim", "bom", str(run_), "-o", str(tmp_path / "bom")],
        ["claim", "check", str(tmp_path / "run.claim"), "--trust", own],
        ["keys", "p256", str(tmp_path / "p256.pem"), "--key", own],
        ["report", str(run_), "-o", str(tmp_path / "run.html")],
        ["report", str(evidence), *where, "-o", str(tmp_path / "dispute.html")],
        ["inspect", str(run_)], ["inspect", str(run_), "--json"], ["fsck", str(run_)],
        ["export", str(run_), "-o", str(tmp_path / "model.safetensors")],
    ]  # fmt: skip
    # A key where something else belongs: the refusal shows nothing of it.
    commands += [
        ["judge", own, *where], ["report", own, "-o", str(tmp_path / "x.html")], ["inspect", own],
        ["audit", own], ["fsck", own], ["train", own, "--out", str(tmp_path / "y")],
        ["verify-model", own, str(run_)], ["settle", own], ["offer", "show", own],
        ["audit", str(run_), "--secret", own, "--sample", "1"],
        ["claim", "check", own, "--trust", own], ["claim", "answer", own, "-o", str(tmp_path / "z"),
         "--key", own],
        ["claim", "sign-model", str(tmp_path), "--p256", own, "-o", str(tmp_path / "z")],
        ["keys", "new", own], ["dispute", own, own, *where], ["fetch-logs", own, *where],
    ]  # fmt: skip
    said = b""
    for words in commands:
        main(words)
        captured = capsys.readouterr()
        said += (captured.out + captured.err).encode("utf-8", "surrogateescape")
    assert evidence.exists() and (tmp_path / "dispute.html").exists()
    for name in ("statement", "conviction", "audited", "run.claim", "provenance.claim", "bom"):
        assert (tmp_path / name).exists(), name
    p256 = tmp_path / "p256.pem"
    body = base64.b64decode(b"".join(p256.read_bytes().split(b"\n")[1:-2]))
    scalar = body[body.index(b"\x04\x20") + 2 :][:32]  # RFC 5915: the key, an octet string
    assert not found_in(scalar, said) and leaks(scalar, tmp_path, {p256}) == []
    for secret in secrets.values():
        assert not found_in(secret, said)
        assert leaks(secret, tmp_path, set(files.values())) == []
        assert leaks(secret, job.directory, set()) == []


def test_a_key_that_train_made_stays_in_its_file(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lies in the run, mode 0600, and no page or model of the run has it."""
    where = tmp_path / "run"
    assert main(["train", str(job.directory), "--out", str(where)]) == 0
    keys = [path for path in where.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()]
    assert len(keys) == 1 and keys[0].stat().st_mode & 0o777 == 0o600
    from tallystick.disk.keys import load_private_key

    body = b"".join(keys[0].read_bytes().split(b"\n")[1:-2])
    secret = base64.b64decode(body)[-32:]
    assert PrivateKey(secret).public == load_private_key(keys[0]).public
    main(["report", str(where), "-o", str(tmp_path / "run.html")])
    main(["export", str(where), "-o", str(tmp_path / "model.safetensors")])
    main(["inspect", str(where), "--json"])
    said = capsys.readouterr()
    assert not found_in(secret, (said.out + said.err).encode())
    assert leaks(secret, tmp_path, set(keys)) == []


def test_a_nonce_is_told_with_the_opening_and_not_before(tmp_path: Path) -> None:
    """Whoever reads the party's files, its seal or its card before that cannot try commitments."""
    made = make_job(tmp_path / "job")
    player = Answering(honest(made), A)
    script = Script(made)
    party = registered(player, tmp_path / "sessions")
    seal = party.reply(script.begin())
    assert isinstance(seal, Message)
    nonce = nonce_of(A, script.session, player.commitment)
    assert leaks(nonce, tmp_path / "sessions", set()) == []
    assert not found_in(nonce, seal.data)
    # The seal's digest hides the run: neither its root nor its signature is anywhere.
    root = player.party.run.run_root
    assert not found_in(root, seal.data)
    assert leaks(root, tmp_path / "sessions", set()) == []
    party.close()


def test_nothing_secret_is_served_or_logged(job: Job, tmp_path: Path) -> None:
    """A party's server: its card, its errors and what it prints have no key and no run root."""
    import http.client

    secret = os.urandom(32)
    save_private_key(PrivateKey(secret), tmp_path / "own.pem")
    referee = PrivateKey(os.urandom(32))
    (tmp_path / "referee.pub").write_bytes(referee.public.pem())
    where = tmp_path / "run"
    words = ["train", job.directory, "--out", where, "--key", tmp_path / "own.pem", "--json"]
    done = run(*words)
    assert done.returncode == 0, done
    root = bytes.fromhex(done.stdout.split('"run_root": "')[1][:64])
    served = Served(
        where, "--listen", "127.0.0.1:0", "--referee", tmp_path / "referee.pub", "--key",
        tmp_path / "own.pem",
    )  # fmt: skip
    answers = b""
    try:
        for path in ("/v1", "/v1/", "/v1/card", "/v1/log/0", "/v1/logs/0", "/", "/../own.pem"):
            for method in ("GET", "POST", "PUT"):
                connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
                try:
                    connection.request(method, path, body=b"junk" if method != "GET" else None)
                    reply = connection.getresponse()
                    answers += str(reply.headers).encode() + reply.read()
                finally:
                    connection.close()
    finally:
        code, printed = served.stop()
    assert code == 0 and answers
    assert not found_in(secret, answers + printed.encode() + done.stdout.encode())
    assert not found_in(root, answers)
    assert leaks(secret, tmp_path, {tmp_path / "own.pem"}) == []
