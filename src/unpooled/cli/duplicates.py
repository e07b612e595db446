"""People who are at several sites, in the output of `unpooled check`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from unpooled.diagnostics.duplicates import Duplicates


def duplicates_as_json(found: Duplicates) -> dict[str, object]:
    return {
        "sites": {site: asdict(one) for site, one in found.sites.items()},
        "share": found.share,
        "errors_too_small_by": found.too_narrow,
        "left_out": bool(found.kept_at),
    }


def show_duplicates(console: Console, found: Duplicates) -> None:
    from unpooled.cli.check import plain_table

    console.print("\nPeople at several sites", style="bold")
    table = plain_table("site", "rows", "people", "also elsewhere", "repeated", "no key", "wrong digit")
    for site, one in found.sites.items():
        counts = (one.rows, one.people, one.elsewhere, one.repeated, one.without_key, one.wrong_check)
        table.add_row(site, *[f"{count:,}" for count in counts])
    console.print(table)
    console.print(found.words, highlight=False, soft_wrap=True)
