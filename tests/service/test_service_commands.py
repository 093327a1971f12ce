"""`serve`, `referee` and `judge` as processes (DESIGN 9, PROTOCOL 10 to 13)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from service.processes import Served, command, run, served
from service.transports import Certificates

from tallystick.commit.signing import PrivateKey
from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.disk.keys import save_private_key
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
        done = run("attack", "lie-output", path / "job", "--out", path / "cheat")
        assert done.returncode == 0, done.stderr

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


def test_a_session_of_processes_over_tls(stage: Stage, tmp_path: Path) -> None:
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
        done = run(*stage.referee(out, *urls, more=more))
        assert done.returncode == 1, done
        ends = [party.stop() for party in parties]
    assert [code for code, _ in ends] == [0, 0, 0], ends
    found = json.loads(done.stdout)
    assert found == {**json.loads((out / "result.json").read_text()), "out": str(out)}
    assert found["outcome"] == "accepted"
    states = {party["url"]: party["state"] for party in found["parties"]}
    assert states == {urls[0]: "left", urls[1]: "lost", urls[2]: "left"}
    (game,) = found["games"]
    assert game["outcome"] == "convicted" and game["convicted"] == found["convicted"]
    judged = run("judge", out / game["evidence"], "--job", stage.path / "job", "--json")
    assert judged.returncode == 1
    assert json.loads(judged.stdout)["accepted"] == found["accepted"]
    session = replayed(stage.job.terms, EntryLog(out))  # the log convicts no referee
    assert session.result is not None and session.length == found["entries"]
    # The same command again only reports: the session has its result.
    again = run(*stage.referee(out, *urls, more=more))
    assert again.returncode == 1, again.stderr
    assert json.loads(again.stdout)["accepted"] == found["accepted"]
    assert len(EntryLog(out)) == found["entries"]
    # The sessions lie beside the run, and the run itself is as it was.
    assert (stage.path / "honest.sessions").is_dir()
    assert run("fsck", stage.path / "honest").returncode == 0


def test_two_honest_parties_agree(stage: Stage, tmp_path: Path) -> None:
    with ExitStack() as stack:
        parties = [stage.serve(name) for name in ("honest", "twin")]
        for party in parties:
            stack.callback(party.stop)
        done = run(*stage.referee(tmp_path / "out", *(p.url for p in parties)))
    assert done.returncode == 0, done.stderr
    assert "RESULT      uncontested" in done.stdout


# P9: kill -9 of a party and of the referee; the same commands go on.
def test_a_killed_server_and_a_killed_referee_go_on(stage: Stage, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with ExitStack() as stack:
        honest, cheat = stage.serve("honest"), stage.serve("cheat")
        stack.callback(lambda: honest.stop())
        stack.callback(lambda: cheat.stop())
        arguments = stage.referee(out, honest.url, cheat.url)
        referee = subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        stack.callback(referee.kill)
        _until_entries(out, 8, referee)
        referee.send_signal(signal.SIGKILL)
        referee.communicate()
        honest.stop(signal.SIGKILL)
        before = len(EntryLog(out))
        honest = stage.serve("honest", listen=f"127.0.0.1:{honest.port}")
        done = run(*arguments)
    assert done.returncode == 1, done.stderr
    assert "RESULT      accepted" in done.stdout
    assert len(EntryLog(out)) > before >= 8
    assert "goes on" in done.stderr


def _until_entries(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    from service.transports import until

    def there() -> bool:
        assert process.poll() is None, process.communicate()
        try:
            return len(EntryLog(out)) >= count
        except Exception:
            return False

    until(there, 60)


def test_the_log_is_published(stage: Stage, tmp_path: Path) -> None:
    import httpx2

    with ExitStack() as stack:
        honest = stage.serve("honest")
        stack.callback(honest.stop)
        out = tmp_path / "out"
        port = _free_port()
        more = ("--sealing", "20s", "--opening", "20s", "--listen", f"127.0.0.1:{port}")
        allow = ("--allow", stage.path / "honest.pub", "--allow", stage.path / "twin.pub")
        gone = f"http://127.0.0.1:{_free_port()}"
        arguments = stage.referee(out, honest.url, gone, more=(*more, *allow))
        referee = subprocess.Popen(
            command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        stack.callback(referee.kill)
        _until_entries(out, 2, referee)
        base = f"http://127.0.0.1:{port}"
        head = httpx2.get(f"{base}/v1/log").json()
        assert head["entries"] >= 2
        entries = [httpx2.get(f"{base}/v1/log/{index}") for index in range(2)]
        assert [e.content for e in entries] == list(EntryLog(out))[:2]
        assert httpx2.get(f"{base}/log/0000/0000001.bin").content == entries[1].content
        for path in (
            "/v1/log/9999", "/v1/log/-1", "/v1/log/01", "/v1/log/x", "/log/0000/1.bin",
            "/log/0001/0000001.bin", "/log/../lock", "/result.json", "/lock",
        ):  # fmt: skip
            assert httpx2.get(base + path).status_code == 404, path
        assert httpx2.post(f"{base}/v1/log").status_code in (405, 411)


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def test_wrong_usage(stage: Stage, tmp_path: Path) -> None:
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
        done = run(*arguments)
        assert done.returncode == code, (arguments, done)
        assert "Traceback" not in done.stderr


def test_a_helpful_error_names_the_extra(stage: Stage, tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from tallystick.cli.main import run\n"
        "sys.exit(run(sys.argv[1:]))"
    )
    listen = ("--listen", "127.0.0.1:0", "--referee", stage.path / "referee.pub")
    for arguments in (
        ["serve", stage.path / "honest", *listen],
        stage.referee(tmp_path / "out", "http://x:1", "http://x:2"),
        ["fetch-logs", "http://x:1", "--job", stage.path / "job", "--out", tmp_path / "logs"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 3
        assert "tallystick[service]" in done.stderr


def test_a_server_imports_no_torch(stage: Stage) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import tallystick.cli.serve, tallystick.cli.referee, tallystick.service.party_app\n"
        "import tallystick.service.driver, tallystick.service.server\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    with served(
        stage.path / "twin", "--listen", "127.0.0.1:0", "--referee", stage.path / "referee.pub",
        "--key", stage.path / "twin.key",
    ) as found:  # fmt: skip
        assert found.url.startswith("http://127.0.0.1:")
        assert found.stop(signal.SIGINT)[0] == 0
