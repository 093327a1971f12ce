"""transformers' models of images, sound and several of them, from tiny configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tallystick_bench.coverage.case import Batch, Case, floats, integers, library, padded
from tallystick_bench.coverage.hf_text import SMALL, build, whole_call

_ROWS, _LABELS = 2, 4

_IMAGE = {"image_size": 16, "patch_size": 4, "num_channels": 3, "num_labels": _LABELS,
          "drop_path_rate": 0.0}  # fmt: skip
_STAGES = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "num_labels": _LABELS}

IMAGES: dict[str, Mapping[str, Any]] = {
    "vit": _IMAGE,
    "deit": {**_IMAGE, "architectures": ["DeiTForImageClassification"]},
    "beit": {**_IMAGE, "use_relative_position_bias": True},
    "swin": {**_IMAGE, "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 1],
             "num_heads": [2, 2], "num_attention_heads": None, "window_size": 4},
    "swinv2": {**_IMAGE, "image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 1],
               "num_heads": [2, 2], "num_attention_heads": None, "window_size": 4},
    "convnext": {**_IMAGE, "image_size": 32, "patch_size": 2, "hidden_sizes": [8, 16],
                 "depths": [1, 1], "num_stages": 2},
    "convnextv2": {**_IMAGE, "image_size": 32, "patch_size": 2, "hidden_sizes": [8, 16],
                   "depths": [1, 1], "num_stages": 2},
    "resnet": {**_STAGES, "layer_type": "bottleneck"},
    "regnet": {**_STAGES, "groups_width": 4, "num_hidden_layers": None},
    "mobilenet_v1": {**_IMAGE, "image_size": 32, "depth_multiplier": 0.25,
                     "classifier_dropout_prob": 0.0},
    "mobilenet_v2": {**_IMAGE, "image_size": 32, "depth_multiplier": 0.25,
                     "classifier_dropout_prob": 0.0},
    "mobilevit": {**_IMAGE, "image_size": 32, "patch_size": 2, "hidden_sizes": [16, 16, 16],
                  "neck_hidden_sizes": [8, 8, 8, 8, 16, 16, 16], "hidden_dropout_prob": 0.0,
                  "expand_ratio": 2.0, "mlp_ratio": 2.0, "classifier_dropout_prob": 0.0},
    "efficientnet": {"image_size": 32, "num_labels": _LABELS, "width_coefficient": 0.25,
                     "depth_coefficient": 0.1, "hidden_dim": 320, "dropout_rate": 0.0,
                     "drop_connect_rate": 0.0, "depth_divisor": 4},
    "dinov2": _IMAGE,
    "poolformer": {**_IMAGE, "image_size": 32, "hidden_sizes": [8, 16], "depths": [1, 1],
                   "patch_sizes": [3, 3], "strides": [2, 2], "padding": [1, 1],
                   "num_encoder_blocks": 2, "mlp_ratio": 2.0},
    "pvt": {**_IMAGE, "image_size": 32, "hidden_sizes": [8, 16], "depths": [1, 1],
            "patch_sizes": [4, 2], "strides": [4, 2], "num_encoder_blocks": 2,
            "num_attention_heads": [1, 2], "sequence_reduction_ratios": [2, 1],
            "mlp_ratios": [2, 2]},
    "levit": {**_IMAGE, "image_size": 32, "kernel_size": 3, "stride": 2, "padding": 1,
              "hidden_sizes": [16, 16, 16], "num_attention_heads": [2, 2, 2],
              "depths": [1, 1, 1], "key_dim": [4, 4, 4], "patch_size": 4, "drop_path_rate": 0,
              "architectures": ["LevitForImageClassification"],
              "down_ops": [["Subsample", 4, 2, 2, 2, 2], ["Subsample", 4, 2, 2, 2, 2]]},
    "cvt": {**_IMAGE, "image_size": 32, "patch_sizes": [7, 3, 3], "embed_dim": [8, 8, 16],
            "num_heads": [1, 1, 2], "depth": [1, 2, 3], "drop_rate": [0.0] * 3,
            "attention_drop_rate": [0.0] * 3, "drop_path_rate": [0.0] * 3},
    "focalnet": {**_IMAGE, "image_size": 32, "embed_dim": 8, "depths": [1, 1],
                 "hidden_sizes": [8, 16], "focal_levels": [2, 2], "focal_windows": [3, 3]},
    "bit": {**_STAGES, "num_groups": 4, "num_hidden_layers": None},
}  # fmt: skip

# Their depth is fixed, so the smallest has a hundred layers and more.
_DEEP = frozenset({"mobilenet_v1", "mobilenet_v2", "mobilevit", "efficientnet"})

_AUDIO = {
    **SMALL, "conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (8, 3),
    "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2, "feat_proj_dropout": 0.0,
    "final_dropout": 0.0, "layerdrop": 0.0, "apply_spec_augment": False, "vocab_size": 12,
    "pad_token_id": 0, "num_labels": _LABELS, "ctc_loss_reduction": "mean",
    "classifier_proj_size": 16,
}  # fmt: skip
_TEXT_TOWER = {"vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
               "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 16,
               "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 1}  # fmt: skip
_VISION_TOWER = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "image_size": 16, "patch_size": 4}  # fmt: skip


def _images(g: torch.Generator, size: int = 16) -> Batch:
    return {"pixel_values": floats(g, _ROWS, 3, size, size), "labels": integers(g, _LABELS, _ROWS)}


def _made(model: str, config: str, **given: Any) -> Callable[[], nn.Module]:
    """A model class with its own config class."""

    def build_it() -> nn.Module:
        hf = library("transformers")
        hf.logging.set_verbosity_error()
        module: nn.Module = getattr(hf, model)(getattr(hf, config)(**given))
        for child in module.modules():
            if isinstance(child, nn.Dropout):
                child.p = 0.0
        return module.train()

    return build_it


def _square(module: nn.Module, b: Batch) -> Tensor:
    found = module(**b)
    y = found[0] if isinstance(found, tuple) else next(iter(found.values()))
    loss: Tensor = y.square().mean()
    return loss


def _pairs(module: nn.Module, b: Batch) -> Tensor:
    loss: Tensor = module(**b, return_loss=True).loss
    return loss


def _segments(g: torch.Generator) -> Batch:
    return {
        "pixel_values": floats(g, _ROWS, 3, 32, 32),
        "labels": integers(g, _LABELS, _ROWS, 32, 32),
    }


def _depths(g: torch.Generator) -> Batch:
    return {"pixel_values": floats(g, _ROWS, 3, 32, 32)}


def _pixels_and_words(g: torch.Generator) -> Batch:
    return {
        "input_ids": integers(g, 55, _ROWS, 8) + 5,
        "attention_mask": padded(g, _ROWS, 8),
        "pixel_values": floats(g, _ROWS, 3, 16, 16),
    }


def _sound(g: torch.Generator) -> Batch:
    mask = torch.ones(_ROWS, 160, dtype=torch.int64)
    mask[1, 120:] = 0
    return {"input_values": floats(g, _ROWS, 160), "attention_mask": mask}


def _spoken(g: torch.Generator) -> Batch:
    return _sound(g) | {"labels": integers(g, 11, _ROWS, 4) + 1}


def _named(g: torch.Generator) -> Batch:
    return _sound(g) | {"labels": integers(g, _LABELS, _ROWS)}


def _whisper(g: torch.Generator) -> Batch:
    return {"input_features": floats(g, _ROWS, 8, 24), "labels": integers(g, 55, _ROWS, 6) + 5}


def _series(g: torch.Generator) -> Batch:
    return {"past_values": floats(g, _ROWS, 16, 2), "future_values": floats(g, _ROWS, 4, 2)}


def cases() -> Iterator[Case]:
    """Image classifiers; segmentation, depth, detection; sound; pairs of image and text."""
    family = "transformers vision"
    for kind, given in IMAGES.items():

        def made(kind: str = kind, given: Any = given) -> nn.Module:
            return build(kind, "AutoModelForImageClassification", **given)

        size = int(given.get("image_size", 32))
        yield Case(family, kind, made, whole_call, lambda g, size=size: _images(g, size),
                   slow=kind in _DEEP)  # fmt: skip
    yield Case(family, "segformer", lambda: build(
        "segformer", "AutoModelForSemanticSegmentation", num_encoder_blocks=2, depths=[1, 1],
        sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3], strides=[4, 2],
        num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, drop_path_rate=0.0,
        classifier_dropout_prob=0.0, num_labels=_LABELS), whole_call, _segments)  # fmt: skip
    yield Case(family, "vit_mae", _made(
        "ViTMAEForPreTraining", "ViTMAEConfig", **_VISION_TOWER, decoder_hidden_size=16,
        decoder_num_hidden_layers=1, decoder_num_attention_heads=2, decoder_intermediate_size=24),
        lambda m, b: m(b["pixel_values"], noise=b["noise"]).loss,
        lambda g: {"pixel_values": floats(g, _ROWS, 3, 16, 16),
                   "noise": floats(g, _ROWS, 16)})  # fmt: skip
    yield Case(family, "dpt", lambda: build(
        "dpt", "AutoModelForDepthEstimation", image_size=32, patch_size=8, is_hybrid=False,
        backbone_out_indices=[0, 1, 2, 3], num_hidden_layers=4, neck_hidden_sizes=[8, 8, 8, 8],
        fusion_hidden_size=8, num_labels=_LABELS), _square, _depths)  # fmt: skip
    yield Case(family, "detr encoder-decoder", lambda: _detr(), _square, _depths)
    yield Case(family, "yolos", _made(
        "YolosModel", "YolosConfig", **{**_VISION_TOWER, "image_size": [16, 16]},
        num_detection_tokens=4), _square,
        lambda g: {"pixel_values": floats(g, _ROWS, 3, 16, 16)})  # fmt: skip
    yield Case(family, "upernet-free glpn", lambda: build(
        "glpn", "AutoModelForDepthEstimation", num_encoder_blocks=4, depths=[1] * 4,
        sr_ratios=[2, 2, 1, 1], hidden_sizes=[8, 8, 8, 8], patch_sizes=[3] * 4,
        strides=[2, 2, 2, 1], num_attention_heads=[1, 1, 2, 2], mlp_ratios=[2] * 4,
        decoder_hidden_size=8, drop_path_rate=0.0), _square, _depths)  # fmt: skip

    family = "transformers sound"
    for kind in ("wav2vec2", "hubert", "wavlm", "unispeech-sat", "data2vec-audio", "sew"):
        more: dict[str, Any] = {"squeeze_factor": 1} if kind == "sew" else {}
        if kind == "sew":
            more["feat_extract_norm"] = "layer"

        def sound(kind: str = kind, more: Any = more) -> nn.Module:
            return build(kind, "AutoModelForAudioClassification", **{**_AUDIO, **more})

        yield Case(family, kind, sound, whole_call, _named)
    yield Case(family, "wav2vec2 ctc", lambda: build("wav2vec2", "AutoModelForCTC", **_AUDIO),
               whole_call, _spoken)  # fmt: skip
    yield Case(family, "whisper", lambda: build(
        "whisper", "AutoModelForSpeechSeq2Seq", d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=12, max_target_positions=16,
        apply_spec_augment=False, encoder_layerdrop=0.0, decoder_layerdrop=0.0,
        suppress_tokens=None, begin_suppress_tokens=None), whole_call, _whisper)  # fmt: skip
    yield Case(family, "audio-spectrogram-transformer", lambda: build(
        "audio-spectrogram-transformer", "AutoModelForAudioClassification", patch_size=4,
        frequency_stride=4, time_stride=4, max_length=16, num_mel_bins=16, num_labels=_LABELS),
        whole_call, lambda g: {"input_values": floats(g, _ROWS, 16, 16),
                               "labels": integers(g, _LABELS, _ROWS)})  # fmt: skip

    family = "transformers several"
    yield Case(family, "clip", _made(
        "CLIPModel", "CLIPConfig", text_config=_TEXT_TOWER, vision_config=_VISION_TOWER,
        projection_dim=16), _pairs, _pixels_and_words)  # fmt: skip
    yield Case(family, "siglip", _made(
        "SiglipModel", "SiglipConfig", text_config={**_TEXT_TOWER, "max_position_embeddings": 8},
        vision_config=_VISION_TOWER), _pairs, _pixels_and_words)  # fmt: skip
    yield Case(family, "blip", _made(
        "BlipForImageTextRetrieval", "BlipConfig",
        text_config={**_TEXT_TOWER, "encoder_hidden_size": 32, "hidden_dropout_prob": 0.0,
                     "attention_probs_dropout_prob": 0.0},
        vision_config=_VISION_TOWER, projection_dim=16),
        lambda m, b: m(**b).itm_score.square().mean(), _pixels_and_words)  # fmt: skip
    yield Case(family, "vilt", _made(
        "ViltModel", "ViltConfig", **{**_TEXT_TOWER, **_VISION_TOWER}, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0), _square, _pixels_and_words)  # fmt: skip
    yield Case(family, "patchtst", _made(
        "PatchTSTForPrediction", "PatchTSTConfig", num_input_channels=2, context_length=16,
        prediction_length=4, patch_length=4, patch_stride=4, d_model=16, num_attention_heads=2,
        ffn_dim=24, num_hidden_layers=2, loss="mse", head_dropout=0.0), whole_call,
        _series)  # fmt: skip
    yield Case(family, "patchtsmixer", _made(
        "PatchTSMixerForPrediction", "PatchTSMixerConfig", num_input_channels=2, context_length=16,
        prediction_length=4, patch_length=4, patch_stride=4, d_model=8, num_layers=2, dropout=0.0,
        head_dropout=0.0, loss="mse"), whole_call, _series)  # fmt: skip
    yield Case(family, "decision_transformer", _made(
        "DecisionTransformerModel", "DecisionTransformerConfig", state_dim=5, act_dim=3,
        hidden_size=32, n_layer=2, n_head=4, max_ep_len=16, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0),
        lambda m, b: (m(**b).action_preds - b["actions"]).square().mean(),
        lambda g: {"states": floats(g, 2, 4, 5), "actions": floats(g, 2, 4, 3),
                   "rewards": floats(g, 2, 4, 1), "returns_to_go": floats(g, 2, 4, 1),
                   "timesteps": integers(g, 16, 2, 4),
                   "attention_mask": padded(g, 2, 4, left=True)})  # fmt: skip


def _detr() -> nn.Module:
    hf = library("transformers")
    backbone = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1],
                               out_features=["stage2"])  # fmt: skip
    config = hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
        backbone_config=backbone, d_model=32, encoder_layers=1, decoder_layers=1,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
        decoder_ffn_dim=48, num_queries=5, dropout=0.0, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
    )  # fmt: skip
    module: nn.Module = hf.DetrModel(config)
    return module.train()
