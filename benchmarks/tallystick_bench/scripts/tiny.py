"""A tokenizer of characters and tiny models of random weights, without a hub."""

from __future__ import annotations

import tempfile
from typing import Any

_TEMPLATE = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def tokenizer() -> Any:
    """Printable ASCII, one token each."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "</s>", "<unk>", *(chr(c) for c in range(32, 127))]
    made = Tokenizer(models.BPE({w: i for i, w in enumerate(words)}, [], unk_token="<unk>"))
    names = {"pad_token": "<pad>", "eos_token": "</s>", "bos_token": "</s>", "unk_token": "<unk>"}
    fast: Any = PreTrainedTokenizerFast
    found = fast(tokenizer_object=made, padding_side="left", **names)
    found.chat_template = _TEMPLATE
    return found


def model(kind: str, tokens: Any, folder: str) -> Any:
    """GPT-2 with dropout, or Llama, saved in `folder` and loaded from there."""
    import transformers as hf

    ids = {f"{k}_token_id": getattr(tokens, f"{k}_token_id") for k in ("bos", "eos", "pad")}
    sizes = {"vocab_size": len(tokens), **ids}
    if kind == "gpt2":
        config: Any = hf.GPT2Config(n_positions=128, n_embd=32, n_layer=2, n_head=2, **sizes)
        made: Any = hf.GPT2LMHeadModel(config)
    else:
        config = hf.LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=128, **sizes,
        )  # fmt: skip
        made = hf.LlamaForCausalLM(config)
    where = tempfile.mkdtemp(dir=folder)
    made.save_pretrained(where)
    tokens.save_pretrained(where)
    return type(made).from_pretrained(where)
