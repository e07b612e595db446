"""`unpooled transport`: the average effect in a population that took no part."""

from __future__ import annotations

import json as jsonlib
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.finished import finished_model, tables_of
from unpooled.cli.options import Debug, Json, Quiet

if TYPE_CHECKING:
    from unpooled.estimators import Estimator
    from unpooled.estimators.entropy_balancing import Moment
    from unpooled.estimators.transport import Transported


class TransportContent(TypedDict):
    """What the command tells; numbers that are not finite are null."""

    treatment: str
    outcome: str
    outcome_unit: str
    ate: float | None
    ate_interval: list[float | None]
    ate_in_the_study: float | None
    ate_interval_in_the_study: list[float | None]
    effects: list[dict[str, Any]]
    checks: list[dict[str, Any]]
    assumptions: list[str]


def transport(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="The results folder of a finished `run`.")
    ],
    table: Annotated[
        str | None,
        typer.Option(help="The covariates of people of the population, as CSV or Parquet; it stays here."),
    ] = None,
    moments: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with the population's moments: `age = 63.0`, or `age = [63.0, 8.0]` with the "
            "standard deviation, or `severe = 0.6` for a share. It needs the tables of all sites."
        ),
    ] = None,
    sample: Annotated[
        bool,
        typer.Option(
            "--sample/--whole",
            help="Whether the people of the table are a sample of the population, or the whole of it.",
        ),
    ] = True,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Give the average effect of a finished study in another population, and what this assumes."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.errors import StudyError

        if (table is None) == (moments is None):
            raise StudyError(
                "transport needs a population: --table or --moments",
                found="neither" if table is None else "both",
                remedy="give the people's covariates with --table, or a file of published moments",
            )
        if moments is not None and not sample:
            raise StudyError(
                "--whole is about the people of a table",
                found="--whole with --moments",
                remedy="leave it out: moments are taken as known",
            )
        model = finished_model(results, "transport")
        if moments is None:
            found = model.transport(str(table), sample=sample)
        else:
            asked = read_moments(moments)
            model.attach(tables_of(results, model, "weighting the people of a study"))
            found = model.transport_to_moments(asked)
        content = as_json(found, model)
        if json:
            typer.echo(jsonlib.dumps(content))
        else:
            _show(content, quiet=quiet)


def read_moments(path: Path) -> dict[str, Moment]:
    """The moments of a TOML file: a mean or share by covariate, or a mean and a standard deviation."""
    from unpooled.errors import StudyError

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        unreadable = isinstance(error, OSError)
        raise StudyError(
            "the moments must be in a readable TOML file",
            found=f"{'no file that can be read' if unreadable else 'text that is not valid TOML'}: {path}",
            remedy="correct the path" if unreadable else "write lines such as: age = [63.0, 8.0]",
        ) from None
    return {name: _moment(name, value) for name, value in content.items()}


def _moment(name: str, value: object) -> Moment:
    from unpooled.errors import StudyError

    numbers = [float(one) for one in _listed(value) if type(one) in (int, float)]
    if len(numbers) == len(_listed(value)) == 1:
        return numbers[0]
    if len(numbers) == len(_listed(value)) == 2:
        return numbers[0], numbers[1]
    raise StudyError(
        "a moment must be a number, or a mean and a standard deviation",
        found=f"something else for '{name}'",
        remedy=f"write {name} = 63.0 or {name} = [63.0, 8.0], without a section",
    )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def as_json(found: Transported, model: Estimator) -> TransportContent:
    """The effects, checks and assumptions as JSON-compatible values."""
    from unpooled.report.content import records
    from unpooled.report.folder import finite

    columns = model.result_.study.columns
    content: TransportContent = {
        "treatment": columns.treatment,
        "outcome": columns.outcome,
        "outcome_unit": columns.outcome_unit,
        "ate": found.ate(),
        "ate_interval": list(found.ate_interval()),
        "ate_in_the_study": model.ate(),
        "ate_interval_in_the_study": list(model.ate_interval()),
        "effects": records(found.effects().droplevel("group").reset_index()),
        "checks": records(found.checks),
        "assumptions": list(found.assumptions),
    }
    return finite(content)


def _show(content: TransportContent, *, quiet: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from unpooled.report.numbers import between, significant

    console = Console(markup=False, emoji=False)
    console.print(sentence(content), style="bold", highlight=False, soft_wrap=True)
    if quiet:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("effect", "estimate", "95% interval", ""):
        table.add_column(heading, justify="right" if heading in ("estimate", "95% interval") else "left")
    for row in content["effects"]:
        found = [row[name] for name in ("estimate", "lower", "upper")]
        numbers = ("–", "") if None in found else (significant(found[0]), between(*found[1:]))
        table.add_row(row["effect"], *numbers, row["note"])
    console.print(table)
    for check in content["checks"]:
        verdict, limit = "PASS" if check["passed"] else "FAIL", f"{check['passes_if']} {check['threshold']:g}"
        text = f"{verdict} {check['name']}: {significant(check['found'])} ({limit}). {check['words']}"
        console.print(text, highlight=False, soft_wrap=True, style="" if check["passed"] else "yellow")
    console.print("This assumes, besides what the study assumes:", highlight=False)
    for one in content["assumptions"]:
        console.print(f"  - {one}", highlight=False, soft_wrap=True)


def sentence(content: TransportContent) -> str:
    """The average effect there, beside that in the study, in one sentence."""
    from unpooled.report.numbers import between, significant

    unit = f" {content['outcome_unit']}" if content["outcome_unit"] else ""

    def effect(ate: float | None, ends: list[float | None]) -> str:
        lower, upper = ends
        if ate is None or lower is None or upper is None:
            return "unknown"
        return f"{significant(ate, signed=True)}{unit} (95% interval {between(lower, upper)})"

    return (
        f"In this population, the average effect of '{content['treatment']}' on '{content['outcome']}' is "
        f"{effect(content['ate'], content['ate_interval'])}; in the study, it is "
        f"{effect(content['ate_in_the_study'], content['ate_interval_in_the_study'])}."
    )
