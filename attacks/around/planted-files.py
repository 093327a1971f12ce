"""Plants unsigned files in a copy of another party's run, so that the copy answers falsely.

    python attacks/around/planted-files.py RUN --out COPY [--cheat NAME]

An attacker that may write to the run's directory declares a cheat there that its owner never made,
and gives the state of one step the name of another. A prover that honoured the declaration signed
an answer that convicted its owner: 19 of 28 names of cheats led to that.
PROTOCOL 2.8.2: a prover believes only the files that its signed commitment covers; `fsck` and
`audit` name the others.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tallystick.run.store.directory import RunStore
from tallystick.run.store.unsigned import Declaration


def plant(store: RunStore, cheat: str) -> None:
    """Declare `cheat` in the run at `store`, and put its last state in the place of its first."""
    store.override_path.write_bytes(Declaration(cheat).to_bytes())
    stored = store.stored_steps()
    if len(stored) > 1:
        shutil.copyfile(store.checkpoint_path(stored[-1]), store.checkpoint_path(stored[0]))


def main(arguments: list[str] | None = None) -> None:
    """Copy the run and plant."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cheat", default="data-poisoning")
    given = parser.parse_args(arguments)
    shutil.copytree(given.run, given.out)
    plant(RunStore(given.out), given.cheat)


if __name__ == "__main__":
    main()
