"""The answer on the screen: one sentence, the table by site, the cost, and where the files are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from unpooled.cli.progress import readable
from unpooled.report.words import sentence


def print_result(folder: Path, *, as_json: bool = False, quiet: bool = False) -> None:
    """Tell what result.json holds."""
    content = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), **content}))
        return
    console = Console(markup=False, emoji=False)  # a column may be called 'bmi [kg/m2]'
    console.print(sentence(content), style="bold", highlight=False, soft_wrap=True)
    if quiet:
        return
    console.print(sites_table(content))
    console.print(spent(content), highlight=False)
    for said in (absent(content), choice(content), floor(content)):
        if said:
            console.print(said, highlight=False, soft_wrap=True)
    files = f"To look at: {folder / 'report.html'}; beside it result.json, summary.csv, figures/, …"
    console.print(files, highlight=False, soft_wrap=True)


def absent(content: dict[str, Any]) -> str:
    """Who was to answer and did not."""
    lost = [f"{site} ({reason})" for site, reason in content.get("lost_sites", {}).items()]
    return f"No number rests on: {', '.join(lost)}." if lost else ""


def choice(content: dict[str, Any]) -> str:
    """Which model the data chose, where there was a choice."""
    density = content.get("diagnostics", {}).get("held_out_density") or {}
    if not density:
        return ""
    told = ", ".join(f"{name} {value:.3f}" for name, value in density.items())
    chosen = content["diagnostics"]["chosen"]
    return f"Confounding taken as {chosen}: mean log density of held-out outcomes {told}."


def floor(content: dict[str, Any]) -> str:
    """What no estimator could beat, where the method knows it."""
    bounds = content.get("minimax_bounds") or []
    told = "; ".join(f"{row['name']} {row['bound']:.2g}" for row in bounds)
    return f"What no estimator could beat (error of coefficients, standard units): {told}." if told else ""


def sites_table(content: dict[str, Any]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("site")
    unit = f" ({content['outcome_unit']})" if content["outcome_unit"] else ""
    for heading in ("people", f"effect{unit}", "sd", "95% interval", "bytes out"):
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
    """A number, or a mark where JSON had no word for it."""
    return "?" if value is None else f"{value:.{digits}g}"


def spent(content: dict[str, Any]) -> str:
    cost = content["cost"]
    up, down = sum(cost["bytes_up"].values()), sum(cost["bytes_down"].values())
    return (
        f"{cost['rounds']} rounds, {cost['seconds']:.0f} s at the sites; "
        f"{readable(up)} left the sites, {readable(down)} came to them."
    )
