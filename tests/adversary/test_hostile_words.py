"""Words that others choose reach a terminal escaped, whichever command prints them."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_trees import commands, job_commands

from tallystick.cli.main import run
from tallystick.cli.output import shown
from tallystick.disk.manifest import DIGEST_KEY, manifest_bytes
from tallystick.job.job import Job
from tallystick.report.html import text as html_text
from tallystick.run.execute.trainer import RunSummary

# Clear the screen, name the window, write over the line, turn the text around, break the line, and
# draw nothing: zero widths, a soft hyphen, a variation selector, a Hangul filler, a tag.
UNSEEN = "\u200b\u00ad\ufe0f\u3164\U000e0041\U000e0100"
EVIL = f"\x1b[2J\x1b]0;t\x07\r\x08\x7f\x9b31m\u202e\u2066\u200f\u2028{UNSEEN}[red]\nMATCH"
_RAW = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
    f"{UNSEEN}]"
)
Mutate = Callable[[dict[str, Any]], None]


def rewritten(path: Path, mutate: Mutate) -> None:
    """Change a manifest and give it its digest again."""
    body = json.loads(path.read_bytes())
    del body[DIGEST_KEY]
    mutate(body)
    path.write_bytes(manifest_bytes(body))


def _about(body: dict[str, Any]) -> None:
    body["about"] = {EVIL: EVIL, "source": EVIL}


def _recipe(body: dict[str, Any]) -> None:
    body["recipe"] = {"name": EVIL, "settings": {EVIL: EVIL}}


def _settings(body: dict[str, Any]) -> None:
    body["recipe"]["settings"][EVIL] = EVIL
    body["recipe"]["settings"]["features"] = EVIL


def _contract(body: dict[str, Any]) -> None:
    if "contract" in body:
        body["contract"] += EVIL
    else:
        body["commitment"]["contract"] += EVIL


def _format(body: dict[str, Any]) -> None:
    body["format"] = body["format"].rpartition("/")[0] + "/" + EVIL


def _member(body: dict[str, Any]) -> None:
    body[EVIL] = EVIL


def _schema(body: dict[str, Any]) -> None:
    body["schema"][0]["name"] = EVIL


def _fills(body: dict[str, Any]) -> None:
    body["fills"][EVIL] = next(iter(body["fills"].values()))


def _sessions(copy: Path) -> None:
    from tallystick.commit.encoding import canonical_json
    from tallystick.run.store import journal

    path = copy / "journal"
    _, chain, _ = journal.parse_journal(path.read_bytes(), path)
    words = {"compiler": EVIL, "isa": EVIL, "tallystick": EVIL, EVIL: EVIL, "threads": 1}
    path.write_bytes(path.read_bytes() + chain.frame(journal.SESSION, canonical_json(words)))


def _tensor_names(copy: Path) -> None:
    from tallystick.disk.tensorfile import header_bytes

    header, _ = header_bytes({EVIL: ("f32", (1,))}, {EVIL: EVIL})
    for name in ("job/state0.safetensors", "checkpoints/step-00000012.safetensors"):
        (copy / name).write_bytes(header + bytes(4))


def _file_names(copy: Path) -> None:
    for place in ("", "job", "job/data", "checkpoints", "nodes"):
        for name in (EVIL, EVIL + ".part", "scratch-" + EVIL):
            (copy / place / name).touch()
        (copy / place / os.fsdecode(b"\xff\xfe")).touch()


def _program(copy: Path) -> None:
    path = copy / "job" / "program.txt"
    path.write_bytes(path.read_bytes().replace(b"aten.", EVIL.encode(), 1))


def _key(copy: Path) -> None:
    (copy / "signer.pem").write_text(EVIL)


def _declared(copy: Path) -> None:
    (copy / "override.json").write_text(json.dumps({"attack": EVIL, "params": {EVIL: EVIL}}))


def _commitment(copy: Path) -> None:
    path = copy / "commitment.json"
    body = json.loads(path.read_bytes())
    body["payloadType"] = EVIL
    path.write_text(json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def _in(name: str, mutate: Mutate) -> Callable[[Path], None]:
    return lambda copy: rewritten(copy / name, mutate)


PLANTED: dict[str, Callable[[Path], None]] = {
    "about": _in("job/job.json", _about),
    "recipe": _in("job/job.json", _recipe),
    "settings": _in("job/job.json", _settings),
    "contract of the job": _in("job/job.json", _contract),
    "format of the job": _in("job/job.json", _format),
    "member of the job": _in("job/job.json", _member),
    "schema": _in("job/job.json", _schema),
    "fills": _in("job/job.json", _fills),
    "contract of the run": _in("run.json", _contract),
    "format of the run": _in("run.json", _format),
    "member of the run": _in("run.json", _member),
    "sessions": _sessions,
    "tensor names": _tensor_names,
    "file names": _file_names,
    "program": _program,
    "key": _key,
    "declared cheat": _declared,
    "commitment": _commitment,
}


def _raw(said: str) -> list[str]:
    return [repr(line)[:200] for line in said.split("\n") if _RAW.search(line)]


@pytest.mark.sample(3)
@pytest.mark.parametrize("planted", PLANTED)
def test_no_command_prints_raw_words(
    planted: str,
    mlp_run: RunSummary,
    mlp_job: Job,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    seen = False
    for number in range(len(commands(tmp_path, mlp_run, mlp_job, tmp_path))):
        copy, out = tmp_path / "run", tmp_path / "out"
        for path in (copy, out):
            shutil.rmtree(path, ignore_errors=True)
        out.mkdir()
        shutil.copytree(mlp_run.directory, copy)
        shutil.copy(copy / "checkpoints/step-00000012.safetensors", out / "model.safetensors")
        PLANTED[planted](copy)
        arguments = commands(copy, mlp_run, mlp_job, out)[number]
        capsys.readouterr()
        assert run(arguments) in (0, 1, 2, 3)
        said, noted = capsys.readouterr()
        assert _raw(said) == [], arguments
        assert _raw(noted) == [], arguments
        assert "this is a bug" not in noted, noted
        # A line break in a word must not make a line of its own.
        assert "MATCH" not in said.splitlines() + noted.splitlines(), arguments
        seen = seen or "\\x1b" in said + noted or "\\u001b" in said
    if planted not in (
        "key",
        "member of the run",
        "declared cheat",
        "schema",
        "contract of the run",
        "program",
        "commitment",
    ):
        assert seen, "the words reach no message at all: the test shows nothing"


@pytest.mark.parametrize("path", [EVIL, "a\udcffb", "x" + EVIL + "/y"])
def test_paths_and_options_on_the_command_line(
    path: str,
    mlp_run: RunSummary,
    mlp_job: Job,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    bad = tmp_path / path
    for arguments in (
        *commands(bad, mlp_run, mlp_job, bad),
        *job_commands(bad, bad),
        ["keys", "new", str(tmp_path / "keys" / path)],
        ["inspect", str(mlp_run.directory), path],
        [path],
        ["train", path, "--" + path],
        ["train", path, "--device", path, "--out", "x"],
        ["job", "new", path, "--out", "x"],
        ["attack", path, str(mlp_job.directory), "--out", str(tmp_path / "a")],
        ["audit", str(mlp_run.directory), "--steps", path],
        ["job", "new", "mlp", "--out", str(tmp_path / "j"), "--set", path + "=" + path],
        ["audit", str(mlp_run.directory), "--trust", str(bad)],
    ):
        capsys.readouterr()
        assert run(arguments) in (0, 1, 2, 3)
        said, noted = capsys.readouterr()
        assert _raw(said) == [], arguments
        assert _raw(noted) == [], arguments
        assert "this is a bug" not in noted, noted
        assert "MATCH" not in said.splitlines() + noted.splitlines(), arguments


def test_a_model_that_writes_terminal_commands(
    gpt2_job: Job, jobs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Text of a model keeps its lines and tabs, and nothing else that a terminal acts on."""
    from tallystick.cli import model
    from tallystick.run.execute.trainer import train_job

    done = train_job(gpt2_job, jobs / "hostile-words-gpt2")
    text = "a\n\tb" + EVIL + "\x00\x1b[31m é"
    monkeypatch.setattr(model, "sample_tokens", lambda *_, **__: list(text.encode()))
    assert run(["sample", str(done.directory), "--prompt", "p" + EVIL]) == 0
    said = capsys.readouterr().out
    assert not _RAW.search(said.replace("\t", ""))
    assert "a\n\tb\\x1b[2J" in said
    assert said.endswith("[31m é\n")


def test_what_is_shown() -> None:
    assert shown("plain é … 漢字 \\x1b") == "plain é … 漢字 \\x1b"
    assert shown("\x1b\x07\n\t\x7f\x85") == "\\x1b\\x07\\x0a\\x09\\x7f\\x85"
    assert shown("\u202e\u2069\u200e\u2028\udcff") == "\\u202e\\u2069\\u200e\\u2028\\udcff"
    assert shown("a\n\tb\x1b", "\n\t") == "a\n\tb\\x1b"
    assert shown("a\u200bb\ufe0f\U000e0041") == "a\\u200bb\\ufe0f\\U000e0041"


def test_no_character_that_draws_nothing_is_shown() -> None:
    """The default-ignorable characters of Unicode (DerivedCoreProperties.txt), and other blanks."""
    ignorable = [0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFEFF, 0xFFA0]
    for first, last in ((0x180B, 0x180F), (0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F),
                        (0xFE00, 0xFE0F), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
                        (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)):  # fmt: skip
        ignorable += range(first, last + 1)
    for code in (*ignorable, 0x2800, 0x1D159, 0x16FE4, 0xE000, 0x0378):
        for text in (shown(chr(code)), html_text(chr(code))):
            assert text.startswith("\\") and text.isascii(), hex(code)
            assert int(text[2:], 16) == code
    for text in ("naïve", "日本語\u3000", "한국어", "שלום", "हिन्दी", "🙂", "x\u0301", "1\u00a0000"):
        assert shown(text) == html_text(text) == text


def test_json_has_no_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    from tallystick.cli.output import print_json

    print_json({"a": EVIL, EVIL: "\udcff"})
    said = capsys.readouterr().out
    assert not _RAW.search(said)
    assert json.loads(said) == {"a": EVIL, EVIL: "\udcff"}


def test_a_terminal_of_another_alphabet(
    capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it cannot show is escaped too, and no reason to end."""
    import io

    from tallystick.cli import output

    stream = io.TextIOWrapper(io.BytesIO(), encoding="latin-1", errors="strict")
    monkeypatch.setattr("sys.stdout", stream)
    output.say("é…")
    stream.flush()
    assert stream.buffer.getvalue() == b"\\xe9\\u2026\n"  # type: ignore[attr-defined]


def test_the_progress_line_takes_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    from rich.console import Console
    from rich.progress import Progress

    from tallystick.terminal.progress import Reporter

    reporter = Reporter("train")
    stream = io.StringIO()
    reporter._bar = Progress(console=Console(file=stream, force_terminal=True, width=200))
    reporter.say("[red]a[/red] :smile: " + EVIL)
    said = stream.getvalue()
    assert "[red]a[/red] :smile: \\x1b[2J" in said
    assert not _RAW.search(said.replace("\n", ""))
