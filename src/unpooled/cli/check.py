"""`unpooled check`: check a study before it is fitted."""

from __future__ import annotations

import json as jsonlib
import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING

import typer

from unpooled.cli.diagnostics import diagnosed, diagnostics_as_json, show_diagnostics
from unpooled.cli.duplicates import duplicates_as_json, show_duplicates
from unpooled.cli.errors import reporting_errors
from unpooled.cli.left_out import left_out_as_json, show_left_out
from unpooled.cli.missingness import missingness_as_json, show_missingness
from unpooled.cli.options import Debug, Json, StudyFile

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from unpooled.diagnostics.preview import Preview
    from unpooled.diagnostics.study_diagnostics import StudyDiagnostics


def check(study: StudyFile, json: Json = False, debug: Debug = 0) -> None:
    """Check a study before fitting: agreement of the sites, arms, messages, and refusals under limits."""
    with reporting_errors(as_json=json, debug=debug):
        from unpooled.diagnostics.preview import preview
        from unpooled.study import read_study

        asked = read_study(study)
        found = preview(asked)
        seen = diagnosed(asked) if asked.diagnostics else None
        if json:
            typer.echo(jsonlib.dumps({**as_json(found), "diagnostics": diagnostics_as_json(seen)}))
        else:
            _show(found, seen, str(study))


def as_json(found: Preview) -> dict[str, object]:
    schema, left_out = found.agreement.schema, found.agreement.left_out
    effective = found.agreement.effective
    arms = {site: {**asdict(one), "rows": one.rows} for site, one in found.overlap.items()}
    return {
        "columns": [column.model_dump(mode="json") for column in schema.covariates],
        "family": found.agreement.scaling.family,
        "outcome_words": found.outcome_words,
        "arms": {"control": schema.control, "treated": schema.treated},
        "sites": {site: {**arms[site], "refused_by_default_limits": found.refusals[site]} for site in arms},
        "changed_by_default_limits": list(found.notes),
        "one_arm": [asdict(one) for one in found.one_arm],
        "leaving": [asdict(one) for one in found.leaving],
        "perhaps_missing": found.codes,
        **({} if found.duplicates is None else {"duplicates": duplicates_as_json(found.duplicates)}),
        **({} if effective is None else {"effective_people": effective}),
        **({} if left_out is None else {"left_out": left_out_as_json(left_out)}),
        **({} if found.missingness is None else {"missingness": missingness_as_json(found.missingness)}),
    }


def _show(found: Preview, seen: StudyDiagnostics | str | None, study: str) -> None:
    from rich.console import Console

    console = Console(markup=False, emoji=False)  # a column may be named 'bmi [kg/m2]'
    console.print(f"The {len(found.overlap)} sites agree on the columns.", style="bold")
    console.print(_sites(found))
    for check in found.one_arm:
        console.print(
            f"\n{check.words}", highlight=False, soft_wrap=True, style="" if check.passed else "yellow"
        )
    console.print()
    console.print(_columns(found))
    console.print(f"\n{found.outcome_words}", highlight=False, soft_wrap=True)
    console.print("\nWhat would leave each site (never a row)", style="bold")
    console.print(_leaving(found))
    _show_codes(console, found)
    if found.duplicates is not None:
        show_duplicates(console, found.duplicates)
    if found.missingness is not None:
        show_missingness(console, found.missingness)
    if found.agreement.effective is not None:
        people, effective = found.agreement.scaling.people, found.agreement.effective
        text = f"\n{people:,} people with sampling weights count as {effective:,.0f} of equal weight"
        console.print(text, highlight=False, soft_wrap=True)
    if found.agreement.left_out is not None:
        show_left_out(console, found.agreement.left_out)
    show_diagnostics(console, seen)
    _show_refusals(console, found)
    console.print(
        f"\nnext: unpooled run {shlex.quote(study)} --output results/", highlight=False, soft_wrap=True
    )


def plain_table(*headings: str) -> Table:
    """A table without lines; columns of numbers are aligned at the right."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in _NUMBERS else "left")
    return table


_NUMBERS = (
    "rows", "people", "also elsewhere", "left out", "repeated", "no key", "wrong digit",
    "control", "treated", "treated share", "approximate size", "expected", "rounds", "θ", "MB out",
    "MB in", "seconds at a site",
)  # fmt: skip


def _sites(found: Preview) -> Table:
    table = plain_table("site", "rows", "control", "treated", "treated share", "arms")
    for site, one in found.overlap.items():
        counts = [f"{count:,}" for count in (one.rows, one.control, one.treated)]
        table.add_row(site, *counts, f"{one.treated_share:.0%}", one.hint or "both arms present")
    return table


def _columns(found: Preview) -> Table:
    schema = found.agreement.schema
    table = plain_table("read as", "columns")
    for kind in ("numeric", "binary"):
        names = [one.name for one in schema.covariates if one.kind == kind and one.flags is None]
        if names:
            table.add_row(kind, ", ".join(names))
    for column in schema.covariates:
        if column.kind == "categorical":
            table.add_row(column.kind, f"{column.name}: {', '.join(column.levels)}")
    flags = [one.name for one in schema.covariates if one.flags is not None]
    if flags:
        table.add_row("added, 0/1", ", ".join(flags))
    for kind in dict.fromkeys(column.kind for column in schema.incomplete):
        names = [column.name for column in schema.incomplete if column.kind == kind]
        table.add_row(f"{kind}, incomplete", ", ".join(names))
    table.add_row("treated", f"'{schema.treated}' (control: '{schema.control}')")
    return table


def _leaving(found: Preview) -> Table:
    from unpooled.cli.progress import readable

    table = plain_table("message", "approximate size", "reveals")
    for one in found.leaving:
        table.add_row(one.kind, "—" if one.size is None else readable(one.size), one.reveals)
    return table


def _show_codes(console: Console, found: Preview) -> None:
    if found.codes:
        console.print("\nPossible codes for missing values", style="bold")
        for code in found.codes:
            console.print(f"  {code}", highlight=False, style="yellow", soft_wrap=True)
        console.print(
            "  If they are, clear these cells and list the column under `incomplete`.", highlight=False
        )


def _show_refusals(console: Console, found: Preview) -> None:
    console.print("\nUnder a site's default disclosure limits", style="bold")
    console.print("(not applied here, because all tables are on this machine)", style="dim")
    for note in found.notes:
        console.print(f"  the study would run with {note}", highlight=False, soft_wrap=True)
    for site, refusals in found.refusals.items():
        if not refusals:
            console.print(f"  {site}: no refusals", highlight=False)
        for refusal in refusals:
            text = f"  {site}: would refuse: {refusal}"
            console.print(text, highlight=False, style="yellow", soft_wrap=True)
