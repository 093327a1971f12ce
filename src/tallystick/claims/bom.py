"""A trained model as a CycloneDX bill of materials (CLAIMS 8)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence

from tallystick.claims.runs import StatedRun, job_files
from tallystick.commit.encoding import sha256
from tallystick.commit.signed import CLAIMS, FILE, Subject
from tallystick.installed import tallystick_version
from tallystick.protocol.statement import COMMITMENT
from tallystick.run.show.summary import series
from tallystick.run.store.journal import loss_value

SPEC_VERSION = "1.7"
_DATA, _MODEL = "data", "model"
Json = dict[str, object]


def bill_of_materials(found: StatedRun, name: str) -> bytes:
    """The document for the model of a run, called `name`: indented JSON, the same bytes each time.

    A loss stands in a string, as CycloneDX has it. Raises the errors of `job_files`.
    """
    run = found.run
    files = [_file(one) for one in found.files]
    model: Json = {
        "bom-ref": _MODEL,
        "components": files,
        "externalReferences": [
            {
                "hashes": _hashes(sha256(found.commitment)),
                "type": "attestation",
                "url": COMMITMENT,
            }
        ],
        "modelCard": {
            "modelParameters": {"datasets": [{"ref": _DATA}]},
            "quantitativeAnalysis": {"performanceMetrics": _losses(found)},
        },
        "name": name,
        "properties": _properties(
            job_digest=found.job.digest.hex(),
            run_root=run.run_root.hex(),
            final_state_root=run.final_state_root.hex(),
            contract=found.job.commitment.contract,
            steps=str(run.final_step),
            signer=run.signer.raw.hex(),
        ),
        "type": "machine-learning-model",
        "version": run.run_root.hex()[:16],
    }
    if not files:
        del model["components"]
    document: Json = {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPEC_VERSION}.schema.json",
        "bomFormat": "CycloneDX",
        "components": [_data(found)],
        "dependencies": [{"dependsOn": [_DATA], "ref": _MODEL}, {"ref": _DATA}],
        "metadata": {
            "component": model,
            "tools": {
                "components": [
                    {"name": "tallystick", "type": "application", "version": tallystick_version()}
                ]
            },
        },
        "serialNumber": f"urn:uuid:{_serial(run.run_root)}",
        "specVersion": SPEC_VERSION,
        "version": 1,
    }
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=True) + "\n").encode()


def _serial(root: bytes) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{CLAIMS}run/{root.hex()}")


def _data(found: StatedRun) -> Json:
    """What the model was trained on: the files of the job, the data set among them."""
    return {
        "bom-ref": _DATA,
        "components": [_file(one) for one in job_files(found)],
        "data": [{"name": "training data", "type": "dataset"}],
        "name": "job",
        "properties": _properties(job_digest=found.job.digest.hex()),
        "type": "data",
        "version": found.job.digest.hex()[:16],
    }


def _losses(found: StatedRun) -> list[Json]:
    """The last loss of training and of validation, as the journal commits to them."""
    journal = found.claim.journal
    passes = [(step, loss_value(bits)) for step, bits in journal.evaluations]
    known = series(found.job, [loss_value(bits) for bits in journal.losses], passes)
    last: list[tuple[str, Sequence[float]]] = [
        ("training loss", known.training),
        ("validation loss", [loss for _, loss in known.validation]),
    ]
    return [{"type": name, "value": repr(losses[-1])} for name, losses in last if losses]


def _file(one: Subject) -> Json:
    return {"hashes": _hashes(one.digests[FILE]), "name": one.name, "type": "file"}


def _hashes(digest: bytes) -> list[Json]:
    return [{"alg": "SHA-256", "content": digest.hex()}]


def _properties(**values: str) -> list[Json]:
    named: Iterable[tuple[str, str]] = values.items()
    return [{"name": f"tallystick:{name}", "value": value} for name, value in named]
