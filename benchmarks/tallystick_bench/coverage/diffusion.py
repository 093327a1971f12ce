"""diffusers' networks from tiny configs, trained to predict the noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tallystick_bench.coverage.case import Batch, Case, floats, integers, library


def _made(name: str, **given: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        module: nn.Module = getattr(library("diffusers"), name)(**given)
        for child in module.modules():
            if isinstance(child, nn.Dropout):
                child.p = 0.0
        return module.train()

    return build


def _noise(module: nn.Module, b: Batch) -> Tensor:
    rest = {k: v for k, v in b.items() if k not in ("sample", "timestep", "noise")}
    return F.mse_loss(module(b["sample"], b["timestep"], **rest).sample, b["noise"])


def _noised(g: torch.Generator, channels: int = 3, **rest: Tensor) -> Batch:
    shape = (2, channels, 16, 16)
    return {
        "sample": floats(g, *shape),
        "timestep": integers(g, 1000, 2),
        "noise": floats(g, *shape),
        **rest,
    }


def _rebuilt(module: nn.Module, b: Batch) -> Tensor:
    return F.mse_loss(module(b["sample"]).sample, b["sample"])


def _variational(module: nn.Module, b: Batch) -> Tensor:
    inner: Any = module
    posterior = inner.encode(b["sample"]).latent_dist
    rebuilt = inner.decode(posterior.mode()).sample
    loss: Tensor = F.mse_loss(rebuilt, b["sample"]) + 1e-3 * posterior.kl().mean()
    return loss


def _sampled(module: nn.Module, b: Batch) -> Tensor:
    inner: Any = module
    posterior = inner.encode(b["sample"]).latent_dist
    rebuilt = inner.decode(posterior.mean + posterior.std * b["noise"]).sample
    return F.mse_loss(rebuilt, b["sample"])


def _image(g: torch.Generator) -> Batch:
    return {"sample": floats(g, 2, 3, 16, 16)}


def _with_noise(g: torch.Generator) -> Batch:
    return _image(g) | {"noise": floats(g, 2, 4, 8, 8)}


_UNET: dict[str, Any] = {
    "sample_size": 16, "block_out_channels": (8, 16), "layers_per_block": 1, "norm_num_groups": 4,
}  # fmt: skip
_VAE: dict[str, Any] = {
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
    "block_out_channels": (8, 16), "norm_num_groups": 4,
}  # fmt: skip
_DIT: dict[str, Any] = {
    "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2, "sample_size": 16,
    "patch_size": 4,
}  # fmt: skip


def cases() -> Iterator[Case]:
    """U-Nets, autoencoders and diffusion transformers."""
    family = "diffusers"
    yield Case(
        family,
        "UNet2DModel",
        _made(
            "UNet2DModel",
            **_UNET,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            attention_head_dim=8,
        ),
        _noise,
        _noised,
    )
    yield Case(family, "UNet2DModel resnet sampling", _made(
        "UNet2DModel", **_UNET, down_block_types=("ResnetDownsampleBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "ResnetUpsampleBlock2D"), add_attention=False), _noise,
        _noised)  # fmt: skip
    yield Case(family, "UNet2DConditionModel", _made(
        "UNet2DConditionModel", **_UNET, in_channels=4, out_channels=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=12,
        attention_head_dim=4), _noise,
        lambda g: _noised(g, 4, encoder_hidden_states=floats(g, 2, 5, 12)))  # fmt: skip
    yield Case(family, "UNet1DModel", _made(
        "UNet1DModel", sample_size=16, in_channels=3, out_channels=3, extra_in_channels=16,
        block_out_channels=(8, 8, 16), norm_num_groups=4), _noise,
        lambda g: {"sample": floats(g, 2, 3, 16), "timestep": integers(g, 1000, 2),
                   "noise": floats(g, 2, 3, 16)})  # fmt: skip
    yield Case(family, "AutoencoderKL", _made("AutoencoderKL", **_VAE), _variational, _image)
    yield Case(family, "AutoencoderKL sampled", _made("AutoencoderKL", **_VAE), _sampled,
               _with_noise)  # fmt: skip
    yield Case(family, "AutoencoderTiny", _made(
        "AutoencoderTiny", encoder_block_out_channels=(8, 8), decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)), _rebuilt, _image)  # fmt: skip
    yield Case(family, "VQModel", _made("VQModel", **_VAE, num_vq_embeddings=16), _rebuilt,
               _image)  # fmt: skip
    yield Case(family, "DiTTransformer2DModel", _made(
        "DiTTransformer2DModel", **_DIT, in_channels=4, out_channels=4, norm_num_groups=4,
        num_embeds_ada_norm=1000, dropout=0.0), _labelled_noise,
        lambda g: _noised(g, 4, class_labels=integers(g, 1000, 2)))  # fmt: skip
    yield Case(family, "PixArtTransformer2DModel", _made(
        "PixArtTransformer2DModel", **_DIT, in_channels=4, out_channels=4, cross_attention_dim=16,
        caption_channels=12, norm_num_groups=4, use_additional_conditions=False), _labelled_noise,
        lambda g: _noised(g, 4, encoder_hidden_states=floats(g, 2, 5, 12)))  # fmt: skip
    yield Case(family, "SD3Transformer2DModel", _made(
        "SD3Transformer2DModel", **_DIT, in_channels=4, out_channels=4, joint_attention_dim=12,
        caption_projection_dim=16, pooled_projection_dim=10, pos_embed_max_size=8), _labelled_noise,
        lambda g: _noised(g, 4, encoder_hidden_states=floats(g, 2, 5, 12),
                          pooled_projections=floats(g, 2, 10)))  # fmt: skip
    yield Case(family, "FluxTransformer2DModel", _made(
        "FluxTransformer2DModel", patch_size=1, in_channels=4, num_layers=1, num_single_layers=1,
        attention_head_dim=16, num_attention_heads=2, joint_attention_dim=12,
        pooled_projection_dim=10, axes_dims_rope=(4, 4, 8)), _flux, _flux_batch)  # fmt: skip


def _labelled_noise(module: nn.Module, b: Batch) -> Tensor:
    rest = {k: v for k, v in b.items() if k not in ("sample", "noise")}
    return F.mse_loss(module(b["sample"], **rest).sample, b["noise"])


def _flux(module: nn.Module, b: Batch) -> Tensor:
    where = {"img_ids": b["img_ids"], "txt_ids": b["txt_ids"]}
    rest = {k: v for k, v in b.items() if k not in ("noise", *where)}
    return F.mse_loss(module(**rest, **where).sample, b["noise"])


def _flux_batch(g: torch.Generator) -> Batch:
    return {
        "hidden_states": floats(g, 2, 16, 4),
        "encoder_hidden_states": floats(g, 2, 5, 12),
        "pooled_projections": floats(g, 2, 10),
        "timestep": torch.rand(2, generator=g),
        "img_ids": integers(g, 4, 16, 3).float(),
        "txt_ids": torch.zeros(5, 3),
        "noise": floats(g, 2, 16, 4),
    }
