"""The order of the pages in the site's side bar.

A page that is in no list here is a warning, and warnings are errors.
"""

from __future__ import annotations

# Caption, and pages relative to docs/ without their `.md`.
SECTIONS: dict[str, list[str]] = {
    "Start here": ["START", "INSTALL"],
    "Tutorials": [
        "tutorials/own-model",
        "tutorials/huggingface",
        "tutorials/lora",
        "tutorials/image",
        "tutorials/gan",
        "tutorials/onnx",
        "tutorials/trainer",
        "tutorials/parallel-audit",
        "tutorials/network",
        "tutorials/object-stores",
        "tutorials/answers",
        "tutorials/server",
    ],
    "How-to": [
        "CHECK-EVIDENCE",
        "DIFF",
        "CLAIMS",
        "REPORT",
        "../judge/README",
        "MANY-MACHINES",
        "GPU",
        "CONTRACTS",
        "ADD-AN-OPERATOR",
        "ADD-A-CONTRACT",
        "ADD-A-DEVICE",
        "ADD-A-RECIPE",
        "../CONTRIBUTING",
        "../SECURITY",
    ],
    "Reference": [
        "TOUR",
        "reference/commands",
        "reference/python",
        "reference/errors",
        "INTERFACE",
        "OPERATORS",
    ],
    "Explanation": [
        "GAME",
        "PROMISES",
        "QUESTIONS",
        "GLOSSARY",
        "ARCHITECTURE",
        "PROTOCOL-STATES",
        "FIGURES",
        "HISTORY",
        "OVT",
        "PAPERS",
        "SCALE",
        "../attacks/README",
        "adr/README",
        "proofs/README",
        "../benchmarks/README",
        "../benchmarks/NOTES",
        "../CHANGELOG",
        "../newsfragments/README",
    ],
    "Specification": [
        "../spec/NUMERICS",
        "../spec/PROGRAM",
        "../spec/COMMITMENTS",
        "../spec/PROTOCOL",
        "../spec/OPENING",
        "../spec/ANSWERS",
        "../spec/CLAIMS",
        "../spec/THREATS",
        "../vectors/README",
    ],
}
# Pages that stand below another page: there, all that the pattern finds.
BELOW: dict[str, list[str]] = {
    "docs/adr/README": ["[0-9]*"],
    "docs/proofs/README": ["[a-z]*", "../../tests/grid/README"],
    "docs/reference/commands": ["commands-*"],
    "docs/reference/errors": ["messages-*"],
    "vectors/README": ["operators", "*/README"],
}


def _toctree(pages: list[str], caption: str = "", options: str = ":hidden:\n") -> str:
    named = f":caption: {caption}\n" if caption else ""
    return f"\n```{{toctree}}\n{named}{options}\n" + "\n".join(pages) + "\n```\n"


def toctrees(docname: str) -> str:
    """The lists of pages that stand below a page."""
    if docname == "docs/index":
        return "".join(_toctree(pages, caption) for caption, pages in SECTIONS.items())
    if docname in BELOW:
        return _toctree(BELOW[docname], options=":titlesonly:\n:maxdepth: 1\n:glob:\n")
    return ""
