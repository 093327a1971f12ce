"""One value of a record as an array: what is taken, widened, asked for, refused.

No value changes silently. A dtype that records cannot have is widened where that keeps every value,
and the rules of the frozen set say so. Anything else needs the dtype by name: float64 above all,
which Python's own numbers are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tallystick.commit.tensor import (
    COMPUTED,
    DTYPES,
    Array,
    check_canonical,
    dtype_name,
)
from tallystick.errors import CounterpartyError, UsageError

# Every value of the left dtype is one of the right.
_WIDENED = {
    np.dtype("i1"): "i64",
    np.dtype("i2"): "i64",
    np.dtype("u2"): "i64",
    np.dtype("u4"): "i64",
    np.dtype("f2"): "f32",
}


def as_array(value: Any, name: str) -> Array:
    """A number, a list, an array, a torch tensor or a Pillow image as an array.

    An image is u8[channels, height, width], as torch's modules take it. Raises UsageError for text,
    bytes, objects, and images in a mode with a palette or of single bits.
    """
    if isinstance(value, np.ndarray):
        array = value
    elif hasattr(value, "detach"):
        tensor = value.detach()
        if str(tensor.dtype) == "torch.bfloat16":
            tensor = tensor.float()  # every bfloat16 is a float32
        array = np.asarray(tensor.cpu().numpy())
    elif hasattr(value, "getbands"):
        return _image(value, name)
    elif isinstance(value, (str, bytes)) or value is None:
        _refuse_kind(name, "nothing (None)" if value is None else type(value).__name__)
    else:
        try:
            array = np.asarray(value)
        except ValueError:
            raise UsageError(
                f"Field {name!r} is a list of lists of different lengths.",
                "Pad its inner lists, and leave one ragged axis.",
            ) from None
    if array.dtype.kind in "USOVMm":
        _refuse_kind(name, _word(array))
    return array


def _word(array: Array) -> str:
    if array.dtype.kind in "US":
        return "text"
    if array.dtype.kind == "O" and array.size:
        return f"objects of type {type(array.reshape(-1)[0]).__name__}"
    return str(array.dtype)


def _refuse_kind(name: str, kind: str) -> None:
    raise UsageError(
        f"Field {name!r} is {kind}; a record holds numbers.",
        "Turn it into numbers first (a text with a tokenizers file), or leave the field out: "
        "fields=[...].",
    )


def _image(image: Any, name: str) -> Array:
    if image.mode not in ("L", "RGB", "RGBA"):
        raise UsageError(
            f"Field {name!r} is an image of mode {image.mode!r}.",
            "Convert it to 'L', 'RGB' or 'RGBA' first.",
        )
    pixels = np.asarray(image)
    return pixels[None] if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def check_asked(name: str, asked: str) -> None:
    """Raise UsageError unless records can have the dtype `asked`."""
    if asked not in COMPUTED:
        raise UsageError(
            f"dtype {asked!r} for field {name!r} is unknown.", f"Use one of {', '.join(COMPUTED)}."
        )


def committed_dtype(dtype: np.dtype[Any], name: str, asked: str | None) -> str:
    """The dtype in records of a field that comes as `dtype`. Raises UsageError."""
    if asked is not None:
        return asked
    if dtype in _WIDENED:
        return _WIDENED[dtype]
    if dtype.kind == "f" and dtype.itemsize >= 8:
        raise UsageError(
            f"Field {name!r} is {dtype}, which is not narrowed silently.",
            f'Pass dtype={{"{name}": "f32"}} to round to float32, or "f64" to keep the values.',
        )
    try:
        found = dtype_name(dtype)
    except UsageError:
        found = ""
    if found not in COMPUTED:
        raise UsageError(
            f"Field {name!r} is {dtype}, which no record has.",
            f'Pass dtype={{"{name}": "i64"}}, or another of {", ".join(COMPUTED)}.',
        )
    return found


def convert(array: Array, name: str, to: str) -> Array:
    """`array` with the committed dtype `to`.

    A float becomes the nearest float32. Nothing else changes a value: integers must be in range,
    and floats become integers only if they are. Raises UsageError for what would change, for a
    float that overflows, and for a NaN of another pattern than numpy.nan's (COMMITMENTS 3.3).
    """
    target = DTYPES[to]
    if array.dtype == target:
        result = array
    else:
        with np.errstate(all="ignore"):
            result = array.astype(target)
            narrowed = to == "f32" and array.dtype.kind == "f"
            if narrowed:
                changed = np.isfinite(array) & ~np.isfinite(result)
            elif array.dtype.kind in "iub" and to in ("f32", "f64"):
                # Both as integers: a comparison in floats would round the integer as well.
                back = np.abs(result) < 2.0**62
                changed = ~back | (np.where(back, result, 0).astype(np.int64) != array)
            else:
                changed = result.astype(array.dtype) != array
                if array.dtype.kind == "u" and target.kind == "i":
                    changed |= result < 0  # type: ignore[operator]
        if array.dtype.kind == "f" and narrowed and np.isnan(array).any():
            result = np.where(np.isnan(array), np.float32(np.nan), result)
        if changed.any():
            raise UsageError(
                f"Field {name!r} holds {array[changed].reshape(-1)[0]!r}, which {to} cannot hold.",
                "Choose a wider dtype, or clean the data first.",
            )
    try:
        check_canonical(result, f"field {name!r}")
    except CounterpartyError as error:
        raise UsageError(error.message, "Write every NaN as numpy.nan.") from None
    return result
