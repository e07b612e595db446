"""Every figure by one name: `unpooled.plot.forest(model)`. Each takes `ax=None` and returns its Axes."""

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
from unpooled.report.drawing import densities, histories, traffic_table
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
from unpooled.report.figures import sensitivity as shifting
from unpooled.study import ALL_SITES, Study

if TYPE_CHECKING:
    from unpooled.diagnostics.missingness import Missingness

__all__ = [
    "ate", "borrowed", "comparators", "convergence", "effect_by", "forest", "leave_one_out", "love",
    "missing", "overlap", "overlap_by_site", "sensitivity", "sorted_effects", "traffic",
]  # fmt: skip


class Shifted(Protocol):
    """`unpooled.estimators.sensitivity.Sensitivity`."""

    @property
    def column(self) -> str: ...
    @property
    def curve(self) -> pd.DataFrame: ...
    @property
    def tipping(self) -> dict[str, float | None]: ...


def ate(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """The posterior of the average effect, by site and over all."""
    return average.posterior(densities(model), model.summary(), **_words(model.result_.study), ax=ax)


def forest(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Mean and 95% interval of the average effect, by site and over all."""
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
    """The effect along one covariate, all others as is typical of the site's people, or of those given."""
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
    """The effects of a site's people, from their covariates, the smallest first."""
    effects = curves.summarised(model.effect_draws(_table(model, site), site=site))
    return curves.sorted_effects(effects, **_words(model.result_.study), site=site, ax=ax)


def overlap(diagnostics: StudyDiagnostics, *, ax: Axes | None = None) -> Axes:
    """Propensities by arm, all sites together."""
    return propensities.overlap(_told(diagnostics.overlap, "propensities"), ax=ax)


def overlap_by_site(diagnostics: StudyDiagnostics) -> np.ndarray:
    """Propensities by arm at each site: several Axes, of a figure of their own."""
    each = diagnostics.overlap.loc[diagnostics.overlap["site"] != ALL_SITES]
    return propensities.overlap_by_site(_told(each, "propensities of a site by itself"))


def love(diagnostics: StudyDiagnostics, *, threshold: float = 0.1, ax: Axes | None = None) -> Axes:
    """How alike the arms are in every covariate, before and after weighting."""
    return love_plot.love(_told(diagnostics.balance, "balance of covariates"), threshold=threshold, ax=ax)


def leave_one_out(
    diagnostics: StudyDiagnostics, *, study: Study | None = None, ax: Axes | None = None
) -> Axes:
    """The doubly robust average effect without each site; `study` names the outcome and its unit."""
    frame = _told(diagnostics.leave_one_out, "estimates without each site")
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
    """The average effect by simpler estimators, below the model's; `study` is the model's if there is one."""
    frame = _told(diagnostics.comparators, "estimates by other estimators")
    if model is not None:
        lower, upper = model.ate_interval()
        own = {"estimator": "this study", "estimate": model.ate(), "lower": lower, "upper": upper}
        frame, study = pd.concat([pd.DataFrame([own]), frame]), model.result_.study
    return heterogeneity.comparators(frame, **_words(study), main=model is not None, ax=ax)


def missing(found: Missingness, *, ax: Axes | None = None) -> Axes:
    """Where values are missing, by site and column."""
    if found.shares.empty:
        raise _nothing("share of missing values", "name columns with missing values as `incomplete`")
    return gaps.missing(found.shares, found.patterns, ax=ax)


def borrowed(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Who borrows from whom, where the fit tells it."""
    shares = borrowed_shares(model.result_.fit_diagnostics, model.result_.sites)
    if shares is None:
        raise _nothing("borrowed shares", "fit CausalRFF, where sites borrow from each other")
    return borrowed_strength.borrowed(shares, ax=ax)


def convergence(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """The objective by evaluation, where the fit descends one."""
    found = histories(model)
    if not found:
        raise _nothing("objective by evaluation", "fit FedCI; for others see result_.fit_diagnostics")
    return rounds.convergence(found, ax=ax)


def traffic(model: Estimator, *, ax: Axes | None = None) -> Axes:
    """Bytes out of each site and into it."""
    return rounds.traffic(traffic_table(model.result_.cost), ax=ax)


def sensitivity(found: Shifted, *, ax: Axes | None = None) -> Axes:
    """The average effect were missing values larger or smaller."""
    return shifting.curve(found.curve, found.tipping, column=found.column, ax=ax)


def _words(study: Study | None) -> dict[str, Any]:
    if study is None:
        return {"outcome": "the outcome"}
    return {"outcome": study.columns.outcome, "unit": study.columns.outcome_unit}


def _table(model: Estimator, site: str) -> pd.DataFrame:
    """The covariates of a site's people."""
    sites, columns = model.result_.sites, model.result_.study.columns
    if site not in sites:
        raise StudyError(
            "the site must be one of the study's", found=f"'{site}'", remedy=nearest(site, sites)
        )
    beside = getattr(model, "sites_", {})
    if site not in beside:
        raise StudyError(
            "effects of people are computed beside their site's table",
            found=f"no table of site '{site}' attached",
            remedy=f"model.attach({{'{site}': …}}) with the same table as in the study",
        )
    return beside[site].frame[[*columns.covariates, *columns.incomplete]]


def _told(frame: pd.DataFrame, what: str) -> pd.DataFrame:
    if frame.empty:
        raise _nothing(what, "diagnostics at more sites, or at larger ones")
    return frame


def _nothing(what: str, remedy: str) -> StudyError:
    return StudyError("a figure needs numbers that were told", found=f"no {what}", remedy=remedy)
