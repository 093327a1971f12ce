"""The metadata of one architecture in a GGUF file, each number checked for what it should be."""

from __future__ import annotations

from typing import Any

from tallystick.disk.gguf import GgufFile, Value
from tallystick.errors import CorruptFileError, RefusedModelError

EMBEDDING, HEAD = "token_embd.weight", "output.weight"


class GgufFacts:
    """The metadata of the architecture `name`."""

    def __init__(self, name: str, file: GgufFile) -> None:
        self.name, self.file = name, file

    def get(self, key: str) -> Value | None:
        return self.file.metadata.get(f"{self.name}.{key}")

    def whole(self, key: str, default: int | None = None) -> int:
        found = self.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not int or not 0 <= found < 1 << 31:
            raise corrupt(f"{self.name}.{key} is {_shown(found)}, not a whole number")
        return found

    def real(self, key: str, default: float | None = None) -> float:
        found = self.get(key)
        if found is None and default is not None:
            return default
        if type(found) is not float or not abs(found) < float("inf"):
            raise corrupt(f"{self.name}.{key} is {_shown(found)}, not a finite number")
        return found

    def only(self, key: str, *known: Value) -> None:
        """Refuse the file if it says something else than `known` under the key."""
        found = self.get(key)
        if found is not None and found not in known:
            raise refused(
                f"{self.name}.{key} {_shown(found)}", "it is not known here what follows from it"
            )

    def heads(self) -> tuple[int, int]:
        """The width of the model, and the number of heads."""
        heads, width = self.whole("attention.head_count"), self.whole("embedding_length")
        if not heads or width % heads:
            raise corrupt(f"{width} elements cannot be divided among {heads} heads")
        return width, heads

    def sliding(self, every: int) -> list[bool]:
        """Whether the attention of each block slides: all but the last of every so many, unless the
        file says otherwise."""
        key = "attention.sliding_window_pattern"
        count, found = self.whole("block_count"), self.get(key)
        if count > len(self.file.tensors):
            raise corrupt(f"{count} blocks have only {len(self.file.tensors)} tensors")
        if isinstance(found, list):
            if len(found) != count or any(x not in (0, 1) for x in found):
                raise corrupt(f"{self.name}.{key} does not say of each block whether it slides")
            return [bool(x) for x in found]
        every = self.whole(key, every)
        return [every == 0 or i % every < every - 1 for i in range(count)]

    def common(self) -> dict[str, Any]:
        """What every config has."""
        embedding = self.file.tensors.get(EMBEDDING)
        if embedding is None or len(embedding.shape) != 2:
            raise corrupt(f"it has no matrix {EMBEDDING}")
        return {
            "vocab_size": embedding.shape[0],
            "tie_word_embeddings": HEAD not in self.file.tensors,
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }

    def has(self, name: str) -> bool:
        return name in self.file.tensors


def _shown(found: object) -> str:
    return "not there" if found is None else str(found)[:40]


def corrupt(why: str) -> CorruptFileError:
    return CorruptFileError(f"The file does not describe a model: {why}.", "Download it again.")


def refused(what: str, why: str) -> RefusedModelError:
    return RefusedModelError(
        f"The file has {what}: {why}.", "Use the model's directory, as save_pretrained wrote it."
    )
