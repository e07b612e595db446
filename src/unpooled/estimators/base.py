"""What every estimator shares: the verbs users know from scikit-learn and EconML."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.result import StudyResult
from unpooled.coordinator.run import Watcher, adoption, run_study
from unpooled.data import Table
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, of_result
from unpooled.disclosure.limits import NONE, Limits
from unpooled.effects.summary import combine, interval, table
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import StudyError, nearest
from unpooled.methods import method as methods
from unpooled.protocol.engine import RemoteSites
from unpooled.site.effects import conditional_effects, individual_effects
from unpooled.site.site import Site
from unpooled.study import Study


class Estimator(BaseEstimator):
    """The constructor only stores; values are checked in `fit`; the sites' tables are never changed."""

    method: ClassVar[str]

    def fit(
        self,
        study: Study,
        sites: Mapping[str, Table] | RemoteSites | None = None,
        *,
        limits: Limits = NONE,
        watch: Watcher | None = None,
        checkpoint: Path | str | None = None,
        resume: bool = False,
        journal: Path | str | None = None,
    ) -> Self:
        """Run the study over its sites: tables in this process, or a consortium elsewhere.

        Parameters
        ----------
        study : Study
            The question. Its `seed` and method settings are overruled by this estimator's.
        sites : mapping, optional
            A table for each site: a frame, a CSV or Parquet path, or ``(url, query)``; else the study's own.
            Or sites that are elsewhere, such as ``unpooled.Remote("coordinator/")``.
        limits : Limits, optional
            Disclosure limits; off by default, because here one person holds every table.
        watch : callable, optional
            Called with every finished `Round`: for progress.
        checkpoint, resume : path and bool, optional
            Where every round is kept, and whether to go on from there.
        journal : path, optional
            Where one JSON line per round is written.
        """
        parameters = self.get_params()
        study = methods.with_settings(study, self.method, parameters, parameters.pop("seed"))
        if isinstance(sites, RemoteSites):
            opened, connection = {}, sites.engine(study)
        else:
            opened = open_sites(study, sites, limits)
            connection = nullcontext(InProcess(opened))
        with connection as engine:
            self.result_ = run_study(
                study,
                engine,
                watch=watch,
                checkpoint=None if checkpoint is None else Path(checkpoint),
                resume=resume,
                journal=None if journal is None else Path(journal),
            )
        self.sites_ = opened
        return self

    # ------------------------------------------------------------------ populations

    def ate(self, site: str | None = None) -> float:
        """Average effect over all sites' people, or over one site's, in the outcome's units."""
        return float(self.ate_draws(site).mean())

    def ate_interval(self, site: str | None = None, *, alpha: float = 0.05) -> tuple[float, float]:
        """Equal-tailed posterior interval of the average effect."""
        lower, upper = interval(self.ate_draws(site), alpha)
        return float(lower), float(upper)

    def ate_draws(self, site: str | None = None) -> np.ndarray:
        """Posterior draws of the average effect."""
        result = self._fitted()
        if site is None:
            return combine(result.site_effects, result.counts)
        return result.site_effects[:, result.sites.index(self._known(site))]

    def summary(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """One row per site and one for all: n, ate, moments, interval."""
        result = self._fitted()
        return table(result.site_effects, result.sites, result.counts, alpha)

    def diagnostics(self) -> StudyDiagnostics:
        """Balance, overlap, agreement of sites and simpler estimates; needs ``Study(diagnostics=True)``."""
        return of_result(self._fitted())

    # ----------------------------------------------------------------------- people

    def effect(self, rows: Table, *, site: str) -> np.ndarray:
        """CATE of new people, from their covariates alone, as members of a site."""
        return self.effect_draws(rows, site=site).mean(axis=0)

    def effect_interval(
        self, rows: Table, *, site: str, alpha: float = 0.05
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posterior interval of each person's CATE."""
        return interval(self.effect_draws(rows, site=site), alpha)

    def effect_draws(self, rows: Table, *, site: str) -> np.ndarray:
        """CATE draws [K, people]; each person's own, so averages over people are `ate`'s business."""
        return conditional_effects(self._beside(site), self._fitted().draws, rows) * self._fitted().outcome_sd

    def ite(self, site: str, rows: Table | None = None) -> np.ndarray:
        """Effects of people whose treatment and outcome are known: a site's own, or `rows`."""
        return self.ite_draws(site, rows).mean(axis=0)

    def ite_interval(
        self, site: str, rows: Table | None = None, *, alpha: float = 0.05
    ) -> tuple[np.ndarray, np.ndarray]:
        """Posterior interval of each individual effect."""
        return interval(self.ite_draws(site, rows), alpha)

    def ite_draws(self, site: str, rows: Table | None = None) -> np.ndarray:
        """ITE draws [K, people]."""
        return individual_effects(self._beside(site), self._fitted().draws, rows) * self._fitted().outcome_sd

    # ---------------------------------------------------------------------- storage

    def save(self, folder: Path | str) -> Path:
        """Arrays and JSON, no rows: the model can be shared as far as the study's results can."""
        return self._fitted().save(Path(folder))

    def report(self, path: Path | str) -> Path:
        """One HTML file to hand on: the answer, its figures and checks, and what left each site."""
        self._fitted()
        # The report stands above the estimators, so it is looked up by name.
        return import_module("unpooled.report.results").write_report_alone(self, Path(path))

    def attach(self, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE) -> Self:
        """Stand a loaded model beside its sites' tables again, for effects of people."""
        result = self._fitted()
        opened = open_sites(result.study, sites, limits)
        for name in opened:
            self._known(name)
        adopt = adoption(result.study, result.schema, result.scaling, result.context)
        replies, _ = InProcess(opened).exchange(adopt)
        aggregate(replies)  # a refusal becomes an error
        self.sites_ = opened
        return self

    def _fitted(self) -> StudyResult:
        if not hasattr(self, "result_"):
            raise StudyError(
                "the estimator must be fitted", found="no fit yet", remedy="call fit(study, sites) first"
            )
        return self.result_

    def _known(self, site: str) -> str:
        sites = self._fitted().sites
        if site not in sites:
            raise StudyError(
                "the site must be one of the study's", found=f"'{site}'", remedy=nearest(site, sites)
            )
        return site

    def _beside(self, site: str) -> Site:
        self._known(site)
        if not hasattr(self, "sites_"):
            raise StudyError(
                "effects of people are computed beside their site's table",
                found="a loaded model without tables",
                remedy="model.attach(sites) with the same tables as in the study",
            )
        if site not in self.sites_:
            raise StudyError(
                "effects of people are computed beside their site's table",
                found=f"no table of site '{site}' attached",
                remedy=f"model.attach({{'{site}': …}}) with the same table as in the study",
            )
        return self.sites_[site]
