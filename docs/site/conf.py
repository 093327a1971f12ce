"""The documentation site: `make docs`. Its sources are the pages of the repository, in place."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

project = "Tallystick"
author = "The Tallystick founders"
html_title = "Tallystick"
language = "en"
smartquotes = False  # `--option` is no dash
highlight_language = "text"

extensions = ["sphinx.ext.autodoc", "myst_parser", "pages"]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md", "spec/*.md", "attacks/README.md", "judge/README.md", "benchmarks/*.md",
    "tests/grid/README.md", "vectors/README.md", "vectors/operators.md", "vectors/*/README.md",
    "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "newsfragments/README.md",
]  # fmt: skip
exclude_patterns = [".*", "build", "dist", "demo-out", "judge/node_modules", "native", "src"]

myst_enable_extensions = ["deflist", "attrs_block"]
myst_heading_anchors = 4

# Docstrings are plain sentences: a word between backticks is code.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_default_options = {"exclude-members": "__init__,__new__"}

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["root"]
html_copy_source = False
html_show_sourcelink = False
html_use_index = True
html_domain_indices = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style = "friendly"
pygments_dark_style = "monokai"
