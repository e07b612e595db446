"""All figures, such as `unpooled.plot.forest(model)`. Each draws on `ax` or a new figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from unpooled.data import Table, read
from unpooled.diagnostics.borrowed_strength import borrowed as borrowed_shares
from unpooled.diagnostics.heterogeneity import NAMES
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics
from unpooled.errors import StudyError, nearest
from unpooled.estimators import Estimator
from unpooled.report.figure_data import densities, histories, traffic_table
from unpooled.report.figures import (
    average,
    borrowed_strength,
    costs,
    curves,
    heterogeneity,
    love_plot,
    missing_values,
    propensities,
)
from unpooled.report.figures import convergence as convergence_figure
from unpooled.report.figures import fifths as fifths_figure
from unpooled.report.figures import subgroups as subgroups_figure
from unpooled.report.figures.style import OutcomeName
from unpooled.study import ALL_SITES, Study
from unpooled.study.subgroups import listed

if TYPE_CHECKING:
    from unpooled.diagnostics.missingness import Missingness

__all__ = [
    "ate", "borrowed", "comparators", "convergence", "effect_by", "fifths", "forest", "leave_one_out", "love",
    "missing", "overlap", "overlap_by_site", "sensitivity", "sorted_effects", "subgroups",
    "traffic",
]  # fmt: skip


class Sorted(Protocol):
    """The interface of `unpooled.estimators.policy.policy.Policy` that its figure needs."""

    @property
    def outcome(self) -> str: ...
    @property
    def unit(self) -> str: ...
    def sorted_effects(self) -> pd.DataFrame: ...
    def calibration(self) -> pd.DataFrame: ...


class Shifted(Protocol):
    """The interface of `unpooled.estimators.sensitivity.Sensitivity` that its figure needs."""

    @property
    def column(self) -> str: ...
    @property
    def curve(self) -> pd.DataFrame: ...
    @property
    def tipping(self) -> dict[str, float | None]: ...


def ate(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Plot the density of the draws of the average effect, by site and over all sites.

    Parameters
    ----------
    model : Estimator
        A fitted estimator.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    return average.posterior(densities(model), model.summary(), **_words(model.result_.study), ax=ax)


def forest(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Plot the average effect with its 95% interval, by site and over all sites.

    Parameters
    ----------
    model : Estimator
        A fitted estimator.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    return average.forest(model.summary(), **_words(model.result_.study), ax=ax)


def subgroups(model: Estimator, by: str | None = None, *, ax: Axes | None = None) -> Axes:
    """Plot the average effect in each subgroup of the study, with its interval and simultaneous interval.

    Parameters
    ----------
    model : Estimator
        A fitted estimator.
    by : str, optional
        A key of the study's `subgroups`, such as "age". By default, all subgroups.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.

    Raises
    ------
    StudyError
        If the study names no such subgroups, or the method does not estimate their effects.
    """
    study, schema = model.result_.study, model.result_.schema
    entries = {one.name: one.entry for one in listed(study.subgroups, schema)}
    table = model.gate(by).dropna(subset=["effect"]).reset_index()
    table = table.assign(by=[entries[str(name)] for name in table["group"]])
    return subgroups_figure.subgroups(table, model.ate(), **_words(study), ax=ax)


def effect_by(
    model: Estimator,
    column: str,
    *,
    site: str,
    people: Table | None = None,
    points: int = 50,
    ax: Axes | None = None,
) -> Axes:
    """Plot the effect along one covariate, with the others at their mean or most frequent value.

    Parameters
    ----------
    model : Estimator
        A fitted estimator.
    column : str
        The covariate.
    site : str
        The site for which effects are computed. Its table must be in this process.
    people : table, optional
        The people whose means and most frequent values are used. By default, those of the site.
    points : int, default=50
        Number of values of the covariate.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.

    Raises
    ------
    StudyError
        If the study has no such site, or its table is not in this process.
    """
    study, table = model.result_.study, _table(model, site)
    if people is not None:
        table = read(people, study.columns, site=site, names=tuple(table.columns))
    rows = curves.hypothetical(table, column, points)
    curve = curves.summarised(model.effect_draws(rows, site=site)).assign(value=rows[column])
    unit = study.columns.units.get(column, "")
    label = f"{column} ({unit})" if unit else column
    typical = site if people is None else ""
    return curves.effect_by(curve, column=label, **_words(study), site=typical, ax=ax)


def sorted_effects(model: Estimator, *, site: str, ax: Axes | None = None) -> Axes:
    """Plot the conditional effects of a site's people with their intervals, in increasing order.

    Parameters
    ----------
    model : Estimator
        A fitted estimator.
    site : str
        The site. Its table must be in this process.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.

    Raises
    ------
    StudyError
        If the study has no such site, or its table is not in this process.
    """
    effects = curves.summarised(model.effect_draws(_table(model, site), site=site))
    return curves.sorted_effects(effects, **_words(model.result_.study), site=site, ax=ax)


def fifths(found: Sorted, *, ax: Axes | None = None) -> Axes:
    """Plot the average effect in fifths of the people, sorted by predicted effect, beside the prediction.

    Parameters
    ----------
    found : Policy
        The result of `unpooled.policy`.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    slope = found.calibration().loc["slope"]
    words = fifths_figure.slope_words(*(float(slope[end]) for end in ("estimate", "lower", "upper")))
    return fifths_figure.fifths(found.sorted_effects(), words, outcome=found.outcome, unit=found.unit, ax=ax)


def overlap(diagnostics: StudyDiagnostics, *, ax: Axes | None = None) -> Axes:
    """Plot the distribution of the propensity in each arm, over all sites.

    Parameters
    ----------
    diagnostics : StudyDiagnostics
        The diagnostics of a study: ``model.diagnostics()`` or ``unpooled.diagnose(study, sites)``.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    return propensities.overlap(_not_empty(diagnostics.overlap, "propensities"), ax=ax)


def overlap_by_site(diagnostics: StudyDiagnostics) -> np.ndarray:
    """Plot the distribution of the propensity in each arm, in one panel per site.

    Parameters
    ----------
    diagnostics : StudyDiagnostics
        The diagnostics of a study: ``model.diagnostics()`` or ``unpooled.diagnose(study, sites)``.

    Returns
    -------
    ndarray of matplotlib.axes.Axes
        The axes of a new figure.
    """
    each = diagnostics.overlap.loc[diagnostics.overlap["site"] != ALL_SITES]
    return propensities.overlap_by_site(_not_empty(each, "propensities of a site by itself"))


def love(diagnostics: StudyDiagnostics, *, threshold: float = 0.1, ax: Axes | None = None) -> Axes:
    """Plot the standardised difference between the arms in every covariate, before and after weighting.

    Parameters
    ----------
    diagnostics : StudyDiagnostics
        The diagnostics of a study: ``model.diagnostics()`` or ``unpooled.diagnose(study, sites)``.
    threshold : float, default=0.1
        The difference at which lines are drawn.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    return love_plot.love(
        _not_empty(diagnostics.balance, "balance of covariates"), threshold=threshold, ax=ax
    )


def leave_one_out(
    diagnostics: StudyDiagnostics, *, study: Study | None = None, ax: Axes | None = None
) -> Axes:
    """Plot the doubly robust average effect without each site.

    Parameters
    ----------
    diagnostics : StudyDiagnostics
        The diagnostics of a study: ``model.diagnostics()`` or ``unpooled.diagnose(study, sites)``.
    study : Study, optional
        The study, for the name and unit of the outcome.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    frame = _not_empty(diagnostics.leave_one_out, "estimates without each site")
    simple = diagnostics.comparators.set_index("estimator").loc[NAMES["aipw"]]
    return heterogeneity.leave_one_out(
        frame,
        estimate=float(simple["estimate"]),
        lower=float(simple["lower"]),
        upper=float(simple["upper"]),
        **_words(study),
        ax=ax,
    )


def comparators(
    diagnostics: StudyDiagnostics,
    model: Estimator | None = None,
    *,
    study: Study | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the average effect by simpler estimators, next to that of a model.

    Parameters
    ----------
    diagnostics : StudyDiagnostics
        The diagnostics of a study: ``model.diagnostics()`` or ``unpooled.diagnose(study, sites)``.
    model : Estimator, optional
        A fitted estimator, whose average effect is added at the top.
    study : Study, optional
        The study, for the name and unit of the outcome. Not needed with `model`.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    frame = _not_empty(diagnostics.comparators, "estimates by other estimators")
    if model is not None:
        lower, upper = model.ate_interval()
        own = {"estimator": "this study", "estimate": model.ate(), "lower": lower, "upper": upper}
        frame, study = pd.concat([pd.DataFrame([own]), frame]), model.result_.study
    return heterogeneity.comparators(frame, **_words(study), main=model is not None, ax=ax)


def missing(found: Missingness, *, ax: Axes | None = None) -> Axes:
    """Plot the share of missing values by site and column, and the most frequent patterns.

    Parameters
    ----------
    found : Missingness
        The result of `unpooled.diagnostics.missingness.missingness`.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    if found.shares.empty:
        raise _nothing("shares of missing values", "list columns with missing values as `incomplete`")
    return missing_values.missing(found.shares, found.patterns, ax=ax)


def borrowed(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Plot the share of each site's fit that comes from the people of each site.

    Parameters
    ----------
    model : Estimator
        A fitted `CausalRFF`.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.

    Raises
    ------
    StudyError
        If the fit has no such shares.
    """
    shares = borrowed_shares(model.result_.fit_diagnostics, model.result_.sites)
    if shares is None:
        raise _nothing("borrowed shares", "fit CausalRFF, which shares information between sites")
    return borrowed_strength.borrowed(shares, ax=ax)


def convergence(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Plot the objective by evaluation, to see whether the fit converged.

    Parameters
    ----------
    model : Estimator
        A fitted `FedCI`.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.

    Raises
    ------
    StudyError
        If the fit does not minimise an objective.
    """
    found = histories(model)
    if not found:
        raise _nothing("objective values", "fit FedCI; for other methods see result_.fit_diagnostics")
    return convergence_figure.convergence(found, ax=ax)


def traffic(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Plot the number of bytes that each site sent and received.

    Parameters
    ----------
    model : Estimator
        A fitted estimator.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    cost = model.result_.cost
    return costs.traffic(traffic_table(cost.bytes_up, cost.bytes_down), ax=ax)


def sensitivity(found: Shifted, *, ax: Axes | None = None) -> Axes:
    """Plot the average effect by the size of the shift of missing values.

    Parameters
    ----------
    found : Sensitivity
        The result of `unpooled.sensitivity`.
    ax : matplotlib.axes.Axes, optional
        The axes to draw on. By default, those of a new figure.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the figure.
    """
    return curves.sensitivity(found.curve, found.tipping, column=found.column, ax=ax)


def _words(study: Study | None) -> OutcomeName:
    if study is None:
        return {"outcome": "the outcome"}
    return {"outcome": study.columns.outcome, "unit": study.columns.outcome_unit}


def _table(model: Estimator, site: str) -> pd.DataFrame:
    """The covariates of a site's rows."""
    sites, columns = model.result_.sites, model.result_.study.columns
    if site not in sites:
        raise StudyError("the site must be part of the study", found=f"'{site}'", remedy=nearest(site, sites))
    tables = getattr(model, "sites_", {})
    if site not in tables:
        raise StudyError(
            "individual and conditional effects need the site's table",
            found=f"no table attached for site '{site}'",
            remedy=f"call model.attach({{'{site}': …}}) with the table that was used in the study",
        )
    return tables[site].frame[[*columns.covariates, *columns.incomplete]]


def _not_empty(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    if frame.empty:
        raise _nothing(what, "compute the diagnostics with more or larger sites")
    return frame


def _nothing(what: str, remedy: str) -> StudyError:
    return StudyError("a figure needs numbers to draw", found=f"no {what}", remedy=remedy)
