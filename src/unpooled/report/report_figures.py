"""All figures of a report, each as SVG with alternative text, and as PNG and CSV in the results folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.diagnostics.heterogeneity import NAMES
from unpooled.estimators import Estimator
from unpooled.report.figure_data import (
    densities,
    histories,
    long,
    slopes,
    traffic_table,
)
from unpooled.report.figure_files import laid_out, svg, write_png
from unpooled.report.figures import (
    average,
    borrowed_strength,
    convergence,
    costs,
    curves,
    heterogeneity,
    love_plot,
    missing_values,
    propensities,
    subgroups,
)
from unpooled.report.figures.style import OutcomeName
from unpooled.report.json_types import Answer, DiagnosticsContent, MainEstimate, ReportContent
from unpooled.report.numbers import between, significant
from unpooled.report.policy import calibration_sentence, draw_fifths, fifths_table
from unpooled.study import ALL_SITES

NAMED = 12
"""With more sites than this, alternative text names only the first three and the overall effect."""

MOST = 30
"""With more sites than this, figures show all sites combined or the most influential ones; only the forest
plot shows every site."""


@dataclass(frozen=True)
class ReportFigure:
    """A figure with its alternative text, for readers who cannot see it."""

    name: str
    alternative: str
    svg: bytes


def draw_report_figures(
    model: Estimator, content: ReportContent, folder: Path | None
) -> dict[str, ReportFigure]:
    """The report's figures by name, in their order on the page; also written to `folder` if it is given."""
    found = {}
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "unpooled"}):
        for name, ax, data, alternative in _drawn(model, content):
            figure = laid_out(ax)
            found[name] = ReportFigure(name, alternative, svg(figure))
            if folder is not None:
                write_png(figure, folder / f"{name}.png")
                data.to_csv(folder / f"{name}.csv", index=False)
    return found


SUBGROUP_NUMBERS = ("effect", "lower", "upper", "simultaneous_lower", "simultaneous_upper")
ENDS = ("estimate", "lower", "upper")
Drawn = tuple[str, Axes, pd.DataFrame, str]


def _drawn(model: Estimator, content: ReportContent) -> Iterator[Drawn]:
    hidden = list(content["hidden"])
    study = content["study"]
    on = OutcomeName(outcome=study["outcome"], unit=study["outcome_unit"])
    summary = model.summary().drop(index=hidden, errors="ignore")
    curved = summary if len(summary) <= MOST else summary.tail(1)
    density = densities(model, [str(site) for site in curved.index[:-1]])
    yield (
        "posterior",
        average.posterior(density, curved, **on),
        density,
        f"Distribution of the average effect. {_effects(curved)}",
    )
    text = f"Forest plot of the average effect by site. {_effects(summary)}"
    yield "forest", average.forest(summary, **on), summary.reset_index(), text
    if content["subgroups"]:
        groups = _frame(content["subgroups"], *SUBGROUP_NUMBERS)
        known: pd.DataFrame = groups.dropna(subset=["effect"]).reset_index(drop=True)
        overall = float(content["answer"]["estimate"] or np.nan)
        text = f"Forest plot of the average effect by subgroup. {_effects_of_groups(known)}"
        yield "subgroups", subgroups.subgroups(known, overall, **on), groups, text
    if content["diagnostics"] is not None:
        yield from _diagnostics(content["diagnostics"], content["answer"], on)
    yield from _profiles(content, on)
    if (policy := content["policy"]) is not None:
        text = f"Average effect in fifths of people, by predicted effect. {calibration_sentence(policy)}"
        yield "fifths", draw_fifths(policy), fifths_table(policy), text
    if content["borrowed"] is not None:
        shares = pd.DataFrame(content["borrowed"]).set_index("site")
        ax = borrowed_strength.borrowed(shares)
        yield (
            "borrowed",
            ax,
            shares.reset_index(),
            "Heat map of the share of each site's estimate that comes from each site's data.",
        )
    if content["missing"]:
        shares = pd.DataFrame(content["missing"]).set_index("site")
        ax = missing_values.missing(shares)
        yield (
            "missing",
            ax,
            shares.reset_index(),
            "Heat map of the share of missing values by site and column.",
        )
    past = histories(model)
    if past:
        ends = ", ".join(f"{name} {len(values)}" for name, values in past.items())
        text = f"The objective at each evaluation, relative to its final value. Evaluations: {ends}."
        lengths = slopes(model)
        yield "convergence", convergence.convergence(past, lengths), long(past, lengths), text
    cost = content["cost"]
    table = traffic_table(cost["bytes_up"], cost["bytes_down"])
    text = f"Bytes sent and received by each of {len(table)} sites: {_reach(table, 'up')} sent by a site."
    yield "bytes", costs.traffic(_largest(table, table["up"].to_numpy(float))), table, text


def _diagnostics(diagnostics: DiagnosticsContent, answer: Answer, on: OutcomeName) -> Iterator[Drawn]:
    histogram = _frame(diagnostics["overlap"], "people")
    overall = histogram["site"] == ALL_SITES
    text = (
        "Propensity scores by arm over all sites; "
        f"{diagnostics['outside_support']:.1%} of people are outside the common support."
    )
    everywhere, by_site = (histogram.loc[rows].reset_index(drop=True) for rows in (overall, ~overall))
    yield "overlap", propensities.overlap(everywhere), everywhere, text
    if 1 < by_site["site"].nunique() <= MOST:
        axes = propensities.overlap_by_site(by_site)
        text = (
            "Propensity scores by arm at each site; hatched bins are withheld because they hold few people."
        )
        yield "overlap_by_site", axes.ravel()[0], by_site, text
    balance = _frame(diagnostics["balance"], "before", "after")
    worst = balance[["before", "after"]].abs().max().dropna()
    largest = " and ".join(f"{size:.2f} {when}" for when, size in worst.items())
    text = f"Love plot of standardised mean differences before and after weighting; largest: {largest}."
    yield "love", love_plot.love(balance), balance, text
    main = {"estimator": "this study", **{key: answer[key] for key in ENDS}}
    frame = _frame([main, *diagnostics["comparators"]], *ENDS)
    text = "; ".join(
        f"{row['estimator']} {significant(row['estimate'])} ({between(row['lower'], row['upper'])})"
        for row in frame.to_dict("records")
    )
    yield "comparators", heterogeneity.comparators(frame, **on), frame, f"Comparison of estimators. {text}."
    if diagnostics["leave_one_out"]:
        without = _frame(diagnostics["leave_one_out"], *ENDS)
        simple = frame.set_index("estimator").loc[NAMES["aipw"]]
        whole = MainEstimate(
            estimate=float(simple["estimate"]), lower=float(simple["lower"]), upper=float(simple["upper"])
        )
        shown = _largest(without, np.abs(without["estimate"].to_numpy(float) - whole["estimate"]))
        text = f"Leave-one-site-out analysis of the doubly robust estimate: {_reach(without, 'estimate')}."
        yield "leave_one_out", heterogeneity.leave_one_out(shown, **whole, **on), without, text


def _profiles(content: ReportContent, on: OutcomeName) -> Iterator[Drawn]:
    if not content["effects"]:
        return
    effects = _frame(content["effects"], "value", "effect", "lower", "upper")
    for place, (name, curve) in enumerate(effects.groupby("covariate", sort=False), 1):
        first, last = curve.iloc[0], curve.iloc[-1]
        text = (
            f"Effect by {name}: {significant(first['effect'])} at {significant(first['value'])}, "
            f"{significant(last['effect'])} at {significant(last['value'])}."
        )
        unit = content["study"]["units"].get(str(name))
        column = f"{name} ({unit})" if unit else str(name)
        drawn: pd.DataFrame = curve.loc[:, ["value", "effect", "lower", "upper"]].reset_index(drop=True)
        yield f"effect_by_{place}", curves.effect_by(drawn, column=column, **on), curve, text


def _effects_of_groups(groups: pd.DataFrame) -> str:
    texts = [
        f"{row['group']}: {significant(row['effect'])} ({between(row['lower'], row['upper'])})"
        for row in groups.head(NAMED).to_dict("records")
    ]
    return "; ".join(texts) + "."


def _effects(summary: pd.DataFrame) -> str:
    rows = summary if len(summary) <= NAMED else pd.concat([summary.head(3), summary.tail(1)])
    texts = [
        f"{site}: {significant(row['ate'])} ({between(row['lower'], row['upper'])})"
        for site, row in rows.to_dict("index").items()
    ]
    return "; ".join(texts) + "."


def _frame(rows: Sequence[Mapping[str, object]], *numbers: str) -> pd.DataFrame:
    """A data frame from JSON records, where null in a numeric column means a missing number."""
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))


def _largest(rows: pd.DataFrame, size: np.ndarray) -> pd.DataFrame:
    """The `MOST` rows of largest size, in their original order."""
    order = np.argsort(-size, kind="stable")[:MOST]
    return rows.iloc[np.sort(order)].reset_index(drop=True)


def _reach(rows: pd.DataFrame, name: str) -> str:
    values = rows[name].to_numpy(dtype=float)
    return f"from {between(values.min(), values.max())}"
