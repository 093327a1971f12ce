"""What capture knows of transformers: where it looks at values only to save work.

transformers itself takes the general path at these places when torch.jit, torch.export or
torch.compile traces it, since a trace has no values. Capture does the same. The general path is
right for every mask: it adds the mask that the shortcut leaves out.

No import of transformers: a place is known by the name of its module and of its function.
"""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Iterator
from types import FrameType
from typing import Any

from torch import nn

# The answer that transformers' own tracing gives, by module and function. In each, a question that
# is answered by False goes on to build the mask.
_GENERAL_PATH: dict[tuple[str, str], bool] = {
    # 5.x: "may the causal (bidirectional) mask be left out?"
    ("transformers.masking_utils", "_ignore_causal_mask_sdpa"): False,
    ("transformers.masking_utils", "_ignore_bidirectional_mask_sdpa"): False,
    # 5.x: "has no row several sequences?" False keeps the row numbers, which are then all equal.
    ("transformers.masking_utils", "find_packed_sequence_indices"): False,
    # 4.50
    ("transformers.modeling_attn_mask_utils", "_ignore_causal_mask_sdpa"): False,
    ("transformers.modeling_attn_mask_utils", "_prepare_4d_attention_mask_for_sdpa"): False,
    # It only warns that there is padding and no mask.
    ("transformers.modeling_utils", "warn_if_padding_and_no_attention_mask"): False,
}

# By the text of a line of transformers' models. "Is all finite?": False clamps to float32's largest
# number, which changes no finite number. So both sides of the branch have the same meaning.
_LINES: dict[str, bool] = {"if not torch.isfinite(hidden_states).all():": False}


def shortcut(frame: FrameType) -> bool | None:
    """The answer to a question about values that `frame` asks, or None where no rule has one."""
    module = str(frame.f_globals.get("__name__", ""))
    if not module.startswith("transformers."):
        return None
    found = _GENERAL_PATH.get((module, frame.f_code.co_name))
    if found is not None:
        return found
    return _LINES.get(linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip())


@contextlib.contextmanager
def without_cache(module: nn.Module) -> Iterator[None]:
    """transformers' configs say `use_cache=False` while a trace runs.

    The cache serves generation. No loss depends on it, and a trace would carry it along. A call
    with `use_cache=True` of its own keeps its cache.
    """
    changed: list[Any] = []
    for child in module.modules():
        config = getattr(child, "config", None)
        if not type(config).__module__.startswith("transformers."):
            continue
        if vars(config).get("use_cache") is True:
            config.use_cache = False
            changed.append(config)
    try:
        yield
    finally:
        for config in changed:
            config.use_cache = True
