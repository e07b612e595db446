"""Every figure of a results folder: as PNG, as SVG for the report, and beside them the CSV drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.diagnostics.heterogeneity import NAMES
from unpooled.estimators import Estimator
from unpooled.report.drawing import (
    densities,
    histories,
    laid_out,
    long,
    slopes,
    svg,
    traffic_table,
    write_png,
)
from unpooled.report.figures import (
    average,
    borrowed_strength,
    curves,
    gaps,
    heterogeneity,
    love_plot,
    propensities,
    rounds,
)
from unpooled.study import ALL_SITES

TOLD = 12
"""With more sites than this a text alternative names those at the ends only."""

MOST = 30
"""With more sites than this, a figure that grows with them shows all of them together, or those that matter
most; the forest alone shows every site."""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows, for whoever cannot see it."""

    name: str
    alternative: str
    svg: bytes


def draw_pictures(model: Estimator, content: dict[str, Any], folder: Path | None) -> dict[str, Picture]:
    """From a model and the content of its report, by name and in its order; also into a folder, if given."""
    found = {}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "unpooled"}):
        for name, ax, data, alternative in _drawn(model, content):
            figure = laid_out(ax)
            found[name] = Picture(name, alternative, svg(figure))
            if folder is not None:
                write_png(figure, folder / f"{name}.png")
                data.to_csv(folder / f"{name}.csv", index=False)
    return found


ENDS = ("estimate", "lower", "upper")
Drawn = tuple[str, Axes, pd.DataFrame, str]


def _drawn(model: Estimator, content: dict[str, Any]) -> Iterator[Drawn]:
    hidden = list(content["hidden"])
    study = content["study"]
    on: dict[str, Any] = {"outcome": study["outcome"], "unit": study["outcome_unit"]}
    summary = model.summary().drop(index=hidden)
    curved = summary if len(summary) <= MOST else summary.tail(1)
    density = densities(model, [str(site) for site in curved.index[:-1]])
    yield (
        "posterior",
        average.posterior(density, curved, **on),
        density,
        f"Posterior of the average effect. {_effects(curved)}",
    )
    text = f"Average effect by site. {_effects(summary)}"
    yield "forest", average.forest(summary, **on), summary.reset_index(), text
    if content["diagnostics"] is not None:
        yield from _diagnostics(content, on)
    yield from _profiles(content, on)
    if content["borrowed"] is not None:
        shares = pd.DataFrame(content["borrowed"]).set_index("site")
        ax = borrowed_strength.borrowed(shares)
        yield (
            "borrowed",
            ax,
            shares.reset_index(),
            "Share of each site's fit that comes from each site's people.",
        )
    if content["missing"]:
        shares = pd.DataFrame(content["missing"]).set_index("site")
        ax = gaps.missing(shares)
        yield "missing", ax, shares.reset_index(), "Share of values missing, by site and column."
    past = histories(model)
    if past:
        ends = ", ".join(f"{name} {len(values)}" for name, values in past.items())
        text = f"The objective by evaluation, down to its final value. Evaluations: {ends}."
        lengths = slopes(model)
        yield "convergence", rounds.convergence(past, lengths), long(past, lengths), text
    table = traffic_table(content["cost"])
    text = f"Bytes out of and into each of {len(table)} sites: {_reach(table, 'up')} out of a site."
    yield "bytes", rounds.traffic(_largest(table, table["up"].to_numpy(float))), table, text


def _diagnostics(content: dict[str, Any], on: dict[str, Any]) -> Iterator[Drawn]:
    diagnostics, answer = content["diagnostics"], content["answer"]
    histogram = _frame(diagnostics["overlap"], "people")
    overall = histogram["site"] == ALL_SITES
    text = (
        "Propensities by arm over all sites; at the propensity of "
        f"{diagnostics['outside_support']:.1%} of people the other arm has nobody."
    )
    everywhere, by_site = (histogram.loc[rows].reset_index(drop=True) for rows in (overall, ~overall))
    yield "overlap", propensities.overlap(everywhere), everywhere, text
    if 1 < by_site["site"].nunique() <= MOST:
        axes = propensities.overlap_by_site(by_site)
        text = "Propensities by arm at each site; hatched where few people stand behind a bar."
        yield "overlap_by_site", axes.ravel()[0], by_site, text
    balance = _frame(diagnostics["balance"], "before", "after")
    worst = balance[["before", "after"]].abs().max().dropna()
    largest = " and ".join(f"{size:.2f} {when}" for when, size in worst.items())
    text = f"Standardised differences between the arms, before and after weighting; the largest: {largest}."
    yield "love", love_plot.love(balance), balance, text
    main = {"estimator": "this study", **{key: answer[key] for key in ENDS}}
    frame = _frame([main, *diagnostics["comparators"]], *ENDS)
    text = "; ".join(
        f"{row['estimator']} {row['estimate']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
        for row in frame.to_dict("records")
    )
    yield "comparators", heterogeneity.comparators(frame, **on), frame, f"Other estimates. {text}."
    if diagnostics["leave_one_out"]:
        without = _frame(diagnostics["leave_one_out"], *ENDS)
        simple = frame.set_index("estimator").loc[NAMES["aipw"]]
        whole = {name: float(simple[name]) for name in ENDS}
        shown = _largest(without, np.abs(without["estimate"].to_numpy(float) - whole["estimate"]))
        text = f"Doubly robust estimate without each site in turn: {_reach(without, 'estimate')}."
        yield "leave_one_out", heterogeneity.leave_one_out(shown, **whole, **on), without, text


def _profiles(content: dict[str, Any], on: dict[str, Any]) -> Iterator[Drawn]:
    if not content["effects"]:
        return
    effects = _frame(content["effects"], "value", "effect", "lower", "upper")
    for place, (name, curve) in enumerate(effects.groupby("covariate", sort=False), 1):
        first, last = curve.iloc[0], curve.iloc[-1]
        text = (
            f"Effect by {name}: {first['effect']:.3g} at {first['value']:.3g}, {last['effect']:.3g} at "
            f"{last['value']:.3g}."
        )
        unit = content["study"]["units"].get(str(name))
        column = f"{name} ({unit})" if unit else str(name)
        drawn: pd.DataFrame = curve.loc[:, ["value", "effect", "lower", "upper"]].reset_index(drop=True)
        yield f"effect_by_{place}", curves.effect_by(drawn, column=column, **on), curve, text


def _effects(summary: pd.DataFrame) -> str:
    rows = summary if len(summary) <= TOLD else pd.concat([summary.head(3), summary.tail(1)])
    told = [
        f"{site}: {row['ate']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
        for site, row in rows.iterrows()
    ]
    return "; ".join(told) + "."


def _frame(rows: list[dict[str, Any]], *numbers: str) -> pd.DataFrame:
    """Of records as JSON holds them: what is null in these columns is a number that was not to be had."""
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))


def _largest(rows: pd.DataFrame, size: np.ndarray) -> pd.DataFrame:
    """Not more rows than a figure shows, in their order; those without a size last."""
    order = np.argsort(-size, kind="stable")[:MOST]
    return rows.iloc[np.sort(order)].reset_index(drop=True)


def _reach(rows: pd.DataFrame, name: str) -> str:
    return f"from {rows[name].min():.3g} to {rows[name].max():.3g}"
