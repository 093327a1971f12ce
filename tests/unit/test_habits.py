"""One thing is said once: versions of tools, Pythons and PyTorch agree wherever they are named."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _script(name: str) -> ModuleType:
    """A script of `.ci`, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


INDEX = _script("index_page")
RELEASE = _script("check_release")
PROJECT = (ROOT / "pyproject.toml").read_text()
CONSTRAINTS = (ROOT / "constraints.txt").read_text()
CI = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
WHEELS = (ROOT / ".github" / "workflows" / "wheels.yml").read_text()
README = """# A [title](docs/a.md)

![a picture](docs/a.png) and [![a badge](docs/b.svg)](docs/b.md), [out](https://example.org/x),
[below](#below), [part](docs/a.md#part).
<picture><source srcset="docs/dark.png"><img src="docs/a.png" alt=""></picture>

```
[code](docs/a.md)
```
"""


def _pinned(package: str) -> set[str]:
    return set(re.findall(rf"^{package}==([^;\s]+)", CONSTRAINTS, re.MULTILINE))


@pytest.mark.parametrize("tool", ["ruff"])
def test_hooks_have_the_versions_of_the_gate(tool: str) -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert set(re.findall(rf'"{tool}==([^"]+)"', hooks)) == _pinned(tool) != set()
    assert "entry: make types" in hooks, "mypy is the gate's own"


def test_the_workflows_run_every_python_that_the_package_names() -> None:
    named = set(re.findall(r"Python :: (3\.\d+)", PROJECT))
    for workflow in (CI, WHEELS):
        rows = re.findall(r"python: \[(.*)\]", workflow)
        assert rows, "a workflow has no row of Pythons"
        for row in rows:
            assert named <= set(re.findall(r"3\.\d+", row))
    assert (
        min(named, key=lambda v: int(v[2:])) == "3.10" and 'requires-python = ">=3.10"' in PROJECT
    )


def test_the_oldest_torch_of_ci_is_the_oldest_that_the_package_admits() -> None:
    oldest = set(re.findall(r'"torch>=([\d.]+)"', PROJECT))
    assert len(oldest) == 1
    assert f'"torch=={oldest.pop()}.*"' in CI


def test_a_lock_holds_what_the_gate_pins_and_no_package_of_cuda() -> None:
    locked = dict.fromkeys(
        re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    )
    names = {name for name, _ in locked}
    assert not [n for n in names if n.startswith(("nvidia-", "cuda-", "triton")) or n == "torch"]
    wrong = {f"{n}=={v}" for n, v in locked if _pinned(n) and v not in _pinned(n)}
    assert not wrong, f"run make lock: {wrong}"
    assert {"numpy", "cryptography", "click", "rich"} <= names


def test_the_pages_of_an_index_have_no_link_that_leads_nowhere() -> None:
    text = INDEX.index_text(README, "", "v1")
    assert "# A title\n" in text and " and , [out](https://example.org/x)" in text
    assert "[below](#below), part." in text and "<img" not in text
    assert "```\n[code](docs/a.md)\n```" in text, "code stays as it is"
    assert INDEX.project_urls("") == {}


def test_links_become_addresses_at_the_tag_of_the_version() -> None:
    at = "https://example.org/o/n"
    text = INDEX.index_text(README, at, "v1")
    assert f"# A [title]({at}/blob/v1/docs/a.md)" in text
    assert f"![a picture]({at}/raw/v1/docs/a.png)" in text
    assert f"[![a badge]({at}/raw/v1/docs/b.svg)]({at}/blob/v1/docs/b.md)" in text
    assert f"[part]({at}/blob/v1/docs/a.md#part)" in text
    assert f'srcset="{at}/raw/v1/docs/dark.png"><img src="{at}/raw/v1/docs/a.png"' in text
    assert "[below](#below)" in text and "```\n[code](docs/a.md)\n```" in text


def test_the_readme_of_now_has_no_relative_link_on_an_index() -> None:
    text = INDEX.index_text((ROOT / "README.md").read_text(), "", "v1")
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)\s]+)\)|\b(?:src|srcset|href)=\"([^\"]+)\"", text)
    assert not [a or b for a, b in targets if not re.match(r"https?:|#|mailto:", a or b)]


def test_a_release_needs_one_version_its_news_and_an_address(tmp_path: Path) -> None:
    for directory in ("benchmarks", "judge", "newsfragments"):
        (tmp_path / directory).mkdir()
    (tmp_path / "pyproject.toml").write_text(
        'version = "1.0.0rc1"\nrepository = "https://e.org/o/n"\n'
    )
    (tmp_path / "benchmarks" / "pyproject.toml").write_text(
        'version = "1.0.0rc1"\ndependencies = ["tallystick[train]==1.0.0rc1"]\n'
    )
    (tmp_path / "judge" / "package.json").write_text('{"version": "1.0.0-rc.1"}')
    changes = "# Changelog\n\n## 1.0.0rc1 (2026-12-01)\n\nNews.\n\n## 0.1.0\n\nOld.\n"
    (tmp_path / "CHANGELOG.md").write_text(changes)
    (tmp_path / "newsfragments" / "README.md").write_text("How.\n")
    assert RELEASE.missing(tmp_path, "v1.0.0rc1") == []
    assert RELEASE.section(changes, "1.0.0rc1") == "News."
    assert len(RELEASE.missing(tmp_path, "v1.0.0")) == 5, "three versions, a dependency, a section"
    (tmp_path / "newsfragments" / "12.fix.md").write_text("News.\n")
    (wrong,) = RELEASE.missing(tmp_path, "v1.0.0rc1")
    assert "12.fix.md" in wrong
