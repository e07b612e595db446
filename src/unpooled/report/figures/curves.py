"""Effect curves: along one covariate, sorted over people, and against a shift of missing values."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from unpooled.data.stored_columns import column as the
from unpooled.data.stored_columns import numbers, stored_as
from unpooled.effects.summary import interval
from unpooled.errors import StudyError, nearest
from unpooled.report.figures import style
from unpooled.report.figures.style import literal, new_axes, on_outcome, shortened

FEW = 8
"""Up to this many distinct values are drawn as separate points."""
RANGE = (0.05, 0.95)
"""Quantiles between which a curve is drawn; beyond them there are few observations."""


def effect_by(
    curve: pd.DataFrame, *, column: str, outcome: str, unit: str = "", site: str = "", ax: Axes | None = None
) -> Axes:
    """The effect along one covariate: a line with a band, or points with bars if there are few values.

    `curve` has the columns value, effect, lower, upper.
    """
    ax = new_axes(ax, 3.4)
    with mpl.rc_context(style.STYLE):
        named = is_bool_dtype(curve["value"]) or not is_numeric_dtype(curve["value"])
        value = np.arange(len(curve)) if named else curve["value"].to_numpy(float)
        lower, upper = curve["lower"].to_numpy(float), curve["upper"].to_numpy(float)
        if named or len(curve) <= FEW:
            ax.vlines(value, lower, upper, color=style.BLUE, linewidth=1.8)
            ax.plot(value, curve["effect"], color=style.BLUE, marker="o", markersize=6, linestyle="none")
            room = 0.6 * (float(np.diff(np.sort(value)).min()) if len(value) > 1 else 1.0)
            ax.set_xlim(value.min() - room, value.max() + room)
            names = [shortened(each) if named else f"{each:g}" for each in curve["value"]]
            tilted = sum(map(len, names)) > 60
            ax.set_xticks(value, names, rotation=30 if tilted else 0, ha="right" if tilted else "center")
        else:
            ax.fill_between(value, lower, upper, color=style.BLUE, alpha=0.2, linewidth=0)
            ax.plot(value, curve["effect"], color=style.BLUE, linewidth=1.8)
        _zero(ax)
        ax.set_xlabel(
            literal(column) + (f"\nother covariates at typical values of {shortened(site)}" if site else "")
        )
        ax.set_ylabel(on_outcome("effect", outcome, unit))
        ax.set_title("Effect along one covariate, 95% interval")
        ax.grid(axis="y")
    return ax


def sorted_effects(
    effects: pd.DataFrame, *, outcome: str, unit: str = "", site: str = "", ax: Axes | None = None
) -> Axes:
    """Every person's effect with its interval, in ascending order.

    `effects` has the columns effect, lower, upper.
    """
    ax = new_axes(ax, 3.4)
    shown = effects.sort_values("effect")
    lower, upper = shown["lower"].to_numpy(float), shown["upper"].to_numpy(float)
    away = float(np.mean((lower > 0.0) | (upper < 0.0)))
    with mpl.rc_context(style.STYLE):
        rank = np.arange(1, len(shown) + 1)
        ax.fill_between(rank, lower, upper, color=style.BLUE, alpha=0.25, linewidth=0, step="mid")
        ax.plot(rank, shown["effect"], color=style.BLUE, linewidth=1.8, drawstyle="steps-mid")
        _zero(ax)
        ax.set_xlim(0.5, len(shown) + 0.5)
        where = f" at {shortened(site)}" if site else ""
        ax.set_xlabel(f"{len(shown):,} people{where}, sorted by their effect")
        ax.set_ylabel(on_outcome("effect", outcome, unit))
        ax.set_title(f"Sorted effects: the 95% interval excludes 0 for {away:.0%} of people")
        ax.grid(axis="y")
    return ax


def sensitivity(
    found: pd.DataFrame, tipping: dict[str, float | None], *, column: str, ax: Axes | None = None
) -> Axes:
    """ATE(δ) with its interval; dotted lines mark where the interval starts or stops including 0."""
    ax = new_axes(ax, 3.4)
    with mpl.rc_context(style.STYLE):
        ax.fill_between(
            found["size"], found["lower"], found["upper"], color=style.BLUE, alpha=0.2, linewidth=0
        )
        ax.plot(found["size"], found["ate"], color=style.BLUE, marker="o", markersize=4)
        main = found[found["size"] == 0.0]
        ax.plot(main["size"], main["ate"], color=style.ORANGE, marker="o", markersize=7, linestyle="none")
        ax.axhline(0.0, color=style.GREY, linewidth=0.8)
        for size in tipping.values():
            if size is not None:
                ax.axvline(size, color=style.ORANGE, linewidth=1.2, linestyle=":")
                ax.annotate(
                    f"tipping point {size:+.2g}", (size, 1.0), xycoords=("data", "axes fraction"),
                    xytext=(3, -3), textcoords="offset points", va="top", fontsize=8, color=style.ORANGE,
                )  # fmt: skip
        ax.set_xlabel(literal(f"shift δ of missing values of {column} (0: missing at random)"))
        ax.set_ylabel("average effect")
        ax.set_title("Sensitivity to values not missing at random (band: 95% interval)")
        ax.grid(axis="y")
    return ax


def summarised(draws: np.ndarray) -> pd.DataFrame:
    """effect, lower, upper per person, from draws [K, people]."""
    lower, upper = interval(draws)
    return pd.DataFrame({"effect": draws.mean(axis=0), "lower": lower, "upper": upper})


def hypothetical(people: pd.DataFrame, column: str, points: int) -> pd.DataFrame:
    """Rows that vary in one covariate over its range, with the others at typical values of this table.

    >>> hypothetical(pd.DataFrame({"age": [30, 40, 60], "sex": ["f", "f", "m"]}), "sex", 50)
        age sex
    0  40.0   f
    1  40.0   m
    """
    if column not in people:
        raise StudyError(
            "the column must be a covariate of the study", found=f"'{column}'", remedy=nearest(column, people)
        )
    seen = the(people, column).dropna()
    if seen.empty:
        raise StudyError(
            f"'{column}' must have observed values",
            found="none",
            remedy="choose another site, or pass other people",
        )
    moved = _grid(seen, points)
    return pd.DataFrame(
        {name: moved if name == column else _typical(the(people, str(name))) for name in people}
    )


def _grid(seen: pd.Series, points: int) -> list:
    """All values if they are text or few, otherwise points over their range; integers stay integers."""
    if stored_as(seen) == "text" or seen.nunique() <= FEW:
        return seen.drop_duplicates().sort_values().tolist()
    values = numbers(seen)
    low, high = np.quantile(values, RANGE)
    if low == high:
        low, high = values.min(), values.max()
    grid = np.linspace(low, high, points)
    whole = bool((values == np.round(values)).all())
    return np.unique(np.round(grid) if whole else grid).tolist()


def _typical(series: pd.Series) -> object:
    """An observed median of numbers, or the most frequent level; NaN if all values are missing."""
    seen = series.dropna()
    if seen.empty:
        return np.nan
    if stored_as(seen) == "text":
        return seen.mode().iloc[0]
    return float(np.quantile(numbers(seen), 0.5, method="nearest"))


def _zero(ax: Axes) -> None:
    ax.axhline(0.0, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))
