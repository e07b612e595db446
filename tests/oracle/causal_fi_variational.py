"""The paper's CausalFI, person by person and column by column: densities by SciPy, networks by loops."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats
from scipy.special import expit

WIDEST, LARGEST_COUNT = 3.0, 30


def network(layers: list[Any], head: int, inputs: np.ndarray) -> np.ndarray:
    """One head at one person."""
    hidden = inputs
    for place, layer in enumerate(layers):
        hidden = hidden @ np.asarray(layer["weight"])[head] + np.asarray(layer["bias"])[head]
        if place < len(layers) - 1:
            hidden = np.maximum(hidden, 0.0)
    return hidden


def centres(kinds: list[str], widths: list[int], mean: np.ndarray) -> np.ndarray:
    """What is said of a feature where a network says 0: the column's own mean, as log odds or log rate."""
    found, start = [], 0
    for kind, width in zip(kinds, widths, strict=True):
        share = np.maximum(mean[start : start + width], 0.01)
        rest = max(1.0 - mean[start : start + width].sum(), 0.01)
        of_kind = {"numeric": np.zeros(width), "count": np.log(share)}
        found.append(of_kind.get(kind, np.log(share / rest)))
        start += width
    return np.concatenate(found) if found else np.zeros(0)


def log_entries(context: Any, said: np.ndarray, u: np.ndarray) -> np.ndarray:
    """log p of each column of one person, from what a network says of them; u in standard units."""
    mean, sd = np.asarray(context.incomplete_mean), np.asarray(context.incomplete_sd)
    kinds, widths = [column.kind for column in context.columns], [column.width for column in context.columns]
    natural = centres(kinds, widths, mean) + said[: len(mean)]
    spreads = list(WIDEST * np.tanh(said[len(mean) :] / WIDEST))
    logs, start = [], 0
    for kind, width in zip(kinds, widths, strict=True):
        here = slice(start, start + width)
        raw = np.round(u[here] * sd[here] + mean[here])
        if kind == "numeric":
            logs.append(stats.norm.logpdf(u[start], natural[start], np.exp(spreads.pop(0))))
        elif kind == "binary":
            logs.append(stats.bernoulli.logpmf(raw[0], expit(natural[start])))
        elif kind == "categorical":
            odds = np.exp(np.append(natural[here], 0.0))
            level = int(np.argmax(raw)) if raw.any() else width
            logs.append(np.log(odds[level] / odds.sum()))
        else:
            rate = np.exp(natural[start])
            below = stats.poisson.logcdf(LARGEST_COUNT, rate)
            logs.append(stats.poisson.logpmf(raw[0], rate) - below)
        start += width
    return np.array(logs)


def log_outcome(context: Any, outcome: Any, x: np.ndarray, u: np.ndarray, w: int, y: float) -> float:
    """log p̂(y | w, x, u) of one person; y in standard units."""
    eta = predictor(context, outcome, x, u, w)
    mean, sd = context.outcome_mean, context.outcome_sd
    raw = np.round(mean + sd * y)
    if context.family == "binary":
        return float(stats.norm.logcdf(eta if raw else -eta))
    if context.family == "count":
        return float(stats.poisson.logpmf(raw, np.exp(eta)))
    return float(stats.norm.logpdf(y, eta, np.exp(np.asarray(outcome["log_noise"])[w])))


def predictor(context: Any, outcome: Any, x: np.ndarray, u: np.ndarray, w: int) -> float:
    scales = {"continuous": np.zeros_like, "binary": stats.norm.ppf, "count": np.log}
    start = scales[context.family](context.outcome_mean)
    return float(start + network(outcome["layers"], w, np.concatenate([x, u]))[0])


def effect(context: Any, outcome: Any, x: np.ndarray, u: np.ndarray) -> float:
    """E[Y(1) − Y(0) | x, u] in standard units."""
    control, treated = (predictor(context, outcome, x, u, w) for w in (0, 1))
    if context.family == "binary":
        return float(stats.norm.cdf(treated) - stats.norm.cdf(control)) / context.outcome_sd
    if context.family == "count":
        return float(np.exp(treated) - np.exp(control)) / context.outcome_sd
    return treated - control


def imputation_loss(context: Any, imputation: Any, table: dict[str, np.ndarray]) -> float:
    """−Σ log p(u_j | y, w, x) over the columns that are seen."""
    total = 0.0
    for x, w, y, u in zip(table["x"], table["w"].astype(int), table["y"], table["u"], strict=True):
        said = network(imputation["layers"], w, np.append(x, y))
        logs = log_entries(context, said, np.nan_to_num(u))
        total -= logs[~np.isnan(u)[firsts(context)]].sum()
    return total


def surrogate_loss(context: Any, surrogates: Any, table: dict[str, np.ndarray], made: Any) -> float:
    """−Σ log p̂(u_j | x, u_shown) over the columns that are not shown, and −Σ log p̂(y | w, x, u)."""
    total = 0.0
    people = zip(table["x"], table["w"].astype(int), table["y"], made.u, made.shown, strict=True)
    for x, w, y, u, shown in people:
        said = network(surrogates["confounders"]["layers"], 0, np.concatenate([x, u * shown, shown]))
        total -= log_entries(context, said, u)[shown[firsts(context)] == 0].sum()
        total -= log_outcome(context, surrogates["outcome"], x, u, w, y)
    return total


def firsts(context: Any) -> np.ndarray:
    return np.cumsum([0, *(column.width for column in context.columns)])[:-1].astype(int)


def divergence(mean: Any, log_sd: Any, name: str = "") -> float:
    """KL[N(mean, sd²)‖N(0, prior²)] of every number of a tree."""
    if isinstance(mean, dict):
        return sum(divergence(mean[key], log_sd[key], key) for key in mean)
    if isinstance(mean, list):
        return sum(divergence(*pair) for pair in zip(mean, log_sd, strict=True))
    mean, variance = np.asarray(mean), np.exp(2.0 * np.asarray(log_sd))
    prior = 2.0 / mean.shape[-2] if name == "weight" else 1.0
    return float(np.sum(0.5 * (variance / prior + mean**2 / prior - 1.0 - np.log(variance / prior))))
