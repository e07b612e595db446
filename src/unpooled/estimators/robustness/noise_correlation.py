"""Noise correlation: sensitivity to the correlation between the noise of a person's two outcomes.

The data contain no information about this correlation. Average effects do not depend on it, but individual
effects do. Nothing is refitted, because the fit does not depend on it either.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from unpooled.estimators.base import Estimator
from unpooled.estimators.robustness.analysis import Analysis, unfitted
from unpooled.estimators.robustness.refit import RobustnessCheck

NAME = "noise_correlation"
GRID = (-0.9, -0.5, 0.0, 0.5, 0.9)


def has_noise_correlation(model: Estimator) -> bool:
    """Whether the method has a noise correlation."""
    return NAME in model.get_params()


def noise_correlation(analysis: Analysis) -> RobustnessCheck:
    """The mean of individual effects, and the share with the sign of the average, over a grid."""
    if analysis.tell is not None:
        analysis.tell(NAME)
    main, own = analysis.main, float(analysis.model.get_params()[NAME])
    grid = sorted({*GRID, own})
    means, shares = np.transpose([people(with_correlation(analysis, value), main.estimate) for value in grid])
    left = bool(np.any((means < main.lower) | (means > main.upper)))
    most = bool(shares.min() < 0.5 < shares.max())
    words = (
        f"Individual effects under noise correlations from {grid[0]:g} to {grid[-1]:g}; the average effect "
        "does not depend on them. The result is worrying if the mean of the individual effects leaves the "
        "average effect's interval, or if the sign of most individual effects changes. Here the mean "
        f"{'leaves' if left else 'stays inside'} the interval, and {shares.min():.0%} to {shares.max():.0%} "
        "of people have an effect with the sign of the average."
    )
    here = float(means[grid.index(own)])
    return RobustnessCheck(NAME, here, float(means.min()), float(means.max()), left or most, words)


def with_correlation(analysis: Analysis, value: float) -> Estimator:
    """The fitted model with another noise correlation, attached to its tables."""
    result = analysis.model.result_
    method = {"name": result.study.method.name, **result.study.method.settings, NAME: value}
    changed = unfitted(analysis.model).set_params(**{NAME: value})
    changed.result_ = replace(result, study=result.study.with_changes(method=method))
    return changed.attach(analysis.tables, limits=analysis.limits)


def people(model: Estimator, average: float) -> tuple[float, float]:
    """The mean of the individual effects, and the share with the sign of the average."""
    total, agreeing, count = 0.0, 0.0, 0
    for site in model.result_.sites:
        draws = model.ite_draws(site)
        total += float(draws.mean(axis=0).sum())
        agreeing += float((np.sign(draws) == np.sign(average)).mean(axis=0).sum())
        count += draws.shape[1]
    return total / count, agreeing / count
