"""`unpooled policy`: whom to treat, what it is worth, and whether people are in the right order."""

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
    from rich.table import Table

    from unpooled.estimators import Estimator
    from unpooled.report.json_types import PolicyContent
    from unpooled.study import Study

FIGURE = "fifths.png"


def policy(
    study: Annotated[
        Path | None, typer.Argument(metavar="[STUDY]", help="The study file, such as study.toml.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The output folder, new or empty; with STUDY.")
    ] = None,
    results: Annotated[
        Path | None,
        typer.Option(
            help="The results folder of a finished `run`, in place of STUDY; its report then includes this."
        ),
    ] = None,
    cost: Annotated[float, typer.Option(help="What treating a person costs, in units of the outcome.")] = 0.0,
    larger_is_better: Annotated[
        bool,
        typer.Option(
            "--larger-is-better/--smaller-is-better",
            help="Whether larger outcomes are better. Choose smaller for outcomes such as deaths.",
        ),
    ] = True,
    trim: Annotated[
        float, typer.Option(help="Propensities are clipped to lie between this and 1 minus this.")
    ] = 0.01,
    quiet: Quiet = False,
    json: Json = False,
    debug: Debug = 0,
) -> None:
    """Say whom to treat: the value of policies, a rule of at most two questions, and tests of the order."""
    with reporting_errors(as_json=json, debug=debug, folder=output):
        from unpooled.cli.progress import ProgressDisplay
        from unpooled.coordinator.checkpoint import writing
        from unpooled.errors import StudyError
        from unpooled.estimators import of_study
        from unpooled.estimators.policy.policy import policy
        from unpooled.report.figure_files import keep
        from unpooled.report.folder import POLICY, finite, read_result, write_policy, write_report
        from unpooled.report.policy import draw_fifths, fifths_table, policy_content
        from unpooled.report.results import claimed
        from unpooled.study import read_study

        show = not (quiet or json)
        tell = partial(typer.echo, err=True) if show else None

        def valued(model: Estimator, asked: Study) -> PolicyContent:
            # Show the rounds of each fit on a terminal only; elsewhere, one line per fit is enough.
            with ProgressDisplay(show=show and sys.stderr.isatty()) as watching:
                found = policy(
                    model, asked, cost=cost, larger_is_better=larger_is_better, trim=trim, watch=watching,
                    tell=tell,
                )  # fmt: skip
            return finite(policy_content(found))

        if results is not None and study is None and output is None:
            model, asked = _finished(results)
            content = valued(model, asked)
            with writing(results):
                write_policy(content, results)
                write_report(model, read_result(results), results)  # the report includes the policies
            written = f"{results}: report.html, {POLICY}, figures/{FIGURE}"
        elif results is None and study is not None and output is not None:
            asked = read_study(study)
            with claimed(output) as folder:
                content = valued(of_study(asked), asked)
                keep(draw_fifths(content), fifths_table(content), folder / FIGURE)
                write_policy(content, folder)
            written = f"{output}: {POLICY}, {FIGURE}, {Path(FIGURE).stem}.csv"
        else:
            raise StudyError(
                "policy needs a study file and --output, or --results alone",
                found=_given({"STUDY": study, "--output": output, "--results": results}),
                remedy="give STUDY and --output FOLDER, or --results and the folder of a finished `run`",
            )
        if json:
            typer.echo(jsonlib.dumps({"folder": str(output or results), **content}))
        else:
            _show(content, written, quiet=quiet)


def _given(arguments: Mapping[str, Path | None]) -> str:
    return ", ".join(name for name, value in arguments.items() if value is not None) or "none of them"


def _finished(folder: Path) -> tuple[Estimator, Study]:
    """The model of a results folder, and the study as it was run, with its tables."""
    from unpooled.estimators.robustness.analysis import fitted
    from unpooled.report.folder import POLICY

    model = finished_model(folder, "policy")
    refuse_to_overwrite(folder, [POLICY])
    tables = tables_of(folder, model, "valuing policies of a study")
    study = model.result_.study.model_copy(update={"sites": tables})
    fitted(model, study, tables)  # refuses tables that have changed
    return model, study


def _show(content: PolicyContent, written: str, *, quiet: bool) -> None:
    from rich.console import Console

    from unpooled.report.policy import calibration_sentence, policy_notes, policy_sentence

    console = Console(markup=False, emoji=False)
    console.print(policy_sentence(content), style="bold", highlight=False, soft_wrap=True)
    if quiet:
        return
    console.print(_policies(content))
    console.print()
    console.print(_fifths(content))
    for line in (calibration_sentence(content), *policy_notes(content), f"Written to {written}"):
        console.print(line, highlight=False, soft_wrap=True)


def _policies(content: PolicyContent) -> Table:
    from unpooled.report.policy import policy_forms, written

    forms = policy_forms(content)
    table = _table("policy", "treated", "outcome", "gain over nobody", "gain over everybody")
    for one in content["policies"]:
        share = "–" if one["treated"] is None else f"{one['treated']:.0%}"
        mean = one["outcome"]["estimate"]
        gains = (written(one[over], forms["gain"], ", ") for over in ("over_nobody", "over_everybody"))
        table.add_row(one["policy"], share, "–" if mean is None else format(mean, forms["outcome"]), *gains)
    return table


def _fifths(content: PolicyContent) -> Table:
    from unpooled.report.policy import policy_forms, written

    form = policy_forms(content)["effect"]
    table = _table("fifth by predicted effect", "people", "predicted", "average effect")
    for one in content["fifths"]:
        predicted = "–" if one["predicted"] is None else format(one["predicted"], form)
        table.add_row(str(one["fifth"]), f"{one['share']:.0%}", predicted, written(one["effect"], form, ", "))
    return table


def _table(first: str, *headings: str) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table
