"""Typed records that are sent inside messages or stored with a fit; those with arrays are pytrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np

from unpooled.study.family import Family

Arrays = dict[str, Any]
"""A possibly nested dictionary of arrays: NumPy at the coordinator, JAX at the sites."""


class Record:
    """Base class of every dataclass that the codec may encode; the codec finds subclasses by name."""


def field_values(value: object) -> dict[str, object]:
    """The fields of a dataclass by name, as they are."""
    assert is_dataclass(value)
    return {item.name: getattr(value, item.name) for item in fields(value)}


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Parameters(Record):
    """The parameters of a question, with a leading batch axis.

    At the coordinator the arrays of `per_site` are [batch, site, …]. Each site receives only its own part,
    [batch, …], so no site learns the parameters of another.
    """

    free: Arrays = field(default_factory=dict)
    """Parameters that the optimiser updates; gradients are taken with respect to these."""
    fixed: Arrays = field(default_factory=dict)
    """Other values that all sites need, such as the held-out fold or a random key."""
    per_site: Arrays = field(default_factory=dict)

    def at(self, site: int) -> Parameters:
        """The parameters as the site with this index receives them."""
        if not jax.tree.leaves(self.per_site):
            return self
        return Parameters(self.free, self.fixed, _at(self.per_site, site))


@partial(
    jax.tree_util.register_dataclass, data_fields=["shared", "by_site", "elsewhere"], meta_fields=["model"]
)
@dataclass(frozen=True)
class Draws(Record):
    """Posterior draws of a method's parameters: `shared` is [K, …] and `by_site` is [K, site, …]."""

    shared: Arrays = field(default_factory=dict)
    by_site: Arrays = field(default_factory=dict)
    model: str = ""
    """Name of the candidate model that the draws belong to, for methods with several candidates."""
    elsewhere: Arrays = field(default_factory=dict)
    """[K, …]: what `by_site` would be at a site that took no part, if the method draws it; never sent."""

    def at(self, site: int) -> Arrays:
        """The shared draws and those of one site, in one flat dictionary."""
        return {**self.shared, **_at(self.by_site, site)}


def _at(arrays: Arrays, site: int) -> Arrays:
    return jax.tree.map(lambda leaf: leaf[:, site], arrays)


EVERYBODY, TREATED, CONTROLS, OVERLAP = "everybody", "treated", "controls", "overlap"
TARGETS = ("sample", "population")
"""Over whom outcomes are averaged: the people of the study, or the population that they are a sample of."""
GROUPS = (EVERYBODY, TREATED, CONTROLS, OVERLAP)
"""Groups of people over whom outcomes are averaged; "overlap" counts each person by e(1 − e), where e is the
propensity. A study may name further groups."""


@dataclass(frozen=True)
class AverageOutcomes(Record):
    """Draws [K, site, group, arm] of the mean outcome of groups of people under control and under treatment.

    Without effects by site there is one column, with the means over all sites.
    """

    groups: tuple[str, ...]
    sample: np.ndarray
    """Averaged over the people of the study."""
    population: np.ndarray
    """Averaged over the population of which each site's people are a sample."""
    weight: np.ndarray
    """[site, group]: how much a site counts in the mean over all sites: its number of people in the group."""
    differences_only: bool = False
    """Whether only the difference between the arms is known; it then stands for the mean under treatment."""

    @classmethod
    def of_effects(cls, sample: np.ndarray, population: np.ndarray, people: np.ndarray) -> AverageOutcomes:
        """From draws [K, site] of average effects alone."""
        first, second = (
            np.stack([np.zeros_like(one), one], axis=-1)[:, :, None] for one in (sample, population)
        )
        return cls((EVERYBODY,), first, second, np.asarray(people, float)[:, None], differences_only=True)

    def scaled(self, mean: float, sd: float) -> AverageOutcomes:
        """In the units of an outcome with this mean and sd."""
        centre = 0.0 if self.differences_only else mean
        return replace(self, sample=centre + sd * self.sample, population=centre + sd * self.population)

    def effects(self, target: str) -> np.ndarray:
        """Draws [K, site, group] of the average effects, in the sample or the population."""
        both = getattr(self, target)
        return both[..., 1] - both[..., 0]

    def average_effects(self, target: str) -> np.ndarray:
        """Draws [K, group] of the average effects over all sites."""
        both = self.overall(target)
        return both[..., 1] - both[..., 0]

    def overall(self, target: str) -> np.ndarray:
        """Draws [K, group, arm] of the means over all sites; NaN for groups without people."""
        both, share = getattr(self, target), self._shares()
        return both[:, 0] if both.shape[1] == 1 else np.einsum("ksga,sg->kga", both, share)

    def over_all_sites(self) -> AverageOutcomes:
        """The means over all sites in place of those by site."""
        both = {target: self.overall(target)[:, None] for target in TARGETS}
        return replace(self, **both, weight=self.weight.sum(axis=0, keepdims=True))

    def selected(self, draws: np.ndarray) -> AverageOutcomes:
        """Some of the draws."""
        return replace(self, sample=self.sample[draws], population=self.population[draws])

    @staticmethod
    def joined(several: Sequence[AverageOutcomes]) -> AverageOutcomes:
        """The draws of several, one after the other."""
        both = {name: np.concatenate([getattr(one, name) for one in several]) for name in TARGETS}
        return replace(several[0], **both, weight=np.mean([one.weight for one in several], axis=0))

    def named(self, subgroups: Sequence[str]) -> AverageOutcomes:
        """With the names of the groups that the study itself defines, which are the last."""
        return replace(self, groups=(*self.groups, *subgroups))

    def _shares(self) -> np.ndarray:
        total = self.weight.sum(axis=0)
        return np.where(total > 0.0, self.weight / np.where(total > 0.0, total, 1.0), np.nan)


def combine(site_draws: np.ndarray, counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """Overall ATE draws [*K]: the mean of the site draws [*K, m], weighted by size, draw by draw.

    Without effects by site there is one column, with those of all sites together.
    """
    if site_draws.shape[-1] == 1:
        return site_draws[..., 0]
    weights = np.asarray(counts, dtype=float)
    return site_draws @ (weights / weights.sum())


@dataclass(frozen=True)
class Check(Record):
    """A verdict on a fit or a study: the value found, its threshold, and an explanation."""

    name: str
    passed: bool
    found: float
    threshold: float
    words: str
    passes_if: str
    """"at most" or "at least" the threshold is found."""
    concerns: str = "all effects"
    """"all effects", or "effects of people" if average effects do not depend on it."""

    @classmethod
    def at_most(
        cls, name: str, found: float, threshold: float, words: str, concerns: str = "all effects"
    ) -> Check:
        """A check that passes up to the threshold."""
        passed = bool(found <= threshold)
        return cls(name, passed, float(found), float(threshold), words, "at most", concerns)

    @classmethod
    def at_least(
        cls, name: str, found: float, threshold: float, words: str, concerns: str = "all effects"
    ) -> Check:
        """A check that passes from the threshold on."""
        passed = bool(found >= threshold)
        return cls(name, passed, float(found), float(threshold), words, "at least", concerns)


@dataclass(frozen=True)
class IncompleteColumn(Record):
    """An incomplete covariate: its name, its kind, and the number of features that encode it."""

    name: str
    kind: str
    width: int


@dataclass(frozen=True)
class SiteSummaries(Record):
    """What the coordinator knows of single sites before the fit. It is not sent to any site."""

    names: tuple[str, ...]
    counts: tuple[int, ...]
    """Number of rows of each site."""
    observed: np.ndarray
    """[site, feature]: number of observed values of each feature of the incomplete covariates."""
    one_arm: dict[str, str] = field(default_factory=dict)
    """The sites with people in one arm only, and which: "treated" or "control"."""
    moments: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    """[site, moment]: those from which `Scaling.site_distances` is computed."""


@dataclass(frozen=True)
class Scaling(Record):
    """The summary that the sites agree on before the fit: standardisation and totals.

    `by_site` is at the coordinator only: a site receives `shared()`.
    """

    mean: np.ndarray
    """Mean of each feature of the complete covariates, over all sites."""
    sd: np.ndarray
    outcome_mean: float
    outcome_sd: float
    correlation: np.ndarray
    """Correlation matrix of the features of the complete covariates."""
    binary_rate: np.ndarray
    """Share of ones of each 0/1 feature; NaN for numeric features."""
    family: Family
    """The outcome's family, as the study names it or as it was chosen when the sites agreed."""
    incomplete_mean: np.ndarray
    incomplete_sd: np.ndarray
    incomplete_columns: tuple[IncompleteColumn, ...]
    sites: int
    """Number of sites."""
    people: int
    """Number of rows of all sites."""
    largest_site: int
    """Number of rows of the largest site, rounded up to a multiple of `ROUNDED`."""
    site_distances: np.ndarray
    """[site, reference]: mean squared difference of a site's moments (mean, sd, skewness and excess kurtosis
    of each feature, in standard units) from those of the reference sites: all sites, or `REFERENCES`."""
    by_site: SiteSummaries | None = None
    weight_scale: float = 1.0
    """By what sampling weights are multiplied: Σw/Σw² over all sites, so that they add up to the effective
    sample size (Σw)²/Σw²."""

    def shared(self) -> Scaling:
        """The scaling as every site receives it."""
        return replace(self, by_site=None)

    @property
    def known(self) -> SiteSummaries:
        """The summaries of single sites, at the coordinator."""
        if self.by_site is None:
            raise ValueError("summaries of single sites are at the coordinator only")
        return self.by_site

    @property
    def counts(self) -> tuple[int, ...]:
        return self.known.counts

    @property
    def site_names(self) -> tuple[str, ...]:
        return self.known.names


REFERENCES = 32
"""With more sites than this, what they have in common is found from this many of them that are far apart, so
that messages and the cost of a fit are linear in the number of sites."""
ROUNDED = 50
"""The size of the largest site is told to the others as a multiple of this."""


LEAST = 10
"""Minimum number of people at a site for its own results to be sent or shown."""
CELL = 5
"""Minimum number of people behind any number that is sent or shown."""


@dataclass(frozen=True)
class Limits(Record):
    """Disclosure limits of a site: it refuses an answer that would break one of them.

    Each organisation sets its own limits. They apply to remote sites always, and to tables in this process
    only if they are passed to `fit`. They do not make the statistics anonymous.

    Parameters
    ----------
    rows : int, default=10
        Fewest rows that any statistic may rest on.
    cell : int, default=5
        Fewest people in an arm or with any level of a binary or categorical column, and fewest effective
        people behind any sum.
    share : float, default=1/3
        Most features per person: a stage with p features needs at least p / `share` people in the smallest
        group whose sums can be worked out, which is an arm or, with cross-validation, a fold of an arm.

    Examples
    --------
    >>> Limits(cell=10)
    Limits(rows=10, cell=10, share=0.3333333333333333)
    """

    rows: int = LEAST
    cell: int = CELL
    share: float = 1.0 / 3.0
