"""The tokenizer of a GGUF file as the files that a directory has (ANSWERS 12.5).

A file of the kind `gpt2` has merges, and names the rule by which a text is cut before them; one of
the kind `llama` has scores, from which the merges follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tallystick.answers.special import TOKENIZER
from tallystick.commit.encoding import canonical_json
from tallystick.disk.gguf import Value
from tallystick.errors import CorruptFileError, RefusedModelError

CONFIG = "tokenizer_config.json"
_ROOM = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6
_SPACE = "\u2581"
# No key says of a token that it takes the white space behind it: llama.cpp and the converters know
# it by the model's name.
_NAME, _STRIPPING = "general.name", ("phi-3", "phi3")
_NOT_STRIPPING = ("<unk>", "<s>", "<|endoftext|>")

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_DIGIT = r"\p{N}"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + _WORDS + r"\p{N}{1,3}" + _REST
_QWEN2 = _CONTRACTIONS + _WORDS + r"\p{N}" + _REST


@dataclass(frozen=True)
class _Rule:
    """The expressions that cut a text, one after the other; whether a piece that is a token needs
    no merge; whether a text begins with the token `bos` unless the file says otherwise."""

    cuts: tuple[str, ...]
    whole_pieces: bool = False
    begins: bool = False


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo"), _Rule((_GPT2,))),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell"), _Rule((_DIGIT, _GPT2))
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3"), _Rule((_LLAMA3,), whole_pieces=True, begins=True)
    ),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _Rule((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _Rule((_QWEN2,))),
}  # fmt: skip


@dataclass(frozen=True)
class GgufTokenizer:
    """What a file says of tokens. `types` are their kinds, `ids` the special ones by name."""

    tokens: Sequence[str]
    types: Sequence[int]
    ids: Mapping[str, int]
    files: Mapping[str, bytes]

    @property
    def stop(self) -> tuple[int, ...]:
        """The tokens that end a text."""
        named = (self.ids.get(name) for name in ("eos", "eot", "eom"))
        return tuple(sorted({token for token in named if token is not None}))


def tokenizer_of(metadata: Mapping[str, Value]) -> GgufTokenizer:
    """Raises RefusedModelError for a kind or a rule that is not known, by its name; and
    CorruptFileError."""
    tokens = _texts(metadata, "tokens")
    if len(set(tokens)) != len(tokens):
        raise _corrupt("it has a token twice")
    types = _whole(metadata, "token_type", len(tokens), _NORMAL)
    ids = _special(metadata, len(tokens))
    kind = str(metadata.get(_ROOM + "model"))
    if kind == "gpt2":
        rule = _rule(str(metadata.get(_ROOM + "pre")))
        made, begins = _byte_level(tokens, _merges(metadata), rule), rule.begins
    elif kind == "llama":
        made, begins = _sentence_pieces(metadata, tokens, types, ids), True
    else:
        raise RefusedModelError(
            f"The file's tokenizer is of the kind {kind[:40]!r}, which is not supported.",
            "Use a file with a tokenizer of the kind gpt2 or llama, or use the model's directory.",
        )
    strips = any(name in str(metadata.get(_NAME)).lower() for name in _STRIPPING)
    made["added_tokens"] = [
        _added(number, tokens[number], types[number] != _USER, strips)
        for number in range(len(tokens))
        if types[number] in (_UNKNOWN, _CONTROL, _USER)
    ]
    made["post_processor"] = _around(metadata, tokens, ids, begins)
    made |= {"version": "1.0", "truncation": None, "padding": None}
    named: Any = {f"{name}_token": tokens[i] for name, i in ids.items()}
    files = {TOKENIZER: canonical_json(made), CONFIG: canonical_json(named)}
    return GgufTokenizer(tokens, types, ids, files)


def _corrupt(why: str) -> CorruptFileError:
    return CorruptFileError(
        f"The file's tokenizer cannot be read: {why}.", "Download the file again."
    )


# -- what the file says ----------------------------------------------------------------------------
def _texts(metadata: Mapping[str, Value], name: str) -> list[str]:
    found = metadata.get(_ROOM + name)
    if not isinstance(found, list) or not found or not all(isinstance(t, str) for t in found):
        raise _corrupt(f"it has no list {_ROOM}{name}")
    return [str(t) for t in found]


def _whole(metadata: Mapping[str, Value], name: str, count: int, default: int) -> list[int]:
    found = metadata.get(_ROOM + name)
    if found is None:
        return [default] * count
    if not isinstance(found, list) or len(found) != count:
        raise _corrupt(f"{_ROOM}{name} is not as long as the list of tokens")
    if any(type(x) is not int for x in found):
        raise _corrupt(f"{_ROOM}{name} has other things than whole numbers")
    return [int(x) for x in found]


_SPECIAL = {
    "bos": "bos_token_id", "eos": "eos_token_id", "eot": "eot_token_id", "eom": "eom_token_id",
    "unk": "unknown_token_id", "sep": "seperator_token_id", "pad": "padding_token_id",
}  # fmt: skip


def _special(metadata: Mapping[str, Value], count: int) -> dict[str, int]:
    found = {}
    for name, key in _SPECIAL.items():
        token = metadata.get(_ROOM + key)
        if token is None:
            continue
        if type(token) is not int or not 0 <= token < count:
            raise _corrupt(f"{_ROOM}{key} is {str(token)[:40]}")
        found[name] = token
    return found


def _flag(metadata: Mapping[str, Value], name: str, default: bool) -> bool:
    found = metadata.get(_ROOM + name, default)
    if not isinstance(found, bool):
        raise _corrupt(f"{_ROOM}{name} is {str(found)[:40]}")
    return found


def _added(number: int, text: str, special: bool, strips: bool) -> dict[str, Any]:
    rest = dict.fromkeys(("single_word", "lstrip", "normalized"), False)
    takes = strips and text not in _NOT_STRIPPING
    return {"id": number, "content": text, "special": special, "rstrip": takes, **rest}


def _around(
    metadata: Mapping[str, Value], tokens: Sequence[str], ids: Mapping[str, int], begins: bool
) -> dict[str, Any]:
    """The special tokens before and after a text."""
    begins = _flag(metadata, "add_bos_token", begins) and "bos" in ids
    ends = _flag(metadata, "add_eos_token", False) and "eos" in ids

    def special(name: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": tokens[ids[name]], "type_id": 0}}

    text: list[dict[str, Any]] = [{"Sequence": {"id": "A", "type_id": 0}}]
    single = [special("bos")] * begins + text + [special("eos")] * ends
    named = [name for name, on in (("bos", begins), ("eos", ends)) if on]
    known = {
        tokens[ids[n]]: {"id": tokens[ids[n]], "ids": [ids[n]], "tokens": [tokens[ids[n]]]}
        for n in named
    }
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known
    }  # fmt: skip


# -- the kind gpt2 ---------------------------------------------------------------------------------
def _rule(name: str) -> _Rule:
    if name not in _RULES:
        raise RefusedModelError(
            f"The file's tokenizer splits texts by the rule {name[:40]!r}, which is not supported.",
            f"Use a file with one of these rules: {', '.join(_RULES)}. Or use the model's "
            "directory.",
        )
    return _RULES[name]


def _merges(metadata: Mapping[str, Value]) -> list[list[str]]:
    """A merge is two texts with a blank between them; a blank in a text is another character."""
    found = []
    for merge in _texts(metadata, "merges"):
        left, blank, right = merge.partition(" ")
        if not (left and blank and right) or " " in right:
            raise _corrupt(f"the merge {merge[:40]!r} is no pair")
        found.append([left, right])
    return found


def _byte_level(tokens: Sequence[str], merges: list[list[str]], rule: _Rule) -> dict[str, Any]:
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    cuts: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": cut}, "behavior": "Isolated", "invert": False}
        for cut in rule.cuts
    ]
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [*cuts, {**level, "use_regex": False}],
        },
        "decoder": {**level, "use_regex": False},
        "model": _model(tokens, merges, ignore_merges=rule.whole_pieces),
    }


def _model(tokens: Sequence[str], merges: list[list[str]], **facts: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
        "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
        "ignore_merges": False,
    }  # fmt: skip
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return {**plain, "vocab": vocabulary, "merges": merges, **facts}


# -- the kind llama --------------------------------------------------------------------------------
def _sentence_pieces(
    metadata: Mapping[str, Value],
    tokens: Sequence[str],
    types: Sequence[int],
    ids: Mapping[str, int],
) -> dict[str, Any]:
    scores = metadata.get(_ROOM + "scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise _corrupt(f"it has no list {_ROOM}scores as long as that of tokens")
    if any(type(s) is not float or s != s for s in scores):
        raise _corrupt(f"{_ROOM}scores has other things than numbers")
    prefix = _flag(metadata, "add_space_prefix", True)
    steps: list[dict[str, Any]] = [{"type": "Prepend", "prepend": _SPACE}] * prefix
    steps.append({"type": "Replace", "pattern": {"String": " "}, "content": _SPACE})
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] * prefix
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": _SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
                *strip,
            ],
        },
        "model": _model(
            tokens,
            _merges_by_score(tokens, types, [float(s) for s in scores]),
            byte_fallback=True,
            fuse_unk=True,
            unk_token=tokens[ids["unk"]] if "unk" in ids else None,
        ),
    }


def _merges_by_score(
    tokens: Sequence[str], types: Sequence[int], scores: Sequence[float]
) -> list[list[str]]:
    """Every pair of tokens that is a token, those of the highest score first."""
    ordinary = {
        token: scores[n] for n, token in enumerate(tokens) if types[n] in (_NORMAL, _USER, _UNUSED)
    }
    order = {token: n for n, token in enumerate(tokens)}
    pairs = [
        (-score, order[token[:at]], order[token[at:]], token[:at], token[at:])
        for token, score in ordinary.items()
        for at in range(1, len(token))
        if token[:at] in ordinary and token[at:] in ordinary
    ]
    return [[left, right] for *_, left, right in sorted(pairs)]
