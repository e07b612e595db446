"""Every number of a study's diagnostics, slow and plain, from the sites' raw tables and known folds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from oracle.penalties import linear, logistic, outcome_penalty, penalty, treatment_penalty

FOLDS, TRIM, BINS = 3, 0.01, 20


@dataclass(frozen=True)
class People:
    """Everybody of every site. `raw` has a feature for each column, or for each level but the first."""

    names: tuple[str, ...]
    raw: np.ndarray
    x: np.ndarray
    w: np.ndarray
    y: np.ndarray
    fold: np.ndarray
    site: np.ndarray


def people_of(
    tables: Mapping[str, pd.DataFrame],
    covariates: Sequence[str],
    incomplete: Sequence[str],
    folds: Sequence[np.ndarray],
) -> People:
    """x: everybody's features in standard units, the mean where missing, then whether each may be missing."""
    stacked = pd.concat(tables.values(), ignore_index=True)
    names, raw, x, missing = [], [], [], []
    for column in (*covariates, *incomplete):
        for name, values in features(stacked[column]).items():
            sd = np.nanstd(values)
            if column in covariates and set(values) <= {0.0, 1.0}:
                sd = max(sd, 0.25)  # a rare flag is not blown up
            if column in incomplete:
                missing.append(np.isnan(values).astype(float))
            names.append(name)
            raw.append(values)
            x.append(np.nan_to_num((values - np.nanmean(values)) / sd))
    names += [f"{name} missing" for name in names[len(names) - len(missing) :] if missing]
    return People(
        tuple(names),
        np.column_stack([*raw, *missing]),
        np.column_stack([*x, *missing]),
        stacked["w"].to_numpy(float),
        stacked["y"].to_numpy(float),
        np.concatenate(folds),
        np.repeat(np.arange(len(tables)), [len(table) for table in tables.values()]),
    )


def features(series: pd.Series) -> dict[str, np.ndarray]:
    """Numbers as they are; a flag for each level of a text but the first, NaN where it is missing."""
    if pd.api.types.is_numeric_dtype(series):
        return {str(series.name): series.to_numpy(float)}
    levels = sorted(series.dropna().unique())[1:]
    gone = series.isna().to_numpy()
    return {f"{series.name}={one}": np.where(gone, np.nan, (series == one).to_numpy(float)) for one in levels}


# ---------------------------------------------------------------------------------- regressions


def design_of(people: People) -> np.ndarray:
    """An intercept, the regressors and, of several sites, a flag for each."""
    sites = np.unique(people.site)
    flags = [(people.site == site).astype(float) for site in sites] if len(sites) > 1 else []
    return np.column_stack([np.ones(len(people.w)), people.x, *flags])


def chance(X: np.ndarray, beta: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-X @ beta))


def treatment_matrix(people: People) -> np.ndarray:
    """The penalty of the regression of the treatment, by cross-validation."""
    X, width = design_of(people), 1 + people.x.shape[1]
    return penalty(X.shape[1], width, treatment_penalty(X, people.w, people.fold[None], width))


def propensities(people: People) -> np.ndarray:
    """By everybody's regression, with a penalty of about one person: it is to balance, not to predict."""
    X = design_of(people)
    return chance(X, logistic(X, people.w, penalty(X.shape[1], 1 + people.x.shape[1], 1.0)))


def scores(people: People) -> np.ndarray:
    """Doubly robust, everybody by regressions that have not seen their fold."""
    X, psi, width = design_of(people), np.zeros(len(people.w)), 1 + people.x.shape[1]
    P, outcome = treatment_matrix(people), []
    for arm in (0, 1):
        here = people.w == arm
        ridge = outcome_penalty(X[here], people.y[here], people.fold[None, here], width)
        outcome.append(penalty(X.shape[1], width, ridge))
    for fold in range(FOLDS):
        used = people.fold != fold
        e = np.clip(chance(X, logistic(X[used], people.w[used], P)), TRIM, 1.0 - TRIM)
        arms = [used & (people.w == arm) for arm in (0, 1)]
        mu = [X @ linear(X[here], people.y[here], outcome[arm]) for arm, here in enumerate(arms)]
        for i in np.flatnonzero(people.fold == fold):
            if people.w[i] == 1.0:
                psi[i] = mu[1][i] - mu[0][i] + (people.y[i] - mu[1][i]) / e[i]
            else:
                psi[i] = mu[1][i] - mu[0][i] - (people.y[i] - mu[0][i]) / (1.0 - e[i])
    return psi


# ------------------------------------------------------------------------------------- estimates


def mean_and_error(psi: np.ndarray) -> tuple[float, float]:
    return float(np.mean(psi)), float(np.std(psi, ddof=1) / np.sqrt(len(psi)))


def weights(people: People) -> np.ndarray:
    e = np.clip(propensities(people), TRIM, 1.0 - TRIM)
    return np.where(people.w == 1.0, 1.0 / e, 1.0 / (1.0 - e))


def hajek(people: People, weight: np.ndarray) -> tuple[float, float]:
    """Difference of weighted means; each mean's variance from its influence function, by n / (n − 1)."""
    means, variance = [], 0.0
    for arm in (0.0, 1.0):
        y, u = people.y[people.w == arm], weight[people.w == arm]
        mean = np.sum(u * y) / np.sum(u)
        means.append(mean)
        variance += np.sum((u * (y - mean) / np.sum(u)) ** 2) * len(y) / (len(y) - 1)
    return means[1] - means[0], float(np.sqrt(variance))


def welch(people: People) -> tuple[float, float]:
    arms = [people.y[people.w == arm] for arm in (0.0, 1.0)]
    error = np.sqrt(sum(np.var(arm, ddof=1) / len(arm) for arm in arms))
    return float(np.mean(arms[1]) - np.mean(arms[0])), float(error)


# --------------------------------------------------------------------------- balance and overlap


def differences(people: People, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Standardised by the plain sds of both arms: plain, and of weighted means; among who has a value."""
    before, after = [], []
    for values in people.raw.T:
        seen = ~np.isnan(values)
        arms = [seen & (people.w == arm) for arm in (0.0, 1.0)]
        sd = np.sqrt(sum(np.var(values[arm]) for arm in arms) / 2.0)
        plain = [np.mean(values[arm]) for arm in arms]
        weighed = [np.average(values[arm], weights=weight[arm]) for arm in arms]
        before.append((plain[1] - plain[0]) / sd)
        after.append((weighed[1] - weighed[0]) / sd)
    return np.array(before), np.array(after)


def effective(weight: np.ndarray) -> float:
    """How many people of equal weight these are worth."""
    return float(np.sum(weight) ** 2 / np.sum(weight**2))


def histogram(e: np.ndarray) -> np.ndarray:
    """People by twentieths."""
    return np.array([sum(place / BINS <= one < (place + 1) / BINS for one in e) for place in range(BINS)])


def fine_histogram(e: np.ndarray) -> np.ndarray:
    """People by twentieths, the first and last of which are halved towards 0 and 1 ten times."""
    found = []
    for low, high in fine_bins():
        found.append(sum(low <= one < high or (high == 1.0 and one == 1.0) for one in e))
    return np.array(found)


def fine_bins() -> list[tuple[float, float]]:
    steps = [0.05 / 2**halving for halving in range(10, -1, -1)]
    edges = [0.0, *steps, *(k / 20 for k in range(2, 19)), *(1.0 - step for step in reversed(steps)), 1.0]
    return list(pairwise(edges))


def outside_support(e: np.ndarray, w: np.ndarray) -> int:
    """People in bins where nobody of the other arm is; bins are steps of about a factor of 2 in the odds."""
    tail = [0.05 / 2**halving for halving in range(10, -1, -1)]
    edges = [0.0, *tail, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, *(1.0 - one for one in reversed(tail)), 1.0]
    found = 0
    for low, high in pairwise(edges):
        control, treated = (np.sum((e >= low) & (e < high) & (w == arm)) for arm in (0.0, 1.0))
        found += control * (treated == 0) + treated * (control == 0)
    return int(found)
