"""`unpooled refute`: robustness checks of a finished study."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.finished import finished_model, refuse_to_overwrite, tables_of
from unpooled.cli.options import Debug, Json, Quiet

if TYPE_CHECKING:
    from unpooled.estimators.robustness.refute import Refutation
    from unpooled.report.json_types import RefutationContent


def refute(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The results folder of a finished `run`.")
    ],
    tests: Annotated[
        list[str] | None,
        typer.Option(
            help="placebo, common_cause, subsets, negative_control, e_value or noise_correlation; separated "
            "by commas or given several times. By default, all that apply to the study."
        ),
    ] = None,
    negative_control: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="A negative control outcome, which treatment cannot affect."),
    ] = None,
    repeats: Annotated[
        int, typer.Option(min=1, help="Refits for each of placebo, common_cause and subsets.")
    ] = 3,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Run robustness checks on a finished study and report which results are worrying."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.cli.progress import ProgressDisplay
        from unpooled.estimators.robustness.refute import refute
        from unpooled.report.folder import read_result, write_report
        from unpooled.report.robustness import FILES, write_refutation
        from unpooled.study import read_study

        model = finished_model(results, "refute")
        refuse_to_overwrite(results, FILES)
        tables_of(results, model, "refitting a study")
        study = read_study(results / "study.toml")
        names = [name.strip() for words in tests or [] for name in words.split(",") if name.strip()]
        show = not (quiet or json)
        tell = partial(typer.echo, err=True) if show else None
        # Show the rounds of each fit on a terminal only; elsewhere, one line per fit is enough.
        with ProgressDisplay(show=show and sys.stderr.isatty()) as watching:
            found = refute(
                model, study, tests=names or None, negative_control=negative_control, repeats=repeats,
                watch=watching, tell=tell,
            )  # fmt: skip
        content = as_json(found, results)
        write_refutation(content, found.table, study, results)
        write_report(model, read_result(results), results)  # the report includes the checks
        _tell(found, content, results, as_json=json, quiet=quiet)


def as_json(found: Refutation, folder: Path) -> RefutationContent:
    """The results of all checks as JSON-compatible values."""
    from unpooled.report.content import records
    from unpooled.report.folder import finite

    content: RefutationContent = {
        "folder": str(folder),
        "worrying": found.worrying,
        "main": {"estimate": found.main.estimate, "lower": found.main.lower, "upper": found.main.upper},
        "table": records(found.table),
        "refits": records(found.refits),
        "e_value": found.e_value,
        "notes": list(found.notes),
    }
    return finite(content)


def _tell(found: Refutation, content: RefutationContent, folder: Path, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        typer.echo(jsonlib.dumps(content))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, emoji=False)
    console.print(sentence(found), style="bold", highlight=False, soft_wrap=True)
    if quiet:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("check", "estimate", "95% interval", "verdict"):
        table.add_column(heading, justify="right" if heading in ("estimate", "95% interval") else "left")
    table.add_row("main analysis", *_numbers(found.main._asdict()), "")
    for row in found.table.to_dict("records"):
        table.add_row(row["test"], *_numbers(row), "WARN" if row["worrying"] else "PASS")
    console.print(table)
    texts = [f"{row['test']}: {row['words']}" for row in found.table.to_dict("records")]
    names = "report.html, refutation.json, refutation.csv, figures/refutation.png"
    for line in (*texts, *found.notes, f"Written to {folder}: {names}"):
        console.print(line, highlight=False, soft_wrap=True)


def _numbers(row: Mapping[str, float]) -> tuple[str, str]:
    from unpooled.report.numbers import between, significant

    return significant(row["estimate"], signed=True), between(row["lower"], row["upper"])


def sentence(found: Refutation) -> str:
    """The overall verdict in one sentence."""
    worrying, count = found.worrying, len(found.table)
    checks = f"{count} robustness check{'s' if count > 1 else ''}"
    if not worrying:
        return f"No worrying result in {checks}."
    verb = "is" if len(worrying) == 1 else "are"
    return f"{len(worrying)} of {checks} {verb} worrying: {', '.join(worrying)}."
