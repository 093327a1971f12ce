"""A tokenizer and a chat template for small models: each letter is a token."""

from __future__ import annotations

import json
from pathlib import Path

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR"
BEGIN, END, USER, MODEL = "<s>", "</s>", "<user>", "<model>"
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<model>{% endif %}"
)


def tokenizer(begin: bool = True) -> bytes:
    """tokenizer.json: 48 tokens, one for each character; text gets BEGIN before it."""
    vocabulary = {text: n for n, text in enumerate([BEGIN, END, USER, MODEL, *LETTERS])}
    special = [
        {"id": vocabulary[text], "content": text, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False, "special": True}
        for text in (BEGIN, END, USER, MODEL)
    ]  # fmt: skip

    def sequence(name: str) -> dict[str, object]:
        return {"Sequence": {"id": name, "type_id": 0}}

    around = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": BEGIN, "type_id": 0}}, sequence("A")],
        "pair": [sequence("A"), sequence("B")],
        "special_tokens": {BEGIN: {"id": BEGIN, "ids": [0], "tokens": [BEGIN]}},
    }  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
    made = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": split, "post_processor": around if begin else None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "a"},
    }  # fmt: skip
    return json.dumps(made).encode()


def save_words(directory: Path, template: str = TEMPLATE) -> None:
    """Put a tokenizer, its configuration and a template into a model's directory."""
    (directory / "tokenizer.json").write_bytes(tokenizer())
    names = {"bos_token": BEGIN, "eos_token": {"content": END}, "tokenizer_class": "T"}
    (directory / "tokenizer_config.json").write_text(json.dumps(names))
    (directory / "chat_template.jinja").write_text(template)
    (directory / "generation_config.json").write_text('{"eos_token_id": 1}')
