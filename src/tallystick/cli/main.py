"""The `tallystick` command: a table of commands, loaded when called, and its exit codes.

0 accepted or done, 1 mismatch or conviction, 2 could not check, 3 wrong usage.

A command's exit code is its verdict, and a verdict does not depend on who reads the text. Standard
output and error may be closed, full, or without a reader. So after the first failed write a stream
takes what is written and drops it: no exception reaches a command, click, rich, or the
interpreter's own flush at its end, whose code for a failure (1, 120) would mean something else
here. `fault` says what was lost.
"""

from __future__ import annotations

import errno
import importlib
import importlib.util
import io
import os
import select
import sys
import traceback
from typing import Any, TextIO

import click

from tallystick.cli.output import CANNOT_CHECK, WRONG_USAGE, ExitError, note, print_json
from tallystick.cli.places import refuse_addresses
from tallystick.devices.environment import exact_environment
from tallystick.errors import MachineFaultError, TallystickError, UsageError
from tallystick.installed import tallystick_version


class _Outlet(io.FileIO):
    """The raw end of a stream. `fault` is the error of the first write that failed."""

    def __init__(self, descriptor: int, fault: OSError | None) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self.fault = fault

    def write(self, data: object) -> int:
        """Write all of `data`, or drop the rest of it; its length."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        done = 0
        while self.fault is None and done < view.nbytes:
            try:
                count: int | None = super().write(view[done:])
                if count is None:  # another process has made the pipe non-blocking
                    select.select([], [self], [])
                done += count or 0
            except OSError as error:
                self.fault = error
        return view.nbytes


def guard() -> None:
    """Make standard output and error streams that never fail. Descriptors 0 to 2 that are closed
    become the null device, so that no file of a run gets such a number and what libraries write."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdout = _guarded(sys.stdout, 1)
    sys.stderr = _guarded(sys.stderr, 2)


def _guarded(stream: TextIO | None, descriptor: int) -> TextIO:
    outlet = _Outlet(descriptor, OSError(errno.EBADF, "it is closed") if stream is None else None)
    direct = isinstance(stream, io.TextIOWrapper) and stream.write_through
    return io.TextIOWrapper(
        outlet if direct else io.BufferedWriter(outlet),
        encoding="utf-8" if stream is None else stream.encoding,
        errors="backslashreplace" if stream is None else stream.errors,
        line_buffering=descriptor == 2 or (stream is not None and stream.isatty()),
        write_through=direct,
    )


def fault(stream: TextIO) -> OSError | None:
    """Why something that was written to a guarded stream is lost; None where nothing is."""
    stream.flush()
    buffer = getattr(stream, "buffer", None)
    outlet = getattr(buffer, "raw", buffer)
    return outlet.fault if isinstance(outlet, _Outlet) else None


def is_unread(error: OSError) -> bool:
    """True if whoever started the command wants no more of the stream: no need to tell."""
    return error.errno in (errno.EPIPE, errno.EBADF)


# Command -> module and attribute, loaded when called, so that `judge` never meets torch; and its
# line in the list of commands, for which nothing is loaded.
_COMMANDS: dict[str, tuple[str, str, str]] = {
    "demo": ("tallystick.cli.demo", "demo", "Train a small GPT-2, audit it, convict cheats."),
    "doctor": (
        "tallystick.cli.doctor",
        "doctor",
        "Show what this machine and this build can do.",
    ),
    "data": ("tallystick.cli.data", "data", "Freeze data sets into records, and inspect them."),
    "job": ("tallystick.cli.job", "job", "Make, check and show jobs."),
    "train": ("tallystick.cli.train", "train", "Train JOB into a run directory, or resume a run."),
    "audit": (
        "tallystick.cli.audit",
        "audit",
        "Repeat RUN, or a segment of it, and compare every bit.",
    ),
    "diff": ("tallystick.cli.diff", "diff", "Say where two jobs, runs or traces differ, and why."),
    "dispute": (
        "tallystick.cli.dispute",
        "dispute",
        "Settle a dispute between two runs of one job.",
    ),
    "serve": ("tallystick.cli.serve", "serve", "Answer for a run over a network."),
    "referee": (
        "tallystick.cli.referee",
        "referee",
        "Settle a dispute between parties on a network.",
    ),
    "fetch-logs": (
        "tallystick.cli.serve",
        "fetch_logs",
        "Fetch a party's rounding logs over a network.",
    ),
    "judge": (
        "tallystick.cli.judge",
        "judge_command",
        "Check a verdict offline from its evidence file.",
    ),
    "attack": ("tallystick.cli.attack", "attack", "Make a cheating run, to see it convicted."),
    "export": ("tallystick.cli.model", "export", "Write the final weights of RUN as safetensors."),
    "verify-model": (
        "tallystick.cli.model",
        "verify_model",
        "Check that FILE holds the weights that RUN committed to.",
    ),
    "sample": (
        "tallystick.cli.model",
        "sample",
        "Print text from the final weights of RUN (a text model).",
    ),
    "evaluate": (
        "tallystick.cli.model",
        "evaluate",
        "Compute the validation loss of a stored state of RUN.",
    ),
    "model": (
        "tallystick.cli.statements",
        "model",
        "Name a model by the digests of its weights, programs and tokenizer.",
    ),
    "request": (
        "tallystick.cli.requests",
        "request",
        "Make a request to a model as its client, or show parts of one.",
    ),
    "generate": (
        "tallystick.cli.answers",
        "generate",
        "Answer a prompt with MODEL, and sign a receipt.",
    ),
    "embed": (
        "tallystick.cli.encodings",
        "embed",
        "Embed a text with MODEL, and sign a receipt.",
    ),
    "classify": (
        "tallystick.cli.encodings",
        "classify",
        "Classify a text with MODEL, and sign a receipt.",
    ),
    "check": (
        "tallystick.cli.answers",
        "check",
        "Check an answer against its receipt, to the last bit.",
    ),
    "answer-run": (
        "tallystick.cli.answers",
        "answer_run",
        "Make a run from an answer, for a dispute about it.",
    ),
    "kept": ("tallystick.cli.kept", "kept", "List the answers that a model server keeps."),
    "serve-model": (
        "tallystick.cli.serve_model",
        "serve_model",
        "Serve models through OpenAI's interface, with receipts.",
    ),
    "chat": (
        "tallystick.cli.chat",
        "chat",
        "Talk to a model server, and check each answer.",
    ),
    "offer": (
        "tallystick.cli.offer",
        "offer",
        "Offer jobs to providers, and sign the documents of an offer.",
    ),
    "settle": (
        "tallystick.cli.settle",
        "settle",
        "Compute, sign or check the settlement of an offer.",
    ),
    "inspect": (
        "tallystick.cli.inspect",
        "inspect",
        "Say what a run, a job or any file of Tallystick is.",
    ),
    "fsck": ("tallystick.cli.inspect", "fsck", "Check every byte of a run or a referee's log."),
    "judge-page": (
        "tallystick.cli.pages",
        "judge_page",
        "Write the judge as one page for any browser.",
    ),
    "report": (
        "tallystick.cli.report",
        "report",
        "Show a run, a dispute, a session or an answer as one HTML page.",
    ),
    "claim": (
        "tallystick.cli.claims",
        "claim",
        "State a run or an answer in the forms that other tools read.",
    ),
    "keys": ("tallystick.cli.keys", "keys", "Make and show the keys that sign."),
    "calibrate": (
        "tallystick.cli.calibrate",
        "calibrate",
        "Measure the thresholds of published rounding logs.",
    ),
    "bench": (
        "tallystick.cli.bench",
        "bench",
        "Measure NAME: gemm, step (against torch), dispute, ovt or paper.",
    ),
}


class _Commands(click.Group):
    """Lists and loads `_COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in _COMMANDS if self._exists(name)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS or not self._exists(cmd_name):
            return None
        module, attribute, _ = _COMMANDS[cmd_name]
        return refuse_addresses(getattr(importlib.import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name][2]) for name in self.list_commands(ctx)])

    @staticmethod
    def _exists(name: str) -> bool:
        return importlib.util.find_spec(_COMMANDS[name][0]) is not None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tallystick_version(), prog_name="tallystick")
def cli() -> None:
    """Training and answers of models that anyone can repeat to the same bits.

    Exit codes: 0 accepted or done, 1 mismatch or conviction, 2 could not check, 3 wrong usage.
    """


def _fail(error: TallystickError, as_json: bool) -> int:
    note(f"tallystick: {error.message}")
    if error.next_action:
        note(f"  {error.next_action}")
    if as_json:
        print_json(
            {
                "error": error.message,
                "next_action": error.next_action,
                "kind": type(error).__name__,
                "exit_code": error.exit_code,
            }
        )
    return error.exit_code


def _as_usage_error(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tallystick"
    return UsageError(error.format_message(), f"See `{path} --help`.")


def _say_usage_error(error: click.ClickException) -> None:
    """Print click's message about a command line. It contains words of the command line."""
    context = getattr(error, "ctx", None)
    if isinstance(error, click.exceptions.NoArgsIsHelpError) or context is None:
        lines = error.format_message().split("\n")
    else:
        lines = [*context.get_usage().split("\n"), f"See `{context.command_path} --help`.", ""]
        message = error.format_message()
        # A missing argument is listed with its choices, line by line; no word comes from a party.
        ours = isinstance(error, click.MissingParameter)
        lines += f"Error: {message}".expandtabs().split("\n") if ours else [f"Error: {message}"]
    for line in lines:
        note(line)


@exact_environment()  # its rounding also governs how numbers are read and printed
def run(arguments: list[str]) -> int:
    """Run the command line `arguments`; its exit code."""
    as_json = "--json" in arguments
    try:
        result: Any = cli.main(arguments, prog_name="tallystick", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except ExitError as exit_:
        return exit_.code
    except TallystickError as error:
        return _fail(error, as_json)
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.ClickException as error:
        if as_json and not isinstance(error, click.exceptions.NoArgsIsHelpError):
            return _fail(_as_usage_error(error), as_json)
        _say_usage_error(error)
        return WRONG_USAGE
    except (click.Abort, KeyboardInterrupt) as error:
        note("tallystick: interrupted; no committed work is lost.")
        # click raises its own for a KeyboardInterrupt, which may say more.
        note(f"  {error.__cause__ or error}".rstrip() or "  Run the same command again.")
        return CANNOT_CHECK
    except MemoryError as error:
        why = str(error) or "There is not enough memory."
        fault = MachineFaultError(why, "Use a smaller model, a smaller batch or another machine.")
        return _fail(fault, as_json)
    except Exception:
        # A traceback's own exit code is 1, and 1 means a conviction here.
        for line in traceback.format_exc().splitlines():
            note(line)
        note("tallystick: this is a bug in tallystick; nothing was judged.")
        return CANNOT_CHECK


def _delivered(code: int, as_json: bool) -> int:
    """The exit code of a command that has written its output, or could not: a verdict stays what it
    is without its text, but a JSON object that is not there was to be delivered."""
    lost = fault(sys.stdout)
    if lost is None or (is_unread(lost) and not as_json):
        return code
    note(f"tallystick: Standard output could not be written: {lost.strerror}.")
    if not as_json:
        return code
    note("  The JSON object is lost. Check where the output goes, then run the same command again.")
    return CANNOT_CHECK


def main() -> None:
    """Entry point of the console script."""
    guard()
    sys.exit(_delivered(run(sys.argv[1:]), "--json" in sys.argv[1:]))
