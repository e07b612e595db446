"""`unpooled sensitivity`: how the effect changes if values are not missing at random."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from unpooled.cli.errors import reporting_errors
from unpooled.cli.options import Debug, Json, Quiet, StudyFile

if TYPE_CHECKING:
    from unpooled.estimators.sensitivity import Sensitivity


def sensitivity(
    study: StudyFile,
    column: Annotated[str, typer.Option(help="The column whose missing values are shifted.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The results folder, new or empty.")],
    size: Annotated[
        list[float] | None,
        typer.Option(
            help="Shift in standard deviations (in probits for 0/1 and counts). May be given several times; "
            "five values from -0.5 to 0.5 by default."
        ),
    ] = None,
    arm: Annotated[str | None, typer.Option(help="Shift only in one arm: control or treated.")] = None,
    site: Annotated[str | None, typer.Option(help="Shift only at one site.")] = None,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Refit a CausalFI study for each shift of the missing values and report the effect at each shift."""
    with reporting_errors(as_json=json, debug=debug, folder=output):
        from unpooled.cli.progress import ProgressDisplay
        from unpooled.errors import StudyError
        from unpooled.estimators import CausalFI, of_study
        from unpooled.estimators.sensitivity import SIZES, sensitivity
        from unpooled.report.results import claimed
        from unpooled.study import read_study

        asked = read_study(study)
        model = of_study(asked)
        if not isinstance(model, CausalFI):
            raise StudyError(
                "a sensitivity analysis of missing values needs method causal_fi",
                found=f"method '{asked.method.name}'",
                remedy='set name = "causal_fi" under [method]',
            )
        with claimed(output, resume=False) as folder, ProgressDisplay(show=not (quiet or json)) as watching:
            found = sensitivity(
                model, asked, column=column, sizes=size or SIZES, site=site, watch=watching,
                arm=cast(Literal["control", "treated"] | None, arm),
            )  # fmt: skip
            _write(found, folder)
        _tell(found, output, as_json=json, quiet=quiet)


def _write(found: Sensitivity, folder: Path) -> None:
    from unpooled.report.figure_files import keep
    from unpooled.report.figures.curves import sensitivity

    drawn = sensitivity(found.curve, found.tipping, column=found.column)
    keep(drawn, found.curve, folder / "sensitivity.png")


def _tell(found: Sensitivity, folder: Path, *, as_json: bool, quiet: bool) -> None:
    if as_json:
        content: dict[str, object] = {"column": found.column, "tipping": found.tipping, "folder": str(folder)}
        typer.echo(jsonlib.dumps({**content, "curve": found.curve.to_dict("records")}))
        return
    from rich.console import Console
    from rich.table import Table

    from unpooled.report.numbers import between, significant

    console = Console(markup=False, emoji=False)
    console.print(sentence(found), style="bold", highlight=False, soft_wrap=True)
    if quiet:
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("shift", "average effect", "95% interval"):
        table.add_column(heading, justify="right")
    for row in found.curve.to_dict("records"):
        table.add_row(
            significant(row["size"], 2, signed=True),
            significant(row["ate"], signed=True),
            between(row["lower"], row["upper"]),
        )
    console.print(table)
    console.print(f"Written to {folder}: sensitivity.csv, sensitivity.png", highlight=False)


def sentence(found: Sensitivity) -> str:
    """The tipping points in one sentence."""
    main = found.curve[found.curve["size"] == 0.0].iloc[0]
    now = "includes 0" if main["lower"] <= 0.0 <= main["upper"] else "excludes 0"
    tips = [f"{size:+.2g}" for size in found.tipping.values() if size is not None]
    where = f"until missing values of '{found.column}' are shifted by {' or '.join(tips)}"
    furthest = f"{found.curve['size'].min():+.2g} to {found.curve['size'].max():+.2g}"
    never = f"for all shifts of missing values of '{found.column}' tested, {furthest}"
    return f"The interval of the average effect {now} {where if tips else never}."
