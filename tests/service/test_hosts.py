"""Client, two honest providers and a cheating one on hosts of their own, over TLS, on a network
that delays, refuses, cuts and swallows: from job to accepted run and evidence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from service import proxy
from service.netns import Net, hosts
from service.processes import Served, command
from service.transports import now

from tallystick.delegation.watch import replayed
from tallystick.disk.entry_log import EntryLog
from tallystick.job.job_file import load_terms

PROVIDERS = ("anna", "ben", "carl")  # carl cheats


def certificate(authority: trustme.CA, address: str, path: Path) -> tuple[str, ...]:
    made = authority.issue_cert(address)
    made.private_key_pem.write_to_path(str(path / "tls.key"))
    for number, blob in enumerate(made.cert_chain_pems):
        blob.write_to_path(str(path / "tls.pem"), append=bool(number))
    return ("--tls-cert", str(path / "tls.pem"), "--tls-key", str(path / "tls.key"))


def proxied(net: Net, port: int, target: int, seed: int) -> subprocess.Popen[str]:
    words = [sys.executable, proxy.__file__, f"{net.address}:{port}", f"127.0.0.1:{target}"]
    found = subprocess.Popen(
        [*net.prefix, *words, "--seed", str(seed), "--bad", "0.08"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert found.stdout is not None and found.stdout.readline() == "ready\n"
    return found


def test_hosts_of_their_own(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--exhaustive"):
        pytest.skip("docs/tutorials/network.md runs by default; this takes 30 s (--exhaustive)")
    homes = {name: tmp_path / name for name in ("client", *PROVIDERS)}
    with ExitStack() as stack:
        nets, apart = stack.enter_context(hosts(list(homes)))

        def at(name: str, *words: object, code: int = 0) -> str:
            done = subprocess.run(
                [*nets[name].prefix, *command(*words)],
                cwd=homes[name], capture_output=True, text=True, timeout=200, check=False,
            )  # fmt: skip
            assert done.returncode == code, done
            return done.stdout

        for home in homes.values():
            home.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(homes["client"] / "ca.pem"))
        at("client", "keys", "new", "referee.pem")
        settings = ("--steps", 40, "--set", "records=64", "--set", "batch_size=8")
        at("client", "job", "new", "mlp", "--out", "job", *settings)
        urls = []
        for number, name in enumerate(PROVIDERS):
            shutil.copytree(homes["client"] / "job", homes[name] / "job")
            shutil.copy(homes["client"] / "referee.pem.pub", homes[name])
            if name == "carl":
                at(name, "attack", "data-poisoning", "job", "--out", "run")
            else:
                at(name, "train", "job", "--out", "run")
            tls = certificate(authority, nets[name].address, homes[name])
            cheats = ("--as-attack",) if name == "carl" else ()
            referee = ("--referee", homes[name] / "referee.pem.pub")
            server = Served(
                homes[name] / "run", "--listen", "127.0.0.1:0", *referee, *tls, *cheats,
                prefix=nets[name].prefix,
            )  # fmt: skip
            stack.callback(server.stop)
            port = 8440 + number
            between = proxied(nets[name], port, server.port, number)
            stack.callback(between.communicate)
            stack.callback(between.kill)
            urls.append(f"https://{nets[name].address}:{port}")
        parties = [word for url in urls for word in ("--party", url)]
        times = ("--sealing", "60s", "--opening", "60s", "--budget", "120s", "--extension", "60s")
        words = ("--key", "referee.pem", "--tls-ca", "ca.pem", *times, "--json")
        out = at("client", "referee", "job", *parties, "--out", "case", *words, code=1)
        found = json.loads(out)
        states = {party["url"]: party["state"] for party in found["parties"]}
        assert states == {urls[0]: "left", urls[1]: "left", urls[2]: "lost"}
        assert found["outcome"] == "accepted"
        (game,) = found["games"]
        assert not game["forfeit"]
        case = homes["client"] / "case"
        judged = at("client", "judge", case / game["evidence"], "--job", "job", "--json", code=1)
        assert json.loads(judged)["accepted"] == found["accepted"]
        session = replayed(load_terms(homes["client"] / "job"), EntryLog(case))
        assert session.length == found["entries"]
        # The accepted run, fetched by the client, is the one that was accepted.
        shutil.copytree(homes["anna"] / "run", homes["client"] / "accepted")
        audited = json.loads(at("client", "audit", "accepted", "--job", "job", "--json"))
        assert audited["accepted"] and audited["run_root"] == found["accepted"]
        print("hosts of their own:", apart)


def test_the_proxy_hurts() -> None:
    """A session is only shown to bear a bad network if the network is bad."""
    import asyncio

    async def talk() -> tuple[int, proxy.Proxy]:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                writer.write(data)
            writer.close()

        target = await asyncio.start_server(echo, "127.0.0.1", 0)
        address = target.sockets[0].getsockname()[:2]
        between = proxy.Proxy(("127.0.0.1", 0), address, seed=1, bad=0.2, delay=0)
        server = await between.start()

        async def one() -> bool:
            try:
                reader, writer = await asyncio.open_connection(*between.listen)
                for _ in range(10):
                    writer.write(b"hello")
                    assert await asyncio.wait_for(reader.readexactly(5), 20) == b"hello"
                writer.close()
            except (OSError, EOFError):
                return False
            return True

        whole = sum(await asyncio.gather(*(one() for _ in range(60))))
        server.close()
        target.close()
        return whole, between

    whole, between = now(talk())
    assert 0 < whole < 60 and all(between.hurt.values())
    assert whole + sum(between.hurt.values()) >= 60
