"""Makes tests/gpu/expected on this processor. Run: python make_expected.py [NAME ...]

Without names it makes the digests of nasty operands and the roots of the runs that are not there.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
for _folder in ("src", "benchmarks", "tests/vectors", "tests/gpu", "tests"):
    sys.path.insert(0, str(ROOT / _folder))

from check.bits import groups, nasty_rows  # noqa: E402
from check.jobs import JOBS, entry, make  # noqa: E402
from check.where import EXPECTED  # noqa: E402

from tallystick.run.execute.trainer import train_job  # noqa: E402


def main(names: list[str]) -> None:
    """Write what is asked for, or what is missing."""
    EXPECTED.mkdir(exist_ok=True)
    if not names or "nasty" in names:
        rows = nasty_rows(groups())
        text = ",\n".join(
            f'"{group}": {json.dumps(found, separators=(",", ":"))}'
            for group, found in rows.items()
        )
        (EXPECTED / "nasty.json").write_text(f"{{\n{text}\n}}\n")
        print(f"nasty: {sum(map(len, rows.values()))} calls")
    path = EXPECTED / "roots.json"
    roots = json.loads(path.read_text()) if path.exists() else {}
    for name in JOBS:
        if name not in names and (names or name in roots):
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as scratch:
            job = make(name, Path(scratch))
            roots[name] = entry(job, train_job(job, Path(scratch) / "run"))
        path.write_text(json.dumps(roots, indent=1, sort_keys=True) + "\n")
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
