"""The public plotting functions, such as `unpooled.plot.forest(model)`. Each returns the Axes it drew on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

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
from unpooled.study import ALL_SITES, Study

if TYPE_CHECKING:
    from unpooled.diagnostics.missingness import Missingness

__all__ = [
    "ate", "borrowed", "comparators", "convergence", "effect_by", "forest", "leave_one_out", "love",
    "missing", "overlap", "overlap_by_site", "sensitivity", "sorted_effects", "traffic",
]  # fmt: skip


class Shifted(Protocol):
    """The interface of `unpooled.estimators.sensitivity.Sensitivity` that its figure needs."""

    @property
    def column(self) -> str: ...
    @property
    def curve(self) -> pd.DataFrame: ...
    @property
    def tipping(self) -> dict[str, float | None]: ...


def ate(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Density of the draws of the average effect, by site and over all sites."""
    return average.posterior(densities(model), model.summary(), **_words(model.result_.study), ax=ax)


def forest(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Forest plot: mean and 95% interval of the average effect, by site and over all sites."""
    return average.forest(model.summary(), **_words(model.result_.study), ax=ax)


def effect_by(
    model: Estimator,
    column: str,
    *,
    site: str,
    people: Table | None = None,
    points: int = 50,
    ax: Axes | None = None,
) -> Axes:
    """The effect along one covariate, with the others at typical values of the site's people or `people`."""
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
    """The conditional effects of a site's people, in ascending order."""
    effects = curves.summarised(model.effect_draws(_table(model, site), site=site))
    return curves.sorted_effects(effects, **_words(model.result_.study), site=site, ax=ax)


def overlap(diagnostics: StudyDiagnostics, *, ax: Axes | None = None) -> Axes:
    """Histogram of propensity scores by arm, over all sites."""
    return propensities.overlap(_required(diagnostics.overlap, "propensity scores"), ax=ax)


def overlap_by_site(diagnostics: StudyDiagnostics) -> np.ndarray:
    """Histograms of propensity scores by arm at each site, as the Axes of a new figure."""
    each = diagnostics.overlap.loc[diagnostics.overlap["site"] != ALL_SITES]
    return propensities.overlap_by_site(_required(each, "propensity scores by site"))


def love(diagnostics: StudyDiagnostics, *, threshold: float = 0.1, ax: Axes | None = None) -> Axes:
    """Love plot: standardised mean difference of every covariate, before and after weighting."""
    return love_plot.love(_required(diagnostics.balance, "covariate balance"), threshold=threshold, ax=ax)


def leave_one_out(
    diagnostics: StudyDiagnostics, *, study: Study | None = None, ax: Axes | None = None
) -> Axes:
    """Leave-one-site-out plot of the doubly robust estimate; `study` names the outcome and its unit."""
    frame = _required(diagnostics.leave_one_out, "leave-one-site-out estimates")
    simple = diagnostics.comparators.set_index("estimator").loc[NAMES["aipw"]]
    known: dict[str, Any] = {name: float(simple[name]) for name in ("estimate", "lower", "upper")}
    return heterogeneity.leave_one_out(frame, **known | _words(study), ax=ax)


def comparators(
    diagnostics: StudyDiagnostics,
    model: Estimator | None = None,
    *,
    study: Study | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The model's average effect, if given, above those of simpler estimators."""
    frame = _required(diagnostics.comparators, "comparator estimates")
    if model is not None:
        lower, upper = model.ate_interval()
        own = {"estimator": "this study", "estimate": model.ate(), "lower": lower, "upper": upper}
        frame, study = pd.concat([pd.DataFrame([own]), frame]), model.result_.study
    return heterogeneity.comparators(frame, **_words(study), main=model is not None, ax=ax)


def missing(found: Missingness, *, ax: Axes | None = None) -> Axes:
    """Share of missing values by site and column."""
    if found.shares.empty:
        raise _unavailable("shares of missing values", "list columns with missing values as `incomplete`")
    return missing_values.missing(found.shares, found.patterns, ax=ax)


def borrowed(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Share of each site's estimate that comes from each site's data (CausalRFF only)."""
    shares = borrowed_shares(model.result_.fit_diagnostics, model.result_.sites)
    if shares is None:
        raise _unavailable("borrowed shares", "fit CausalRFF, which shares information between sites")
    return borrowed_strength.borrowed(shares, ax=ax)


def convergence(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """The objective at each evaluation, for methods that minimise one."""
    found = histories(model)
    if not found:
        raise _unavailable("objective values", "fit FedCI; for other methods see result_.fit_diagnostics")
    return convergence_figure.convergence(found, ax=ax)


def traffic(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Bytes sent and received by each site."""
    return costs.traffic(traffic_table(model.result_.cost), ax=ax)


def sensitivity(found: Shifted, *, ax: Axes | None = None) -> Axes:
    """The average effect as a function of the shift applied to missing values."""
    return curves.sensitivity(found.curve, found.tipping, column=found.column, ax=ax)


def _words(study: Study | None) -> dict[str, Any]:
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


def _required(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    if frame.empty:
        raise _unavailable(what, "run the diagnostics with more or larger sites")
    return frame


def _unavailable(what: str, remedy: str) -> StudyError:
    return StudyError("the data of a figure must be available", found=f"no {what}", remedy=remedy)
