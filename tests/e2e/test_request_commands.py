"""A client's own request: made without the model, answered by another process, cancelled."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from answer_models import save_model
from answer_words import save_words
from commands import Run, as_json

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("tokenizers")

import tallystick
from tallystick.answers.files import AnswerFiles
from tallystick.answers.job import AnswerJob
from tallystick.answers.model import open_model, weights
from tallystick.answers.receipt import read_receipt, sign_receipt
from tallystick.answers.request import ModelRequest
from tallystick.commit.checkpoint import run_root
from tallystick.commit.encoding import canonical_json
from tallystick.commit.signing import PrivateKey
from tallystick.errors import DigestMismatchError, SignatureInvalidError, UsageError
from tallystick.program.state import State
from tallystick.program.text import parse_text
from tallystick.run.execute.engine import Engine


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with its statement beside it, and the keys of a server and a client."""
    from tallystick.cli.main import run

    made = tmp_path_factory.mktemp("requests") / "model"
    made.mkdir()
    save_model("smollm", made)
    save_words(made)
    assert run(["model", "statement", str(made), "--bucket", "12:4", "--bucket", "24:8"]) == 0
    for name in ("server", "client"):
        assert run(["keys", "new", str(made.parent / f"{name}.pem")]) == 0
    return made


@pytest.fixture(scope="module")
def asked(model: Path) -> Path:
    """The file of a client that has the statement, and not the model."""
    from tallystick.cli.main import run

    out, place = model.parent / "request.json", model.with_name("model.statement")
    words = ("--prompt", "abc", "--max-tokens", "6", "--temperature", "2.0", "--seed", "5")
    client = ("--client", str(model.parent / "client.pem.pub"))
    assert run(["request", str(place), *words, *client, "-o", str(out)]) == 0
    return out


def answers(model: Path, request: Path, out: Path, *more: object) -> tuple[str, ...]:
    key = model.parent / "server.pem"
    line = ("generate", model, "--request", request, "--key", key, "-o", out, *more)
    return tuple(map(str, line))


def test_a_request_is_answered_as_it_stands(
    model: Path, asked: Path, tmp_path: Path, ts: Run
) -> None:
    assert stat.S_IMODE(asked.stat().st_mode) == 0o600
    assert ts(*answers(model, asked, tmp_path / "a"))[0] == 0
    own = ModelRequest.from_bytes(asked.read_bytes())
    assert AnswerFiles.read(tmp_path / "a").request == own
    said = as_json(ts("check", tmp_path / "a", "--model", model, "--request", asked, "--json"))
    assert said["accepted"] and said["request_digest"] == own.digest.hex()
    # The same request has the same answer, whoever gives it.
    again = tallystick.generate(model, request=asked)[0]
    assert list(again.tokens) == list(AnswerFiles.read(tmp_path / "a").spoken.tokens)


def test_an_answer_to_another_request_is_refused(
    model: Path, asked: Path, tmp_path: Path, ts: Run
) -> None:
    """The server makes a request of its own with the same words, and a nonce that it likes."""
    words = ("--prompt", "abc", "--max-tokens", 6, "--temperature", 2.0)
    assert ts("generate", model, *words, "-o", tmp_path / "a")[0] == 0
    assert ts("check", tmp_path / "a", "--model", model)[0] == 0
    code, _, errors = ts("check", tmp_path / "a", "--model", model, "--request", asked)
    assert code == 1 and "another request than yours" in errors
    with pytest.raises(DigestMismatchError, match="another request than yours"):
        tallystick.check(tmp_path / "a", model, request=asked)


@pytest.mark.parametrize(
    "beside", [("--seed", 1), ("--prompt", "x"), ("--temperature", 0.0), ("--choices", 1)]
)
def test_nothing_is_said_beside_a_request(
    beside: tuple[object, ...], model: Path, asked: Path, tmp_path: Path, ts: Run
) -> None:
    code, _, errors = ts(*answers(model, asked, tmp_path / "a", *beside))
    assert code == 3 and f"{beside[0]} cannot be given beside --request" in errors
    assert not (tmp_path / "a").exists()


def test_in_python_nothing_is_said_beside_it(model: Path, asked: Path) -> None:
    with pytest.raises(UsageError, match="combined with prompt, temperature:"):
        tallystick.generate(model, request=asked, prompt="x", temperature=1.0)
    with pytest.raises(UsageError, match="combined with seed:"):
        tallystick.generate(model, request=asked, seed=0)


def test_a_seed_of_the_servers_is_no_clients_request(
    model: Path, asked: Path, tmp_path: Path, ts: Run
) -> None:
    body = json.loads(asked.read_bytes())
    body["parts"]["seed"] = {"by": "server", "nonce": None, "seed": "3"}
    (tmp_path / "r").write_bytes(canonical_json(body))
    code, _, errors = ts(*answers(model, tmp_path / "r", tmp_path / "a"))
    assert code == 3 and "The server chose the seed" in errors


def test_a_damaged_request_and_one_to_another_model(
    model: Path, asked: Path, tmp_path: Path, ts: Run
) -> None:
    (tmp_path / "r").write_bytes(asked.read_bytes()[:-2])
    assert ts(*answers(model, tmp_path / "r", tmp_path / "a"))[0] == 2
    body = json.loads(asked.read_bytes())
    body["parts"]["model"] = "00" * 32
    (tmp_path / "r").write_bytes(canonical_json(body))
    code, _, errors = ts(*answers(model, tmp_path / "r", tmp_path / "a"))
    assert code == 3 and "another model" in errors


def test_a_message_is_a_conversation_of_one(model: Path, tmp_path: Path, ts: Run) -> None:
    """`--message` asks what `--messages` with the user's words asks."""
    place = model.with_name("model.statement")
    (tmp_path / "said.json").write_text('[{"role": "user", "content": "Why?"}]')
    asked = {"one": ("--message", "Why?"), "many": ("--messages", tmp_path / "said.json")}
    inputs = {}
    for name, words in asked.items():
        line = ("request", place, *words, "--seed", 1, "-o", tmp_path / name)
        assert ts(*line)[0] == 0
        inputs[name] = json.loads((tmp_path / name).read_text())["parts"]["input"]
    assert inputs["one"] == inputs["many"] == {"messages": [{"role": "user", "content": "Why?"}]}
    both = ("--message", "Why?", "--messages", tmp_path / "said.json")
    assert ts("request", place, *both, "-o", tmp_path / "both")[0] == 3


def test_what_no_model_of_the_statement_can_answer(model: Path, tmp_path: Path, ts: Run) -> None:
    place = model.with_name("model.statement")
    for name, body, why in (
        ("far", [9, 999], "prompt contains the token 999"),
        ("long", [5] * 24, "no bucket for a prompt of 24 tokens"),
        ("none", ["a"], "not a JSON list of token ids"),
        ("empty", [], "input is empty"),
    ):
        (tmp_path / name).write_text(json.dumps(body))
        line = ("request", place, "--tokens", tmp_path / name, "-o", tmp_path / "r")
        code, _, errors = ts(*line)
        assert code == 3 and why in errors and not (tmp_path / "r").exists()
    both = ("--prompt", "a", "--tokens", tmp_path / "far")
    assert ts("request", place, *both, "-o", tmp_path / "r")[0] == 3
    odd = ("request", place, "--prompt", "a", "--nonce", "12", "-o", tmp_path / "r")
    assert ts(*odd)[0] == 3
    assert ts("request", model / "config.json", "--prompt", "a", "-o", tmp_path / "r")[0] == 2


def test_tokens_and_a_nonce_of_ones_own(model: Path, tmp_path: Path, ts: Run) -> None:
    (tmp_path / "t").write_text("[5, 6, 7]")
    place, nonce = model.with_name("model.statement"), "0f" * 16
    line = ("request", place, "--tokens", tmp_path / "t", "--nonce", nonce, "--json")
    said = as_json(ts(*line, "-o", tmp_path / "r"))
    made = ModelRequest.from_bytes((tmp_path / "r").read_bytes())
    assert made.tokens == (5, 6, 7) and made.nonce == bytes.fromhex(nonce)
    assert said["request_digest"] == made.digest.hex() and said["seed"] == str(made.seed)
    code, _, errors = ts(*line, "-o", tmp_path / "r")
    assert code == 3 and "already exists" in errors
    new = [tallystick.request(place, tokens=[5]) for _ in range(2)]
    assert new[0].nonce and new[0].nonce != new[1].nonce and new[0].secret != new[1].secret
    with pytest.raises(UsageError, match="a seed or a nonce"):
        tallystick.request(place, tokens=[5], seed=1, nonce=bytes(16))


# -- cancelled (6.6) -------------------------------------------------------------------------------
def test_a_cancelled_answer_is_proved(model: Path, asked: Path, tmp_path: Path, ts: Run) -> None:
    key, word = model.parent / "client.pem", tmp_path / "cancelled.json"
    cut = ("request", "cancel", asked, "--after", 2, "--key", key, "-o", word, "--json")
    assert as_json(ts(*cut))["answer_tokens"] == 2
    whole = tallystick.generate(model, request=asked)[0]
    assert len(whole.tokens) > 2
    made = ts(*answers(model, asked, tmp_path / "a", "--cancelled", word, "--json"))
    said = as_json(made)["answers"][0]
    assert said["finish"] == "cancelled" and tuple(said["tokens"]) == whole.tokens[:2]
    found = as_json(ts("check", tmp_path / "a", "--model", model, "--json"))
    assert found["accepted"] and found["notes"] == [] and found["executed"]
    claims = as_json(ts("inspect", tmp_path / "a" / "cancelled.json", "--json"))
    assert claims["kind"] == "cancellation" and claims["claims"]["answer_tokens"] == 2
    # Without the client's word a note says that nothing proves it.
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "cancelled.json").unlink()
    bare = as_json(ts("check", tmp_path / "b", "--model", model, "--json"))
    assert bare["accepted"] and [one["clause"] for one in bare["notes"]] == ["6.6"]
    # With another one, that is a finding.
    tallystick.cancel(asked, 1, key, out=tmp_path / "other.json")
    shutil.copy(tmp_path / "other.json", tmp_path / "b" / "cancelled.json")
    false = as_json(ts("check", tmp_path / "b", "--model", model, "--json"), 1)
    assert [one["clause"] for one in false["findings"]] == ["6.6.3"]


def test_a_page_says_who_cancelled(model: Path, asked: Path, tmp_path: Path, ts: Run) -> None:
    word = tallystick.cancel(asked, 2, model.parent / "client.pem")
    (answer,) = tallystick.generate(model, request=asked, cancelled=[word], out=tmp_path / "a")
    assert answer.finish == "cancelled" and tallystick.check(answer, model).notes == ()
    assert ts("report", tmp_path / "a", "-o", tmp_path / "p.html", "--model", model)[0] == 0
    assert "the client has signed that it ends there" in (tmp_path / "p.html").read_text()
    (tmp_path / "a" / "cancelled.json").unlink()
    assert ts("report", tmp_path / "a", "-o", tmp_path / "q.html")[0] == 0
    assert "nothing shows that" in (tmp_path / "q.html").read_text()


def test_an_answer_that_has_ended_by_itself(model: Path, asked: Path, tmp_path: Path) -> None:
    """6.6.2: the cancellation came too late, and is no part of the answer."""
    whole = tallystick.generate(model, request=asked)[0]
    word = tallystick.cancel(asked, len(whole.tokens), model.parent / "client.pem")
    (answer,) = tallystick.generate(model, request=asked, cancelled=[word], out=tmp_path / "a")
    assert answer.finish == whole.finish != "cancelled" and answer.cancellation is None
    assert not (tmp_path / "a" / "cancelled.json").exists()


def test_nobody_else_cancels(model: Path, asked: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not the one that the request names"):
        tallystick.cancel(asked, 2, model.parent / "server.pem")
    other = tallystick.request(
        model.with_name("model.statement"), prompt="abc", max_tokens=6,
        client=PrivateKey.generate().public,
    )  # fmt: skip
    word = tallystick.cancel(asked, 2, model.parent / "client.pem")
    with pytest.raises(SignatureInvalidError, match="one signature, by the request's client"):
        tallystick.generate(model, request=other, cancelled=[word])


# -- shown in part (5.9) ---------------------------------------------------------------------------
def test_some_parts_are_shown(model: Path, asked: Path, tmp_path: Path, ts: Run) -> None:
    assert ts(*answers(model, asked, tmp_path / "a"))[0] == 0
    place, receipt = tmp_path / "shown.json", tmp_path / "a" / "receipt.json"
    line = ("request", "show", asked, "--parts", "model,settings", "-o", place, "--json")
    made = as_json(ts(*line))
    assert made["shown"] == ["model", "settings"] and "input" in made["hidden"]
    own = ModelRequest.from_bytes(asked.read_bytes())
    assert own.secret.hex() not in place.read_text() and '"abc"' not in place.read_text()
    code, out, _ = ts("check", place, "--receipt", receipt)
    assert code == 0 and "PROVED      settings: {" in out
    assert "hidden      choices, client, date, input, seed, stop_strings" in out
    said = as_json(ts("check", place, "--receipt", tmp_path / "a", "--json"))
    assert said["proved"] and said["shown"]["model"] == own.model.hex()
    assert as_json(ts("inspect", place, "--json"))["kind"] == "shown request"
    other = ts("generate", model, "--prompt", "abc", "--max-tokens", 2, "-o", tmp_path / "b")
    assert other[0] == 0
    code, out, _ = ts("check", place, "--receipt", tmp_path / "b")
    assert code == 1 and "MISMATCH" in out and "PROVED" not in out
    trust = ("--trust", model.parent / "client.pem.pub")
    assert ts("check", place, "--receipt", receipt, *trust)[0] == 1
    assert ts("check", asked, "--receipt", receipt)[0] == 2
    assert ts("request", "show", asked, "--parts", "words", "-o", tmp_path / "s")[0] == 3
    assert ts("check", tmp_path / "a")[0] == 3, "an answer needs a model"


# -- evidence of other tokens (6.9) ----------------------------------------------------------------
def true_run_of_a_false_text(answer: Path, model: Path, to: Path) -> None:
    """The answer at `answer` with another first token, and a receipt of the true run over that."""
    files = AnswerFiles.read(answer)
    first = 5 if files.spoken.tokens[0] != 5 else 6
    spoken = replace(files.spoken, tokens=(first, *files.spoken.tokens[1:]))
    job, program = AnswerJob(files.statement, files.request, spoken), parse_text(files.program)
    held, key = weights(open_model(model)), PrivateKey.generate()
    engine = Engine(job.in_memory(program), State(job.state(program, held)))
    engine.run()
    state = engine.state.root()
    root = run_root(job.digest, [(0, job.commitment.genesis_root), (1, state)])
    receipt = replace(
        read_receipt(files.receipt).receipt, job=job.digest, state=state, root=root,
        signer=key.public,
    )  # fmt: skip
    AnswerFiles.of(sign_receipt(key, receipt), job, program).write(to)


def test_evidence_that_needs_no_model(model: Path, asked: Path, tmp_path: Path, ts: Run) -> None:
    assert ts(*answers(model, asked, tmp_path / "a"))[0] == 0
    true_run_of_a_false_text(tmp_path / "a", model, tmp_path / "lie")
    place = tmp_path / "evidence.json"
    line = ("check", tmp_path / "lie", "--model", model, "--evidence", place, "--json")
    said = as_json(ts(*line), 1)
    assert [one["clause"] for one in said["contradictions"]] == ["6.7"]
    assert said["evidence"] == str(place)
    code, out, _ = ts("check", place)
    assert code == 1 and "CONVICTED   by its own words: The signed text demands" in out
    found = as_json(ts("check", place, "--json"), 1)
    assert found["convicted"] == said["signer"] and found["row"] == 0 and found["claimed"] in (5, 6)
    assert found["drawn"] == said["difference"]["drawn"]
    assert as_json(ts("inspect", place, "--json"))["kind"] == "other tokens"
    assert tallystick.check_conviction(place).receipt.signer.key_id == said["signer"]
    own = ModelRequest.from_bytes(asked.read_bytes())
    assert own.secret.hex() not in place.read_text() and '"abc"' not in place.read_text()
    # An altered file convicts nobody, and is refused.
    body = json.loads(place.read_bytes())
    body["tokens"][0] ^= 1
    (tmp_path / "altered").write_bytes(canonical_json(body))
    code, out, errors = ts("check", tmp_path / "altered")
    assert code == 2 and out == "" and "not proved" in errors
    assert ts("check", place, "--text")[0] == 3
    assert ts(*line)[0] == 3, "it is there already"


def test_an_honest_answer_leaves_no_evidence(
    model: Path, asked: Path, tmp_path: Path, ts: Run
) -> None:
    assert ts(*answers(model, asked, tmp_path / "a"))[0] == 0
    line = ("check", tmp_path / "a", "--model", model, "--evidence", tmp_path / "e")
    code, out, _ = ts(*line)
    assert code == 0 and "evidence    none" in out and not (tmp_path / "e").exists()
