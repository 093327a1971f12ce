"""`serve`, `referee` and `judge` as processes (DESIGN 9, PROTOCOL 10 to 13)."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest
from service.processes import Served, command, run
from service.transports import Certificates

from tallystick.cli.main import run as main
from tallystick.commit.signing import PrivateKey
from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.keys import load_private_key, save_private_key
from tallystick.job.job import Job
from tallystick.job.recipes import new_job
from tallystick.run.execute.trainer import Options, train_job

FAST = ("--sealing", "60s", "--opening", "60s", "--budget", "60s", "--extension", "20s")


class Stage:
    """A job, two honest runs and a cheating one, each with a key, and a referee's key."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job: Job = new_job(
            "logreg",
            path / "job",
            {"features": "24", "classes": "2", "records": "16", "batch_size": "2"},
            steps=9,
            checkpoint_interval=4,
            evaluate_every=0,
        )
        for name in ("honest", "twin", "referee", "stranger"):
            key = PrivateKey.generate()
            save_private_key(key, path / f"{name}.key")
            (path / f"{name}.pub").write_bytes(key.public.pem())
            if name in ("honest", "twin"):
                train_job(self.job, path / name, Options(key=key))
        assert main(["attack", "lie-output", str(path / "job"), "--out", str(path / "cheat")]) == 0

    def serve(self, name: str, *more: object, listen: str = "127.0.0.1:0") -> Served:
        key = () if name == "cheat" else ("--key", self.path / f"{name}.key")
        cheats = ("--as-attack",) if name == "cheat" else ()
        believed = ("--referee", self.path / "referee.pub")
        return Served(self.path / name, "--listen", listen, *believed, *key, *cheats, *more)

    def referee(self, out: Path, *urls: str, more: tuple[object, ...] = FAST) -> list[object]:
        parties = [part for url in urls for part in ("--party", url)]
        key = ("--key", self.path / "referee.key")
        return ["referee", self.path / "job", *parties, "--out", out, *key, *more]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return Stage(tmp_path_factory.mktemp("stage"))


def test_a_session_of_processes_over_tls_with_kill_9(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificates = Certificates(tmp_path)
    tls = ("--tls-cert", certificates.cert, "--tls-key", certificates.key)
    out = tmp_path / "out"
    with ExitStack() as stack:
        parties = []
        for name in ("honest", "cheat", "twin"):
            party = stage.serve(name, *tls)
            stack.callback(party.stop)
            parties.append(party)
        urls = [f"https://localhost:{party.port}" for party in parties]
        assert all(party.url.startswith("https://") for party in parties)
        more = (*FAST, "--tls-ca", certificates.ca, "--json")
        arguments = stage.referee(out, *urls, more=more)
        first = subprocess.Popen(command(*arguments), stderr=subprocess.PIPE, text=True)
        stack.callback(first.kill)
        _until_entries(out, 10, first)
        # P9: kill -9 of the referee and of the honest party; the same commands go on.
        first.kill()
        first.communicate()
        before = len(EntryLog(out))
        parties[0].stop(signal.SIGKILL)
        parties[0] = stage.serve("honest", *tls, listen=f"127.0.0.1:{parties[0].port}")
        stack.callback(parties[0].stop)
        done = run(*arguments)
        assert done.returncode == 1, done
        assert (
            "continues with the rules in its log" in done.stderr
            and len(EntryLog(out)) > before >= 10
        )
        ends = [party.stop(number) for party, number in zip(parties, (2, 15, 15), strict=True)]
    assert [code for code, _ in ends] == [0, 0, 0], ends
    found = json.loads(done.stdout)
    assert found == {**json.loads((out / "result.json").read_text()), "out": str(out)}
    assert found["outcome"] == "accepted"
    states = {party["url"]: party["state"] for party in found["parties"]}
    assert states == {urls[0]: "left", urls[1]: "lost", urls[2]: "left"}
    (game,) = found["games"]
    assert game["outcome"] == "convicted" and game["convicted"] == found["convicted"]
    capsys.readouterr()
    words = ["judge", out / game["evidence"], "--job", stage.path / "job", "--json"]
    assert main([str(word) for word in words]) == 1
    assert json.loads(capsys.readouterr().out)["accepted"] == found["accepted"]
    session = replayed(stage.job.terms, EntryLog(out))  # the log convicts no referee
    assert session.result is not None and session.length == found["entries"]
    # The same command again only reports: the session has its result.
    assert main([str(word) for word in stage.referee(out, *urls, more=more)]) == 1
    assert json.loads(capsys.readouterr().out)["accepted"] == found["accepted"]
    assert len(EntryLog(out)) == found["entries"]
    # The sessions lie beside the run, and the run itself is as it was.
    assert (stage.path / "twin.sessions").is_dir()
    assert main(["fsck", str(stage.path / "twin")]) == 0


def _until_entries(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    from service.transports import until

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        try:
            return len(EntryLog(out)) >= count
        except Exception:
            return False

    until(there, 60)


def test_wrong_usage(stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    believed = ("--referee", stage.path / "referee.pub")
    listen = ("--listen", "127.0.0.1:0")
    honest = stage.path / "honest"
    url = "http://127.0.0.1:1"
    for code, arguments in (
        (3, ("serve", honest, *listen)),
        (3, ("serve", honest, "--listen", "nowhere", *believed)),
        (3, ("serve", honest, *listen, *believed)),  # the key is not kept in the run
        (3, ("serve", honest, *listen, *believed, "--key", stage.path / "twin.key")),
        (3, ("serve", honest, *listen, *believed, "--tls-cert", "x")),
        (2, ("serve", honest, *listen, *believed, "--tls-cert", "x", "--tls-key", "y")),
        (3, ("serve", honest, *listen, "--referee", stage.path / "honest.pub",
             "--key", stage.path / "honest.key")),
        (3, stage.referee(tmp_path / "out", url)),
        (3, stage.referee(tmp_path / "out", url, url)),
        (3, stage.referee(tmp_path / "out", url, "ftp://x")),
        (3, stage.referee(tmp_path / "out", url, "http://x:2", more=("--budget", "soon"))),
        (3, ("referee", stage.path / "job", "--party", url, "--out", tmp_path)),
    ):  # fmt: skip
        assert main([str(a) for a in arguments]) == code, arguments
        assert "Traceback" not in capsys.readouterr().err


def test_a_missing_run_gets_advice_that_serve_can_follow(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--listen", "127.0.0.1:0", "--referee", str(stage.path / "referee.pub")]
    assert main(["serve", str(tmp_path / "none"), *words]) == 3
    said = capsys.readouterr().err
    assert "is not a run" in said and "--job" not in said
    (tmp_path / "half").mkdir()
    shutil.copy(stage.path / "honest" / "run.json", tmp_path / "half")
    assert main(["serve", str(tmp_path / "half"), *words]) == 2
    assert "`tallystick audit` and `dispute` take your own copy" in capsys.readouterr().err


def test_serve_prints_the_key_that_its_card_has(stage: Stage) -> None:
    server = stage.serve("honest")
    try:
        with urllib.request.urlopen(f"{server.url}/v1/party") as answer:
            card = json.load(answer)
        assert server.process.stdout is not None
        said = dict(server.process.stdout.readline().rsplit(maxsplit=1) for _ in range(2))
    finally:
        server.stop()
    key = load_private_key(stage.path / "honest.key").public
    assert said == {"public key": card["key"], "key id": key.key_id}
    assert card["key"] == key.raw.hex()


def test_a_helpful_error_names_the_extra(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    listen = ("--listen", "127.0.0.1:0", "--referee", stage.path / "referee.pub")
    for arguments in (
        ["serve", stage.path / "honest", *listen],
        stage.referee(tmp_path / "out", "http://x:1", "http://x:2"),
        ["fetch-logs", "http://x:1", "--job", stage.path / "job", "--out", tmp_path / "logs"],
    ):
        assert main([str(a) for a in arguments]) == 3
        assert "tallystick[service]" in capsys.readouterr().err


def test_a_server_imports_no_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tallystick.cli.serve, tallystick.cli.referee, tallystick.service.party_app\n"
        "import tallystick.service.driver, tallystick.service.server\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
