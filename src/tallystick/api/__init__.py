"""The Python interface (DESIGN 9): every public name of `tallystick` stands in this room.

The functions take jobs, runs and keys as objects or as paths. Only a function that needs PyTorch
loads it, and only when it is called. So a judge never loads PyTorch.
"""

from tallystick.answers.check import AnswerReport as AnswerReport
from tallystick.api.answering import GivenAnswer as GivenAnswer
from tallystick.api.answers import check as check
from tallystick.api.answers import generate as generate
from tallystick.api.capturing import Capture as Capture
from tallystick.api.capturing import capture as capture
from tallystick.api.capturing import freeze as freeze
from tallystick.api.capturing import from_onnx as from_onnx
from tallystick.api.capturing import records_of as records_of
from tallystick.api.capturing import reproducible as reproducible
from tallystick.api.capturing import save_job as save_job
from tallystick.api.disputes import Dispute as Dispute
from tallystick.api.disputes import dispute as dispute
from tallystick.api.disputes import judge as judge
from tallystick.api.disputes import judge_page as judge_page
from tallystick.api.encoding import Encoder as Encoder
from tallystick.api.encoding import GivenEncoding as GivenEncoding
from tallystick.api.encoding import classify as classify
from tallystick.api.encoding import embed as embed
from tallystick.api.given import PathLike as PathLike
from tallystick.api.runs import audit as audit
from tallystick.api.runs import continue_run as continue_run
from tallystick.api.runs import train as train
from tallystick.commit.signing import PrivateKey as PrivateKey
from tallystick.commit.signing import PublicKey as PublicKey
from tallystick.data.freeze import Progress as Progress
from tallystick.data.frozen import Frozen as Frozen
from tallystick.data.frozen import load_frozen as load_frozen
from tallystick.data.rules import Pad as Pad
from tallystick.disk.objects.opening import opened as opened
from tallystick.job.job import Job as Job
from tallystick.job.job_file import load_job as load_job
from tallystick.job.judged_page import PageJudgement as PageJudgement
from tallystick.job.step_records import StepRecords as StepRecords
from tallystick.kernels.evaluate import evaluate as evaluate
from tallystick.program.ema import EMA as EMA
from tallystick.program.ir import Program as Program
from tallystick.program.optimizers import LAMB as LAMB
from tallystick.program.optimizers import SGD as SGD
from tallystick.program.optimizers import Adafactor as Adafactor
from tallystick.program.optimizers import Adagrad as Adagrad
from tallystick.program.optimizers import Adam as Adam
from tallystick.program.optimizers import AdamW as AdamW
from tallystick.program.optimizers import Lion as Lion
from tallystick.program.optimizers import Muon as Muon
from tallystick.program.optimizers import RMSprop as RMSprop
from tallystick.program.optimizers import TransformersAdafactor as TransformersAdafactor
from tallystick.program.parameter_groups import ParameterGroup as ParameterGroup
from tallystick.program.parameter_groups import ParameterGroups as ParameterGroups
from tallystick.program.terms import Terms as Terms
from tallystick.program.validation import StopRule as StopRule
from tallystick.protocol.judge import Judgement as Judgement
from tallystick.protocol.verdict import Conviction as Conviction
from tallystick.protocol.verdict import Event as Event
from tallystick.protocol.verdict import Place as Place
from tallystick.protocol.verdict import Verdict as Verdict
from tallystick.run.execute.listener import Listener as Listener
from tallystick.run.show.audit_report import AuditReport as AuditReport
from tallystick.run.show.audit_report import Difference as Difference
from tallystick.run.show.summary import RunSummary as RunSummary
