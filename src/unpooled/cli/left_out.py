"""People who are left out for missing values, in the output of `unpooled check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from unpooled.coordinator.left_out import LeftOutPeople


def left_out_as_json(found: LeftOutPeople) -> dict[str, object]:
    from unpooled.coordinator.left_out import checks, counts_to_show
    from unpooled.report.folder import finite

    shown = counts_to_show(found)
    return finite(
        {
            "sites": {
                site: {"kept": found.kept[site], "control": control, "treated": treated}
                for site, (control, treated) in zip(found.kept, shown.tolist(), strict=True)
            },
            "differences": dict(zip(found.names, found.differences.tolist(), strict=True)),
            "checks": [asdict(one) for one in checks(found)],
        }
    )


def show_left_out(console: Console, found: LeftOutPeople) -> None:
    from unpooled.cli.check import plain_table
    from unpooled.coordinator.left_out import checks, counts_to_show

    console.print(f"\nLeft out, because {' or '.join(found.incomplete)} is missing", style="bold")
    table = plain_table("site", "rows", "control", "treated")
    for site, counts in zip(found.kept, counts_to_show(found).tolist(), strict=True):
        each = ["few" if count != count else f"{count:,.0f}" for count in counts]
        table.add_row(site, f"{found.kept[site]:,} kept", *each)
    console.print(table)
    for one in checks(found):
        verdict, style = ("PASS", None) if one.passed else ("FAIL", "yellow")
        text = f"{one.name}: {verdict}, found {one.found:.2f}, at most {one.threshold:g} passes. {one.words}"
        console.print(text, highlight=False, style=style, soft_wrap=True)
