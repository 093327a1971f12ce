"""A model server of an installed wheel, and one question to it (check_wheel.py)."""

from __future__ import annotations

import json
from pathlib import Path

from fresh_environment import Environment

EXTRAS = ("answers", "service")
TOKENS = 12
# The last of them is only checked with a copy of the model: the client computes the answer again.
CHECKED = ["signature", "request", "text", "computation"]

# The tests' scripts come last on the path, so that none of their folders hides a package.
_MAKE = (
    "import sys; from pathlib import Path; sys.path.append(sys.argv[1]);"
    "from answer_models import save_model; from answer_words import save_words;"
    "made = Path('tiny'); made.mkdir(); save_model('smollm', made); save_words(made)"
)


def ask_a_server(env: Environment, tests: Path) -> int:
    """Makes a small Llama, serves it and chats with it; the number of answers.

    The answer is checked three times: by the client with its copy of the model, by
    `tallystick check` from the files that the client wrote, and once more after one
    token was changed: then `check` must refuse it.
    """
    env.run("make the small model", "python", "-c", _MAKE, str(tests))
    env.run("make the small model", "tallystick", "model", "statement", "tiny", "--bucket", "64:24")
    env.run("make the small model", "tallystick", "keys", "new", "server.pem")
    serve = ("tallystick", "serve-model", "tiny", "--listen", "127.0.0.1:0")
    with env.server("start serve-model", *serve, "--key", "server.pem", "--keep", "kept") as line:
        said = env.run(
            "chat", "tallystick", "chat", line.split()[1], "--message", "abc",
            "--max-tokens", str(TOKENS), "--temperature", "0", "--model", "tiny",
            "--trust", "server.pem.pub", "-o", "answer", "--json",
        )  # fmt: skip
    found = json.loads(said)
    assert found["accepted"] and found["text"] and found["finish"] in ("length", "stop"), said
    assert [line.split(":")[0] for line in found["checked"]] == CHECKED, said
    assert found["unchecked"] == found["wrong"] == [], said
    check = ("tallystick", "check", "answer", "--model", "tiny", "--trust", "server.pem.pub")
    env.run("check the answer", *check)
    _change_a_token(env.directory / "answer")
    env.run("check a changed answer", *check, code=1)
    return 1


def _change_a_token(answer: Path) -> None:
    """Changes the last token of the stored answer, and the letter that it stands for."""
    path = answer / "answer.json"
    spoken = json.loads(path.read_text())
    other, letter = (4, "a") if spoken["tokens"][-1] != 4 else (5, "b")
    spoken["tokens"][-1] = other
    spoken["text"] = spoken["text"][:-1] + letter
    path.write_text(json.dumps(spoken, separators=(",", ":"), sort_keys=True))
