"""Hides bytes in a model file that holds exactly the committed weights.

    python attacks/around/bytes-beside-the-weights.py MODEL --out FILE [--bytes TEXT]

MODEL is a file of `tallystick export`. In FILE every tensor is the same, bit for bit. Before the
first tensor lie the attacker's bytes, which belong to no tensor: a gap that the header allows and
common readers skip. `verify-model` compared tensors only, and said MATCH. Now the file must be, to
the byte, the one that `export` writes.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

ALIGN = 64


def hidden(model: bytes, payload: bytes) -> bytes:
    """The model file with `payload` between its header and its tensors."""
    end = 8 + int.from_bytes(model[:8], "little")
    payload += bytes(-len(payload) % ALIGN)
    table = json.loads(model[8:end])
    for name, entry in table.items():
        if name != "__metadata__":
            entry["data_offsets"] = [at + len(payload) for at in entry["data_offsets"]]
    header = json.dumps(table, separators=(",", ":"), sort_keys=True).encode()
    header += b" " * (-(8 + len(header)) % ALIGN)
    return len(header).to_bytes(8, "little") + header + payload + model[end:]


def main(arguments: list[str] | None = None) -> None:
    """Write the file with hidden bytes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--bytes", default="carried along unseen")
    given = parser.parse_args(arguments)
    given.out.write_bytes(hidden(given.model.read_bytes(), given.bytes.encode()))


if __name__ == "__main__":
    main()
