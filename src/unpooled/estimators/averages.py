"""Average effects of a fitted estimator, over groups of people: differences, ratios and other comparisons."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.coordinator.result import StudyResult
from unpooled.diagnostics.study_diagnostics import checks_of, failed
from unpooled.effects.contrasts import (
    CONTRASTS,
    DIFFERENCE,
    NUMBER_NEEDED,
    ODDS_RATIO,
    RATIO,
    Found,
    contrast,
    effects_table,
)
from unpooled.effects.summary import interval, table
from unpooled.errors import StudyError, nearest
from unpooled.estimators.parameters import WithParameters
from unpooled.protocol.records import CONTROLS, EVERYBODY, OVERLAP, TREATED


class Averages(WithParameters):
    """The methods of a fitted estimator that concern groups of people."""

    result_: StudyResult

    # ----------------------------------------------------------------- differences

    def ate(self, site: str | None = None) -> float:
        """Average treatment effect, in units of the outcome.

        Parameters
        ----------
        site : str, optional
            The site over whose people to average. By default, all people of all sites.

        Returns
        -------
        float
            The posterior mean.
        """
        return float(self.ate_draws(site).mean())

    def ate_interval(self, site: str | None = None, *, alpha: float = 0.05) -> tuple[float, float]:
        """Equal-tailed posterior interval of the average treatment effect.

        Parameters
        ----------
        site : str, optional
            The site over whose people to average. By default, all people of all sites.
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, in units of the outcome.
        """
        return _ends(self.ate_draws(site), alpha)

    def ate_draws(self, site: str | None = None) -> np.ndarray:
        """Posterior draws of the average treatment effect.

        Parameters
        ----------
        site : str, optional
            The site over whose people to average. By default, all people of all sites.

        Returns
        -------
        ndarray of shape (draws,)
            The draws, in units of the outcome.

        Raises
        ------
        StudyError
            If the model is not fitted, or the study has no such site.
        """
        both = self._both(EVERYBODY, site)
        return both[:, 1] - both[:, 0]

    def att(self, site: str | None = None) -> float:
        """Average effect of the treatment on the treated, in units of the outcome.

        Parameters
        ----------
        site : str, optional
            The site over whose treated people to average. By default, those of all sites.

        Returns
        -------
        float
            The posterior mean.
        """
        return self._difference(TREATED, site).estimate

    def att_interval(self, site: str | None = None, *, alpha: float = 0.05) -> tuple[float, float]:
        """Equal-tailed posterior interval of the average effect on the treated.

        Parameters
        ----------
        site : str, optional
            The site over whose treated people to average. By default, those of all sites.
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, in units of the outcome.
        """
        return self._difference(TREATED, site, alpha)[1:3]

    def atc(self, site: str | None = None) -> float:
        """Average effect that the treatment would have on the controls, in units of the outcome.

        Parameters
        ----------
        site : str, optional
            The site over whose untreated people to average. By default, those of all sites.

        Returns
        -------
        float
            The posterior mean.
        """
        return self._difference(CONTROLS, site).estimate

    def atc_interval(self, site: str | None = None, *, alpha: float = 0.05) -> tuple[float, float]:
        """Equal-tailed posterior interval of the average effect on the controls.

        Parameters
        ----------
        site : str, optional
            The site over whose untreated people to average. By default, those of all sites.
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, in units of the outcome.
        """
        return self._difference(CONTROLS, site, alpha)[1:3]

    def ato(self, site: str | None = None) -> float:
        """Average effect in the overlap population, in units of the outcome.

        Each person counts by e(1 − e), where e is the propensity: most are people who could have been in
        either arm.

        Parameters
        ----------
        site : str, optional
            The site over whose people to average. By default, all people of all sites.

        Returns
        -------
        float
            The posterior mean.

        Raises
        ------
        StudyError
            If the method has no propensities.
        """
        return self._difference(OVERLAP, site).estimate

    def ato_interval(self, site: str | None = None, *, alpha: float = 0.05) -> tuple[float, float]:
        """Equal-tailed posterior interval of the average effect in the overlap population.

        Parameters
        ----------
        site : str, optional
            The site over whose people to average. By default, those of all sites.
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, in units of the outcome.
        """
        return self._difference(OVERLAP, site, alpha)[1:3]

    # -------------------------------------------------------------- other comparisons

    def ratio(self, group: str = EVERYBODY, *, site: str | None = None) -> float:
        """Mean outcome under treatment divided by that under control.

        It is the risk ratio of 0/1 outcomes, and the rate ratio of counts.

        Parameters
        ----------
        group : str, default="everybody"
            The people: "everybody", "treated", "controls", "overlap", or a group that the study names.
        site : str, optional
            Their site. By default, those of all sites.

        Returns
        -------
        float
            The ratio of the posterior means; NaN if the mean of an arm is not clearly above 0.
        """
        return self._contrast(RATIO, group, site).estimate

    def ratio_interval(
        self, group: str = EVERYBODY, *, site: str | None = None, alpha: float = 0.05
    ) -> tuple[float, float]:
        """Equal-tailed posterior interval of the ratio of mean outcomes.

        Parameters
        ----------
        group : str, default="everybody"
            The people, as in `ratio`.
        site : str, optional
            Their site. By default, those of all sites.
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, NaN where the ratio is not defined.
        """
        return self._contrast(RATIO, group, site, alpha)[1:3]

    def odds_ratio(self, group: str = EVERYBODY, *, site: str | None = None) -> float:
        """Odds of a 0/1 outcome under treatment divided by those under control, of the average risks.

        Parameters
        ----------
        group : str, default="everybody"
            The people, as in `ratio`.
        site : str, optional
            Their site. By default, those of all sites.

        Returns
        -------
        float
            The odds ratio of the posterior means; NaN if the risk of an arm is not clearly between 0 and 1.

        Raises
        ------
        StudyError
            If the outcome is not 0/1.
        """
        return self._contrast(ODDS_RATIO, group, site).estimate

    def odds_ratio_interval(
        self, group: str = EVERYBODY, *, site: str | None = None, alpha: float = 0.05
    ) -> tuple[float, float]:
        """Equal-tailed posterior interval of the odds ratio.

        Parameters
        ----------
        group : str, default="everybody"
            The people, as in `ratio`.
        site : str, optional
            Their site. By default, those of all sites.
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, NaN where the odds ratio is not defined.
        """
        return self._contrast(ODDS_RATIO, group, site, alpha)[1:3]

    def number_needed_to_treat(self, group: str = EVERYBODY, *, site: str | None = None) -> float:
        """How many people must be treated for one event more, or fewer if negative: 1 / risk difference.

        Parameters
        ----------
        group : str, default="everybody"
            The people, as in `ratio`.
        site : str, optional
            Their site. By default, those of all sites.

        Returns
        -------
        float
            The inverse of the posterior mean of the difference. `effects` has its interval, and says so if
            the interval has two parts because that of the difference has 0 in it.

        Raises
        ------
        StudyError
            If the outcome is not 0/1.
        """
        return self._contrast(NUMBER_NEEDED, group, site).estimate

    # ------------------------------------------------------------------------ tables

    def effects(
        self, group: str | None = None, *, site: str | None = None, alpha: float = 0.05
    ) -> pd.DataFrame:
        """Mean outcomes of both arms, and all effects that compare them, by group of people.

        Parameters
        ----------
        group : str, optional
            "everybody", "treated", "controls", "overlap", or a group that the study names. By default, all.
        site : str, optional
            The site of these people. By default, those of all sites.
        alpha : float, default=0.05
            The intervals have probability 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per group and effect: "control" and "treated" (mean outcomes), "difference", "ratio" and,
            of 0/1 outcomes, "odds ratio" and "number needed to treat". The columns are estimate, lower and
            upper end of the interval, and a note, such as why an effect is not defined.
        """
        names = self.groups() if group is None else [self._known_group(group)]
        draws = np.stack([self._both(name, site) for name in names], axis=1)
        result = self._fitted()
        alone = result.average_outcomes.differences_only
        return effects_table(draws, names, result.family, alpha, differences_only=alone)

    def groups(self) -> list[str]:
        """The groups of people whose average effects are known.

        Returns
        -------
        list of str
            "everybody", "treated" and "controls", as far as the method tells them apart; "overlap" if it has
            propensities; and the groups that the study names.
        """
        return list(self._fitted().average_outcomes.groups)

    def mean_draws(self, group: str = EVERYBODY, *, site: str | None = None) -> np.ndarray:
        """Posterior draws of the mean outcome under control and under treatment.

        Parameters
        ----------
        group : str, default="everybody"
            The people, as in `ratio`.
        site : str, optional
            Their site. By default, those of all sites.

        Returns
        -------
        ndarray of shape (draws, 2)
            The draws, in units of the outcome; control first. Draws of different groups belong together, so
            that groups can be compared draw by draw.

        Raises
        ------
        StudyError
            If the model is not fitted, the study has no such site or group, or the method estimates only the
            difference of the means.
        """
        result = self._fitted()
        if result.average_outcomes.differences_only:
            raise StudyError(
                "mean outcomes must be known by arm",
                found=f"'{result.study.method.name}', which estimates their difference only",
                remedy="use another method, such as AIPW or FedCI",
            )
        return self._both(group, site)

    def summary(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Average treatment effects by site and over all sites.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have probability 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per site, and the row ``all sites``. The columns are n (number of people), ate, variance,
            sd, skewness and kurtosis of the posterior, lower and upper end of the interval, the posterior
            means of the outcome under control and under treatment, the number of failed checks of the study
            (see `checks`), and the family of the outcome, which is chosen when the sites agree unless the
            study names it. `effects` has ratios, and effects in other groups of people. Numbers of
            a site are NaN if everybody or nobody was treated there and the method needs such a comparison.
        """
        result = self._fitted()
        outcomes = result.average_outcomes
        found = table(result.site_effects, result.sites, result.counts, alpha, weights=outcomes.weight[:, 0])
        if not outcomes.differences_only:
            own = getattr(outcomes, result.study.target).mean(axis=0)[:, 0] if result.study.by_site else []
            means = np.array([*own, outcomes.overall(result.study.target).mean(axis=0)[0]])
            found = found.assign(control=means[:, 0], treated=means[:, 1])
        found.loc[list(result.sites_without_effects), found.columns.drop("n")] = np.nan
        return found.assign(failed_checks=len(failed(checks_of(result))), family=result.family)

    # ---------------------------------------------------------------------- internal

    def _both(self, group: str, site: str | None) -> np.ndarray:
        """Draws [K, arm] of the means, of which only the difference may be known; NaN for an empty group."""
        result = self._fitted()
        outcomes, target = result.average_outcomes, result.study.target
        place = outcomes.groups.index(self._known_group(group))
        if site is None:
            return outcomes.overall(target)[:, place]
        where = result.sites.index(self._known(site))
        if not result.study.by_site:
            raise StudyError(
                "effects of a site must be part of the study",
                found="by_site = false",
                remedy="leave out the name of the site for the effect over all sites",
            )
        draws = getattr(outcomes, target)[:, where, place]
        known = outcomes.weight[where, place] > 0.0 and site not in result.sites_without_effects
        return draws if known else np.full_like(draws, np.nan)

    def _difference(self, group: str, site: str | None, alpha: float = 0.05) -> Found:
        return self._contrast(DIFFERENCE, group, site, alpha)

    def _contrast(self, name: str, group: str, site: str | None, alpha: float = 0.05) -> Found:
        result = self._fitted()
        if result.family not in CONTRASTS[name].families:
            raise StudyError(
                f"the {name} is of 0/1 outcomes",
                found=f"an outcome that is {result.family}",
                remedy="use the difference or the ratio, or name the family of the outcome in the study",
            )
        draws = self._both(group, site)
        return contrast(name, draws, alpha, differences_only=result.average_outcomes.differences_only)

    def _known_group(self, group: str) -> str:
        groups = self.groups()
        if group not in groups:
            raise StudyError(
                "the group of people must be one whose effects are known",
                found=f"'{group}'",
                remedy=_remedy(group, groups),
            )
        return group

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


def _ends(draws: np.ndarray, alpha: float) -> tuple[float, float]:
    lower, upper = interval(draws, alpha)
    return float(lower), float(upper)


def _remedy(group: str, groups: list[str]) -> str:
    if group == OVERLAP:
        return "use FedCI, AIPW or IPW, which have propensities"
    if group in (TREATED, CONTROLS):
        return "use another method, such as AIPW or FedCI"
    return f"{nearest(group, groups)}; the study defines groups under [subgroups]"
