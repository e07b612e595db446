"""Print the result of a study: one sentence, the table by site, the cost, and the location of the files."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from unpooled.cli.progress import readable
from unpooled.report.json_types import ResultContent
from unpooled.report.numbers import significant
from unpooled.report.words import confounding, failed_checks, sentence


def print_result(folder: Path, *, as_json: bool = False, quiet: bool = False) -> None:
    """Print the content of result.json."""
    content: ResultContent = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **content}))
        return
    console = Console(markup=False, emoji=False)  # a column may be named 'bmi [kg/m2]'
    if failed := failed_checks(content):
        console.print(failed, style="bold yellow", highlight=False, soft_wrap=True)
    console.print(sentence(content), style="bold", highlight=False, soft_wrap=True)
    if quiet:
        return
    console.print(sites_table(content))
    console.print(cost_summary(content), highlight=False)
    words = content.get("outcome_words", "")
    choices = (model_choice(content), minimax_bounds(content))
    for line in (words, lost_sites(content), limit_notes(content), *choices):
        if line:
            console.print(line, highlight=False, soft_wrap=True)
    files = f"Report: {folder / 'report.html'}. The folder also holds result.json, summary.csv and figures/."
    console.print(files, highlight=False, soft_wrap=True)


def lost_sites(content: ResultContent) -> str:
    """The sites that were lost during the study."""
    lost = [f"{site} ({reason})" for site, reason in content.get("lost_sites", {}).items()]
    return f"Sites lost during the study, whose data are in no result: {', '.join(lost)}." if lost else ""


def limit_notes(content: ResultContent) -> str:
    """How the study was run: who was left out, and how the sites' limits made it coarser."""
    notes = content.get("notes") or []
    return f"How the study was run: {'; '.join(notes)}." if notes else ""


def model_choice(content: ResultContent) -> str:
    """Which model was selected by held-out density, if several were fitted."""
    density = content.get("diagnostics", {}).get("held_out_density")
    if not density or not isinstance(density, dict):
        return ""
    values = ", ".join(f"{confounding(name)} {value:.3f}" for name, value in density.items())
    chosen = confounding(str(content["diagnostics"]["chosen"]))
    return f"The confounder is modelled as {chosen}. Mean log density of held-out outcomes: {values}."


def minimax_bounds(content: ResultContent) -> str:
    """The minimax lower bounds, if the method has them."""
    bounds = content.get("minimax_bounds") or []
    values = "; ".join(f"{row['name']} {row['bound']:.2g}" for row in bounds)
    return f"Minimax lower bounds on the coefficients' error (standard units): {values}." if values else ""


def sites_table(content: ResultContent) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("site")
    unit = f" ({content['outcome_unit']})" if content["outcome_unit"] else ""
    for heading in ("people", f"effect{unit}", "sd", "95% interval", "bytes sent"):
        table.add_column(heading, justify="right")
    out = content["cost"]["bytes_up"]
    for row in content["sites"]:
        cells = _cells(row["n"], row["ate"], row["sd"], row["lower"], row["upper"])
        table.add_row(row["site"], *cells, readable(out.get(row["site"], 0)))
    overall = (content["people"], content["ate"], content["sd"], *content["ate_interval"])
    table.add_row("all sites", *_cells(*overall), readable(sum(out.values())), style="bold")
    return table


def _cells(
    people: int, ate: float | None, sd: float | None, lower: float | None, upper: float | None
) -> tuple[str, str, str, str]:
    return f"{people:,}", _number(ate), _number(sd, 2), f"{_number(lower)} to {_number(upper)}"


def _number(value: float | None, digits: int = 3) -> str:
    """A number, or "?" if it is null."""
    return "?" if value is None else significant(value, digits)


def cost_summary(content: ResultContent) -> str:
    cost = content["cost"]
    up, down = sum(cost["bytes_up"].values()), sum(cost["bytes_down"].values())
    return (
        f"{cost['rounds']} rounds, {cost['seconds']:.0f} s of computation at the sites; "
        f"the sites sent {readable(up)} and received {readable(down)}."
    )
