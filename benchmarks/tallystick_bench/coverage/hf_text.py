"""transformers' text models from tiny configs, called as their users call them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallystick_bench.coverage.case import Batch, Case, integers, library, padded

ROWS, LENGTH, WORDS = 3, 12, 61

SMALL: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 2,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "dropout": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "classifier_dropout": 0.0,
    "summary_last_dropout": 0.0,
    "summary_first_dropout": 0.0,
}
_KV = {"num_key_value_heads": 2}
_HEAD = {"head_dim": 8}
_MOE = {"num_local_experts": 4, "num_experts": 4, "num_experts_per_tok": 2}
_DECODER = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
    "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "layerdrop": 0.0,
}  # fmt: skip
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2,
       "num_heads": 4, "dropout_rate": 0.0}  # fmt: skip

CAUSAL: dict[str, Mapping[str, Any]] = {
    "gpt2": {},
    "openai-gpt": {"afn": "gelu"},
    "gpt_neo": {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 5,
                "num_heads": 4, "embed_dropout": 0.0},
    "gptj": {"rotary_dim": 4, "n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 32},
    "gpt_neox": {},
    "gpt_bigcode": {},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"n_layer": 2, "n_head": 4},
    "llama": _KV,
    "mistral": {**_KV, "sliding_window": 5},
    "mixtral": {**_KV, **_MOE},
    "qwen2": _KV,
    "qwen2_moe": {**_KV, **_MOE, "moe_intermediate_size": 24,
                  "shared_expert_intermediate_size": 24},
    "qwen3": {**_KV, **_HEAD},
    "qwen3_moe": {**_KV, **_HEAD, **_MOE, "moe_intermediate_size": 24},
    "gemma": {**_KV, **_HEAD},
    "gemma2": {**_KV, **_HEAD, "sliding_window": 5, "query_pre_attn_scalar": 8},
    "gemma3_text": {**_KV, **_HEAD, "sliding_window": 5, "query_pre_attn_scalar": 8},
    "phi": {},
    "phi3": _KV,
    "falcon": {"new_decoder_architecture": False, "alibi": False},
    "mpt": {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 32},
    "stablelm": _KV,
    "starcoder2": {**_KV, "residual_dropout": 0.0, "embedding_dropout": 0.0},
    "olmo": _KV,
    "olmo2": _KV,
    "olmoe": {**_KV, **_MOE},
    "cohere": _KV,
    "cohere2": {**_KV, "sliding_window": 5},
    "persimmon": {},
    "codegen": {"n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4, "n_positions": 32,
                "n_ctx": 32},
    "ctrl": {"n_embd": 32, "n_head": 4, "n_layer": 2, "dff": 48, "n_positions": 32},
    "xglm": {"d_model": 32, "num_layers": 2, "attention_heads": 4, "ffn_dim": 48},
    "biogpt": {},
    "mamba": {"state_size": 4, "conv_kernel": 3},
    "mamba2": {"state_size": 4, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
    "falcon_mamba": {"state_size": 4},
    "rwkv": {"attention_hidden_size": 32},
    "granite": _KV,
    "granitemoe": {**_KV, **_MOE},
    "smollm3": _KV,
    "glm": {**_KV, **_HEAD},
    "glm4": {**_KV, **_HEAD},
    "nemotron": _KV,
    "helium": {**_KV, **_HEAD},
    "ernie4_5": {**_KV, **_HEAD},
    "exaone4": {**_KV, "sliding_window": 5},
    "seed_oss": {**_KV, **_HEAD},
    "gpt_oss": {**_KV, **_HEAD, **_MOE, "sliding_window": 5},
    "deepseek_v3": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                    "topk_group": 1, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
                    "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
                    "qk_nope_head_dim": 8, "v_head_dim": 8, "num_key_value_heads": 4},
    "diffllama": _KV,
    "modernbert-decoder": {"local_attention": 6, "embedding_dropout": 0.0, "mlp_dropout": 0.0},
    "recurrent_gemma": {"num_key_value_heads": 2, "lru_width": 32, "attention_window_size": 5,
                        "num_hidden_layers": 3},
    "jamba": {**_KV, **_MOE, "attn_layer_period": 2, "attn_layer_offset": 1,
              "use_mamba_kernels": False, "mamba_d_state": 4, "mamba_d_conv": 3},
    "lfm2": {**_KV, "block_ff_dim": 48, "full_attn_idxs": [1]},
}  # fmt: skip

MASKED: dict[str, Mapping[str, Any]] = {
    "bert": {},
    "roberta": {},
    "camembert": {},
    "xlm-roberta": {},
    "electra": {"embedding_size": 32},
    "albert": {"embedding_size": 16, "num_hidden_groups": 1},
    "distilbert": {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0},
    "deberta-v2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"],
                   "position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True},
    "mpnet": {},
    "xlnet": {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48,
              "max_position_embeddings": None},
    "squeezebert": {"embedding_size": 32, "q_groups": 2, "k_groups": 2, "v_groups": 2,
                    "post_attention_groups": 2, "intermediate_groups": 2, "output_groups": 2},
    "mobilebert": {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "convbert": {"embedding_size": 32, "head_ratio": 2, "num_groups": 1, "conv_kernel_size": 3},
    "funnel": {"d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48, "block_sizes": [1, 1],
               "num_decoder_layers": 1, "num_hidden_layers": None},
    "fnet": {},
    "ernie": {},
    "esm": {"token_dropout": False, "position_embedding_type": "rotary", "mask_token_id": 4},
    "flaubert": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "longformer": {"attention_window": 4},
    "big_bird": {"attention_type": "original_full"},
    "modernbert": {"local_attention": 6, "embedding_dropout": 0.0, "mlp_dropout": 0.0},
    "megatron-bert": {},
    "nystromformer": {"num_landmarks": 12, "segment_means_seq_len": 12},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "roformer": {},
    "layoutlm": {},
    "ibert": {},
    "data2vec-text": {},
}  # fmt: skip

SEQ2SEQ: dict[str, Mapping[str, Any]] = {
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "longt5": {**_T5, "local_radius": 3},
    "switch_transformers": {**_T5, **_MOE, "num_sparse_encoder_layers": 1,
                            "num_sparse_decoder_layers": 1, "router_jitter_noise": 0.0},
    "bart": _DECODER,
    "mbart": _DECODER,
    "marian": _DECODER,
    "pegasus": _DECODER,
    "blenderbot": _DECODER,
    "blenderbot-small": _DECODER,
    "led": {**_DECODER, "attention_window": 4, "max_encoder_position_embeddings": 32,
            "max_decoder_position_embeddings": 32},
    "plbart": _DECODER,
    "m2m_100": _DECODER,
    "bigbird_pegasus": {**_DECODER, "attention_type": "original_full"},
    "prophetnet": {"num_hidden_layers": None, "hidden_size": 32,
                   "num_encoder_layers": 2, "num_decoder_layers": 2,
                   "num_encoder_attention_heads": 4, "num_decoder_attention_heads": 4,
                   "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "ngram": 2},
}  # fmt: skip

_NO_MASK = frozenset({"fnet"})


def build(kind: str, auto: str, **given: Any) -> nn.Module:
    """A tiny model of `kind` by its Auto class, in training mode without dropout."""
    hf = library("transformers")
    hf.logging.set_verbosity_error()
    # Some configs refuse a setting that they lack: None leaves it out.
    settings = {name: v for name, v in {**SMALL, **given}.items() if v is not None}
    config = hf.AutoConfig.for_model(kind, **settings)
    module: nn.Module = getattr(hf, auto).from_config(config)
    if hasattr(config, "_experts_implementation"):
        # torch has no grouped product of float64, which the comparison needs.
        config._experts_implementation = "eager"
    for child in module.modules():
        if isinstance(child, nn.Dropout):
            child.p = 0.0
    return module.train()


def whole_call(module: nn.Module, batch: Batch) -> Tensor:
    """Every tensor by its name; the model makes its loss from the labels."""
    loss: Tensor = module(**batch).loss
    return loss


def tokens(g: torch.Generator, left: bool = False, rows: int = ROWS) -> Batch:
    """input_ids, a padded attention_mask, and labels that leave the padding out."""
    ids, mask = integers(g, WORDS - 5, rows, LENGTH) + 5, padded(g, rows, LENGTH, left)
    return {
        "input_ids": ids.masked_fill(mask == 0, 1),
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
    }


def _without_mask(g: torch.Generator) -> Batch:
    batch = tokens(g)
    del batch["attention_mask"]
    return batch


def _labelled(g: torch.Generator, labels: Tensor) -> Batch:
    return tokens(g) | {"labels": labels}


def _heads() -> Iterator[Case]:
    family = "transformers head"
    one = {"num_labels": 1}
    yield Case(family, "bert classification",
               lambda: build("bert", "AutoModelForSequenceClassification", num_labels=4),
               whole_call, lambda g: _labelled(g, integers(g, 4, ROWS)))  # fmt: skip
    yield Case(family, "roberta regression",
               lambda: build("roberta", "AutoModelForSequenceClassification", **one),
               whole_call, lambda g: _labelled(g, torch.randn(ROWS, generator=g)))  # fmt: skip
    yield Case(family, "distilbert several labels",
               lambda: build("distilbert", "AutoModelForSequenceClassification", num_labels=4,
                             problem_type="multi_label_classification"),
               whole_call, lambda g: _labelled(g, integers(g, 2, ROWS, 4).float()))  # fmt: skip
    yield Case(family, "gpt2 classification",
               lambda: build("gpt2", "AutoModelForSequenceClassification", num_labels=4),
               whole_call, lambda g: _labelled(g, integers(g, 4, ROWS)))  # fmt: skip
    yield Case(family, "llama classification",
               lambda: build("llama", "AutoModelForSequenceClassification", num_labels=4),
               whole_call, lambda g: _labelled(g, integers(g, 4, ROWS)))  # fmt: skip
    yield Case(family, "bert tokens",
               lambda: build("bert", "AutoModelForTokenClassification", num_labels=4),
               whole_call, lambda g: _labelled(g, integers(g, 4, ROWS, LENGTH)))  # fmt: skip

    def span(g: torch.Generator) -> Batch:
        batch = tokens(g)
        del batch["labels"]
        ends = {"start_positions": integers(g, 6, ROWS), "end_positions": integers(g, 6, ROWS)}
        return batch | ends

    yield Case(family, "bert question answering",
               lambda: build("bert", "AutoModelForQuestionAnswering"), whole_call,
               span)  # fmt: skip

    def choices(g: torch.Generator) -> Batch:
        batch = {k: v.view(2, 2, LENGTH) for k, v in tokens(g, rows=4).items()}
        return batch | {"labels": integers(g, 2, 2)}

    yield Case(family, "bert multiple choice",
               lambda: build("bert", "AutoModelForMultipleChoice"), whole_call,
               choices)  # fmt: skip


def _styles() -> Iterator[Case]:
    family = "transformers call"

    def causal(kind: str, **more: Any) -> Any:
        return lambda: build(kind, "AutoModelForCausalLM", **_KV, **more)

    def positional(module: nn.Module, b: Batch) -> Tensor:
        loss: Tensor = module(b["input_ids"], attention_mask=b["attention_mask"],
                              labels=b["labels"]).loss  # fmt: skip
        return loss

    def cached(module: nn.Module, b: Batch) -> Tensor:
        loss: Tensor = module(**b, use_cache=True).loss
        return loss

    def tuples(module: nn.Module, b: Batch) -> Tensor:
        loss: Tensor = module(**b, return_dict=False)[0]
        return loss

    def more(module: nn.Module, b: Batch) -> Tensor:
        loss: Tensor = module(**b, output_hidden_states=True).loss
        return loss

    def logits(module: nn.Module, b: Batch) -> Tensor:
        out = module(b["input_ids"]).logits[:, :-1]
        return nn.functional.cross_entropy(out.flatten(0, 1), b["labels"][:, 1:].flatten())

    for kind in ("gpt2", "llama"):
        yield Case(family, f"{kind} positional, left padding", causal(kind), positional,
                   lambda g: tokens(g, left=True))  # fmt: skip
        yield Case(family, f"{kind} use_cache=True", causal(kind), cached, tokens)
        yield Case(family, f"{kind} return_dict=False", causal(kind), tuples, tokens)
        yield Case(family, f"{kind} hidden states", causal(kind), more, tokens)
        yield Case(family, f"{kind} without a mask", causal(kind), logits, _without_mask)
        yield Case(family, f"{kind} eager attention",
                   causal(kind, attn_implementation="eager"), whole_call, tokens)  # fmt: skip
        yield Case(family, f"{kind} dropout",
                   causal(kind, resid_pdrop=0.1, attention_dropout=0.1, attn_pdrop=0.1),
                   whole_call, tokens, drawn=True)  # fmt: skip


def cases() -> Iterator[Case]:
    """Causal, masked and sequence-to-sequence models; heads; ways to call."""
    for family, kinds, auto in (
        ("transformers causal", CAUSAL, "AutoModelForCausalLM"),
        ("transformers masked", MASKED, "AutoModelForMaskedLM"),
        ("transformers encoder-decoder", SEQ2SEQ, "AutoModelForSeq2SeqLM"),
    ):
        for kind, given in kinds.items():
            head = "AutoModelWithLMHead" if kind == "xlnet" else auto
            if kind in ("xlnet",):
                head = "AutoModelForCausalLM"

            def made(kind: str = kind, head: str = head, given: Any = given) -> nn.Module:
                return build(kind, head, **given)

            yield Case(family, kind, made, whole_call,
                       _without_mask if kind in _NO_MASK else tokens)  # fmt: skip
    yield from _heads()
    yield from _styles()
