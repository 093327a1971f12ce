"""Tallystick: machine-learning training that anyone can repeat to the same bits.

The import of this package loads no other module of it and changes nothing in the process. All its
names stand in `tallystick.api`, those of the adapters in `tallystick.trainer`. They are loaded at
their first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tallystick import errors as errors

if TYPE_CHECKING:
    import tallystick.augment as augment  # noqa: F401
    import tallystick.trackers as trackers  # noqa: F401
    from tallystick.api import EMA as EMA
    from tallystick.api import LAMB as LAMB
    from tallystick.api import SGD as SGD
    from tallystick.api import Adafactor as Adafactor
    from tallystick.api import Adagrad as Adagrad
    from tallystick.api import Adam as Adam
    from tallystick.api import AdamW as AdamW
    from tallystick.api import AnswerReport as AnswerReport
    from tallystick.api import AuditReport as AuditReport
    from tallystick.api import Capture as Capture
    from tallystick.api import CheckedClaim as CheckedClaim
    from tallystick.api import Comparison as Comparison
    from tallystick.api import Conviction as Conviction
    from tallystick.api import Difference as Difference
    from tallystick.api import Dispute as Dispute
    from tallystick.api import Encoder as Encoder
    from tallystick.api import Event as Event
    from tallystick.api import Frozen as Frozen
    from tallystick.api import GivenAnswer as GivenAnswer
    from tallystick.api import GivenEncoding as GivenEncoding
    from tallystick.api import Job as Job
    from tallystick.api import Judgement as Judgement
    from tallystick.api import Lion as Lion
    from tallystick.api import Listener as Listener
    from tallystick.api import ModelRequest as ModelRequest
    from tallystick.api import Muon as Muon
    from tallystick.api import Pad as Pad
    from tallystick.api import PageJudgement as PageJudgement
    from tallystick.api import ParameterGroup as ParameterGroup
    from tallystick.api import ParameterGroups as ParameterGroups
    from tallystick.api import Place as Place
    from tallystick.api import PrivateKey as PrivateKey
    from tallystick.api import Program as Program
    from tallystick.api import Progress as Progress
    from tallystick.api import PublicKey as PublicKey
    from tallystick.api import ReceiptsConviction as ReceiptsConviction
    from tallystick.api import ReceiptsReport as ReceiptsReport
    from tallystick.api import RMSprop as RMSprop
    from tallystick.api import RunSummary as RunSummary
    from tallystick.api import SampleReport as SampleReport
    from tallystick.api import ShownReport as ShownReport
    from tallystick.api import ShownRequest as ShownRequest
    from tallystick.api import StepRecords as StepRecords
    from tallystick.api import StopRule as StopRule
    from tallystick.api import Terms as Terms
    from tallystick.api import TokenConviction as TokenConviction
    from tallystick.api import TransformersAdafactor as TransformersAdafactor
    from tallystick.api import Verdict as Verdict
    from tallystick.api import audit as audit
    from tallystick.api import bill_of_materials as bill_of_materials
    from tallystick.api import cancel as cancel
    from tallystick.api import capture as capture
    from tallystick.api import check as check
    from tallystick.api import check_claim as check_claim
    from tallystick.api import check_conviction as check_conviction
    from tallystick.api import check_sample as check_sample
    from tallystick.api import check_shown as check_shown
    from tallystick.api import claim_answer as claim_answer
    from tallystick.api import claim_audit as claim_audit
    from tallystick.api import claim_conviction as claim_conviction
    from tallystick.api import claim_provenance as claim_provenance
    from tallystick.api import claim_run as claim_run
    from tallystick.api import classify as classify
    from tallystick.api import compare_receipts as compare_receipts
    from tallystick.api import continue_run as continue_run
    from tallystick.api import diff as diff
    from tallystick.api import dispute as dispute
    from tallystick.api import embed as embed
    from tallystick.api import evaluate as evaluate
    from tallystick.api import freeze as freeze
    from tallystick.api import from_onnx as from_onnx
    from tallystick.api import generate as generate
    from tallystick.api import judge as judge
    from tallystick.api import judge_page as judge_page
    from tallystick.api import load_frozen as load_frozen
    from tallystick.api import load_job as load_job
    from tallystick.api import opened as opened
    from tallystick.api import records_of as records_of
    from tallystick.api import reproducible as reproducible
    from tallystick.api import request as request
    from tallystick.api import save_job as save_job
    from tallystick.api import show_request as show_request
    from tallystick.api import sign_model as sign_model
    from tallystick.api import trace as trace
    from tallystick.api import train as train
    from tallystick.trainer import Trainer as Trainer
    from tallystick.trainer import fit as fit
    from tallystick.trainer import fit_lightning as fit_lightning

__all__ = [
    "EMA",
    "LAMB",
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "AnswerReport",
    "AuditReport",
    "Capture",
    "CheckedClaim",
    "Comparison",
    "Conviction",
    "Difference",
    "Dispute",
    "Encoder",
    "Event",
    "Frozen",
    "GivenAnswer",
    "GivenEncoding",
    "Job",
    "Judgement",
    "Lion",
    "Listener",
    "ModelRequest",
    "Muon",
    "Pad",
    "PageJudgement",
    "ParameterGroup",
    "ParameterGroups",
    "Place",
    "PrivateKey",
    "Program",
    "Progress",
    "PublicKey",
    "RMSprop",
    "ReceiptsConviction",
    "ReceiptsReport",
    "RunSummary",
    "SampleReport",
    "ShownReport",
    "ShownRequest",
    "StepRecords",
    "StopRule",
    "Terms",
    "TokenConviction",
    "Trainer",
    "TransformersAdafactor",
    "Verdict",
    "audit",
    "bill_of_materials",
    "cancel",
    "capture",
    "check",
    "check_claim",
    "check_conviction",
    "check_sample",
    "check_shown",
    "claim_answer",
    "claim_audit",
    "claim_conviction",
    "claim_provenance",
    "claim_run",
    "classify",
    "compare_receipts",
    "continue_run",
    "diff",
    "dispute",
    "embed",
    "evaluate",
    "fit",
    "fit_lightning",
    "freeze",
    "from_onnx",
    "generate",
    "judge",
    "judge_page",
    "load_frozen",
    "load_job",
    "opened",
    "records_of",
    "reproducible",
    "request",
    "save_job",
    "show_request",
    "sign_model",
    "trace",
    "train",
]

# Rooms whose own names a person uses. `augment` needs torch, which nothing else here does.
_ROOMS = ("augment", "trackers")
# Those of the room above the interface.
_ADAPTERS = ("Trainer", "fit", "fit_lightning")


def __getattr__(name: str) -> Any:
    if name not in (*__all__, *_ROOMS):
        raise AttributeError(f"module 'tallystick' has no attribute {name!r}")
    if name in _ROOMS:
        return importlib.import_module(f"tallystick.{name}")
    if name in _ADAPTERS:
        from tallystick import trainer

        return getattr(trainer, name)
    from tallystick import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "errors"])
