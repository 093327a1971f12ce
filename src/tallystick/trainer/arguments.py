"""What becomes of each field of transformers.TrainingArguments.

HONOURED: the job says the same. SAME: it changes no number of a training on one machine. Every
other one that changes numbers is refused by name, unless it has one of the values that change
nothing. A field of a later version, which this table does not know, is refused where it is set.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from tallystick.errors import UsageError

HONOURED = frozenset(
    """
output_dir per_device_train_batch_size num_train_epochs max_steps learning_rate lr_scheduler_type
lr_scheduler_kwargs warmup_steps warmup_ratio optim optim_args weight_decay adam_beta1 adam_beta2
adam_epsilon gradient_accumulation_steps max_grad_norm label_smoothing_factor logging_strategy
logging_steps logging_first_step eval_strategy eval_steps per_device_eval_batch_size
load_best_model_at_end seed data_seed remove_unused_columns resume_from_checkpoint disable_tqdm
report_to run_name project log_level log_level_replica label_names prediction_loss_only
per_gpu_train_batch_size per_gpu_eval_batch_size overwrite_output_dir
dataloader_drop_last
""".split()
)

SAME = {
    "average_tokens_across_devices": "there is one device",
    "activation_checkpointing": "it saves memory; the job plans its own",
    "activation_checkpointing_kwargs": "it saves memory; the job plans its own",
    "gradient_checkpointing": "it saves memory; the job plans its own",
    "gradient_checkpointing_kwargs": "it saves memory; the job plans its own",
    "use_cache": "a trace runs without the cache",
    "torch_empty_cache_steps": "the job has its own memory",
    "log_on_each_node": "there is one node",
    "logging_nan_inf_filter": "it hides numbers in the log; the job ends at a non-finite loss",
    "include_for_metrics": "for evaluate()",
    "batch_eval_metrics": "for evaluate()",
    "eval_do_concat_batches": "for evaluate()",
    "eval_use_gather_object": "there is one process",
    "eval_accumulation_steps": "for evaluate()",
    "save_only_model": "the run stores its own states",
    "save_strategy": "the run stores its own states, and goes on from each",
    "save_steps": "the run stores its own states, and goes on from each",
    "save_total_limit": "the run keeps a few states",
    "save_on_each_node": "there is one node",
    "save_safetensors": "for save_model()",
    "enable_jit_checkpoint": "the run goes on from any interruption",
    "hub_token": "for push_to_hub()",
    "hub_private_repo": "for push_to_hub()",
    "hub_model_id": "for push_to_hub()",
    "hub_strategy": "for push_to_hub()",
    "hub_always_push": "for push_to_hub()",
    "hub_revision": "for push_to_hub()",
    "trackio_space_id": "for reports",
    "trackio_bucket_id": "for reports",
    "trackio_static_space_id": "for reports",
    "full_determinism": "every run is deterministic",
    "use_cpu": "the device changes no bit",
    "no_cuda": "the device changes no bit",
    "use_mps_device": "the device changes no bit",
    "accelerator_config": "there is one process, and the job's order",
    "dataloader_num_workers": "the data are collated once",
    "dataloader_pin_memory": "the data are collated once",
    "dataloader_persistent_workers": "the data are collated once",
    "dataloader_prefetch_factor": "the data are collated once",
    "dataloader_multiprocessing_context": "the data are collated once",
    "dataloader_in_order": "the data are collated once",
    "length_column_name": "it belongs to group_by_length",
    "ddp_find_unused_parameters": "there is one process",
    "ddp_bucket_cap_mb": "there is one process",
    "ddp_broadcast_buffers": "there is one process",
    "ddp_static_graph": "there is one process",
    "ddp_backend": "there is one process",
    "ddp_timeout": "there is one process",
    "local_rank": "there is one process",
    "skip_memory_metrics": "for reports",
    "do_train": "Trainer itself does not read it",
    "do_eval": "Trainer itself does not read it",
    "do_predict": "Trainer itself does not read it",
    "metric_for_best_model": "checked where a best model is asked for",
    "greater_is_better": "checked where a best model is asked for",
    "torch_compile_backend": "it belongs to torch_compile",
    "torch_compile_mode": "it belongs to torch_compile",
    "liger_kernel_config": "it belongs to use_liger_kernel",
    "fp16_backend": "it belongs to fp16",
    "fp16_opt_level": "it belongs to fp16",
    "half_precision_backend": "it belongs to fp16",
    "fsdp_config": "it belongs to fsdp",
    "fsdp_min_num_params": "it belongs to fsdp",
    "fsdp_transformer_layer_cls_to_wrap": "it belongs to fsdp",
    "ray_scope": "for hyperparameter_search",
    "use_legacy_prediction_loop": "for evaluate()",
    "push_to_hub_token": "for push_to_hub()",
    "push_to_hub_model_id": "for push_to_hub()",
    "push_to_hub_organization": "for push_to_hub()",
    "logging_dir": "for reports",
    "past_index": "for evaluate()",
    "mp_parameters": "there is one process",
    "include_inputs_for_metrics": "for evaluate()",
}  # fmt: skip

_BITS = "A contract fixes every bit in float32: leave it out."
_ONE = "A job is one training on one machine: leave it out."
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "bf16": ((False,), _BITS),
    "fp16": ((False,), _BITS),
    "bf16_full_eval": ((False,), _BITS),
    "fp16_full_eval": ((False,), _BITS),
    # False says what a contract does anyway.
    "tf32": ((None, False), _BITS),
    "torch_compile": ((False,), "The job's own executor runs the program: leave it out."),
    "jit_mode_eval": ((False,), "The job's own executor runs the program: leave it out."),
    "use_ipex": ((False,), _BITS),
    "use_liger_kernel": ((False,), "Its kernels have no contract: leave it out."),
    "neftune_noise_alpha": ((None,), "Its noise is added by a hook: draw it in forward instead."),
    "optim_target_modules": ((None,), "Give optimizers=(optimizer, scheduler) with groups."),
    "auto_find_batch_size": ((False,), "A job has one batch size: choose it."),
    "include_num_input_tokens_seen": (("no", False), "The log of a job does not count tokens."),
    "include_tokens_per_second": ((False,), "The log of a job does not count tokens."),
    "eval_delay": ((0,), "Validation begins with the first pass: leave it 0."),
    "eval_on_start": ((False,), "Call trainer.evaluate() before train()."),
    "push_to_hub": ((False,), "Call trainer.push_to_hub() after train()."),
    "restore_callback_states_from_checkpoint": ((False,), "A run keeps no states of callbacks."),
    "ignore_data_skip": ((False,), "A run goes on with the very next batch: leave it out."),
    "parallelism_config": ((None,), _ONE),
    "train_sampling_strategy": (
        ("random", "sequential"),
        "A job's records are shuffled or in sequence.",
    ),
    "group_by_length": ((False,), "The job's seed orders its records."),
    "split_batches": ((None, False), _ONE),
    "dispatch_batches": ((None, False), _ONE),
    "tpu_num_cores": ((None,), _ONE),
    "tpu_metrics_debug": ((False,), _ONE),
    "fsdp": ((None, "", False, []), _ONE),
    "deepspeed": ((None,), _ONE),
    "tp_size": ((0, 1), _ONE),
    "debug": (("", []), "A job has no debugging hooks: leave it out."),
    "torchdynamo": ((None,), _BITS),
}  # fmt: skip

# Methods of transformers.Trainer whose override would be left out.
METHODS = {
    "training_step": "Override compute_loss.",
    "get_train_dataloader": "Give train_dataset and data_collator.",
    "get_batch_samples": "Override compute_loss.",
    "compute_loss_context_manager": "A contract has no autocast.",
    "autocast_smart_context_manager": "A contract has no autocast.",
    "_inner_training_loop": "Write your loop with tallystick.fit.",
    "_get_train_sampler": "The job's seed orders its records.",
}


def check_arguments(args: Any) -> None:
    """Raise UsageError for the first field of `args` that a job cannot honour."""
    for field in dataclasses.fields(args):
        name, value = field.name, getattr(args, field.name, None)
        if name in HONOURED or name in SAME:
            continue
        if name in REFUSED:
            neutral, action = REFUSED[name]
            if value not in neutral:
                raise UsageError(f"TrainingArguments: {name}={value!r} is not supported.", action)
        elif not _is_default(field, value):
            raise UsageError(
                f"TrainingArguments: Tallystick does not know the field {name}={value!r}.",
                "Leave it out.",
            )
    config = getattr(args, "accelerator_config", None)
    if getattr(config, "gradient_accumulation_kwargs", None):
        raise UsageError(
            "TrainingArguments: accelerator_config contains gradient_accumulation_kwargs.",
            "Set gradient_accumulation_steps instead.",
        )
    if args.n_gpu > 1:
        raise UsageError(f"TrainingArguments: n_gpu is {args.n_gpu}.", _ONE)


def _is_default(field: dataclasses.Field[Any], value: Any) -> bool:
    if field.default_factory is not dataclasses.MISSING:
        return bool(value == field.default_factory())
    return value is field.default or bool(value == field.default)


def check_methods(kind: type) -> None:
    """Raise UsageError where a subclass overrides what a job would never call."""
    ours = next(c for c in kind.__mro__ if c.__module__ == __package__ + ".huggingface")
    for name, action in METHODS.items():
        if getattr(kind, name, None) is not getattr(ours, name, None):
            raise UsageError(f"{kind.__name__} overrides {name}, which is not supported.", action)
