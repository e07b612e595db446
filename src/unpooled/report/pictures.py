"""Every figure of a results folder: as PNG, as SVG for the report, and beside them the CSV drawn from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes

from unpooled.report import borrowing, curves, figures, gaps, heterogeneity, loving, overlapping
from unpooled.report.drawing import densities, histories, keep, long, traffic_table
from unpooled.report.model import Model
from unpooled.study import ALL_SITES

TOLD = 12
"""With more sites than this a text alternative names those at the ends only."""


@dataclass(frozen=True)
class Picture:
    """A figure and what it shows, for whoever cannot see it."""

    name: str
    alternative: str
    svg: bytes


def draw_pictures(model: Model, content: dict[str, Any], folder: Path | None) -> dict[str, Picture]:
    """From a model and the content of its report, by name and in its order; also into a folder, if given."""
    found = {}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "unpooled"}):
        for name, ax, data, alternative in _drawn(model, content):
            if folder is not None:
                keep(ax, data, folder / f"{name}.png")
            found[name] = Picture(name, alternative, _svg(ax))
    return found


def _svg(ax: Axes) -> bytes:
    """The same figure, the same bytes."""
    figure, written = ax.get_figure(root=True), BytesIO()
    assert figure is not None
    figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


Drawn = tuple[str, Axes, pd.DataFrame, str]


def _drawn(model: Model, content: dict[str, Any]) -> Iterator[Drawn]:
    hidden = list(content["hidden"])
    study = content["study"]
    on: dict[str, Any] = {"outcome": study["outcome"], "unit": study["outcome_unit"]}
    summary = model.summary().drop(index=hidden)
    density = densities(model, [site for site in model.result_.sites if site not in hidden])
    told = _effects(summary)
    yield (
        "posterior",
        figures.posterior(density, summary, **on),
        density,
        f"Posterior of the average effect. {told}",
    )
    yield "forest", figures.forest(summary, **on), summary.reset_index(), f"Average effect by site. {told}"
    if content["looked"] is not None:
        yield from _looked(content, on)
    yield from _profiles(content, on)
    if content["borrowed"] is not None:
        shares = pd.DataFrame(content["borrowed"]).set_index("site")
        ax = borrowing.borrowed(shares)
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
        yield "convergence", figures.convergence(past), long(past), text
    table = traffic_table(content["cost"])
    yield "bytes", figures.traffic(table), table, f"Bytes out of and into each of {len(table)} sites."


def _looked(content: dict[str, Any], on: dict[str, Any]) -> Iterator[Drawn]:
    looked, answer = content["looked"], content["answer"]
    histogram = pd.DataFrame(looked["overlap"])
    overall = histogram["site"] == ALL_SITES
    text = (
        f"Propensities by arm over all sites; at that of {looked['outside_support']:.1%} of people the other "
        "arm has nobody."
    )
    everywhere, by_site = (histogram.loc[rows].reset_index(drop=True) for rows in (overall, ~overall))
    yield "overlap", overlapping.overlap(everywhere), everywhere, text
    if by_site["site"].nunique() > 1:
        axes = overlapping.overlap_by_site(by_site)
        yield "overlap_by_site", axes.ravel()[0], by_site, "The same at each site."
    balance = pd.DataFrame(looked["balance"])
    worst = balance[["before", "after"]].abs().max()
    text = (
        "Standardised differences between the arms, before and after weighting; the largest is "
        f"{worst['before']:.2f} before and {worst['after']:.2f} after."
    )
    yield "love", loving.love(balance), balance, text
    main = {"estimator": "this study", **{key: answer[key] for key in ("estimate", "lower", "upper")}}
    frame = pd.DataFrame([main, *looked["comparators"]])
    text = "; ".join(
        f"{row['estimator']} {row['estimate']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
        for row in frame.to_dict("records")
    )
    yield "comparators", heterogeneity.comparators(frame, **on), frame, f"Other estimates. {text}."
    without = pd.DataFrame(looked["leave_one_out"])
    if len(without):
        simple = pd.DataFrame(looked["comparators"]).set_index("estimator").loc["doubly robust (AIPW)"]
        whole = {name: float(simple[name]) for name in ("estimate", "lower", "upper")}
        ax = heterogeneity.leave_one_out(without, **whole, **on)
        ends = f"from {without['estimate'].min():.3g} to {without['estimate'].max():.3g}"
        yield "leave_one_out", ax, without, f"Doubly robust estimate without each site in turn: {ends}."


def _profiles(content: dict[str, Any], on: dict[str, Any]) -> Iterator[Drawn]:
    effects = pd.DataFrame(content["effects"])
    if effects.empty:
        return
    for place, (name, curve) in enumerate(effects.groupby("covariate", sort=False), 1):
        first, last = curve.iloc[0], curve.iloc[-1]
        text = (
            f"Effect by {name}: {first['effect']:.3g} at {first['value']:.3g}, {last['effect']:.3g} at "
            f"{last['value']:.3g}."
        )
        drawn: pd.DataFrame = curve.loc[:, ["value", "effect", "lower", "upper"]].reset_index(drop=True)
        yield f"effect_by_{place}", curves.effect_by(drawn, column=str(name), **on), curve, text


def _effects(summary: pd.DataFrame) -> str:
    rows = summary if len(summary) <= TOLD else pd.concat([summary.head(3), summary.tail(1)])
    told = [
        f"{site}: {row['ate']:.3g} ({row['lower']:.3g} to {row['upper']:.3g})"
        for site, row in rows.iterrows()
    ]
    return "; ".join(told) + "."
