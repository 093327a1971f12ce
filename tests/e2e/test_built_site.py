"""The site that `make docs` has built, in a browser: no network, no page too wide, search works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Tab, chromium, tab

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build" / "site"
PROGRAM = chromium()
pytestmark = [
    pytest.mark.skipif(not (SITE / "searchindex.js").is_file(), reason="`make docs` first"),
]


@pytest.fixture(scope="module")
def page() -> Iterator[Tab]:
    if PROGRAM is None:
        pytest.skip("there is no Chromium")
    with tab(PROGRAM) as found:
        yield found


def _address(name: str) -> str:
    return (SITE / name).as_uri()


def test_pages_fit_a_phone_and_load_nothing(page: Tab) -> None:
    page.as_on(390)
    names = [path for path in sorted(SITE.rglob("*.html")) if path.name != "search.html"]
    assert len(names) > 100
    for path in names[::7]:
        if path == SITE / "index.html":
            continue
        page.open(path.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert not page.evaluate("[...document.images].filter(i => !i.naturalWidth).length"), path
    assert all(address.startswith(("file:", "data:")) for address in page.requests)


def test_the_first_page_leads_to_the_start(page: Tab) -> None:
    page.evaluate(f"location.href = '{_address('index.html')}'")
    page.until(f"location.href === '{_address('docs/index.html')}'")
    page.until("document.readyState === 'complete'")
    named = page.evaluate("[...document.querySelectorAll('article a')].map(a => a.href).join(' ')")
    for name in ("CHECK-EVIDENCE", "PROMISES", "reference/errors", "ADD-AN-OPERATOR", "answers"):
        assert f"/{name}.html" in named


def test_search_finds_a_message(page: Tab) -> None:
    page.evaluate(f"location.href = '{_address('search.html')}?q=genesis+state'")
    page.until("document.querySelectorAll('#search-results li').length > 3")


def test_every_clause_has_an_address() -> None:
    for source in (ROOT / "spec").glob("*.md"):
        text = source.read_text("utf-8")
        clauses = set(re.findall(r"^(?:#+ )?(\d+(?:\.\d+)*)\.? ", text, re.M))
        html = (SITE / "spec" / f"{source.stem}.html").read_text("utf-8")
        found = re.findall(r'id="clause-([\d-]+)"', html)
        assert sorted(found) == sorted(clause.replace(".", "-") for clause in clauses)
