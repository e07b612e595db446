"""Balance and overlap in the output of `unpooled check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from unpooled.diagnostics.study_diagnostics import StudyDiagnostics
    from unpooled.study import Study

SHOWN = 8
"""How many covariates are shown: those with the largest differences between the arms."""


def diagnosed(study: Study) -> StudyDiagnostics | str:
    """The diagnostics of the study, or the reason why they are unavailable; either way, continue."""
    from unpooled.diagnostics.study_diagnostics import diagnose
    from unpooled.errors import UnpooledError

    try:
        return diagnose(study)
    except UnpooledError as error:
        return f"{error.expected}; found {error.found}"


def diagnostics_as_json(seen: StudyDiagnostics | str | None) -> dict[str, object] | None:
    from unpooled.report.content import tables
    from unpooled.report.folder import finite

    if seen is None or isinstance(seen, str):
        return None if seen is None else {"unavailable_reason": seen}
    return finite({**tables(seen), "hidden": seen.hidden})


def show_diagnostics(console: Console, seen: StudyDiagnostics | str | None) -> None:
    if seen is None:
        return
    console.print("\nBalance and overlap", style="bold")
    if isinstance(seen, str):
        console.print(f"  not available: {seen}", highlight=False, style="yellow", soft_wrap=True)
        return
    from rich.table import Table

    from unpooled.report.numbers import significant

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("check", "verdict", "found", "passes if"):
        table.add_column(heading, justify="right" if heading in ("found", "passes if") else "left")
    for row in seen.checks.to_dict("records"):
        verdict = "PASS" if row["passed"] else "FAIL"
        style = None if row["passed"] else "yellow"
        sign = "≥" if row["passes_if"] == "at least" else "≤"
        limit = f"{sign} {row['threshold']:.3g}"
        table.add_row(row["name"], verdict, significant(row["found"]), limit, style=style)
    console.print(table)
    for row in seen.checks.to_dict("records"):
        if not row["passed"]:
            console.print(f"  {row['name']}: {row['words']}", highlight=False, style="yellow", soft_wrap=True)
    _show_balance(console, seen)
    for site, why in seen.hidden.items():
        console.print(f"  {site} is not shown individually: {why}", highlight=False, soft_wrap=True)


def _show_balance(console: Console, seen: StudyDiagnostics) -> None:
    """The largest standardised mean differences, before and after weighting."""
    from rich.table import Table

    rows = sorted(seen.balance.to_dict("records"), key=lambda row: -abs(row["before"]))[:SHOWN]
    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("largest standardised differences", "before", "after weighting"):
        table.add_column(heading, justify="left" if "largest" in heading else "right")
    for row in rows:
        table.add_row(str(row["feature"]), f"{row['before']:+.2f}", f"{row['after']:+.2f}")
    console.print(table)
