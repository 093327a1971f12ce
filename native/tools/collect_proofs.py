"""Gathers the results of `exhaustive` into docs/proofs/elementary.json and prints the page's table.

Run: python native/tools/collect_proofs.py RESULT_DIR docs/proofs/elementary.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ORDER = ("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "rsqrt")
ORDER += ("expm1", "log1p", "exp2", "log2")


def main(source: Path, target: Path) -> None:
    results = [
        json.loads(path.read_text()) for name in ORDER if (path := source / f"{name}.json").exists()
    ]
    target.write_text(json.dumps(results, indent=1) + "\n")
    print("| function | decided | by MPFR | random by MPFR | wrong | paths | differences |")
    print("|---|---|---|---|---|---|---|")
    for r in results:
        paths = ", ".join([r["isa"], *r["compared_isas"]])
        print(
            f"| {r['function']} | {r['inputs']} | {r['undecided_to_mpfr']} | {r['random_to_mpfr']}"
            f" | {r['wrong']} | {paths} | {r['isa_differences']} |"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
