"""Overlap: mirrored histograms of propensity scores, treated above the axis and control below."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from unpooled.disclosure.withheld import CELL
from unpooled.report.figures import style
from unpooled.report.figures.style import WIDTH, new_axes, shortened
from unpooled.study import ALL_SITES

PANELS = 12
"""Up to this many sites have a panel each; with more, each site is a strip of colours."""
FEW = CELL - 1
"""The most people that a withheld bin may hold, counted in the denominator of the shares."""
ARMS = {"treated": (style.ORANGE, 1.0), "control": (style.BLUE, -1.0)}
TITLE, HATCH = "Propensity score by arm", "//////"
SHADES = LinearSegmentedColormap.from_list("shares", ["#F4F8FB", style.BLUE])


def overlap(histogram: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Histogram over all sites: the rows "all sites" if there are any, otherwise the sum over the sites.

    `histogram` has the columns site, arm ("control", "treated"), lower, upper, people (NaN: withheld).
    """
    ax = new_axes(ax, 3.6)
    whole = histogram.loc[histogram["site"] == ALL_SITES]
    with mpl.rc_context(style.STYLE):
        hidden = _mirrored(ax, whole if len(whole) else histogram)
        ax.set_xlabel("propensity score")
        ax.set_ylabel("share of the arm")
        ax.set_title(TITLE, pad=22)
        ax.legend(
            handles=_legend(hidden), loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3, borderaxespad=0.2
        )
    return ax


def overlap_by_site(histogram: pd.DataFrame) -> np.ndarray:
    """The axes of a new figure with one panel per site, or one strip per site if there are many."""
    each = histogram.loc[histogram["site"] != ALL_SITES]
    sites = list(dict.fromkeys(each["site"]))
    if len(sites) > PANELS:
        return _strips(each, sites)
    rows, columns = -(-len(sites) // 3), min(3, len(sites))
    figure = Figure(figsize=(WIDTH, 1.2 + 1.6 * rows), layout="constrained")
    with mpl.rc_context(style.STYLE):
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        axes = grid.ravel()[: len(sites)]
        hidden = [_mirrored(ax, each.loc[each["site"] == site]) for ax, site in zip(axes, sites, strict=True)]
        for ax, site in zip(axes, sites, strict=True):
            ax.set_title(shortened(site, 24), fontsize=8)
        for lowest in axes[-columns:]:
            lowest.set_xlabel("propensity score")
            lowest.tick_params(labelbottom=True)
        for rest in grid.ravel()[len(sites) :]:
            rest.set_axis_off()
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=11, weight="bold")
        figure.supylabel("share of the arm", fontsize=10)
        figure.legend(handles=_legend(any(hidden)), loc="outside lower right", ncols=3, fontsize=9)
    return axes


def _mirrored(ax: Axes, histogram: pd.DataFrame) -> bool:
    """Draw both arms' bars, hatched for people who may be withheld; return whether any are."""
    ends, tallest = [], 0.0
    for arm, (colour, way) in ARMS.items():
        mine = histogram.loc[histogram["arm"] == arm].groupby(["lower", "upper"], as_index=False)
        bins = mine.agg(people=("people", "sum"), hidden=("people", lambda each: each.isna().sum()))
        people, left = bins["people"].to_numpy(float), bins["lower"].to_numpy(float)
        unknown, width = FEW * bins["hidden"].to_numpy(float), bins["upper"].to_numpy(float) - left
        share, most = (part / max(1.0, (people + unknown).sum()) for part in (people, unknown))
        ax.bar(left, way * share, width, align="edge", color=colour, edgecolor="white", linewidth=0.5)
        ends += [(left[i], width[i], way, share[i], most[i]) for i in np.flatnonzero(unknown)]
        tallest = max(tallest, (share + most).max(initial=0.0))
    for left, width, way, share, most in ends:
        ax.bar(
            left, way * max(most, 0.05 * tallest), width, bottom=way * share, align="edge", color="white",
            edgecolor=style.GREY, hatch=HATCH, linewidth=0.5,
        )  # fmt: skip
    ax.axhline(0.0, color=style.BLACK, linewidth=0.8)
    ax.set_xlim(0.0, 1.0)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0%}")
    ax.grid(axis="y")
    return bool(ends)


def _legend(hidden: bool) -> list[Patch]:
    arms = [Patch(color=style.ORANGE, label="treated (up)"), Patch(color=style.BLUE, label="control (down)")]
    return [*arms, _withheld()] if hidden else arms


def _withheld() -> Patch:
    return Patch(facecolor="white", edgecolor=style.GREY, hatch=HATCH, label="withheld (few people)")


def _strips(histogram: pd.DataFrame, sites: list[str]) -> np.ndarray:
    """One strip per site, control on the left; darker bins hold a larger share of the arm."""
    figure = Figure(figsize=(WIDTH, 1.5 + 0.15 * len(sites)), layout="constrained")
    shares = {arm: _by_site(histogram.loc[histogram["arm"] == arm], sites) for arm in ("control", "treated")}
    shade = ScalarMappable(Normalize(0.0, max(float(np.nanmax(share)) for share in shares.values())), SHADES)
    with mpl.rc_context(style.STYLE):
        axes = figure.subplots(1, 2, sharey=True)
        for ax, (arm, share) in zip(axes, shares.items(), strict=True):
            edges = [*share.columns, histogram["upper"].max()]
            ax.pcolormesh(edges, np.arange(len(sites) + 1) - 0.5, share, cmap=shade.cmap, norm=shade.norm)
            _hatch(ax, edges, share.isna().to_numpy())
            ax.set_xlabel("propensity score")
            ax.set_title(arm, fontsize=10)
            ax.tick_params(axis="y", length=0)
        axes[0].set_yticks(range(len(sites)), [shortened(site) for site in sites], fontsize=7)
        axes[0].invert_yaxis()
        figure.colorbar(
            shade,
            ax=axes,
            format="{x:.0%}",
            label="share of the arm",
            shrink=16 / (16 + len(sites)),
            anchor=(0.0, 1.0),
        )
        figure.suptitle(TITLE, x=0.01, ha="left", fontsize=11, weight="bold")
        if any(share.isna().any(axis=None) for share in shares.values()):
            figure.legend(handles=[_withheld()], loc="outside upper right", fontsize=9)
    return axes


def _hatch(ax: Axes, edges: list[float], hidden: np.ndarray) -> None:
    """Hatch the withheld cells (site, bin)."""
    cells = [Rectangle((edges[i], row - 0.5), edges[i + 1] - edges[i], 1.0) for row, i in np.argwhere(hidden)]
    ax.add_collection(
        PatchCollection(cells, facecolor="white", edgecolor=style.GREY, hatch=HATCH, linewidth=0)
    )


def _by_site(histogram: pd.DataFrame, sites: list[str]) -> pd.DataFrame:
    """The share of an arm by site (row) and bin; NaN if withheld."""
    people = histogram.pivot(index="site", columns="lower", values="people").reindex(sites)
    total = people.sum(axis=1) + FEW * people.isna().sum(axis=1)
    return people.div(total.clip(lower=1.0), axis=0)
