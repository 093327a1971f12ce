"""A folder of images: each folder in it is a class, in the order of the names."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tallystick.commit.encoding import JsonValue
from tallystick.commit.tensor import Array
from tallystick.data.rules import Block
from tallystick.data.sources.base import collected, missing
from tallystick.disk.regular import entries, open_file
from tallystick.errors import CorruptFileError, StorageError, UsageError

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff")


class ImageFolderSource:
    """Records `x` u8[3, height, width] and `y` i64, the number of the class.

    With a `size` (S, or height and width) the shorter side is resized by Pillow's bilinear filter,
    which covers all pixels that it shrinks, and the middle is cut out. Without one all images must
    have the same size. Grey images get three equal channels; transparency is refused.
    """

    again = True

    def __init__(self, directory: Path, size: int | tuple[int, int] | None = None) -> None:
        try:
            import PIL.Image  # noqa: F401
        except ImportError:
            raise missing("Pillow", "Reading images") from None
        self._size = (size, size) if isinstance(size, int) else size
        if self._size is not None and min(self._size) < 1:
            raise UsageError(f"Images of the size {size} are empty.", "Give at least 1.")
        listed = sorted(entries(directory), key=lambda e: e.name)
        self.classes = [e.name for e in listed if stat.S_ISDIR(e.mode)]
        self._files = [
            (directory / folder / e.name, number)
            for number, folder in enumerate(self.classes)
            for e in sorted(entries(directory / folder), key=lambda e: e.name)
            if e.name.lower().endswith(SUFFIXES) and stat.S_ISREG(e.mode)
        ]
        if not self._files:
            raise StorageError(
                f"{directory} holds no folders with images.",
                f"Put the images of each class into one folder: {', '.join(SUFFIXES)}.",
            )
        self.count = len(self._files)

    def words(self) -> dict[str, JsonValue]:
        import PIL

        return {
            "kind": "image folder",
            "classes": list(self.classes),
            "pillow": PIL.__version__,
            "resize": None
            if self._size is None
            else f"shorter side, bilinear, middle cut to {self._size[0]} x {self._size[1]}",
        }

    def blocks(self) -> Iterator[Block]:
        return collected(({"x": self._read(p), "y": label} for p, label in self._files), None)

    def _read(self, path: Path) -> Array:
        file, _ = open_file(path, "image")
        with file:
            return decode(file, str(path), self._size)


def decode(file: Any, name: str, size: tuple[int, int] | None) -> Array:
    """An image file as u8[3, height, width]. Raises UsageError, CorruptFileError."""
    import PIL.Image

    try:
        with PIL.Image.open(file) as image:
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                raise UsageError(f"{name} has transparent parts.", "Put it on a background first.")
            made = image.convert("RGB")
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError) as error:
        raise CorruptFileError(
            f"{name} cannot be read as an image: {str(error)[:120].rstrip('.')}.",
            "Remove it, or make it again.",
        ) from None
    if size is not None:
        made = _resized(made, *size)
    return np.ascontiguousarray(np.asarray(made).transpose(2, 0, 1))


def _resized(image: Any, height: int, width: int) -> Any:
    import PIL.Image

    # The smallest image of the same form that covers height x width, in whole numbers.
    w, h = image.size
    if w * height >= h * width:
        new = (max(width, -(-w * height // h)), height)
    else:
        new = (width, max(height, -(-h * width // w)))
    image = image.resize(new, PIL.Image.Resampling.BILINEAR)
    left, top = (new[0] - width) // 2, (new[1] - height) // 2
    return image.crop((left, top, left + width, top + height))
