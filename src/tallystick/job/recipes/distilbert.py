"""Recipe `distilbert`: DistilBERT of any size; it classifies texts, or learns masked words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tallystick.commit.tensor import Array
from tallystick.data.frozen import Frozen
from tallystick.errors import UsageError
from tallystick.job.recipes.base import (
    Built,
    Recipe,
    RecipeData,
    Sources,
    StartingPoint,
    greatest,
    is_weight,
    normal,
    opened_tokenizer,
    require_fields,
    split,
    uniform,
)
from tallystick.job.recipes.settings import setting, step_options
from tallystick.job.recipes.starting import read_sizes
from tallystick.job.recipes.text_records import (
    FIELD,
    IDS,
    SOURCES,
    TextSettings,
    check_vocabulary,
    load_windows,
    masked_loss,
)
from tallystick.numerics.types import DTYPES, TensorType

if TYPE_CHECKING:
    import torch
    from torch import nn

CLASSIFY, MLM = "classify", "mlm"
LABELS, ATTENTION = "labels", "attention_mask"
_BYTES = 256
_PADDING = 0


@dataclass(frozen=True)
class DistilbertSettings(TextSettings):
    """Keys of `--set`. Their defaults are the sizes of DistilBERT-base, 66M parameters."""

    recipe: ClassVar[str] = "distilbert"

    task: str = setting(CLASSIFY, "classify, or mlm: masked words of a text")
    n_layers: int = setting(6, "transformer blocks", low=1, high=1000)
    n_heads: int = setting(12, "attention heads; divides dim", low=1, high=1000)
    dim: int = setting(768, "width", low=1, high=65536)
    hidden_dim: int = setting(3072, "width inside the feed-forward layers", low=1, high=1 << 20)
    vocab_size: int = setting(30522, "tokens in the vocabulary", low=2, high=1 << 24)
    max_positions: int = setting(512, "positions that have an embedding", low=1, high=1 << 20)
    length: int = setting(128, "tokens per record of the synthetic data", low=4, high=1 << 16)
    labels: int = setting(2, "classes", low=2, high=1 << 20)
    records: int = setting(512, "records of the synthetic data", low=16, high=1 << 24)
    dropout: float = setting(0.1, "dropout after embedding and feed-forward", low=0)
    attention_dropout: float = setting(0.1, "dropout probability of attention weights", low=0)
    classifier_dropout: float = setting(0.2, "dropout probability before the classifier", low=0)
    mask_token: int = setting(103, "mlm: token that replaces a masked word", low=0)
    mask_share: float = setting(0.15, "mlm: share of the words to predict", low=1e-6, high=0.5)
    batch_size: int = setting(16, "records per step", low=1, high=1 << 20)
    lr: float = setting(1e-4, "peak learning rate", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.one_of("task", (CLASSIFY, MLM))
        self.below_one("dropout", "attention_dropout", "classifier_dropout")
        self.divides("n_heads", "dim")
        if self.task == MLM and self.mask_token >= self.vocab_size:
            raise UsageError(
                f"distilbert: mask_token={self.mask_token} is outside the vocabulary of "
                f"{self.vocab_size} tokens.",
                f"Add --set vocab_size={self.mask_token + 1}, or set mask_token to the "
                "tokenizer's mask token.",
            )


PRESETS = {
    "base": {},
    "small": {
        "n_layers": "4",
        "n_heads": "4",
        "dim": "256",
        "hidden_dim": "1024",
        "max_positions": "128",
        "length": "64",
        "lr": "0.0005",
    },
    "tiny": {
        "n_layers": "2",
        "n_heads": "2",
        "dim": "16",
        "hidden_dim": "32",
        "vocab_size": "300",
        "max_positions": "32",
        "length": "16",
        "records": "128",
        "batch_size": "8",
        "lr": "0.003",
    },
}


def make_module(s: DistilbertSettings) -> nn.Module:
    """DistilBERT (Sanh et al. 2019) with the head of its task: learned positions, post-LN blocks,
    gelu; the first token's vector is classified, the head of masked words is tied.

    Its input is i64[n, length], and None or an attention mask i64[n, length], 0 at padding.
    Parameter names are those of transformers' DistilBertForSequenceClassification and
    DistilBertForMaskedLM. torch's own initial weights stay in the module; the job gets those of
    `initial_weights`, or a checkpoint's.
    """
    import torch
    from torch import nn
    from torch.nn import functional as F

    def norm() -> nn.LayerNorm:
        return nn.LayerNorm(s.dim, eps=1e-12)

    class Embeddings(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.word_embeddings = nn.Embedding(s.vocab_size, s.dim, padding_idx=_PADDING)
            self.position_embeddings = nn.Embedding(s.max_positions, s.dim)
            self.LayerNorm = norm()
            self.dropout = nn.Dropout(s.dropout)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            positions = torch.arange(ids.shape[1], device=ids.device)
            x = self.word_embeddings(ids) + self.position_embeddings(positions)
            out: torch.Tensor = self.dropout(self.LayerNorm(x))
            return out

    class DistilbertAttention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q_lin = nn.Linear(s.dim, s.dim)
            self.k_lin = nn.Linear(s.dim, s.dim)
            self.v_lin = nn.Linear(s.dim, s.dim)
            self.out_lin = nn.Linear(s.dim, s.dim)

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
            b, t, c = x.shape
            q, k, v = (
                layer(x).view(b, t, s.n_heads, c // s.n_heads).transpose(1, 2)
                for layer in (self.q_lin, self.k_lin, self.v_lin)
            )
            p = s.attention_dropout if self.training else 0.0
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
            out: torch.Tensor = self.out_lin(y.transpose(1, 2).reshape(b, t, c))
            return out

    class FeedForward(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin1 = nn.Linear(s.dim, s.hidden_dim)
            self.lin2 = nn.Linear(s.hidden_dim, s.dim)
            self.dropout = nn.Dropout(s.dropout)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.dropout(self.lin2(F.gelu(self.lin1(x))))
            return out

    class DistilbertBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = DistilbertAttention()
            self.sa_layer_norm = norm()
            self.ffn = FeedForward()
            self.output_layer_norm = norm()

        def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
            x = self.sa_layer_norm(self.attention(x, mask) + x)
            out: torch.Tensor = self.output_layer_norm(self.ffn(x) + x)
            return out

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.ModuleList(DistilbertBlock() for _ in range(s.n_layers))

    class DistilbertBody(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = Embeddings()
            self.transformer = Transformer()

        def forward(self, ids: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
            seen = None if mask is None else (mask != 0)[:, None, None, :]
            x: torch.Tensor = self.embeddings(ids)
            for block in self.transformer.layer:
                x = block(x, seen)
            return x

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.distilbert = DistilbertBody()
            self.pre_classifier = nn.Linear(s.dim, s.dim)
            self.classifier = nn.Linear(s.dim, s.labels)
            self.dropout = nn.Dropout(s.classifier_dropout)

        def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x = F.relu(self.pre_classifier(self.distilbert(ids, mask)[:, 0]))
            out: torch.Tensor = self.classifier(self.dropout(x))
            return out

    class MaskedWords(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.distilbert = DistilbertBody()
            self.vocab_transform = nn.Linear(s.dim, s.dim)
            self.vocab_layer_norm = norm()
            self.vocab_projector = nn.Linear(s.dim, s.vocab_size)
            self.vocab_projector.weight = self.distilbert.embeddings.word_embeddings.weight

        def forward(self, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            x = F.gelu(self.vocab_transform(self.distilbert(ids, mask)))
            out: torch.Tensor = self.vocab_projector(self.vocab_layer_norm(x))
            return out

    return MaskedWords() if s.task == MLM else Classifier()


def initial_weights(types: Mapping[str, TensorType], seed: int) -> dict[str, Array]:
    """DistilBERT's initialisation, a function of slot names, shapes and `seed` alone.

    Matrices and embeddings: normal, 0.02, the padding's vector 0. Biases: 0. Layer norm weights: 1.
    The draw id is the slot's place in name order.
    """
    weights: dict[str, Array] = {}
    for index, name in enumerate(sorted(types)):
        shape = types[name].shape
        if len(shape) == 2:
            weights[name] = normal(seed, index, shape, 0.02)
            if name.endswith("word_embeddings.weight"):
                weights[name][_PADDING] = 0
        else:
            value = 1 if name.endswith(".weight") else 0
            weights[name] = np.full(shape, value, DTYPES[types[name].dtype])
    return weights


def synthetic(s: DistilbertSettings, seed: int) -> dict[str, Array]:
    """`input_ids` i64[records, length] and `labels` i64[records], from our own generator: a quarter
    of a record's words is its class's own word, the others are any words."""
    labels = np.arange(s.records, dtype=np.int64) % s.labels
    shape = (s.records, s.length)
    one, two = (
        (uniform(seed, (1 << 20) + draw, shape, 1.0).astype(np.float64) + 1) / 2 for draw in (0, 1)
    )
    words = s.vocab_size - 1
    anything = 1 + np.minimum(np.floor(one * words).astype(np.int64), words - 1)
    own = np.broadcast_to(1 + labels[:, None] % words, shape)
    return {IDS: np.where(two < 0.25, own, anything), LABELS: labels}


def load_data(s: DistilbertSettings, sources: Sources, seed: int) -> RecipeData:
    """Synthetic `input_ids` and `labels`; for masked words, `tokens` i64[length] of a text. The
    last records are held out."""
    if s.task == MLM:
        _fits(s, s.length)
        return load_windows(s, sources, s.length, s.length)
    if sources.text is not None or sources.tokenizer is not None:
        raise UsageError(
            "Classification needs labels, and a text has none.",
            "Add --set task=mlm, or freeze records with their labels.",
        )
    if sources.data is not None:
        raise UsageError(
            f"{sources.data} is not a frozen data set.", "Make one with `tallystick data freeze`."
        )
    _fits(s, s.length)
    held_out = max(s.batch_size, round(s.records * s.validation))
    if s.records <= held_out:
        raise UsageError(
            f"There are {s.records} records, too few for batches of {s.batch_size}.",
            "Use more records or a smaller batch_size.",
        )
    train, validation = split(synthetic(s, seed), held_out)
    return RecipeData(train, validation, {"source": "synthetic words"})


def _fits(s: DistilbertSettings, length: int) -> None:
    if length > s.max_positions:
        raise UsageError(
            f"The records have {length} tokens, but the model has {s.max_positions} positions.",
            f"Add --set max_positions={length}, or use shorter records.",
        )


def ids_field(names: Mapping[str, object] | set[str]) -> str:
    """The field of the tokens: `input_ids`, or `tokens` as a frozen text has it."""
    return FIELD if FIELD in names and IDS not in names else IDS


def check_frozen(s: DistilbertSettings, frozen: Frozen) -> None:
    """Raise UsageError unless the records are input_ids (or tokens) i64[length], attention_mask
    i64[length] if the author likes, and, to classify, labels i64[]."""
    found = {f.name: f for f in frozen.schema.fields}
    ids = ids_field(found)
    wanted = {ids: ("i64", 1)}
    if ATTENTION in found:
        wanted[ATTENTION] = ("i64", 1)
    if s.task == CLASSIFY:
        wanted[LABELS] = ("i64", 0)
        require_fields(frozen, wanted, LABELS)
        most = greatest(frozen, LABELS)
        if most >= s.labels:
            raise UsageError(
                f"The data has the class {most}, but the model has {s.labels} classes.",
                f"Add --set labels={most + 1}.",
            )
    require_fields(frozen, wanted, ids)
    if ATTENTION in found and found[ATTENTION].shape != found[ids].shape:
        raise UsageError(
            "attention_mask does not have the length of the tokens.",
            "Freeze both with the same length.",
        )
    check_vocabulary(s, frozen, ids)
    _fits(s, found[ids].shape[0])


def derive(given: Mapping[str, str], sources: Sources) -> dict[str, str]:
    """For masked words of a text: the vocabulary and its mask, where `--set` gives none. A
    tokenizer without a mask gets one behind its tokens, and so do bytes."""
    if given.get("task", CLASSIFY) != MLM or sources.data is not None:
        return {}
    tokenizer = opened_tokenizer(sources)
    count, mask = _BYTES, None
    if tokenizer is not None:
        count = tokenizer.count
        known = (tokenizer.token(text) for text in ("[MASK]", "<mask>"))
        mask = next((token for token in known if token is not None), None)
    mask = count if mask is None else mask
    return {"vocab_size": str(max(count, mask + 1)), "mask_token": str(mask)}


def build(s: DistilbertSettings, fields: Mapping[str, TensorType], steps: int, seed: int) -> Built:
    """Capture the training step, the validation loss and the forward pass. Needs torch."""
    import torch
    from torch.nn import functional as F

    from tallystick.program.capture.api import capture, capture_eval, capture_forward

    ids = ids_field(fields)

    def classes(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        logits = module(batch[ids], batch.get(ATTENTION))
        return F.cross_entropy(logits, batch[LABELS])

    def words(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return masked_loss(
            module, batch[ids], batch.get(ATTENTION), s.mask_token, s.mask_share, s.vocab_size
        )

    def forward(module: nn.Module, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        out: torch.Tensor = module(batch[IDS], batch.get(ATTENTION))
        return out

    with torch.device("meta"):
        module = make_module(s)
    module.train()
    batch = {name: ((s.batch_size, *t.shape), t.dtype) for name, t in fields.items()}
    inputs = {IDS if n == ids else n: t for n, t in batch.items() if n != LABELS}
    optimizer = s.rule(lambda name, shape: len(shape) == 2 and ".transformer." in name)
    loss: Callable[..., torch.Tensor] = words if s.task == MLM else classes
    captured = capture(module, loss, batch, optimizer, **step_options(s))
    types = {n: t for n, t in captured.program.state_types.items() if is_weight(n)}
    return Built(
        captured,
        lambda: captured.state_for(initial_weights(types, seed)),
        s.rates(steps),
        capture_eval(module, loss, batch),
        capture_forward(module, inputs, forward),
    )


_CONFIG = {
    "n_layers": "n_layers",
    "n_heads": "n_heads",
    "dim": "dim",
    "hidden_dim": "hidden_dim",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "max_positions",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "seq_classif_dropout": "classifier_dropout",
}
_BODY = "distilbert."


def _sizes(config: Mapping[str, Any]) -> dict[str, str]:
    fixed = {"activation": "gelu", "pad_token_id": _PADDING, "sinusoidal_pos_embds": False}
    return read_sizes(config, "distilbert", fixed, _CONFIG)


STARTING = StartingPoint(
    _sizes,
    # The model without a head is saved without the prefix.
    lambda name: (name, name.removeprefix(_BODY)),
    lambda name: not name.startswith(_BODY),
)
RECIPE = Recipe(
    "distilbert",
    "a DistilBERT of any size that classifies texts or learns masked words",
    DistilbertSettings,
    SOURCES,
    load_data,
    build,
    PRESETS,
    check_frozen,
    derive=derive,
    takes=("tokenizer", "checkpoint"),
    starting=STARTING,
)
