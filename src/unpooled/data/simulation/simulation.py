"""Simulated site tables beside the truth that no real study has."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.study.columns import Family


@dataclass(frozen=True)
class Simulation:
    """Site tables as a site would hold them, and the truth about their people.

    ``truth`` has one line per person: site, row (from 0, in the site's table), both potential outcomes
    ``y0`` and ``y1``, and their expectations ``mu0`` and ``mu1`` given the covariates, or given what is
    latent where something is. ``method`` is what a study file of these people names, and ``incomplete`` are
    the covariates whose values may be missing.
    """

    name: str
    family: Family
    seed: int
    frames: dict[str, pd.DataFrame]
    test: dict[str, pd.DataFrame]
    truth: pd.DataFrame
    test_truth: pd.DataFrame
    method: str = "fedci"
    incomplete: tuple[str, ...] = ()

    @property
    def ate(self) -> float:
        """The sample's average effect: the mean of y(1) - y(0) over the people of ``frames``."""
        return _mean_difference(self.truth, "y1", "y0")

    @property
    def expected_ate(self) -> float:
        """The same without the outcomes' noise: the mean of mu1 - mu0."""
        return _mean_difference(self.truth, "mu1", "mu0")


def varying(table: pd.DataFrame) -> list[str]:
    """The covariates that take more than one value and do not repeat an earlier one, as rare flags may."""
    covariates = table.drop(columns=["w", "y"])
    covariates = covariates.loc[:, covariates.nunique().to_numpy() > 1]
    numbers = covariates.select_dtypes("number")
    alike = np.abs(np.corrcoef(numbers.to_numpy(float), rowvar=False)) > 1.0 - 1e-9
    repeated = numbers.columns[np.tril(np.atleast_2d(alike), -1).any(axis=1)]
    return [str(name) for name in covariates.columns if name not in repeated]


def _mean_difference(truth: pd.DataFrame, of: str, minus: str) -> float:
    return float(np.mean(truth[of].to_numpy(float) - truth[minus].to_numpy(float)))
