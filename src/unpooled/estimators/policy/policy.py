"""Whom to treat: the value of policies, a rule in words, and whether people are ordered rightly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import ndtr

from unpooled.data import Table
from unpooled.errors import StudyError, nearest
from unpooled.estimators.base import Estimator, Watcher
from unpooled.estimators.policy import sums as of
from unpooled.estimators.policy.design import design_of, fitted_regressions, found_rule, valued_parts
from unpooled.estimators.policy.sums import GROUPS, POLICIES, Estimate, Sums, column
from unpooled.protocol.engine import RemoteSites
from unpooled.study import Study


@dataclass(frozen=True)
class Policy:
    """What policies of whom to treat are worth, from people whom no fit has seen.

    Parameters
    ----------
    cost : float
        The cost of treating a person, in units of the outcome.
    larger_is_better : bool
        Whether larger outcomes are better.
    rule : str
        Whom to treat, by at most two questions about everybody's covariates, found from all people.
    rules : tuple of str
        The rules found before each part, whose value was estimated in that part.
    people : int
        Number of people who were valued.
    outcome : str
        The name of the outcome.
    unit : str
        Its unit.
    method : str
        The method that predicts the effects.
    """

    cost: float
    larger_is_better: bool
    rule: str
    rules: tuple[str, ...]
    people: int
    outcome: str
    unit: str
    method: str
    _parts: tuple[Sums, ...] = field(repr=False)
    """The sums over all sites of each part."""

    def values(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """The mean outcome under each policy.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per policy: "nobody", "everybody", "as observed", "predicted effect" (treat if the
            predicted effect exceeds the cost) and "rule". The columns are treated (the share of people who
            are treated), outcome (their mean, without the cost) and its interval (lower, upper).
        """
        share, _ = self._ratios([column(f"treated {name}") for name in POLICIES])
        outcome, error = self._ratios([column(f"outcome {name}") for name in POLICIES])
        lower, upper = of.ends(outcome, error, alpha)
        found = {"treated": share, "outcome": outcome, "lower": lower, "upper": upper}
        return pd.DataFrame(found, index=pd.Index(POLICIES, name="policy"))

    def gains(self, over: str = "nobody", *, alpha: float = 0.05) -> pd.DataFrame:
        """How much better each policy is than another, per person and after the cost.

        Parameters
        ----------
        over : str, default="nobody"
            The policy with which the others are compared: "nobody", "everybody", "as observed",
            "predicted effect" or "rule".
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per other policy, with the columns gain, lower and upper. A positive gain is better,
            whether larger or smaller outcomes are.

        Raises
        ------
        StudyError
            If there is no such policy.
        """
        if over not in POLICIES:
            raise StudyError("a policy must be known", found=f"'{over}'", remedy=nearest(over, POLICIES))
        others = [name for name in POLICIES if name != over]
        gain, error = self._ratios([self._net(name) - self._net(over) for name in others])
        lower, upper = of.ends(gain, error, alpha)
        found = {"gain": gain, "lower": lower, "upper": upper}
        return pd.DataFrame(found, index=pd.Index(others, name="policy"))

    def sorted_effects(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Average effects in fifths of the people, sorted by their predicted effects.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per fifth, from the smallest predicted effects to the largest. The columns are share (of
            all people), predicted (the mean prediction), effect (the doubly robust estimate) and its interval
            (lower, upper). If many people have the same prediction, fifths are larger or smaller than that.
        """
        groups = [column(f"in {group}") for group in range(GROUPS)]
        share, _ = self._ratios(groups)
        predicted, _ = self._ratios([column(f"predicted {group}") for group in range(GROUPS)], groups)
        effect, error = self._ratios([column(f"effect {group}") for group in range(GROUPS)], groups)
        lower, upper = of.ends(effect, error, alpha)
        found = {"share": share, "predicted": predicted, "effect": effect, "lower": lower, "upper": upper}
        return pd.DataFrame(found, index=pd.Index(range(1, GROUPS + 1), name="fifth"))

    def calibration(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Whether people with larger predicted effects have larger effects.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have level 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            The rows are "slope", by how much effects differ between people whose predictions differ by 1, and
            "last minus first fifth", the difference of their average effects. The columns are estimate,
            lower, upper, and p_value: of the hypothesis that it is not above 0 (one-sided).

        Notes
        -----
        A slope of 1 means that predicted differences are right, a slope below 1 that they are exaggerated,
        and a slope of 0 that they predict nothing. The slope is NaN if all predictions are equal.
        """
        first, last = 0, GROUPS - 1
        differences = [(one, _difference(one, first, last)) for one in self._parts]
        slope, slope_error = of.combined_slopes([of.slope(one) for one in self._parts])
        apart, apart_error = of.combined(differences)
        estimate = np.array([slope, apart[0]])
        error = np.array([slope_error, apart_error[0]])
        lower, upper = of.ends(estimate, error, alpha)
        with np.errstate(invalid="ignore", divide="ignore"):
            p_value = ndtr(-estimate / error)
        found = {"estimate": estimate, "lower": lower, "upper": upper, "p_value": p_value}
        return pd.DataFrame(found, index=["slope", "last minus first fifth"])

    def counts(self) -> pd.DataFrame:
        """Numbers of people who were valued, by what policies decide for them and by fifth.

        Returns
        -------
        pandas.DataFrame
            Rows and columns are "one" (everybody), "treated" with the name of a policy, and "in" with the
            place of a fifth, from 0. Each cell is the number of people to whom both apply.
        """
        both = np.sum([one.people for one in self._parts], axis=0)
        return pd.DataFrame(both.astype(int), index=pd.Index(of.INDICATORS), columns=pd.Index(of.INDICATORS))

    def _net(self, name: str) -> np.ndarray:
        sign = 1.0 if self.larger_is_better else -1.0
        return sign * column(f"outcome {name}") - self.cost * column(f"treated {name}")

    def _ratios(
        self, above: list[np.ndarray], below: list[np.ndarray] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Ratios of sums with their errors, over everybody by default."""
        under = np.stack(below or [column("one")] * len(above))
        return of.combined([(one, of.ratios(one, np.stack(above), under)) for one in self._parts])


def _difference(sums: Sums, first: int, last: int) -> Estimate:
    """The difference of the mean effects of two groups; NaN if one of them is empty."""
    groups = [last, first]
    above = np.stack([column(f"effect {group}") for group in groups])
    found = of.ratios(sums, above, np.stack([column(f"in {group}") for group in groups]))
    weight = found.weight.sum(keepdims=True)
    return Estimate(-np.diff(found.value), -np.diff(found.influence, axis=0), weight)


def policy(
    model: Estimator,
    study: Study,
    sites: Mapping[str, Table] | None = None,
    *,
    cost: float = 0.0,
    larger_is_better: bool = True,
    trim: float = 0.01,
    watch: Watcher | None = None,
    tell: Callable[[str], None] | None = None,
) -> Policy:
    """Value policies of whom to treat, find a rule, and test the order of predicted effects.

    Parameters
    ----------
    model : Estimator
        The estimator that predicts effects. Unfitted copies of it are fitted to some of the people.
    study : Study
        The study, as in `fit`.
    sites : dict of str to table, optional
        A table for each site, as in `fit`. By default, the tables that the study names. They must be in this
        process.
    cost : float, default=0.0
        What treating a person costs, in units of the outcome: people are treated if their expected benefit
        exceeds it.
    larger_is_better : bool, default=True
        Whether larger outcomes are better. Set False for outcomes such as deaths: a benefit is then a
        negative effect.
    trim : float, default=0.01
        Propensities are clipped to lie between `trim` and 1 - `trim`.
    watch : callable, optional
        Called with each finished `Round` of every fit.
    tell : callable, optional
        Called with a short description before every fit.

    Returns
    -------
    Policy
        ``values()`` and ``gains()`` of the policies, the ``rule`` in words, ``sorted_effects()`` and their
        ``calibration()``.

    Raises
    ------
    StudyError
        If the sites are remote, an option is not valid, or the study has covariates whose missing values are
        modelled or people who are at several sites.
    DataError
        If a site has people in one arm only, or there are too few people.

    Notes
    -----
    The people of each site are divided at random into a first part of 40 % and three parts of 20 %. Those of
    a part are predicted by fits to the parts before it, and valued by doubly robust (AIPW) scores whose
    regressions are fitted to the same parts before it. So the estimates are honest: nobody's own outcome has
    a share in the decision that is valued, and intervals hold although the fits share people (Wager, 2024).
    The model that is valued saw 40 to 80 % of the people; one that is fitted to everybody will usually be
    somewhat better. The scores need that nothing but the covariates confounds.

    References
    ----------
    S. Wager, "Sequential validation of treatment heterogeneity", arXiv:2405.05534 (2024).

    S. Athey and S. Wager, "Policy learning with observational data", Econometrica 89 (2021).

    Examples
    --------
    >>> found = policy(FedCI(), study, sites, cost=0.02)  # doctest: +SKIP
    >>> found.gains(over="everybody")  # doctest: +SKIP
    """
    _check(study, sites, cost, trim)
    sign = 1.0 if larger_is_better else -1.0
    plain = study.with_changes(diagnostics=False, subgroups={}, by_site=True)  # the sites' tables are here
    design = design_of(model, plain, sites, trim=trim, cost=cost, sign=sign)
    parts, rules, people = [], [], 0
    for part in valued_parts(design, watch, tell):
        everybody = part.people.values()
        cuts = of.cut_points([(one.predicted, one.weight) for one in everybody])
        parts.append(of.over_sites([of.site_sums(one, cuts, cost=cost, sign=sign) for one in everybody]))
        rules.append(part.rule.words(design.questions))
        people += sum(len(one.predicted) for one in everybody)
    rule = found_rule(design, fitted_regressions(design, design.tables)).words(design.questions)
    columns = study.columns
    unit = columns.units.get(columns.outcome, "")
    return Policy(
        cost, larger_is_better, rule, tuple(rules), people, columns.outcome, unit, model.method, tuple(parts)
    )


def _check(study: Study, sites: object, cost: float, trim: float) -> None:
    if isinstance(sites, RemoteSites):
        raise StudyError(
            "policies are valued beside the tables of the sites",
            found="remote sites",
            remedy="pass the tables themselves, or ask each site to value policies on its own table",
        )
    if study.columns.modelled:
        raise StudyError(
            "policies are valued for people with complete covariates",
            found=f"incomplete: {', '.join(study.columns.modelled)}",
            remedy='set missing = "complete cases" or "indicator", or leave these columns out',
        )
    if study.duplicates != "ignore":
        raise StudyError(
            "policies are valued for people who are each at one site",
            found=f"duplicates = '{study.duplicates}'",
            remedy='leave the copies out of the tables, and set duplicates = "ignore"',
        )
    if not np.isfinite(cost) or not 0.0 < trim < 0.5:
        raise StudyError(
            "cost must be a number, and trim between 0 and 0.5",
            found=f"cost = {cost}, trim = {trim}",
            remedy="give the cost of a treatment in units of the outcome; 0.01 is a usual trim",
        )
