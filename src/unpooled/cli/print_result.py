"""Print the result of a study: one sentence, the table by site, the cost, and the location of the files."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from unpooled.cli.progress import readable
from unpooled.report.json_types import AverageEffect, ResultContent
from unpooled.report.numbers import significant
from unpooled.report.words import (
    confounding,
    differs,
    effect_forms,
    effect_names,
    effect_notes,
    failed_checks,
    sentence,
)


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
    if content.get("average_effects"):
        for table in (groups_table(content), comparisons_table(content)):
            console.print(table)
    console.print(cost_summary(content), highlight=False)
    words = content.get("outcome_words", "")
    choices = (model_choice(content), minimax_bounds(content))
    tests = (differs(one) for one in content.get("subgroup_tests", []))
    groups = (*effect_notes(content), *tests, hidden_groups(content))
    for line in (words, *groups, lost_sites(content), limit_notes(content), *choices):
        if line:
            console.print(line, highlight=False, soft_wrap=True)
    files = f"Report: {folder / 'report.html'}. The folder also holds result.json, summary.csv and figures/."
    console.print(files, highlight=False, soft_wrap=True)


def groups_table(content: ResultContent) -> Table:
    """Mean outcomes and their difference by group of people, subgroups included."""
    table, forms = (
        _table("group", "people", "control", "treated", "effect", "95% interval"),
        effect_forms(content),
    )
    for row in content["average_effects"]:
        control, treated, difference = row["effects"][:3]
        people = "" if row["people"] is None else f"{row['people']:,}"
        form = forms[difference["effect"]]
        means = (_rounded(one["estimate"], form) for one in (control, treated, difference))
        ends = (_rounded(difference[end], form) for end in ("lower", "upper"))
        table.add_row(row["group"], people, *means, " to ".join(ends))
    return table


def comparisons_table(content: ResultContent) -> Table:
    """Ratios and other comparisons by group of people, as far as they are known."""
    names, forms = effect_names(content)[3:], effect_forms(content)
    table = _table("group", *names)
    for column in table.columns[1:]:
        column.no_wrap = True
    for row in content["average_effects"] if names else ():
        known = {one["effect"]: one for one in row["effects"]}
        table.add_row(row["group"], *(_with_interval(known[name], forms[name]) for name in names))
    return table


def _with_interval(one: AverageEffect, form: str) -> str:
    if one["estimate"] is None:
        return "not defined"
    lower, upper = _rounded(one["lower"], form), _rounded(one["upper"], form)
    ends = f"≤ {lower}, ≥ {upper}" if one["two_parts"] else f"{lower}, {upper}"
    return f"{_rounded(one['estimate'], form)} ({ends})"


def _rounded(value: float | None, form: str) -> str:
    """A number in this format, or "?" if it is null."""
    return "?" if value is None else format(value, form)


def _table(first: str, *headings: str) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def hidden_groups(content: ResultContent) -> str:
    """The groups that are not shown."""
    hidden = [f"{group} ({why})" for group, why in content.get("hidden_groups", {}).items()]
    return f"Groups that are not shown: {', '.join(hidden)}." if hidden else ""


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
    unit = f" ({content['outcome_unit']})" if content["outcome_unit"] else ""
    table = _table("site", "people", f"effect{unit}", "sd", "95% interval", "bytes sent")
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
