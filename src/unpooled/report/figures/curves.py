"""The figures of conditional effects: along one covariate, and sorted over people."""

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
from unpooled.report.figures.axes import new_axes
from unpooled.report.figures.labels import literal, on_outcome, shortened

FEW = 8
"""Up to this many values each is a point of its own."""
RANGE = (0.05, 0.95)
"""Of a covariate's distribution: beyond it there are few people to learn from."""


def effect_by(
    curve: pd.DataFrame, *, column: str, outcome: str, unit: str = "", site: str = "", ax: Axes | None = None
) -> Axes:
    """The effect along one covariate: a line with its band, or points with bars where values are few.

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
        ax.set_xlabel(literal(column) + (f"\nall else as is typical of {shortened(site)}" if site else ""))
        ax.set_ylabel(on_outcome("effect", outcome, unit))
        ax.set_title("Effect along one covariate, 95% interval")
        ax.grid(axis="y")
    return ax


def sorted_effects(
    effects: pd.DataFrame, *, outcome: str, unit: str = "", site: str = "", ax: Axes | None = None
) -> Axes:
    """Every person's effect, the smallest first, with its interval.

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
        ax.set_title(f"Sorted effects: the 95% interval excludes 0 for {away:.0%}")
        ax.grid(axis="y")
    return ax


def summarised(draws: np.ndarray) -> pd.DataFrame:
    """effect, lower, upper of people whose draws are [K, people]."""
    lower, upper = interval(draws)
    return pd.DataFrame({"effect": draws.mean(axis=0), "lower": lower, "upper": upper})


def hypothetical(people: pd.DataFrame, column: str, points: int) -> pd.DataFrame:
    """People alike in all but one covariate, which goes over its range; typical ones of this table.

    >>> hypothetical(pd.DataFrame({"age": [30, 40, 60], "sex": ["f", "f", "m"]}), "sex", 50)
        age sex
    0  40.0   f
    1  40.0   m
    """
    if column not in people:
        raise StudyError(
            "effects go along a covariate of the study", found=f"'{column}'", remedy=nearest(column, people)
        )
    seen = the(people, column).dropna()
    if seen.empty:
        raise StudyError(
            f"'{column}' must have values", found="none", remedy="choose another site, or give other people"
        )
    moved = _grid(seen, points)
    return pd.DataFrame(
        {name: moved if name == column else _typical(the(people, str(name))) for name in people}
    )


def _grid(seen: pd.Series, points: int) -> list:
    """Every value where they are few or text, else points over their range; whole numbers stay whole."""
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
    """The median of numbers, as somebody has it, or the most frequent level; missing where all are."""
    seen = series.dropna()
    if seen.empty:
        return np.nan
    if stored_as(seen) == "text":
        return seen.mode().iloc[0]
    return float(np.quantile(numbers(seen), 0.5, method="nearest"))


def _zero(ax: Axes) -> None:
    ax.axhline(0.0, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))
