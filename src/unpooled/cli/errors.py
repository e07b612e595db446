"""Error reporting of all commands: the error's three parts and an exit code, never a row's value."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import typer

from unpooled.errors import UnpooledError

UNEXPECTED, STOPPED, CLOSED = 1, 130, 141


@contextmanager
def reporting_errors(
    *, as_json: bool = False, debug: int = 0, resume: str = "", folder: Path | None = None
) -> Iterator[None]:
    """Turn an exception into an error message and an exit code.

    `resume` is the command that continues after Ctrl-C; it is shown if `folder` is not empty.
    """
    try:
        yield
    except UnpooledError as error:
        parts = (error.expected, error.found, error.remedy)
        _show(type(error).__name__, *parts, error.exit_code, as_json, error.problems)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        begun = folder is None or (folder.is_dir() and any(folder.iterdir()))
        remedy = f"continue with: {resume}" if resume and begun else "run it again"
        _show("Stopped", "the command was interrupted", "Ctrl-C", remedy, STOPPED, as_json)
        raise typer.Exit(STOPPED) from None
    except (typer.Exit, typer.Abort):
        raise
    except BrokenPipeError:
        # The reader closed the pipe (such as `| head`): discard the buffered output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(CLOSED) from None
    except Exception as error:
        _show_unexpected(error, debug, as_json)
        raise typer.Exit(UNEXPECTED) from None


def _show_unexpected(error: Exception, debug: int, as_json: bool) -> None:
    """Show where an error occurred; its message may contain data and needs --debug given twice."""
    found = f"{type(error).__name__} in {_place(error)}"
    if debug:
        sys.stderr.write("".join(traceback.format_tb(error.__traceback__)))
        sys.stderr.write(f"{type(error).__name__}\n" if debug == 1 else f"{type(error).__name__}: {error}\n")
    remedy = (
        "please report this"
        if debug
        else "run again with --debug to see where it occurred, and please report it"
    )
    _show("Unexpected", "the command failed unexpectedly", found, remedy, UNEXPECTED, as_json)


def _place(error: Exception) -> str:
    """The innermost line of this package in the traceback."""
    walked = traceback.walk_tb(error.__traceback__)
    frames = [(str(frame.f_globals.get("__name__", "")), number) for frame, number in walked]
    own = [(name, number) for name, number in frames if name.startswith("unpooled.")]
    name, number = (own or frames)[-1]
    return f"{name}, line {number}"


def _show(
    kind: str,
    expected: str,
    found: str,
    remedy: str,
    code: int,
    as_json: bool,
    problems: Sequence[UnpooledError] = (),
) -> None:
    if as_json:
        parts: dict[str, object] = {"kind": kind, "expected": expected, "found": found, "remedy": remedy}
        if len(problems) > 1:
            parts["problems"] = [
                {"expected": one.expected, "found": one.found, "remedy": one.remedy} for one in problems
            ]
        parts["exit_code"] = code
        typer.echo(json.dumps({"error": parts}))
        return
    red = sys.stderr.isatty()
    head = typer.style(f"{expected}", fg=typer.colors.RED, bold=True) if red else expected
    rest = f"  found: {found}\n  try:   {remedy}"
    typer.echo(f"{head}\n{typer.style(rest, fg=typer.colors.RED) if red else rest}", err=True)
