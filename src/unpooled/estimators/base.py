"""What every estimator shares: the verbs users know from scikit-learn and EconML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.attendance import Attendance
from unpooled.coordinator.checkpoint import Checkpoint
from unpooled.coordinator.journal import Journal
from unpooled.coordinator.rounds import Conduct, Round
from unpooled.coordinator.run import study_rounds
from unpooled.data import Table
from unpooled.diagnostics.look import Look, look_at
from unpooled.effects.summary import combine, interval, table
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import SiteLost, StudyError, nearest
from unpooled.estimators.result import Result
from unpooled.methods import method as methods
from unpooled.protocol.engine import Elsewhere
from unpooled.site.effects import conditional_effects, individual_effects
from unpooled.site.limits import NONE, Limits
from unpooled.study import Study

Watcher = Callable[[Round], None]


class Estimator(BaseEstimator):
    """The constructor only stores; values are checked in `fit`; the sites' tables are never changed."""

    method: ClassVar[str]

    def fit(
        self,
        study: Study,
        sites: Mapping[str, Table] | Elsewhere | None = None,
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
        chosen = methods.find(self.method)
        parameters = self.get_params()
        seed = parameters.pop("seed")
        settings = methods.settings_of(chosen, parameters)
        method = {"name": self.method, **settings.model_dump(mode="json")}
        study = Study(**{**study.model_dump(), "seed": seed, "method": method})
        if isinstance(sites, Elsewhere):
            opened, way = {}, sites.engine(study)
        else:
            opened = open_sites(study, sites, limits)
            way = nullcontext(InProcess(opened))
        record = Journal(None if journal is None else Path(journal))
        path = None if checkpoint is None else Path(checkpoint)
        kept = None if path is None else Checkpoint(path, resume=resume)
        with way as engine:
            folder = None if path is None else path.parent
            attendance = Attendance(engine, study.min_sites, folder, resume=resume)
            while True:
                conduct = Conduct(study_rounds(study, chosen, settings), engine, kept)
                try:
                    for happened in conduct:
                        record.record(happened)
                        if watch is not None:
                            watch(happened)
                    break
                except SiteLost as lost:
                    attendance.lose(lost)
                    kept = None if path is None else Checkpoint(path)
        self.result_ = Result.of(study, conduct.result, record.cost(), attendance.left_out)
        self.sites_ = opened
        self.journal_ = record
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

    def look(self) -> Look:
        """Balance, overlap, agreement of the sites and simpler estimates of a study with ``look=True``."""
        return look_at(self._fitted())

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
        from unpooled.report.folder import report_alone
        from unpooled.report.results import alone

        path = Path(path)
        self._fitted()
        path.write_text(report_alone(self, alone(self)), encoding="utf-8")
        return path

    def attach(self, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE) -> Self:
        """Stand a loaded model beside its sites' tables again, for effects of people."""
        result = self._fitted()
        opened = open_sites(result.study, sites, limits)
        for name in opened:
            self._known(name)
        replies, _ = InProcess(opened).exchange(result.adopt())
        aggregate(replies)  # a refusal becomes an error
        self.sites_ = opened
        return self

    def _fitted(self) -> Result:
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

    def _beside(self, site: str) -> Any:
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
