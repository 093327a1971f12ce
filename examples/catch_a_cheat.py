"""Two runs of one job differ. A referee finds out who cheated, and leaves evidence.

    python examples/catch_a_cheat.py [DIRECTORY]

One provider trains honestly. Another poisons the data of one step, trains on, and signs. The
referee asks both, finds the step, the operator and the number, and convicts. Anyone can judge the
evidence later, with the job's program alone.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import tallystick


def command(*words: object) -> None:
    """Run a command as a person types it."""
    print("$ tallystick", *words)
    subprocess.run([sys.executable, "-m", "tallystick", *map(str, words)], check=True)


def main(directory: Path) -> None:
    job = directory / "job"
    command("job", "new", "mlp", "--out", job, "--steps", 60, "--set", "records=400")

    # Two providers. The second one cheats (`tallystick attack --list` names all cheats).
    tallystick.train(job, directory / "honest")
    command("attack", "data-poisoning", job, "--out", directory / "poisoned", "--set", "step=41")

    # The referee. In this example the cheat is known: `as_attack` makes its run answer as a cheat.
    found = tallystick.dispute(
        directory / "honest",
        directory / "poisoned",
        job,
        as_attack=["B"],
        out=directory / "evidence",
        on_event=lambda event: print(f"  {event.sentence}"),
    )
    place, guilty = found.verdict.place, found.verdict.convicted[0]
    print(f"convicted {found.convicted}: step {place.step}, {place.operator}, {guilty.sentence}")
    assert found.convicted == ("B",) and place.step == 41

    # A judge, on any machine, later. It needs the evidence and its own copy of the job; no model,
    # no data.
    judgement = tallystick.judge(directory / "evidence", job)
    assert judgement.verdict == found.verdict
    print(f"judged  the same, from {len(found.evidence):,} bytes of evidence")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
