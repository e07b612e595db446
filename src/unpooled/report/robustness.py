"""Write the robustness checks of a study to its results folder, with a forest plot of their estimates."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from unpooled.coordinator.checkpoint import writing
from unpooled.report.figure_files import keep
from unpooled.report.figures import style
from unpooled.report.figures.style import literal, new_axes, zero
from unpooled.report.json_types import MainEstimate, RefutationContent
from unpooled.study import Study

FILES = ("refutation.json", "refutation.csv", "figures/refutation.png", "figures/refutation.csv")
MAIN = "main analysis"
NOT_DRAWN = ("e_value",)
"""Checks that do not produce an estimate of their own."""
BESIDE = {"negative_control": "in its own unit", "noise_correlation": "range"}
"""Notes on checks whose rows are not on the same scale as the others."""


def write_refutation(content: RefutationContent, table: pd.DataFrame, study: Study, folder: Path) -> None:
    """Write all files of the robustness checks; refutation.json is written last and marks completeness."""
    columns, shown = study.columns, drawn(content["main"], table)
    with writing(folder):
        (folder / "figures").mkdir(exist_ok=True)
        keep(forest(shown, outcome=columns.outcome, unit=columns.outcome_unit), shown, folder / FILES[2])
        table.to_csv(folder / FILES[1], index=False)
        text = json.dumps({key: part for key, part in content.items() if key != "folder"}, indent=2)
        (folder / FILES[0]).write_text(text + "\n", encoding="utf-8")


def drawn(main: MainEstimate, table: pd.DataFrame) -> pd.DataFrame:
    """test, estimate, lower, upper, worrying: the main analysis, then every check that has an estimate."""
    columns = ["test", "estimate", "lower", "upper", "worrying"]
    first = pd.DataFrame([{**main, "test": MAIN, "worrying": False}], columns=columns)
    shown = table.loc[~table["test"].isin(NOT_DRAWN), columns]
    return pd.concat([first, shown], ignore_index=True) if len(shown) else first


def forest(found: pd.DataFrame, *, outcome: str, unit: str = "", ax: Axes | None = None) -> Axes:
    """Forest plot of the checks, with the interval of the main analysis in grey; `found` is from `drawn`."""
    ax = new_axes(ax, 1.3 + 0.42 * len(found))
    rows = found.to_dict("records")
    with mpl.rc_context(style.STYLE):
        ax.axvspan(rows[0]["lower"], rows[0]["upper"], color=style.GREY, alpha=0.15, linewidth=0)
        zero(ax)
        for place, row in enumerate(reversed(rows)):
            colour, marker = _look(row["test"], bool(row["worrying"]))
            ax.plot([row["lower"], row["upper"]], [place, place], color=colour, linewidth=1.8)
            ax.plot(row["estimate"], place, marker=marker, markersize=7, color=colour)
            verdict = "" if row["test"] == MAIN else "WARN" if row["worrying"] else "PASS"
            ax.annotate(
                verdict, (1.02, place), xycoords=("axes fraction", "data"), va="center", fontsize=9,
                color=colour, weight="bold" if row["worrying"] else "normal",
            )  # fmt: skip
        ax.set_yticks(range(len(rows)), [_name(row["test"]) for row in reversed(rows)])
        ax.set_ylim(-0.6, len(rows) - 0.4)
        ax.set_xlabel(literal(f"average effect on {outcome}" + (f" ({unit})" if unit else "")))
        ax.set_title("Robustness checks (bars: 95% intervals)")
        ax.tick_params(axis="y", length=0)
        ax.grid(axis="x")
    return ax


def _name(test: str) -> str:
    plain = test.replace("_", " ")
    return f"{plain}\n({BESIDE[test]})" if test in BESIDE else plain


def _look(test: str, worrying: bool) -> tuple[str, str]:
    if test == MAIN:
        return style.BLACK, "D"
    return (style.ORANGE, "X") if worrying else (style.BLUE, "s")
