"""`tallystick kept`: what a model server keeps, until when, and whether it is whole."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path

import click

from tallystick.answers.job import check_weights
from tallystick.answers.model import open_model, weights
from tallystick.cli.output import MISMATCH, finish, json_option, print_json, say
from tallystick.errors import CounterpartyError, DigestMismatchError, StorageError, UsageError
from tallystick.serving.kept.answers import KeptAnswers
from tallystick.serving.kept.reader import KeptModel, KeptReader
from tallystick.serving.kept.same_files import require_models, until_words

_ANY_BUDGET = 1 << 62  # nothing is added but the place of a model


@click.command("kept")
@click.argument("directory", type=click.Path())
@click.option(
    "--check", is_flag=True, help="Check every kept answer and every model that is still needed."
)
@click.option(
    "--model",
    type=click.Path(),
    help="New place of a model that has moved. Its weights are checked.",
)
@click.option("--adapter", type=click.Path(), help="Directory of the adapter of that model.")
@click.option("--expire", is_flag=True, help="Delete answers past their date.")
@json_option
def kept(
    directory: str,
    check: bool,
    model: str | None,
    adapter: str | None,
    expire: bool,
    as_json: bool,
) -> None:
    """List the models whose answers are kept in DIRECTORY, and how long each model is needed.

    Keep a model's directory until that date: disputes are answered with its weights. With --check
    the exit code is 1 if anything is damaged or missing.
    """
    if adapter is not None and model is None:
        raise UsageError("--adapter needs --model.", "Pass the model with --model too.")
    place = Path(directory)
    KeptReader(place).close()  # nothing is made where nothing is kept
    deleted = 0
    if model is not None or expire:
        with KeptAnswers(place, _ANY_BUDGET) as keeper:
            if model is not None:
                _moved(keeper, Path(model), None if adapter is None else Path(adapter))
            deleted = keeper.expire() if expire else 0
    with KeptReader(place) as reader:
        models, answers = reader.models(), reader.counted()
        damage = _damage(reader, models) if check else []
    if as_json:
        print_json(
            {
                "answers": answers,
                "deleted": deleted,
                "damaged": damage,
                "models": [
                    {
                        "digest": one.digest,
                        "directory": one.directory,
                        "adapter": one.adapter,
                        "answers": one.answers,
                        "until": one.until,
                    }
                    for one in models
                ],
            }
        )
    else:
        say(f"answers     {answers}" + (f", {deleted} deleted" if expire else ""))
        for one in models:
            when = f"until {until_words(one.until)}" if one.answers else "not needed"
            beside = "" if one.adapter is None else f" with {one.adapter}"
            where = f"{one.directory}{beside}: {one.answers} answers, {when}"
            say(f"model       {one.digest.hex()}  {where}")
        for sentence in damage:
            say(f"DAMAGED     {sentence}")
    if damage:
        finish(MISMATCH)


def _damage(reader: KeptReader, models: list[KeptModel]) -> list[str]:
    found = reader.damaged()
    for model in models:
        try:
            require_models([model], reader.statement, int(time.time() * 1000))
        except (CounterpartyError, StorageError) as error:
            found.append(error.message)
    return found


def _moved(keeper: KeptAnswers, directory: Path, adapter: Path | None) -> None:
    """Note where a model lies. Raises DigestMismatchError for one that no answer is of."""
    held = cache(lambda merged: weights(open_model(directory, adapter, merged)))
    for model in keeper.models():
        statement = keeper.statement(model.digest)
        if (statement.adapter is None) != (adapter is None):
            continue
        try:
            check_weights(statement, held(statement.merged))
        except DigestMismatchError:
            continue
        keeper.uses(statement, directory, adapter)
        return
    beside = "" if adapter is None else f" with the adapter in {adapter}"
    raise DigestMismatchError(
        f"No kept answer is from the model in {directory}{beside}.",
        "Name the directory of a model that `tallystick kept` lists.",
    )
