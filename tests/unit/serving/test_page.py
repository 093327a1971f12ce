"""The chat page: what it may load, and what its own check of a receipt finds (by Node)."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from servers import KEY, Running, chat

PAGE = files("tallystick.serving") / "page"
CHECK = """
import { checkReceipt, floatHex } from "%s";
const { cases, floats } = JSON.parse(require("fs").readFileSync(0));
const found = [];
for (const [told, asked, shown] of cases) found.push(await checkReceipt(told, asked, shown));
console.log(JSON.stringify({ found, floats: floats.map(floatHex) }));
"""


def by_the_page(tmp_path: Path, cases: list[Any], floats: list[float]) -> Any:
    """What the page's script says of each case."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here")
    shutil.copy(str(PAGE / "receipt.js"), tmp_path / "receipt.mjs")
    code = CHECK % "./receipt.mjs"
    code = code.replace('require("fs")', "fs").replace("\nimport", '\nimport fs from "fs";\nimport')
    (tmp_path / "check.mjs").write_text(code)
    done = subprocess.run(
        [node, "check.mjs"], cwd=tmp_path, input=json.dumps({"cases": cases, "floats": floats}),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def asked(served: Running, **more: Any) -> dict[str, Any]:
    """What the page remembers of its question."""
    message = {"role": "user", "content": "abc"}
    return {
        "messages": [message], "digest": served.server.models[0].digest, "nonce": "0f" * 16,
        "secret": "1e" * 32, "tokens": 9, "temperature": 0.7, **more,
    }  # fmt: skip


def test_the_page_checks_what_it_says(served: Running, tmp_path: Path) -> None:
    own = asked(served)
    body = chat(nonce=own["nonce"], secret=own["secret"], max_tokens=9, temperature=0.7)
    with served.client() as client:
        choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    told, shown = choice["tallystick"], choice["message"]["content"]
    forged = copy.deepcopy(told)
    signature = forged["receipt"]["signatures"][0]["sig"]
    forged["receipt"]["signatures"][0]["sig"] = ("B" if signature[0] == "A" else "A") + signature[
        1:
    ]
    more = copy.deepcopy(told)
    more["answer"]["tokens"].append(5)
    cases = [
        [told, own, shown],
        [forged, own, shown],
        [told, own, shown + "!"],
        [more, own, shown],
        [told, asked(served, temperature=0.8), shown],
        [told, asked(served, tokens=10), shown],
        [told, asked(served, nonce="0e" * 16), shown],
        [told, asked(served, digest="00" * 32), shown],
    ]
    found = by_the_page(tmp_path, cases, [])["found"]
    assert found[0]["wrong"] == []
    kinds = [line.partition(":")[0] for line in found[0]["checked"]]
    assert kinds == ["signature", "request", "model"]
    assert KEY.public.raw.hex() in found[0]["checked"][0]
    assert all(len(one["wrong"]) >= 1 for one in found[1:])
    assert found[0]["unchecked"], "it says what it has not looked at"


def test_numbers_are_written_as_the_request_has_them(tmp_path: Path) -> None:
    floats = [0.0, 1.0, 0.1, 0.7, 2.0, 1.9999999999999998, 0.30000000000000004, -1.5, 1e-7, 3.0]
    assert by_the_page(tmp_path, [], floats)["floats"] == [value.hex() for value in floats]


def test_the_page_loads_nothing_from_elsewhere(served: Running) -> None:
    with served.client() as client:
        for path in ("/", "/chat.css", "/chat.js", "/receipt.js"):
            response = client.get(path)
            assert response.status_code == 200
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert "http://" not in response.text and "https://" not in response.text
            assert "innerHTML" not in response.text and "style=" not in response.text
        assert "text/html" in client.get("/").headers["content-type"]
