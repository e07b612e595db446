"""Missing values in the output of `unpooled check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from unpooled.diagnostics.missingness import Missingness

MOST_PATTERNS = 8


def missingness_as_json(found: Missingness) -> dict[str, object]:
    from unpooled.report.folder import finite

    within = found.stratified
    return finite(
        {
            "shares": found.shares.to_dict("index"),
            "patterns": found.patterns.to_dict("records"),
            "little": None if found.pooled is None else found.pooled._asdict(),
            "little_within_sites": {
                "statistic": within.statistic,
                "degrees": within.degrees,
                "p_value": within.p_value,
                "left_out": within.left_out,
            },
            "share_of_sites_rejecting": found.vote.share,
            "withheld": found.withheld,
        }
    )


def show_missingness(console: Console, found: Missingness) -> None:
    from rich.table import Table

    from unpooled.diagnostics.missingness import ADVICE

    console.print("\nMissing values", style="bold")
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("site")
    for name in found.shares.columns:
        table.add_column(str(name), justify="right")
    for site, shares in found.shares.iterrows():
        table.add_row(str(site), *[f"{share:.0%}" for share in shares])
    console.print(table)
    top = found.patterns.head(MOST_PATTERNS)
    rest = len(found.patterns) - len(top)
    texts = [f"{missing} ({rows:,})" for missing, rows in zip(top["missing"], top["rows"], strict=True)]
    console.print("missing together (people): " + "; ".join(texts), end="")
    console.print(f"; and {rest} other patterns" if rest > 0 else "")
    for line in tests(found):
        console.print(line, highlight=False, soft_wrap=True)
    console.print(ADVICE, style="dim", soft_wrap=True)


def tests(found: Missingness) -> list[str]:
    """The results of Little's test in three versions, and what was withheld."""
    pooled, within, vote = found.pooled, found.stratified, found.vote
    first = f"Little's test: not possible ({found.unavailable_reason})"
    if pooled is not None:
        warning = "" if pooled.converged else "; the EM algorithm did not converge"
        first = f"Little's test: {_test(pooled.statistic, pooled.degrees, pooled.p_value)}{warning}"
    lines = [
        first,
        f"  stratified by site: {_test(within.statistic, within.degrees, within.p_value)}",
        f"  separate test at each site (low power): {vote.share:.0%} of the sites reject",
    ]
    lines += [f"  excluded: {site}: {why}" for site, why in within.left_out.items()]
    for site, held in found.withheld.items():
        lines.append(
            f"  withheld by {site}: {held['patterns']} patterns of {held['rows']} people, not in the tests"
        )
    return lines


def _test(statistic: float, degrees: int, p_value: float) -> str:
    if not degrees:
        return "nothing to test, because there is only one pattern"
    p = "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.4f}"
    return f"d² = {statistic:.1f} on {degrees} degrees of freedom, {p}"
