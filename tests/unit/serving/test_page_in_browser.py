"""The chat page in a headless Chromium: what a person sees of an answer, on a telephone and beside.

TALLYSTICK_SHOTS names a directory for pictures of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")
pytest.importorskip("httpx2", reason="httpx2 is not installed")

from chromium import Tab, chromium, tab
from servers import KEY, Running, running

from tallystick.serving.api_keys import add_key

PROGRAM = chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="there is no Chromium here")
SENT = (
    "!document.querySelector('#send').disabled"
    " && document.querySelector('.checks:last-child li') !== null"
)
# Elements that stand out of the page to the right.
WIDE = """[...document.querySelectorAll('body *')].filter((e) => e.getClientRects().length
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5)
    .map((e) => e.id || e.className || e.tagName)"""
# The contrast (WCAG 2) of each element that has a text of its own, with what lies behind it.
CONTRAST = """(() => {
  const parts = (c) => c.match(/[\\d.]+/g).map(Number);
  const light = (c) => parts(c).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const behind = (e) => {
    const found = getComputedStyle(e).backgroundColor;
    return (parts(found)[3] ?? 1) > 0 || e.parentElement === null ? found : behind(e.parentElement);
  };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim() !== '');
    if (!own || e.disabled || !e.getClientRects().length) continue;
    const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.id || e.className || e.tagName]);
  }
  return found.filter(([ratio]) => ratio < 4.5);
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    assert PROGRAM is not None
    with tab(PROGRAM) as found:
        yield found


@pytest.fixture
def page(browser: Tab, served: Running) -> Tab:
    """A page that has just been opened."""
    browser.as_on(1280)
    browser.requests.clear()
    browser.complaints.clear()
    browser.open(f"{served.url}/")
    browser.until(f"document.getElementById('digest').textContent === '{digest(served)}'")
    return browser


def digest(served: Running) -> str:
    return served.server.models[0].digest


def fill(page: Tab, **values: Any) -> None:
    for name, value in values.items():
        page.evaluate(f"document.getElementById('{name}').value = '{value}'")


def ask(page: Tab, text: str) -> None:
    """As a person does: into the field, and Enter."""
    page.evaluate("document.getElementById('message').focus()")
    page.type(text)
    page.key("Enter", code="Enter", windowsVirtualKeyCode=13)


def last(page: Tab, kind: str) -> list[str]:
    """The lines of a kind below the last answer."""
    found: list[str] = page.evaluate(
        f"[...document.querySelectorAll('.checks:last-child .{kind}')].map((e) => e.textContent)"
    )
    return found


def test_an_answer_and_what_was_checked(page: Tab, served: Running) -> None:
    fill(page, tokens=12, temperature=0)  # at 1, one answer in 30 is empty
    ask(page, "abc")
    page.until(SENT)
    assert last(page, "wrong") == []
    checked = [line.removeprefix("checked ").partition(":")[0] for line in last(page, "checked")]
    assert checked == ["signature", "request", "model"]
    assert KEY.public.raw.hex() in last(page, "checked")[0]
    assert all(line.startswith("not checked ") for line in last(page, "unchecked"))
    assert page.evaluate("document.querySelector('.user').textContent") == "abc"
    assert page.evaluate("document.querySelector('.assistant').textContent") != ""
    page.click("summary")
    shown = page.evaluate("document.querySelector('details[open] pre').textContent")
    assert '"kind": "tallystick/answered/1"' in shown
    # A second turn: the server has both messages and the answer between them.
    ask(page, "de")
    page.until(SENT + " && document.querySelectorAll('.user').length === 2")
    assert last(page, "wrong") == [] and len(last(page, "checked")) == 3
    assert {url.removeprefix(served.url) for url in page.requests} <= {
        "/", "/chat.css", "/chat.js", "/receipt.js", "/favicon.ico", "/v1/models",
        "/v1/chat/completions",
    }  # fmt: skip
    assert [text for text in page.complaints if "favicon" not in text] == []


def test_markup_stays_text(page: Tab) -> None:
    ask(page, "<img src=x onerror=alert(1)>")
    page.until(SENT)
    assert page.evaluate("document.querySelector('.user').textContent").startswith("<img")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0


def test_a_refusal_is_told_and_forgotten(page: Tab) -> None:
    fill(page, tokens=5, temperature=-1)
    ask(page, "abc")
    page.until(SENT)
    (said,) = last(page, "wrong")
    assert said.startswith("No answer: ") and "temperature" in said
    fill(page, temperature=1)
    ask(page, "abc")
    page.until(SENT + " && document.querySelectorAll('.user').length === 2")
    assert last(page, "wrong") == [] and len(last(page, "checked")) == 3


def test_an_api_key(browser: Tab, model: Path, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys.json", "anna")
    with running(model, keys=tmp_path / "keys.json") as served:
        browser.open(f"{served.url}/")
        browser.until("document.getElementById('digest').textContent === 'give an API key'")
        fill(browser, key=key, tokens=4)
        browser.evaluate("document.getElementById('key').dispatchEvent(new Event('change'))")
        browser.until(f"document.getElementById('digest').textContent === '{digest(served)}'")
        ask(browser, "abc")
        browser.until(SENT)
        assert last(browser, "wrong") == [] and len(last(browser, "checked")) == 3


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 1280])
def test_it_is_readable(width: int, scheme: str, page: Tab) -> None:
    """Nothing stands out of the page, and each text differs enough from what is behind it."""
    page.as_on(width, scheme)
    fill(page, tokens=24)
    ask(page, "word" * 60)  # the model has no bucket for so many tokens
    page.until(SENT)
    assert page.evaluate("document.querySelectorAll('.assistant').length") == 0
    ask(page, "abc")
    page.until(SENT + " && document.querySelectorAll('.user').length === 2")
    page.click(".checks:last-child summary")
    if place := os.environ.get("TALLYSTICK_SHOTS"):
        page.look(Path(place) / f"chat-{width}-{scheme}.png")
    assert page.evaluate(WIDE) == []
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    tall = page.evaluate("document.getElementById('send').getBoundingClientRect().height")
    assert tall >= 44, "a finger needs so much"
