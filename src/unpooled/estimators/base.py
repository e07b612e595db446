"""The methods that all estimators share, with the names used by scikit-learn and EconML."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import pandas as pd

from unpooled.coordinator.aggregate import aggregate
from unpooled.coordinator.duplicates import leave_out_copies
from unpooled.coordinator.result import StudyResult
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import Watcher, adoption, run_study
from unpooled.data import Table
from unpooled.diagnostics.study_diagnostics import StudyDiagnostics, checks_of, failed, of_result
from unpooled.disclosure.limits import NONE, Limits
from unpooled.effects.summary import interval
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import FailedCheckWarning, StudyError
from unpooled.estimators.entropy_balancing import Moment
from unpooled.estimators.subgroups import Subgroups
from unpooled.estimators.transport import (
    Transported,
    outcomes_elsewhere,
    transported,
    transported_to_moments,
)
from unpooled.methods import method as methods
from unpooled.protocol.engine import RemoteSites
from unpooled.site.effects import conditional_effects, conformal_interval, individual_effects
from unpooled.site.site import Site
from unpooled.study import Study

if TYPE_CHECKING:
    from unpooled.estimators.policy.policy import Policy


class Estimator(Subgroups):
    """Base class of the estimators, with the methods that all of them share.

    The constructor only stores its parameters, `fit` checks them, and tables are never changed.
    """

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
        """Fit the model over the sites of a study.

        Parameters
        ----------
        study : Study
            The roles of the columns and the options of the study. Its seed and method are replaced by those
            of this estimator.
        sites : dict of str to table, or Remote, optional
            A table for each site: a DataFrame, a CSV or Parquet path, or ``(url, query)``. By default, the
            tables that the study names. For sites of other organisations, give
            ``unpooled.Remote("consortium/coordinator")``.
        limits : Limits, optional
            Disclosure limits of the sites. They are off by default, because all tables are in this process.
            Remote sites have limits of their own.
        watch : callable, optional
            Called with each finished `Round`, for example to show progress.
        checkpoint : path, optional
            File in which the replies of every round are stored, so that an interrupted fit can be resumed.
        resume : bool, default=False
            Whether to continue from `checkpoint`.
        journal : path, optional
            File to which one JSON line per round is written: duration, bytes and objective.

        Returns
        -------
        Estimator
            This estimator, fitted.

        Raises
        ------
        StudyError
            If a parameter of the estimator or of the study is not valid.
        DataError
            If a table does not fit the study, or the sites disagree about a column.
        LimitRefusal
            If an answer would break a site's limits.
        FitError
            If the fit fails numerically.
        EngineError
            If a remote site cannot be reached.

        Warns
        -----
        FailedCheckWarning
            If a check of the fit or of its diagnostics failed (see `checks`).
        """
        parameters = self.get_params()
        study = methods.with_settings(study, self.method, parameters, parameters.pop("seed"))
        if isinstance(sites, RemoteSites):
            opened, connection = {}, sites.engine(study)
        else:
            opened = open_sites(study, sites, limits)
            masked = study.privacy.masks(sites=len(opened), remote=False)
            connection = nullcontext(InProcess(opened, masked=masked))
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
        if names := failed(self.checks()):
            text = f"checks of this fit failed: {', '.join(names)}; model.checks() explains them"
            warnings.warn(text, FailedCheckWarning, stacklevel=2)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What a pickle or a copy holds: neither tables nor where they are, which may name a password."""
        state = dict(vars(self))
        state.pop("sites_", None)
        if "result_" in state:
            result: StudyResult = state["result_"]
            state["result_"] = replace(result, study=result.study.model_copy(update={"sites": {}}))
        return state

    # ----------------------------------------------------------------------- checks

    def checks(self) -> pd.DataFrame:
        """Checks of the fit and, if they were computed, of the study's diagnostics.

        Returns
        -------
        pandas.DataFrame
            One row per check. The columns are name, passed, found, threshold, words that explain it,
            passes_if ("at most" or "at least" the threshold), and what it concerns ("all effects" or
            "effects of people").
        """
        return checks_of(self._fitted())

    def diagnostics(self) -> StudyDiagnostics:
        """Diagnostics that were computed in the rounds of the fit.

        Returns
        -------
        StudyDiagnostics
            Balance, overlap, heterogeneity between sites and simpler estimates, as data frames. ``checks``
            has the verdicts.

        Raises
        ------
        StudyError
            If the study was not defined with ``diagnostics=True``.
        """
        return of_result(self._fitted())

    # -------------------------------------------------------------------- elsewhere

    def transport(self, people: Table, *, sample: bool = True) -> Transported:
        """Average effects in another population, from a table of its people's covariates.

        Parameters
        ----------
        people : table
            The covariates of people of the population: a DataFrame, a CSV or Parquet path, or
            ``(url, query)``. Treatment and outcome are not used. The table does not leave this process.
        sample : bool, default=True
            Whether these people are a sample of the population, so that intervals include that others could
            have been drawn. Set False if they are the whole population.

        Returns
        -------
        Transported
            The mean outcomes of both arms and their comparisons, with intervals, and a check whether the
            study's people cover the population.

        Raises
        ------
        StudyError
            If the model is not fitted, the method cannot predict outcomes at another site, or the study has
            incomplete covariates.
        DataError
            If the table does not have the columns of the study, or a level that no site has.

        Notes
        -----
        The population is taken to be another site, which differs from those of the study as these differ
        from each other. FedCI draws its shift given those of the study's sites; sites with similar covariates
        have similar shifts. CausalRFF draws its site terms from their distribution. AIPW and the
        meta-analysis predict by their outcome regressions alone, as at one of the sites drawn at random, and
        are not doubly robust elsewhere.
        """
        return transported(self._fitted(), people, sample=sample)

    def transport_to_moments(self, moments: Mapping[str, Moment]) -> Transported:
        """Average effects in another population, of which only means and sds of covariates are known.

        Parameters
        ----------
        moments : dict of str to float or (float, float)
            The mean of a covariate, or its mean and standard deviation. Of a 0/1 covariate give the share of
            ones; of a text column the share of each level but the first, as ``column=level``.

        Returns
        -------
        Transported
            The mean outcomes of both arms and their comparisons, with intervals, and a check of the weights.

        Raises
        ------
        StudyError
            If a name or a moment is not valid, or the table of a site is not in this process (see `attach`).
        FitError
            If no weights of the study's people have these moments.
        LimitRefusal
            If the weights rest on fewer people than a site's limits allow.

        Notes
        -----
        Means do not determine an average effect. The people of the study are weighted to have the moments of
        the target, and among all such weights those are taken that are the closest to equal ones in relative
        entropy (entropy balancing; Hainmueller, 2012). Covariates without a moment are distributed as the
        weights leave them. The intervals take the moments as known; the rest is as in `transport`.
        """
        result = self._fitted()
        tables, least = {}, 0.0
        for name in result.sites:
            site = self._beside(name)
            assert site.adopted is not None
            rows = site.adopted.own_rows
            if rows is None:
                raise StudyError(
                    "people are weighted beside tables that are in memory",
                    found=f"the table of site '{name}', which is read in batches",
                    remedy="use transport with a table of people of the target",
                )
            tables[name] = np.asarray(rows.covariates)[np.asarray(rows.present) > 0.0]
            least = max(least, float(site.limits.cell))
        return transported_to_moments(result, tables, moments, least=least)

    # ----------------------------------------------------------------------- people

    def effect(self, rows: Table, *, site: str | None) -> np.ndarray:
        """Conditional average treatment effect (CATE) of people, given their covariates.

        Parameters
        ----------
        rows : table
            The covariates of the people: a DataFrame, a CSV or Parquet path, or ``(url, query)``. Treatment
            and outcome are not used.
        site : str or None
            The site to which these people belong. Its table must be in this process (see `attach`). None for
            people of a site that took no part (see `transport`).

        Returns
        -------
        ndarray of shape (people,)
            Posterior means, in units of the outcome.
        """
        return self.effect_draws(rows, site=site).mean(axis=0)

    def effect_interval(
        self,
        rows: Table,
        *,
        site: str | None,
        alpha: float = 0.05,
        method: Literal["posterior", "calibrated"] = "posterior",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Equal-tailed intervals of the CATE.

        Parameters
        ----------
        rows : table
            The covariates of the people, as in `effect`.
        site : str or None
            The site to which these people belong; None for one that took no part.
        alpha : float, default=0.05
            The intervals have probability 1 - `alpha`.
        method : {"posterior", "calibrated"}, default="posterior"
            "posterior" gives intervals of the draws. "calibrated" widens them if the check "noise of the
            arms" has failed (`FedCI`, continuous outcomes).

        Returns
        -------
        tuple of ndarray of shape (people,)
            The lower and upper ends, in units of the outcome.

        Raises
        ------
        StudyError
            If `method` is "calibrated" and the noise of the arms is not known.

        Notes
        -----
        Posterior intervals are right if the model is. An effect that depends on the covariates in a way that
        the model cannot represent, such as a sharp interaction, makes outcomes vary more in one arm than in
        the other. Calibrated intervals attribute all of this difference to the CATE, by a normal term with
        that variance. There is no guarantee for them. If the difference has another cause, such as an
        unmeasured modifier of the effect, they are wider than necessary.
        """
        draws = self.effect_draws(rows, site=site)
        if method == "posterior":
            return interval(draws, alpha)
        noise = self._fitted().noise_of_arms
        if method != "calibrated" or noise is None:
            raise StudyError(
                "calibrated intervals need the noise of both arms",
                found="a fit without it" if method == "calibrated" else f"method = {method!r}",
                remedy='use FedCI with a continuous outcome, or method="posterior"',
            )
        return interval(draws + self._fitted().outcome_sd * noise.unexplained_effects(*draws.shape), alpha)

    def effect_draws(self, rows: Table, *, site: str | None) -> np.ndarray:
        """Posterior draws of the CATE.

        Parameters
        ----------
        rows : table
            The covariates of the people, as in `effect`.
        site : str or None
            The site to which these people belong; None for one that took no part.

        Returns
        -------
        ndarray of shape (draws, people)
            The draws, in units of the outcome. They are valid for each person separately; use `ate_draws` for
            averages over people.

        Raises
        ------
        StudyError
            If the model is not fitted, the study has no such site, or its table is not in this process.
        DataError
            If the rows do not have the columns of the study.
        """
        if site is None:
            both = outcomes_elsewhere(self._fitted(), rows)
            return self._fitted().outcome_sd * (both[..., 1] - both[..., 0])
        return conditional_effects(self._beside(site), self._fitted().draws, rows) * self._fitted().outcome_sd

    def ite(self, site: str, rows: Table | None = None) -> np.ndarray:
        """Individual treatment effects (ITE) of people whose treatment and outcome are known.

        Parameters
        ----------
        site : str
            The site to which the people belong. Its table must be in this process (see `attach`).
        rows : table, optional
            Covariates, treatment and outcome of the people. By default, the table of the site.

        Returns
        -------
        ndarray of shape (people,)
            Posterior means, in units of the outcome.
        """
        return self.ite_draws(site, rows).mean(axis=0)

    def ite_interval(
        self,
        site: str,
        rows: Table | None = None,
        *,
        alpha: float = 0.05,
        method: Literal["posterior", "conformal"] = "posterior",
    ) -> tuple[np.ndarray, np.ndarray]:
        """Intervals of individual treatment effects.

        A person's effect is the difference between the outcome that was observed and the one in the other
        arm, which is not. Conformal intervals (Lei and Candès, 2021) predict the latter from the errors that
        the model made for held-out people of that arm, weighted to resemble this person.

        Parameters
        ----------
        site : str
            The site to which the people belong.
        rows : table, optional
            Covariates, treatment and outcome of the people. By default, the table of the site.
        alpha : float, default=0.05
            The intervals have probability 1 - `alpha`.
        method : {"posterior", "conformal"}, default="posterior"
            "posterior" gives equal-tailed intervals of the draws. "conformal" needs held-out folds, which
            `FedCI` has with ``structure="auto"``.

        Returns
        -------
        tuple of ndarray of shape (people,)
            The lower and upper ends, in units of the outcome. Conformal intervals are infinite for people
            whom too few held-out people resemble.

        Raises
        ------
        StudyError
            If `method` is "conformal" and there are no held-out predictions.

        Notes
        -----
        Posterior intervals are right if the model is. Conformal intervals contain the effect of at least a
        share 1 - `alpha` of the people in an arm, on average over studies, whether or not the outcome model
        is right, under three conditions: the people of all sites are exchangeable given their covariates,
        nothing but the covariates confounds, and the odds of treatment are right (they are estimated by
        linear discriminant analysis). Errors come from cross-validation, for which the guarantee that holds
        without any further condition is 1 - 2 `alpha` (Barber and others, 2021). It is not a guarantee for
        each single person or site.
        """
        if method == "posterior":
            return interval(self.ite_draws(site, rows), alpha)
        result, known = self._fitted(), self._fitted().calibration
        if method != "conformal" or known is None or known.log_odds is None:
            raise StudyError(
                "conformal intervals need predictions of held-out people and their odds of treatment",
                found="a fit without them" if method == "conformal" else f"method = {method!r}",
                remedy='use FedCI with structure="auto", or method="posterior"',
            )
        ends = conformal_interval(self._beside(site), result.draws, rows, known, alpha)
        lower, upper = (end * result.outcome_sd for end in ends)
        return lower, upper

    def ite_draws(self, site: str, rows: Table | None = None) -> np.ndarray:
        """Posterior draws of individual treatment effects.

        Parameters
        ----------
        site : str
            The site to which the people belong.
        rows : table, optional
            Covariates, treatment and outcome of the people. By default, the table of the site.

        Returns
        -------
        ndarray of shape (draws, people)
            The draws, in units of the outcome.

        Raises
        ------
        StudyError
            If the model is not fitted, the study has no such site, or its table is not in this process.
        """
        result = self._fitted()
        found = individual_effects(self._beside(site), result.draws, rows, result.calibration)
        return found * result.outcome_sd

    # ---------------------------------------------------------------------- storage

    def save(self, folder: Path | str) -> Path:
        """Save the fitted model as arrays and JSON, without rows.

        Parameters
        ----------
        folder : path
            A new or empty folder.

        Returns
        -------
        Path
            The folder. `unpooled.load` reads it.

        Raises
        ------
        ResultsError
            If the folder contains files.
        """
        return self._fitted().save(Path(folder))

    def report(self, path: Path | str, *, policy: Policy | None = None) -> Path:
        """Write the report: results, figures, checks, and what left each site.

        Parameters
        ----------
        path : path
            The HTML file to write. It is self-contained.
        policy : Policy, optional
            The result of `unpooled.policy`, for a section on whom to treat.

        Returns
        -------
        Path
            The file.
        """
        self._fitted()
        # The report stands above the estimators, so it is looked up by name.
        return import_module("unpooled.report.results").write_report_alone(self, Path(path), policy)

    def attach(self, sites: Mapping[str, Table] | None = None, *, limits: Limits = NONE) -> Self:
        """Give a loaded model the tables of its sites, which `effect` and `ite` need.

        Parameters
        ----------
        sites : dict of str to table, optional
            The same tables as in the fit, or some of them. By default, those that the study names; a saved
            study names none. If all are given, people at several sites are left out again.
        limits : Limits, optional
            Disclosure limits of the sites, off by default.

        Returns
        -------
        Estimator
            This estimator.

        Raises
        ------
        StudyError
            If a site is not part of the study.
        DataError
            If a table does not fit the study.
        """
        result = self._fitted()
        opened = open_sites(result.study, sites, limits)
        for name in opened:
            self._known(name)
        if set(opened) == set(result.sites):  # the same people are left out as in the fit, if it was here
            opened = {name: opened[name] for name in result.sites}
            run(leave_out_copies(result.study), InProcess(opened))
        adopt = adoption(result.study, result.schema, result.scaling)
        replies, _ = InProcess(opened).exchange(adopt)
        aggregate(replies)  # a refusal becomes an error
        self.sites_ = opened
        return self

    def _beside(self, site: str) -> Site:
        self._known(site)
        if not hasattr(self, "sites_"):
            raise StudyError(
                "effects of people are computed beside their site's table",
                found="a loaded or copied model without tables",
                remedy="model.attach(sites) with the same tables as in the study",
            )
        if site not in self.sites_:
            raise StudyError(
                "effects of people are computed beside their site's table",
                found=f"no table of site '{site}' attached",
                remedy=f"model.attach({{'{site}': …}}) with the same table as in the study",
            )
        return self.sites_[site]
