"""Whether Markov chains have mixed: split-R̂ and bulk effective sample size, both rank-normalised.

Every chain is split into halves, and the draws are replaced by normal scores of their ranks, so that both are
defined for any distribution (Vehtari, Gelman, Simpson, Carpenter & Bürkner, Bayesian Analysis 2021). R̂
compares the variance between half-chains with that within them. It is 1 for chains that have mixed; the
larger of R̂ of the draws and of their absolute deviations from the median is returned, since chains may also
differ in scale. The effective sample size divides the number of draws by the integrated autocorrelation
time, whose sum ends by Geyer's initial monotone sequence.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

LEAST_DRAWS = 4
"""Fewest draws per chain for which the measures are defined."""


def split_rhat(draws: Float[np.ndarray, "t c *k"]) -> Float[np.ndarray, " *k"]:
    """Rank-normalised split-R̂ of draws [sweep, chain, …]; 1 for constants.

    >>> rng = np.random.default_rng(1)
    >>> apart = rng.standard_normal((100, 4)) + np.array([0.0, 0.0, 0.0, 3.0])
    >>> bool(split_rhat(apart) > 1.2), bool(split_rhat(rng.standard_normal((100, 4))) < 1.03)
    (True, True)
    """
    halves = _halves(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    return np.maximum(_rhat(_normal_scores(halves)), _rhat(_normal_scores(folded)))


def effective_draws(draws: Float[np.ndarray, "t c *k"]) -> Float[np.ndarray, " *k"]:
    """Bulk effective sample size of draws [sweep, chain, …]; the number of draws for constants."""
    scores = _normal_scores(_halves(draws))
    length, chains = scores.shape[:2]
    total = length * chains
    _, within, plus = _variances(scores)
    covariance = _autocovariances(scores).mean(axis=1)
    safe = np.where(plus > 0.0, plus, 1.0)
    correlation = 1.0 - (within - covariance) / safe
    correlation[0] = 1.0
    pairs = correlation[: length // 2 * 2].reshape(length // 2, 2, *correlation.shape[1:]).sum(axis=1)
    positive = np.cumprod(pairs > 0.0, axis=0).astype(bool)
    positive[max(1, (length - 3) // 2) :] = False
    monotone = np.minimum.accumulate(np.where(positive, pairs, 0.0), axis=0)
    end = np.argmin(positive, axis=0)  # the first pair that is left out, 0 if there is none
    even = np.take_along_axis(correlation, 2 * end[None], axis=0)[0]
    time = -1.0 + 2.0 * monotone.sum(axis=0) + np.where(end > 0, np.maximum(even, 0.0), 0.0)
    # Antithetic chains may be more than independent; as in Stan, by a factor of log10(draws) at most.
    time = np.maximum(time, 1.0 / np.log10(total))
    return np.where(plus > 0.0, total / time, float(total))


def _halves(draws: np.ndarray) -> np.ndarray:
    """Each chain as two, without the middle draw if their number is odd."""
    if len(draws) < LEAST_DRAWS:
        raise ValueError(f"at least {LEAST_DRAWS} draws per chain are needed, found {len(draws)}")
    half = len(draws) // 2
    return np.concatenate([draws[:half], draws[len(draws) - half :]], axis=1)


def _normal_scores(draws: np.ndarray) -> np.ndarray:
    # Imported late: SciPy's statistics take as long to import as all else that a site needs.
    from scipy.stats import rankdata

    ranks = rankdata(draws.reshape(-1, *draws.shape[2:]), axis=0).reshape(draws.shape)
    return ndtri((ranks - 0.375) / (draws.shape[0] * draws.shape[1] + 0.25))


def _variances(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B/n between chains, W within them, and the pooled estimate var⁺ = (n − 1)/n·W + B/n."""
    length = len(draws)
    between = draws.mean(axis=0).var(axis=0, ddof=1)
    within = draws.var(axis=0, ddof=1).mean(axis=0)
    return between, within, (length - 1.0) / length * within + between


def _rhat(draws: np.ndarray) -> np.ndarray:
    _, within, plus = _variances(draws)
    apart = np.where(plus > 0.0, np.inf, 1.0)  # chains that are constant, at different values
    return np.sqrt(np.divide(plus, within, out=apart, where=within > 0.0))


def _autocovariances(draws: np.ndarray) -> np.ndarray:
    """Autocovariances [lag, chain, …] by the fast Fourier transform."""
    length = len(draws)
    centred = draws - draws.mean(axis=0)
    spectrum = np.abs(np.fft.rfft(centred, 2 * length, axis=0)) ** 2
    return np.fft.irfft(spectrum, 2 * length, axis=0)[:length] / length
