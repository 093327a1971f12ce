"""Two jobs compared by what their digests cover, and apart from it by what their manifests say."""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.comparing.found import JOBS, Cause, Comparison
from tallystick.job.job import Job
from tallystick.job.numbers import decimal
from tallystick.job.words import JobInWords, against, words_of
from tallystick.job.words.against import Apart
from tallystick.job.words.parts import ProgramWords


def compare_jobs(first: Job, second: Job) -> Comparison:
    """Two jobs. They are equal where they have one digest; what no digest covers is in
    `uncommitted` and makes no difference."""
    ours, theirs = words_of(first), words_of(second)
    return Comparison(
        JOBS,
        first.digest == second.digest,
        tuple(job_causes(ours, theirs)),
        fields=tuple(against(ours, theirs)),
        uncommitted=tuple(beside_apart(ours, theirs)),
        compared={"job digests": [first.digest.hex(), second.digest.hex()]},
    )


def beside_apart(first: JobInWords, second: JobInWords) -> Iterator[Apart]:
    """What the two authors say differently without any digest that covers it."""
    ours, theirs = dict(first.beside), dict(second.beside)
    for label in dict.fromkeys([*ours, *theirs]):
        if ours.get(label) != theirs.get(label):
            yield Apart(label, ours.get(label), theirs.get(label))


def job_causes(first: JobInWords, second: JobInWords) -> Iterator[Cause]:
    """In what two jobs differ, by kinds. What follows from another kind is not named again: other
    weights from another seed, another text from other dropout."""
    if first.digest == second.digest:
        return
    found = [*_of_numbers(first, second), *_of_programs(first, second), *_of_data(first, second)]
    kinds = {cause.kind for cause in found}
    slots = [[(u.kind, u.slots) for u in words.updates] for words in (first, second)]
    alike = slots[0] == slots[1] and not kinds & {"seed", "program"}
    if alike and first.genesis_root != second.genesis_root:
        found.append(Cause("weights", "The jobs begin with other weights."))
    if first.contract != second.contract:
        found.append(
            Cause("rounding", f"The contracts are {first.contract} and {second.contract}.")
        )
    texts = [[(p.name, p.digest) for p in words.programs] for words in (first, second)]
    explained = {"program", "dropout", "setting", "batch size", "rounding", "last batch"}
    if texts[0] != texts[1] and not {cause.kind for cause in found} & explained:
        found.append(Cause("program", "The program's text differs in an operator."))
    if first.steps != second.steps:
        said = f"A whole run of A has {first.steps:,} steps, one of B {second.steps:,}."
        found.append(Cause("steps", said))
    yield from found


def _of_numbers(first: JobInWords, second: JobInWords) -> Iterator[Cause]:
    if first.seed != second.seed:
        yield Cause("seed", f"The seed is {first.seed} in A and {second.seed} in B.")
    theirs = {table.name: table for table in second.tables}
    for table in first.tables:
        other = theirs.get(table.name)
        if other is None or table.values == other.values:
            continue
        lengths = [len(t.values) for t in (table, other) if not isinstance(t.values, float)]
        rows = range(min(lengths, default=1))
        row = next((r for r in rows if table.at(r) != other.at(r)), None)
        if row is not None:
            pair = f"{decimal(table.at(row))} in A and {decimal(other.at(row))} in B"
            where = f", first in row {row}" if lengths else ""
            yield Cause("rate", f"The scalar {table.name} is {pair}{where}.", table.name)
    ours = [(u.kind, u.options, u.clip_norm, u.clip_value) for u in first.updates]
    if ours != [(u.kind, u.options, u.clip_norm, u.clip_value) for u in second.updates]:
        yield Cause("setting", "The optimizers or their settings differ.")


def _of_data(first: JobInWords, second: JobInWords) -> Iterator[Cause]:
    theirs = {data.name: data for data in second.data}
    for data in first.data:
        other = theirs.get(data.name)
        if other is None:
            continue
        if data.root != other.root:
            yield Cause("data", f"The records of {data.name} differ.")
        if (data.order, data.order_seed) != (other.order, other.order_seed):
            pair = f"seed {data.order_seed} in A and {other.order_seed} in B"
            if data.order != other.order:
                pair = f"{data.order} in A and {other.order} in B"
            yield Cause("data order", f"The order of the records of {data.name} is by {pair}.")


def _of_programs(first: JobInWords, second: JobInWords) -> Iterator[Cause]:
    theirs = {program.name: program for program in second.programs}
    for program in first.programs:
        other = theirs.get(program.name)
        if other is not None:
            yield from _of_program(program, other)
    shapes = [[(p.name, p.dtype, p.shape) for p in words.parameters] for words in (first, second)]
    losses = [[(p.name, p.loss) for p in words.programs] for words in (first, second)]
    if shapes[0] != shapes[1] or losses[0] != losses[1]:
        yield Cause("program", "The models or their losses differ.")


def _of_program(ours: ProgramWords, other: ProgramWords) -> Iterator[Cause]:
    if ours.draws != other.draws:
        pair = (_draws(ours), _draws(other))
        yield Cause("dropout", f"Random operators of a step are {pair[0]} in A and {pair[1]} in B.")
    sizes = [(p.batch_size, p.micro_batches) for p in (ours, other)]
    if sizes[0] != sizes[1]:
        said = [f"{size:,} in {parts:,} micro-batches" for size, parts in sizes]
        yield Cause("batch size", f"A batch has {said[0]} in A and {said[1]} in B.")
    ends = [(p.end, p.epoch_records) for p in (ours, other)]
    if ends[0] != ends[1] and sizes[0] == sizes[1]:
        yield Cause("last batch", f"An epoch ends by {_end(ours)} in A and by {_end(other)} in B.")


def _draws(program: ProgramWords) -> str:
    drawn = [
        f"{draw.operator} {' '.join(f'{name} {decimal(v)}' for name, v in draw.numbers)}".strip()
        for draw in program.draws
    ]
    return " and ".join(drawn) or "none"


def _end(program: ProgramWords) -> str:
    size = program.epoch_records
    return f"`{program.end}`" if size is None else f"`{program.end}` at {size:,} records"
