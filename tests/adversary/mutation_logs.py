"""mutation.py for the checks about rounding logs, in one process: minutes instead of an hour.

    PYTHONPATH=src:tests:tests/unit/opening python tests/adversary/mutation_logs.py [--out FILE]

The games need a captured job, which takes longer to make than to play. So a disabled check is put
into the functions that are loaded already (their code objects), and every scenario of
tests/unit/protocol/log_scenarios.py and tests of the grid and of elements are tried until one
fails.
"""

from __future__ import annotations

import argparse
import importlib
import tempfile
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from adversary.mutation import Mutant, mutants
from unit.numerics import test_grid
from unit.opening import test_opening_rounded
from unit.protocol import test_protocol_element as elements
from unit.protocol import test_protocol_logs as games
from unit.protocol.log_scenarios import BOUNDED, PUBLISHED
from unit.protocol.log_simulator import make_log_job

from tallystick.job.job import Job

WHOLE = ("protocol/phase_log.py", "numerics/grid.py")
# Functions about logs in modules that are about more.
PARTS = {
    "protocol/element.py": {"_by_entries", "_forged", "_by_reach", "examine"},
    "protocol/phase2.py": {"commit", "_own_chains"},
    "protocol/phase3.py": {"_logged", "_convicted_below"},
    "protocol/results.py": {"node_proved"},
}

Test = tuple[str, Callable[[], None]]


def tests(bounded: Job, published: Job) -> Iterator[Test]:
    """Name and call of every test."""
    for name, scenario in BOUNDED.items():
        for seat in (0, 1):
            yield name, lambda s=scenario, seat=seat: games.check(bounded, s, seat, True)
    for name, scenario in PUBLISHED.items():
        for seat in (0, 1):
            yield (
                f"published: {name}",
                lambda s=scenario, seat=seat: games.check(published, s, seat, False),
            )
    for test in (
        games.test_followers_agree_and_others_cannot_be_decided,
        games.test_both_have_another_node_where_their_logs_differ,
        games.test_two_forgers,
        games.test_both_state_a_value_that_is_not_canonical,
        partial(games.test_another_log_chain_goes_in_past_a_withheld_log, seat=0),
        games.test_an_empty_section_has_one_digest,
    ):
        yield _name(test), lambda test=test: test(bounded)
    for one in (
        test_grid.test_what_is_not_on_the_grid,
        test_grid.test_about_zero_and_infinity,
        test_grid.test_v_and_forged_entries,
        test_grid.test_nearest,
        test_grid.test_forged_changes,
        elements.test_a_value_outside_of_v_convicts_and_what_v_does_not_bound_does_not,
        partial(
            elements.test_a_value_on_which_two_liars_agree_needs_a_kernel_too, "aten.add.Tensor"
        ),
        test_opening_rounded.test_what_two_liars_agreed_on_is_no_fault_of_the_rule,
    ):
        yield _name(one), one


def _name(test: Callable[..., None]) -> str:
    return getattr(test, "func", test).__name__


def functions(space: dict[str, Any], module: str) -> dict[str, types.FunctionType]:
    """Functions and methods that a module defines, by qualified name."""
    found: dict[str, types.FunctionType] = {}
    for name, value in space.items():
        if isinstance(value, types.FunctionType) and value.__module__ == module:
            found[name] = value
        elif isinstance(value, type) and value.__module__ == module:
            for inner, method in vars(value).items():
                method = method.fget if isinstance(method, property) else method
                if isinstance(method, types.FunctionType):
                    found[f"{name}.{inner}"] = method
    return found


def killed_by(mutant: Mutant, every: list[Test]) -> str:
    """The first test that fails with the check disabled, "" if none does."""
    name = "tallystick." + mutant.module.removesuffix(".py").replace("/", ".")
    loaded = functions(vars(importlib.import_module(name)), name)
    space: dict[str, Any] = {"__name__": name}
    exec(compile(mutant.source, mutant.module, "exec"), space)  # our own source
    changed = functions(space, name)
    before = {key: function.__code__ for key, function in loaded.items()}
    try:
        for key, function in loaded.items():
            if key in changed and len(changed[key].__code__.co_freevars) == len(
                before[key].co_freevars
            ):
                function.__code__ = changed[key].__code__
        for test, call in every:
            try:
                call()
            except (Exception, pytest.fail.Exception) as error:
                return f"{test} ({type(error).__name__})"
    finally:
        for key, function in loaded.items():
            function.__code__ = before[key]
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    chosen = [m for module in WHOLE for m in mutants(module)]
    chosen += [m for module, names in PARTS.items() for m in mutants(module) if m.function in names]
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        bounded = make_log_job(Path(scratch) / "bounded", wide=games.WIDTH)
        published = make_log_job(Path(scratch) / "published", form="published", wide=12000)
        every = list(tests(bounded, published))
        for _, call in every:
            call()  # nothing is disabled: everything holds
        for mutant in chosen:
            # The grid's own tests come last above and are the ones that see its checks.
            killer = killed_by(mutant, every[::-1] if mutant.module == WHOLE[1] else every)
            print(f"{mutant.module}:{mutant.line} {killer or 'SURVIVED'}", flush=True)
            check = mutant.check[:110].replace("|", "/")
            rows.append(
                f"| {mutant.module.removeprefix('protocol/')} | `{mutant.function}` | "
                f"{mutant.clause} | `{check}` | {killer or '**none**'} |"
            )
    survivors = sum(row.endswith("**none** |") for row in rows)
    print(f"{len(rows)} checks, {survivors} survive")
    if given.out:
        given.out.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
