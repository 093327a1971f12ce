"""`claim`, `audit --claim`, `keys p256`: what is written, and that the tools of others read it."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from claim_schemas import fits
from claim_tools import needs, python, read_by_others, tried
from commands import Run, as_json

import tallystick
from tallystick.claims.findings import audit_payload
from tallystick.claims.runs import stated_run
from tallystick.commit.encoding import sha256
from tallystick.commit.signed import Subject, claim_type, sign_statement, statement_payload
from tallystick.commit.signing import Envelope, PrivateKey
from tallystick.disk.keys import save_private_key
from tallystick.errors import MismatchError, UsageError
from tallystick.run.execute.trainer import RunSummary
from tallystick.run.store.directory import RunStore

KEY = PrivateKey(bytes([4]) * 32)
Copied = Callable[[Path], Path]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    save_private_key(KEY, tmp_path / "key.pem")
    (tmp_path / "key.pub").write_bytes(KEY.public.pem())
    return tmp_path / "key.pem"


@pytest.fixture
def model(ts: Run, mlp_run: RunSummary, tmp_path: Path) -> Path:
    path = tmp_path / "dir" / "model.safetensors"
    path.parent.mkdir()
    assert ts("export", mlp_run.directory, "-o", path)[0] == 0
    return path


def payload(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Envelope.from_bytes(path.read_bytes()).payload)
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- runs (CLAIMS 2) ------------------------------------------------------------------------------
def test_a_claim_about_a_run(
    ts: Run, mlp_run: RunSummary, key: Path, model: Path, tmp_path: Path
) -> None:
    out, pub = tmp_path / "run.claim.json", tmp_path / "key.pub"
    run = mlp_run.directory
    assert ts("claim", "run", run, "--model", model, "--key", key, "-o", out)[0] == 0
    found = payload(out)
    fits(found, "run")
    root = {"tallystickStateRoot": mlp_run.final_state_root.hex()}
    assert found["subject"] == [
        {"digest": {"sha256": digest(run / "commitment.json")}, "name": "commitment.json"},
        {"digest": {"tallystickRunRoot": mlp_run.run_root.hex()}, "name": "run"},
        {"digest": root, "name": "final-state"},
        {"digest": {"sha256": digest(model), **root}, "name": "model.safetensors"},
    ]
    assert found["predicate"]["steps"] == mlp_run.steps
    checked = as_json(ts("claim", "check", out, "--trust", pub, "--file", model, "--json"))
    assert checked["files"] == [{"file": str(model), "subject": "model.safetensors"}]
    assert checked["signer"] == KEY.public.key_id
    code, text, _ = ts("claim", "check", out, "--trust", pub, "--file", run / "commitment.json")
    assert code == 0 and "is commitment.json" in text
    # A file that the claim is not about, and a key that has not signed it.
    assert ts("claim", "check", out, "--trust", pub, "--file", run / "journal")[0] == 1
    other = tmp_path / "other.pem"
    save_private_key(PrivateKey(bytes([5]) * 32), other)
    assert ts("claim", "check", out, "--trust", other)[0] == 1
    assert ts("inspect", out)[0] == 0


def test_no_claim_names_a_file_of_another_run(
    ts: Run, mlp_run: RunSummary, key: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "claim.json"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    for command in (("run", "--key", key), ("provenance", "--key", key), ("bom",)):
        words = (command[0], mlp_run.directory, "--model", model, "-o", out, *command[1:])
        assert ts("claim", *words)[0] == 1
    assert not out.exists()
    assert ts("claim", "run", tmp_path, "--key", key, "-o", out)[0] == 3


@pytest.mark.parametrize("word", ["--ema", "--best"])
def test_which_weights_is_said_of_files(
    ts: Run, mlp_run: RunSummary, key: Path, tmp_path: Path, word: str
) -> None:
    out = tmp_path / "claim.json"
    for command in (("run", "--key", key), ("provenance", "--key", key), ("bom",)):
        code, _, errors = ts("claim", command[0], mlp_run.directory, word, "-o", out, *command[1:])
        assert code == 3 and "--model" in errors
    assert not out.exists()


def test_no_other_file_is_overwritten(
    ts: Run, mlp_run: RunSummary, key: Path, model: Path, tmp_path: Path, copied: Copied
) -> None:
    """7.4: neither a model, which would have no signature then, nor a run's own files, nor keys."""
    run, p256 = copied(mlp_run.directory), tmp_path / "p256.pem"
    assert ts("keys", "p256", p256, "--key", key)[0] == 0
    claim, bill, signed = (tmp_path / name for name in ("claim", "bill", "signed"))
    writers: list[tuple[Path, tuple[Any, ...]]] = [
        (claim, ("claim", "run", run, "--model", model, "--key", key, "-o")),
        (claim, ("claim", "provenance", run, "--key", key, "-o")),
        (claim, ("audit", run, "--sample", 1, "--key", key, "--claim")),
        (bill, ("claim", "bom", run, "-o")),
        (signed, ("claim", "sign-model", model.parent, "--p256", p256, "-o")),
    ]
    for own, words in writers:
        own.write_bytes(b"")  # an empty file is a place for one, as an earlier one is
        assert ts(*words, own)[0] == 0 and ts(*words, own)[0] == 0
    places = (model, key, run / "commitment.json", claim, bill, signed)
    contents = {path: path.read_bytes() for path in places}
    for own, words in writers:
        for path in set(places) - {own}:
            code, _, errors = ts(*words, path)
            assert code == 3 and "not overwritten" in errors, (words, path)
            assert path.read_bytes() == contents[path]
    with pytest.raises(UsageError, match="not a model signature"):
        tallystick.sign_model(model.parent, p256, model)


def test_the_commitment_of_a_stated_run_is_read_once(
    mlp_run: RunSummary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is verified is what the claim has the digest of."""
    read, found = RunStore.commitment_bytes, list[bytes]()

    def counted(store: RunStore) -> bytes:
        found.append(read(store))
        return found[-1]

    monkeypatch.setattr(RunStore, "commitment_bytes", counted)
    stated = stated_run(mlp_run.directory)
    assert found == [stated.commitment] == [(mlp_run.directory / "commitment.json").read_bytes()]


# --- audits (CLAIMS 3) ----------------------------------------------------------------------------
def test_a_claim_about_an_audit(ts: Run, mlp_run: RunSummary, key: Path, tmp_path: Path) -> None:
    out, run = tmp_path / "audit.claim.json", mlp_run.directory
    assert ts("audit", run, "--claim", out)[0] == 3
    assert ts("audit", run, "--claim", out, "--key", key)[0] == 0
    found = payload(out)
    fits(found, "audit")
    said = found["predicate"]
    assert (said["accepted"], said["whole"], said["steps"]) == (True, True, [0, mlp_run.steps])
    assert said["difference"] is None and said["sample"] is None
    assert found["subject"][0]["digest"] == {"sha256": digest(run / "commitment.json")}
    assert ts("audit", run, "--sample", 1, "--claim", out, "--key", key)[0] == 0
    found = payload(out)
    fits(found, "audit")
    assert found["predicate"]["sampled"] is True
    assert len(found["predicate"]["sample"]["repeated"]) == 1


def test_a_claim_about_an_audit_is_of_the_audited_signer(mlp_run: RunSummary) -> None:
    report = tallystick.audit(mlp_run.directory, progress=False)
    audit_payload(report)
    with pytest.raises(MismatchError, match="another signer"):
        audit_payload(replace(report, signer=KEY.public.key_id))


def test_what_a_claim_says_is_seen(ts: Run, key: Path, tmp_path: Path) -> None:
    """A signature says that its maker stands for the claim, and not that a run was accepted."""
    claim, pub = tmp_path / "claim.json", tmp_path / "key.pub"
    said = {"accepted": False, "checked": {"accepted": None}, "sentence": "a\x1b[2Jb\u202ec\n\x7f"}
    made = statement_payload(claim_type("audit"), [Subject.of_bytes("run", b"")], dict(said))
    claim.write_bytes(sign_statement(KEY, made).to_bytes())
    code, text, _ = ts("claim", "check", claim, "--trust", pub)
    assert code == 0
    assert [line for line in text.splitlines() if line.startswith("says")] == [
        "says        accepted false",
        'says        checked {"accepted": null}',
        'says        sentence "a\\u001b[2Jb\\u202ec\\n\\x7f"',
    ]
    found = as_json(ts("claim", "check", claim, "--trust", pub, "--json"))
    assert found["signed"] is True and found["predicate"] == said and "accepted" not in found


# --- unchanged tools (CLAIMS 1) -------------------------------------------------------------------
def test_others_read_every_kind(
    ts: Run, mlp_run: RunSummary, key: Path, model: Path, tmp_path: Path
) -> None:
    """A claim of each kind about a run, and that a key vouches for another."""
    needs("securesystemslib")
    needs("in_toto_attestation")
    run, p256 = mlp_run.directory, tmp_path / "p256.pem"
    made = {name: tmp_path / f"{name}.json" for name in ("run", "provenance", "audit")}
    for name in ("run", "provenance"):
        words = ("claim", name, run, "--model", model, "--key", key, "-o", made[name])
        assert ts(*words)[0] == 0
    assert ts("audit", run, "--claim", made["audit"], "--key", key)[0] == 0
    assert ts("keys", "p256", p256, "--key", key)[0] == 0
    made["key"] = tmp_path / "p256.pem.claim.json"
    for path in made.values():
        kind, subjects = read_by_others(path, KEY.public)
        found = payload(path)
        assert kind == found["predicateType"]
        assert subjects == [[one["name"], one["digest"]] for one in found["subject"]]


# --- provenance (CLAIMS 6) ------------------------------------------------------------------------
def test_provenance_names_every_file_of_the_job(
    ts: Run, mlp_run: RunSummary, key: Path, model: Path, tmp_path: Path
) -> None:
    out, job = tmp_path / "slsa.json", mlp_run.directory / "job"
    words = ("--model", model, "--key", key, "-o", out)
    assert ts("claim", "provenance", mlp_run.directory, *words)[0] == 0
    found = payload(out)
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    build = found["predicate"]["buildDefinition"]
    own, *files = build["resolvedDependencies"]
    assert own == {"digest": {"tallystickJob": mlp_run.job_digest.hex()}, "name": "job"}
    expected = sorted(path for path in job.rglob("*") if path.is_file())
    assert [one["name"] for one in files] == [
        path.relative_to(job.parent).as_posix() for path in expected
    ]
    assert [one["digest"] for one in files] == [{"sha256": digest(path)} for path in expected]
    details = found["predicate"]["runDetails"]
    assert details["metadata"] == {"invocationId": mlp_run.run_root.hex()}
    assert details["builder"]["id"].endswith(KEY.public.key_id)
    for text in ("us", "us:", "our team: 3", "1a:b", "a:b\n", "a:b%2", "a:b#c#d", "a:{b}", "a:é"):
        assert ts("claim", "provenance", mlp_run.directory, *words, "--builder", text)[0] == 3, text
    for text in ("urn:us", "mailto:us@example.org", "http://[::1]:80/a?b/c#d", "a+b-c.d:%2Fe"):
        assert ts("claim", "provenance", mlp_run.directory, *words, "--builder", text)[0] == 0, text
    uri = "https://example.org/us"
    assert ts("claim", "provenance", mlp_run.directory, *words, "--builder", uri)[0] == 0
    assert payload(out)["predicate"]["runDetails"]["builder"]["id"] == uri
    needs("in_toto_attestation")
    said = python(
        "from google.protobuf import json_format\n"
        "import json, in_toto_attestation.predicates.provenance.v1.provenance_pb2 as pb\n"
        "found = json_format.ParseDict(json.load(open(sys.argv[1])), pb.Provenance())\n"
        "print(len(found.build_definition.resolved_dependencies), found.run_details.builder.id)",
        _written(tmp_path, found["predicate"]),
    )
    assert said.split() == [str(len(files) + 1), details["builder"]["id"]]


def test_the_files_of_the_job_are_checked_before_they_are_named(
    ts: Run, mlp_run: RunSummary, key: Path, tmp_path: Path, copied: Copied
) -> None:
    """6.2: an altered file stands in no claim, and a file that is not the job's neither."""
    run, out = copied(mlp_run.directory), tmp_path / "out.json"
    commands = (("provenance", "--key", key), ("bom",))
    (run / "job" / "notes.txt").write_text("not the job's")
    for name, *more in commands:
        assert ts("claim", name, run, "-o", out, *more)[0] == 0
        text = out.read_text() if name == "bom" else json.dumps(payload(out))
        assert "notes.txt" not in text and "job/data/train.safetensors" in text
        out.unlink()
    data = run / "job" / "data" / "train.safetensors"
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.chmod(0o600)
    data.write_bytes(content)
    for name, *more in commands:
        assert ts("claim", name, run, "-o", out, *more)[0] == 1
    assert not out.exists()


def _written(place: Path, value: Any) -> Path:
    path = place / "predicate.json"
    path.write_text(json.dumps(value))
    return path


# --- model signatures (CLAIMS 7) ------------------------------------------------------------------
_VERIFY = "from model_signing._cli import main\nsys.argv[0] = 'model_signing'\nmain()\n"


def test_a_signed_model_and_the_key_that_is_vouched_for(
    ts: Run, key: Path, model: Path, tmp_path: Path
) -> None:
    own, place = tmp_path / "p256.pem", model.parent
    (place / "sub").mkdir()
    (place / "sub" / "config.json").write_text("{}")
    (place / "sub.txt").write_text("between")
    assert ts("keys", "p256", own, "--key", key)[0] == 0
    public, vouched = tmp_path / "p256.pem.pub", tmp_path / "p256.pem.claim.json"
    found = payload(vouched)
    fits(found, "key")
    assert found["subject"] == [{"digest": {"sha256": digest(public)}, "name": "p256.pem.pub"}]
    assert found["predicate"]["signer"] == KEY.public.raw.hex()
    words = ("claim", "check", vouched, "--trust", tmp_path / "key.pub", "--file", public)
    assert ts(*words)[0] == 0
    assert ts("keys", "p256", own, "--key", key)[0] == 2  # never overwritten
    assert ts("claim", "sign-model", place, "--p256", key, "-o", place / "model.sig")[0] == 2
    signed = place / "model.sig"
    assert ts("claim", "sign-model", place, "--p256", own, "-o", place / "sub" / "a.sig")[0] == 3
    assert ts("claim", "sign-model", place, "--p256", own, "-o", signed)[0] == 0
    assert ts("claim", "sign-model", place, "--p256", own, "-o", signed)[0] == 0
    bundle = json.loads(signed.read_bytes())
    assert bundle["verificationMaterial"]["publicKey"]["hint"] == digest(public)
    statement = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    resources = statement["predicate"]["resources"]
    names = ["model.safetensors", "sub/config.json", "sub.txt"]
    assert [one["name"] for one in resources] == names
    joined = b"".join(bytes.fromhex(one["digest"]) for one in resources)
    assert statement["subject"] == [{"digest": {"sha256": sha256(joined).hex()}, "name": "dir"}]
    needs("model_signing")
    verify = ("verify", "key", place, "--signature", signed, "--public_key", public)
    done = tried(_VERIFY, *verify)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "succeeded" in done.stdout + done.stderr
    (place / "sub" / "config.json").write_text("{ }")
    assert tried(_VERIFY, *verify).returncode != 0
    (place / "sub" / "config.json").write_text("{}")
    assert tried(_VERIFY, *verify).returncode == 0
    (place / "more").write_text("a file that nobody signed")
    assert tried(_VERIFY, *verify).returncode != 0


def test_a_link_in_a_model_is_refused(ts: Run, key: Path, model: Path, tmp_path: Path) -> None:
    own = tmp_path / "p256.pem"
    assert ts("keys", "p256", own, "--key", key)[0] == 0
    (model.parent / "link").symlink_to(model)
    assert ts("claim", "sign-model", model.parent, "--p256", own, "-o", tmp_path / "s")[0] == 2
    empty = tmp_path / "empty"
    empty.mkdir()
    assert ts("claim", "sign-model", empty, "--p256", own, "-o", tmp_path / "s")[0] == 3


# --- a bill of materials (CLAIMS 8) ---------------------------------------------------------------
_VALIDATE = """
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    print(JsonStrictValidator(SchemaVersion.V1_7).validate_str(open(path).read()) is None)
"""


def test_a_bill_of_materials(ts: Run, mlp_run: RunSummary, model: Path, tmp_path: Path) -> None:
    out, again, run = tmp_path / "bom.json", tmp_path / "again.json", mlp_run.directory
    words = ("claim", "bom", run, "--model", model, "--name", "small")
    assert ts(*words, "-o", out)[0] == 0 and ts(*words, "-o", again)[0] == 0
    assert out.read_bytes() == again.read_bytes()
    found = json.loads(out.read_bytes())
    component = found["metadata"]["component"]
    assert (found["specVersion"], component["type"], component["name"]) == (
        "1.7",
        "machine-learning-model",
        "small",
    )
    (file,) = component["components"]
    assert file["hashes"] == [{"alg": "SHA-256", "content": digest(model)}]
    properties = {one["name"]: one["value"] for one in component["properties"]}
    assert properties["tallystick:run_root"] == mlp_run.run_root.hex()
    losses = component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert losses[0] == {"type": "training loss", "value": repr(mlp_run.losses[-1])}
    assert ts("claim", "bom", run, "-o", again)[0] == 0
    needs("cyclonedx")
    broken = tmp_path / "broken.json"
    broken.write_text(out.read_text().replace('"machine-learning-model"', '"model"'))
    assert python(_VALIDATE, out, again, broken).split() == ["True", "True", "False"]
