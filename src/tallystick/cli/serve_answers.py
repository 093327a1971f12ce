"""`tallystick serve --answers`: whoever has signed kept answers defends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tallystick.cli.output import note
from tallystick.commit.signing import PrivateKey, PublicKey
from tallystick.devices.context import ExecutionContext
from tallystick.errors import UsageError
from tallystick.serving.kept.executions import Executions
from tallystick.serving.kept.parties import KeptParties
from tallystick.serving.kept.reader import KeptReader
from tallystick.serving.kept.same_files import until_words

_SWEEP_SECONDS = 5.0


def serve_answers(
    directory: Path,
    keys: Sequence[PrivateKey],
    referees: Sequence[PublicKey],
    context: ExecutionContext,
    at_once: int,
    serve: Callable[[KeptParties], None],
) -> None:
    """Let `serve` answer for all kept answers that `keys` have signed. Raises UsageError."""
    if not keys:
        raise UsageError(
            "--answers needs the key that signed the receipts.", "Pass it with --key FILE."
        )
    if {key.public for key in keys} & set(referees):
        raise UsageError(
            "One key is both a party's and a referee's (PROTOCOL 2.10.1).",
            "Use different keys for --key and --referee.",
        )
    with KeptReader(directory) as kept:
        for model in kept.models():
            if model.answers:
                note(
                    f"model {model.digest.hex()}  {model.directory}: {model.answers} "
                    f"answers, until {until_words(model.until)}"
                )
        executions = Executions(at_once)
        parties = KeptParties(kept, keys, referees, context, note, executions)
        ended = threading.Event()
        sweeping = threading.Thread(target=_sweep, args=(parties, ended), daemon=True)
        sweeping.start()
        try:
            serve(parties)
        finally:
            ended.set()
            if not parties.close():
                note("An answer was not finished. It is computed again when a referee asks.")


def _sweep(parties: KeptParties, ended: threading.Event) -> None:
    while not ended.wait(_SWEEP_SECONDS):
        parties.sweep()
