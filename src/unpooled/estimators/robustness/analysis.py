"""A fitted study with its tables, and refits of it with a changed study or changed tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from unpooled.data import Table
from unpooled.data.stored_columns import column, numbers
from unpooled.disclosure.limits import NONE, Limits
from unpooled.engines.in_process import open_sites
from unpooled.errors import StudyError
from unpooled.estimators.base import Estimator, Watcher
from unpooled.estimators.robustness.refit import Refit, average_effect
from unpooled.methods import method as methods
from unpooled.study import Study

Tables = Mapping[str, Table]
Change = Callable[[pd.DataFrame, str, np.random.Generator], pd.DataFrame]
"""Maps a site's table, its name and a random generator to a changed copy of the table."""


@dataclass(frozen=True)
class Analysis:
    """The study as it was fitted, with its checked tables, of which the checks make changed copies."""

    model: Estimator
    study: Study
    tables: Mapping[str, pd.DataFrame]
    """By site, in the order of the fit: the rows with known treatment and outcome."""
    repeats: int = 1
    limits: Limits = NONE
    watch: Watcher | None = None
    tell: Callable[[str], None] | None = None

    @property
    def main(self) -> Refit:
        return average_effect(self.model)

    def refit(self, study: Study, tables: Tables, words: str) -> Refit:
        """Fit the same estimator with the same seed to another study or other tables."""
        if self.tell is not None:
            self.tell(words)
        return average_effect(unfitted(self.model).fit(study, tables, limits=self.limits, watch=self.watch))

    def refits(self, test: str, change: Change, study: Study | None = None) -> tuple[Refit, ...]:
        """Change every site's table and refit, `repeats` times."""
        found = []
        for repeat in range(self.repeats):
            tables = self.changed(test, change, repeat)
            words = f"{test}, {repeat + 1} of {self.repeats}"
            found.append(self.refit(self.study if study is None else study, tables, words))
        return tuple(found)

    def changed(self, test: str, change: Change, repeat: int) -> dict[str, pd.DataFrame]:
        """The changed tables by site; the random numbers depend on seed, test, repeat and site only."""
        start = [int(self.model.get_params()["seed"]), *test.encode(), repeat]
        return {
            site: change(table, site, np.random.default_rng([*start, index]))
            for index, (site, table) in enumerate(self.tables.items())
        }


def unfitted(model: Estimator) -> Estimator:
    """An unfitted copy with the same parameters."""
    return type(model)(**model.get_params())


def fitted(
    model: Estimator, study: Study, sources: Tables, limits: Limits = NONE, watch: Watcher | None = None
) -> tuple[Estimator, dict[str, pd.DataFrame]]:
    """The model, or a newly fitted copy if it was not fitted to this study, and the checked tables."""
    asked = _as_asked(model, study)
    tables = {name: site.frame for name, site in open_sites(asked, sources, limits).items()}
    if not hasattr(model, "result_") or _question(model.result_.study) != _question(asked):
        return unfitted(model).fit(study, tables, limits=limits, watch=watch), tables
    _require_the_same(model, tables)
    return model, {site: tables[site] for site in model.result_.sites}


def _as_asked(model: Estimator, study: Study) -> Study:
    """The study with the model's seed and settings, as in `fit`."""
    parameters = model.get_params()
    seed = parameters.pop("seed")
    return methods.with_settings(study, model.method, parameters, seed)


def _question(study: Study) -> tuple[object, ...]:
    return study.columns, study.seed, study.method


def _require_the_same(model: Estimator, tables: Mapping[str, pd.DataFrame]) -> None:
    """Require the tables of the fit, judged by sites, row counts and the mean of the outcome."""
    result = model.result_
    rows = {name: len(table) for name, table in tables.items()}
    outcome = np.concatenate([numbers(column(one, result.study.columns.outcome)) for one in tables.values()])
    remembered = np.isclose(outcome.mean(), result.scaling.outcome_mean, rtol=1e-6, atol=1e-9)
    if rows != dict(zip(result.sites, result.counts, strict=True)) or not remembered:
        raise StudyError(
            "the tables must be those that the model was fitted to",
            found="different sites, numbers of people or mean of the outcome",
            remedy="pass the same tables, or fit the study again",
        )
