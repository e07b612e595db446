"""Average effects in the subgroups that a study names."""

from __future__ import annotations

import numpy as np
import pandas as pd

from unpooled.effects.contrasts import NOBODY
from unpooled.effects.subgroups import Wald, equal_effects, gate_columns
from unpooled.errors import StudyError, nearest
from unpooled.estimators.averages import Averages
from unpooled.study.subgroups import Subgroup, is_rule, listed


class Subgroups(Averages):
    """The methods of a fitted estimator that compare subgroups."""

    def gate(self, by: str | None = None, *, site: str | None = None, alpha: float = 0.05) -> pd.DataFrame:
        """Group average treatment effects (GATE) in the subgroups that the study names.

        Parameters
        ----------
        by : str, optional
            A key of the study's `subgroups`, such as "age". By default, all subgroups.
        site : str, optional
            The site of these people. By default, those of all sites.
        alpha : float, default=0.05
            The intervals have probability 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per subgroup. The columns are n (number of people), the mean outcomes under control and
            under treatment, the effect, its interval (lower, upper), its simultaneous interval
            (simultaneous_lower, simultaneous_upper), and a note if nobody belongs to the group.

        Raises
        ------
        StudyError
            If the study names no such subgroups, or the method does not estimate their effects.

        Notes
        -----
        Each interval (lower, upper) is right for one group that was chosen beforehand. Among many groups,
        some effects look large by chance. The simultaneous intervals hold for all rows of the table together
        with probability 1 - `alpha`: they are the ones to use for a group that was picked because of its
        estimate. `gate_test` tests whether the effects differ at all.
        """
        groups = self._subgroups(by)
        both = np.stack([self._both(one.name, site) for one in groups], axis=1)
        people, alone = self._people(groups, site), self._fitted().average_outcomes.differences_only
        means = np.full(both.shape[1:], np.nan) if alone else both.mean(axis=0)
        found = gate_columns(both[..., 1] - both[..., 0], alpha)
        return pd.DataFrame(
            {
                "n": people,
                "control": means[:, 0],
                "treated": means[:, 1],
                **found,
                "note": ["" if count else NOBODY for count in people],
            },
            index=pd.Index([one.name for one in groups], name="group"),
        )

    def gate_test(self, by: str, *, site: str | None = None) -> Wald:
        """Test whether the average effects of subgroups that do not overlap differ.

        Parameters
        ----------
        by : str
            A key of the study's `subgroups` with the ranges or levels of a column, such as "age".
        site : str, optional
            The site of these people. By default, those of all sites.

        Returns
        -------
        Wald
            The statistic, its degrees of freedom (`degrees`) and the `p_value` of the hypothesis that all
            groups have the same average effect. NaN if fewer than two groups have people, or if the method
            gives all of them the same effect in every draw.

        Raises
        ------
        StudyError
            If the study names no such subgroups, or if they may overlap.

        Notes
        -----
        A p-value of several tests, one for each key, has to be corrected for their number. Few people per
        group give the test little power: a large p-value does not show that effects are equal.
        """
        groups = self._subgroups(by)
        if is_rule(self._fitted().study.subgroups[by]):
            raise StudyError(
                "effects are compared between groups that do not overlap",
                found=f"'{by}', a rule, which defines a single group",
                remedy="name the ranges or levels of a column, such as age = [0, 50, 65], and compare those",
            )
        both = np.stack([self._both(one.name, site) for one in groups], axis=1)
        draws = both[..., 1] - both[..., 0]
        known = draws[:, np.isfinite(draws).all(axis=0)]
        return equal_effects(known) if known.shape[1] > 1 else Wald(np.nan, 0, np.nan)

    def _subgroups(self, by: str | None) -> list[Subgroup]:
        """The subgroups under a key of the study, or all of them."""
        result = self._fitted()
        named = result.study.subgroups
        if by is not None and by not in named:
            remedy = nearest(by, named) if named else "define groups under [subgroups] in the study"
            raise StudyError("the study must name the subgroups", found=f"no '{by}'", remedy=remedy)
        if not named:
            raise StudyError(
                "the study must name subgroups",
                found="none",
                remedy="define them under [subgroups] in the study, such as age = [0, 50, 65]",
            )
        found = [one for one in listed(named, result.schema) if by in (None, one.entry)]
        if found[0].name not in result.average_outcomes.groups:
            raise StudyError(
                "the method must estimate effects in subgroups",
                found=f"'{result.study.method.name}', which does not",
                remedy="use another method, such as FedCI",
            )
        return found

    def _people(self, groups: list[Subgroup], site: str | None) -> np.ndarray:
        """Number of people in each group."""
        outcomes = self._fitted().average_outcomes
        places = [outcomes.groups.index(one.name) for one in groups]
        own = slice(None) if site is None else [self._fitted().sites.index(site)]
        return np.rint(outcomes.weight[own][:, places].sum(axis=0)).astype(int)
