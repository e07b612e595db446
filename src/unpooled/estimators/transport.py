"""Average effects in a population elsewhere, from a table of its people's covariates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from scipy.special import chdtri

from unpooled.coordinator.result import StudyResult
from unpooled.data import Table, encode_covariates, read
from unpooled.disclosure.groups import MANY_VALUES
from unpooled.effects.contrasts import effects_table
from unpooled.effects.summary import interval
from unpooled.errors import LimitRefusal, StudyError
from unpooled.estimators.entropy_balancing import Moment, balance_of, tilt_to
from unpooled.maths.linear_algebra import one_blas_thread
from unpooled.maths.streams import stream
from unpooled.methods import method as methods
from unpooled.methods.method import Transports
from unpooled.methods.settings import MethodSettings
from unpooled.protocol.records import Check
from unpooled.protocol.rows import make_rows
from unpooled.site.standard_units import standardise
from unpooled.study.family import Family

TARGET = "target"
BLOCK = 2000
"""People whose outcomes are drawn at a time."""
OUTSIDE, RARE = 0.05, 0.001
"""Largest acceptable share of people who are further from the study's mean than a normal would put `RARE`."""
MOST_SHAPE = 5.0
"""Skewness and kurtosis are clipped to this size, as at the sites."""
MODIFIERS = (
    "Whatever changes the effect and is distributed differently in the population is among the covariates, "
    "which mean the same there as in the study."
)
SAMPLE = "The people of the table are a random sample of the population; the interval allows for that."
WHOLE = "The people of the table are the whole population; the interval does not allow for others."
WEIGHTS = (
    "The moments are known exactly. Nothing but them sets the population apart from the study's people: what "
    "they leave open, such as correlations and covariates without a moment, is as among these people, "
    "weighted to have the moments."
)


@dataclass(frozen=True)
class Transported:
    """Average effects in a population elsewhere.

    Parameters
    ----------
    mean_draws : ndarray of shape (draws, 2)
        Draws of the mean outcome under control and under treatment, in units of the outcome.
    family : str
        The family of the outcome.
    checks : pandas.DataFrame
        Whether the population is covered by the people of the study; one row per check.
    assumptions : tuple of str
        What the effects in the population assume beyond those in the study, as sentences.
    """

    mean_draws: np.ndarray
    family: Family
    checks: pd.DataFrame
    assumptions: tuple[str, ...]

    def ate(self) -> float:
        """Average treatment effect in the population.

        Returns
        -------
        float
            The posterior mean, in units of the outcome.
        """
        return float(self._difference().mean())

    def ate_interval(self, *, alpha: float = 0.05) -> tuple[float, float]:
        """Equal-tailed interval of the average treatment effect.

        Parameters
        ----------
        alpha : float, default=0.05
            The interval has probability 1 - `alpha`.

        Returns
        -------
        tuple of float
            The lower and upper end, in units of the outcome.
        """
        lower, upper = interval(self._difference(), alpha)
        return float(lower), float(upper)

    def effects(self, *, alpha: float = 0.05) -> pd.DataFrame:
        """Mean outcomes of both arms, and all effects that compare them.

        Parameters
        ----------
        alpha : float, default=0.05
            The intervals have probability 1 - `alpha`.

        Returns
        -------
        pandas.DataFrame
            One row per effect, as in the `effects` of an estimator, for the group "target".
        """
        return effects_table(self.mean_draws[:, None], [TARGET], self.family, alpha)

    def _difference(self) -> np.ndarray:
        return self.mean_draws[:, 1] - self.mean_draws[:, 0]


@one_blas_thread()
def transported(result: StudyResult, people: Table, *, sample: bool) -> Transported:
    """The mean outcomes of people elsewhere, averaged draw by draw."""
    covariates = standard_covariates(result, people)
    mean = _averaged(result, covariates, np.ones(len(covariates)), sample=sample)
    checks = pd.DataFrame([asdict(_covered(covariates, result))])
    people_are = SAMPLE if sample else WHOLE
    return Transported(mean, result.family, checks, (_site_elsewhere(result), MODIFIERS, people_are))


EFFECTIVE = 0.1
"""Smallest acceptable effective sample size of the weights, as a share of the study's people."""


@one_blas_thread()
def transported_to_moments(
    result: StudyResult, tables: Mapping[str, np.ndarray], moments: Mapping[str, Moment], *, least: float
) -> Transported:
    """The same for the study's own people, weighted to have the moments of the target.

    `tables` has the covariates at every site in standard units. λ is found from sums over sites; the average
    is over all people in this process.
    """
    target = balance_of(moments, result.schema, result.scaling)
    tilt = tilt_to(target, list(tables.values()))
    exponents = {site: target.of(covariates) @ tilt for site, covariates in tables.items()}
    largest = max(one.max() for one in exponents.values())
    weights = {site: np.exp(one - largest) for site, one in exponents.items()}
    total = sum(one.sum() for one in weights.values())
    if total <= least:
        raise LimitRefusal(
            f"no average may rest on {least:g} people or fewer",
            found="weights that few people dominate",
            remedy="give fewer moments, or a target whose people are like more of the study's",
        )
    effective = total**2 / sum(float(one @ one) for one in weights.values())
    every, weight = np.concatenate(list(tables.values())), np.concatenate(list(weights.values()))
    mean = _averaged(result, every, weight, sample=True)
    check = Check.at_least(
        "effective sample size of the target", effective / len(every), EFFECTIVE,
        "Effective sample size of the weights with which the study's people have the moments of the target, "
        "as a share of these people. Below the threshold, a few people stand for the target, and the "
        "result depends on who they are.",
    )  # fmt: skip
    assumptions = (_site_elsewhere(result), MODIFIERS, WEIGHTS)
    return Transported(mean, result.family, pd.DataFrame([asdict(check)]), assumptions)


def _averaged(result: StudyResult, covariates: np.ndarray, weight: np.ndarray, *, sample: bool) -> np.ndarray:
    """Draws [K, 2] of the weighted mean outcomes at a new site with these people; if they are a sample, by
    Bayesian bootstrap."""
    rng = stream(result.study.seed, "people elsewhere")
    total: np.ndarray | float = 0.0
    count: np.ndarray | float = 0.0
    start = 0
    for outcomes in _blocks(result, covariates, moments_of(covariates, result, weight)):
        size = outcomes.shape[:2]
        own = np.broadcast_to(weight[start : start + size[1]], size)
        start += size[1]
        own = own * rng.standard_exponential(size) if sample else own
        total = total + np.einsum("kn,kna->ka", own, outcomes)
        count = count + own.sum(axis=1)
    return result.scaling.outcome_mean + result.outcome_sd * total / np.asarray(count)[:, None]


def outcomes_elsewhere(result: StudyResult, people: Table) -> np.ndarray:
    """Draws [K, people, 2] of the mean outcomes of people at a site that took no part, in standard units."""
    covariates = standard_covariates(result, people)
    parts = _blocks(result, covariates, moments_of(covariates, result, np.ones(len(covariates))))
    return np.concatenate(list(parts), axis=1)


def standard_covariates(result: StudyResult, people: Table) -> np.ndarray:
    """The features of people elsewhere, in the study's standard units."""
    columns = result.study.columns
    if columns.incomplete:
        raise StudyError(
            "effects elsewhere need complete covariates",
            found=f"incomplete: {', '.join(columns.incomplete)}",
            remedy="fit a study of the complete columns",
        )
    frame = read(people, columns, site=TARGET, names=columns.covariates)
    return standardise(encode_covariates(frame, columns, result.schema, site=TARGET), result.scaling)


def _blocks(result: StudyResult, covariates: np.ndarray, moments: np.ndarray) -> Iterator[np.ndarray]:
    """Outcomes [K, people, 2] of some of the people at a time, at one and the same site."""
    method, settings = _method_of(result)
    distances = distances_of(moments, result)
    for place, start in enumerate(range(0, len(covariates), BLOCK)):
        part = covariates[start : start + BLOCK]
        nothing = np.zeros(len(part))
        rows = make_rows(part, nothing, nothing, fold=nothing, site=0)
        found = method.outcomes_elsewhere(settings, result.context, result.draws, rows, distances, place)
        yield found[:, : len(part)]


def _method_of(result: StudyResult) -> tuple[Transports, MethodSettings]:
    method = methods.find(result.study.method.name)
    if not isinstance(method, Transports):
        raise StudyError(
            "the method must say how a site that took no part would differ",
            found=f"'{result.study.method.name}', which does not",
            remedy="use FedCI, or CausalRFF with confounding = 'observed'",
        )
    return method, methods.settings_of(method, result.study.method.settings)


def _site_elsewhere(result: StudyResult) -> str:
    method, settings = _method_of(result)
    return method.elsewhere_words(settings)


def moments_of(covariates: np.ndarray, result: StudyResult, weight: np.ndarray) -> np.ndarray:
    """The moments of people elsewhere, as the sites tell theirs: mean and sd of every feature in standard
    units, skewness and excess kurtosis of numeric features with many values."""
    numeric = np.isnan(np.asarray(result.scaling.binary_rate, float))
    share = weight / weight.sum()
    mean = share @ covariates
    sd = np.sqrt(share @ (covariates - mean) ** 2)
    many = np.array([len(np.unique(column)) > MANY_VALUES for column in covariates.T], dtype=bool)
    scaled = (covariates - mean) / np.where(sd > 0.0, sd, 1.0)
    shape = np.stack([share @ scaled**3, share @ scaled**4 - 3.0])
    shape = np.where(many & (sd > 0.0), np.round(np.clip(shape, -MOST_SHAPE, MOST_SHAPE), 1), 0.0)
    return np.concatenate([mean, sd, *shape[:, numeric]])


def distances_of(moments: np.ndarray, result: StudyResult) -> np.ndarray:
    """Mean squared differences from the moments of the reference sites; zeros if sites told none."""
    known, every = result.scaling.known.moments, result.scaling.site_distances
    if known.shape[-1] != len(moments):
        return np.zeros(every.shape[1])
    references = known[np.argmin(every, axis=0)]  # a reference is at distance zero from itself
    return np.mean((references - moments) ** 2, axis=1)


def _covered(covariates: np.ndarray, result: StudyResult) -> Check:
    """How many people are far from those of the study, by Mahalanobis distance."""
    correlation = np.asarray(result.scaling.correlation)
    solved = np.linalg.lstsq(correlation, covariates.T, rcond=1e-8)[0]
    squares = np.sum(covariates * solved.T, axis=1)
    return Check.at_most(
        "target within the study", float(np.mean(squares > chdtri(covariates.shape[1], RARE))), OUTSIDE,
        "Share of the people of the target who are further from the mean of the study's people than all but "
        "one in a thousand would be if covariates were normal. Above the threshold, effects elsewhere are "
        "extrapolated: restrict the target to people like those of the study.",
    )  # fmt: skip
