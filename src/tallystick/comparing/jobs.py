"""Two jobs compared by what their digests cover, and apart from it by what their manifests say."""

from __future__ import annotations

from collections.abc import Iterator

from tallystick.comparing.found import JOBS, SIZES, Cause, Comparison
from tallystick.comparing.job_files import operator_apart, records_apart, weights_apart
from tallystick.job.job import Job
from tallystick.job.numbers import count, decimal, listed, shape_of
from tallystick.job.words import JobInWords, against, words_of
from tallystick.job.words.parts import ParameterWords, ProgramWords, UpdateWords
from tallystick.job.words.sentences import Apart
from tallystick.protocol.verdict import PARTIES


def compare_jobs(first: Job, second: Job) -> Comparison:
    """Two jobs. They are equal where they have one digest; what no digest covers is in
    `uncommitted` and makes no difference."""
    ours, theirs = words_of(first), words_of(second)
    return Comparison(
        JOBS,
        first.digest == second.digest,
        tuple(job_causes(ours, theirs, (first, second))),
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


def job_causes(
    first: JobInWords, second: JobInWords, jobs: tuple[Job, Job] | None = None
) -> Iterator[Cause]:
    """In what two jobs differ, by kinds. What follows from another kind is not named again: other
    weights from another seed, another text from other dropout. With `jobs` their programs and
    files are read, and the operator, tensor or record that differs is named."""
    if first.digest == second.digest:
        return
    found = [*_of_numbers(first, second), *_of_programs(first, second)]
    found += _of_data(first, second, jobs)
    kinds = {cause.kind for cause in found}
    slots = [
        ([(u.kind, u.slots, u.parameters) for u in words.updates], words.averaged)
        for words in (first, second)
    ]
    alike = slots[0] == slots[1] and not kinds & {"seed", "program"}
    if alike and first.genesis_root != second.genesis_root:
        shown = None if jobs is None else weights_apart(*jobs)
        shown = shown or Cause("weights", "The jobs begin with other weights.")
        if shown.sentence:
            found.append(shown)
    if first.contract != second.contract:
        found.append(
            Cause("rounding", f"The contract is {first.contract} in A and {second.contract} in B.")
        )
    texts = [[(p.name, p.digest) for p in words.programs] for words in (first, second)]
    explained = {"program", "dropout", "setting", "rounding", "last batch", *SIZES}
    if texts[0] != texts[1] and not {cause.kind for cause in found} & explained:
        said = None if jobs is None else operator_apart(*jobs)
        found.append(Cause("program", said or "The programs differ in an operator."))
    if first.steps != second.steps:
        pair = [count(words.steps, "step") for words in (first, second)]
        said = f"A whole run has {pair[0]} in A and {pair[1]} in B."
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
            where = f", first in step {row:,} of the steps that read it" if lengths else ""
            yield Cause("rate", f"The scalar {table.name} is {pair}{where}.", table.name)
    yield from (Cause("setting", said) for said in _of_updates(first, second))


def _of_updates(first: JobInWords, second: JobInWords) -> Iterator[str]:
    """The settings of the optimizers that differ, one sentence each."""
    if len(first.updates) != len(second.updates):
        kinds = [listed(list(dict.fromkeys(map(_rule, w.updates)))) for w in (first, second)]
        if kinds[0] != kinds[1]:
            yield f"The optimizers are {kinds[0]} in A and {kinds[1]} in B."
        return
    said = list[str]()
    for ours, other in zip(first.updates, second.updates, strict=True):
        if _rule(ours) != _rule(other):
            said.append(f"The optimizer is {_rule(ours)} in A and {_rule(other)} in B.")
            continue
        mine, theirs = dict(ours.options), dict(other.options)
        for name in dict.fromkeys([*mine, *theirs]):
            if mine.get(name) != theirs.get(name):
                pair = f"{_number(mine.get(name))} in A and {_number(theirs.get(name))} in B"
                said.append(f"{name} of {_rule(ours)} is {pair}.")
        bounds = (
            ("The bound of the gradients' norm", ours.clip_norm, other.clip_norm),
            ("The bound of a gradient's elements", ours.clip_value, other.clip_value),
        )
        for what, a, b in bounds:
            if a != b:
                said.append(f"{what} is {_number(a)} in A and {_number(b)} in B.")
    yield from dict.fromkeys(said)


def _rule(update: UpdateWords) -> str:
    return update.kind or f"a rule that ends in {update.operator}"


def _number(value: float | bool | None) -> str:
    if value is None:
        return "none"
    return str(value).lower() if isinstance(value, bool) else decimal(value)


def _of_data(
    first: JobInWords, second: JobInWords, jobs: tuple[Job, Job] | None
) -> Iterator[Cause]:
    theirs = {data.name: data for data in second.data}
    for data in first.data:
        other = theirs.get(data.name)
        if other is None:
            continue
        if data.root != other.root:
            shown = None if jobs is None else records_apart(*jobs, data.name)
            yield shown or Cause("data", f"The records of {data.name} differ.")
        if (data.order, data.order_seed) != (other.order, other.order_seed):
            said = (
                f"The seed of the order of {data.name} is {data.order_seed} in A and "
                f"{other.order_seed} in B."
            )
            if data.order != other.order:
                said = f"The order of {data.name} is {data.order} in A and {other.order} in B."
            yield Cause("data order", said)


def _of_programs(first: JobInWords, second: JobInWords) -> Iterator[Cause]:
    theirs = {program.name: program for program in second.programs}
    for program in first.programs:
        other = theirs.get(program.name)
        if other is not None:
            yield from _of_program(program, other, _shapes(first) == _shapes(second))
    yield from (Cause("program", said) for said in _of_models(first, second))


def _of_models(first: JobInWords, second: JobInWords) -> Iterator[str]:
    """In what two models or their losses differ, one sentence each."""
    ours, theirs = _shapes(first), _shapes(second)
    apart = [n for n in dict.fromkeys([*ours, *theirs]) if ours.get(n) != theirs.get(n)]
    if apart:
        pair = [found.get(apart[0], "absent") for found in (ours, theirs)]
        yield f"The models differ, first in {apart[0]}: it is {pair[0]} in A and {pair[1]} in B."
    trained = [{_full(n, p) for n, p in _parameters(w) if p.trained} for w in (first, second)]
    if not apart and trained[0] != trained[1]:
        froze = (trained[1] - trained[0], trained[0] - trained[1])
        for name, frozen in zip(PARTIES, froze, strict=True):
            if frozen:
                yield f"Only {name} freezes {listed(sorted(frozen))}."
    if not apart and first.averaged != second.averaged:
        counts = [
            count(len(w.averaged), "tensor") if w.averaged else "no tensor" for w in (first, second)
        ]
        yield f"A moving average is kept of {counts[0]} in A and of {counts[1]} in B."
    parts = [[p.micro_batches for p in words.programs] for words in (first, second)]
    losses = [[(p.name, p.loss) for p in words.programs] for words in (first, second)]
    if losses[0] != losses[1] and parts[0] == parts[1]:
        both = [
            next((x for x in losses[n] if x not in losses[1 - n]), ("", "none"))[1] for n in (0, 1)
        ]
        yield f"The loss is {both[0]} in A and {both[1]} in B."


def _parameters(words: JobInWords) -> Iterator[tuple[str, ParameterWords]]:
    return ((layer.module, p) for layer in words.layers for p in layer.parameters)


def _full(module: str, parameter: ParameterWords) -> str:
    return f"{module}.{parameter.name}" if module else parameter.name


def _shapes(words: JobInWords) -> dict[str, str]:
    return {_full(m, p): shape_of(p.dtype, p.shape) for m, p in _parameters(words)}


def _of_program(ours: ProgramWords, other: ProgramWords, one_model: bool) -> Iterator[Cause]:
    """Where the models differ, the same random operators more often are no other dropout."""
    rates = [{(d.operator, d.numbers) for d in p.draws} for p in (ours, other)]
    if rates[0] != rates[1] or (one_model and ours.draws != other.draws):
        pair = (_draws(ours), _draws(other))
        said = f"The random operators of a step are {pair[0]} in A and {pair[1]} in B."
        yield Cause("dropout", said)
    sizes = [(p.batch_size, p.micro_batches) for p in (ours, other)]
    if sizes[0] != sizes[1]:
        yield _of_sizes(*sizes)
    ends = [(p.end, p.epoch_records) for p in (ours, other)]
    if ends[0] != ends[1] and sizes[0] == sizes[1]:
        yield Cause("last batch", f"An epoch ends by {_end(ours)} in A and by {_end(other)} in B.")


def _of_sizes(ours: tuple[int, int], theirs: tuple[int, int]) -> Cause:
    """Of two numbers of records in a batch, each with its number of micro-batches."""
    if ours[0] == theirs[0]:
        said = [
            f"in {parts:,} micro-batches" if parts > 1 else "at once" for _, parts in (ours, theirs)
        ]
        records = count(ours[0], "record")
        return Cause(
            "micro-batches", f"A batch of {records} is taken {said[0]} in A and {said[1]} in B."
        )
    said = [
        f"{count(size, 'record')}{f' in {parts:,} micro-batches' if parts > 1 else ''}"
        for size, parts in (ours, theirs)
    ]
    return Cause("batch size", f"A batch has {said[0]} in A and {said[1]} in B.")


def _draws(program: ProgramWords) -> str:
    drawn = [
        f"{draw.operator} {' '.join(f'{name} {decimal(v)}' for name, v in draw.numbers)}".strip()
        + (f", {draw.times:,} times" if draw.times > 1 else "")
        for draw in program.draws
    ]
    return " and ".join(drawn) or "none"


def _end(program: ProgramWords) -> str:
    size = program.epoch_records
    return f"`{program.end}`" if size is None else f"`{program.end}` at {size:,} records"
