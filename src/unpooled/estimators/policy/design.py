"""Predictions and doubly robust scores of people whom no fit has seen (sequential validation).

People are divided into parts at random. Those of a part are predicted, and their scores computed, by fits to
the people of the parts before it. Given these, a part is a fresh sample: what is found in it is unbiased, and
errors of the parts add up. With parts that predict each other, this would not hold: of two halves without any
differences in effect, each would be ordered wrongly or rightly together with the other. S. Wager, "Sequential
validation of treatment heterogeneity", arXiv:2405.05534 (2024).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd

from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.rounds import run
from unpooled.coordinator.run import adoption
from unpooled.data import Table, encode
from unpooled.data.stored_columns import column, level_codes, stored_as
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError, FailedCheckWarning
from unpooled.estimators.base import Estimator, Watcher
from unpooled.estimators.policy import tree
from unpooled.estimators.policy.sums import People, doubly_robust
from unpooled.maths.streams import stream
from unpooled.methods import method as methods
from unpooled.methods.aipw.model import PooledRegressions
from unpooled.methods.aipw.regressions import EVERYBODY, Nuisances, held_out, nuisances
from unpooled.methods.aipw.settings import context_of, outcome_family
from unpooled.optimise.procedure import Procedure, ask_each
from unpooled.protocol.rows import Rows
from unpooled.site.standard_units import standardised
from unpooled.study import ColumnRoles, Study

ENDS = np.array([0.4, 0.6, 0.8, 1.0])
"""Shares of people at which the parts end. The first part is only fitted to."""
FEW = 10
"""Every value of a column with up to this many values is in the first part, so that fits know it."""
FOLDS = 3
"""Folds of the regressions, for the scores of people to whom they are fitted."""


class Part(NamedTuple):
    """A part of all people by site, and the rule that was found before."""

    people: dict[str, People]
    rule: tree.Rule


class Regressions(NamedTuple):
    """The regressions of treatment and outcome, fitted to some people of every site."""

    agreement: Agreement
    known: Nuisances
    trim: float

    def scores(
        self, site: int, covariates: np.ndarray, treatment: np.ndarray, outcome: np.ndarray, fold: np.ndarray
    ) -> np.ndarray:
        """Doubly robust scores [n, 2] in units of the outcome, by the regressions that leave out a fold."""
        scaling = self.agreement.scaling
        features = np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)
        assert self.known.treatment is not None
        logit = np.sum(self.known.treatment.coefficients[fold, site] * features, axis=1)
        predictor = np.einsum("naf,nf->na", self.known.outcome.coefficients[fold, site], features)
        family = outcome_family(context_of(scaling))
        means = np.asarray(family.standardised_mean(family.mean(jnp.asarray(predictor))))
        found = doubly_robust(treatment, outcome, means, 0.5 * (1.0 + np.tanh(0.5 * logit)), self.trim)
        return scaling.outcome_mean + scaling.outcome_sd * found


class Design:
    """A study whose people are divided into parts."""

    def __init__(
        self,
        model: Estimator,
        study: Study,
        sources: Mapping[str, Table] | None,
        *,
        trim: float,
        watch: Watcher | None,
        tell: Callable[[str], None] | None,
    ) -> None:
        self.seed, self.trim, self.watch = int(model.get_params()["seed"]), trim, watch
        self.model, self.tell = model, tell or (lambda words: None)
        settings = {"folds": FOLDS, "repeats": 1, "trim": trim}
        self.study = methods.with_settings(study, "aipw", settings, self.seed)
        opened = open_sites(self.study, sources, NONE)
        self.agreement = run(reach_agreement(self.study), InProcess(opened))
        self.tables = {name: site.frame.reset_index(drop=True) for name, site in opened.items()}
        # Parts keep the family of the outcome that was chosen for everybody.
        family = {"family": self.agreement.scaling.family}
        self.columns = study.columns.model_copy(update=family)
        self.study = self.study.model_copy(update={"columns": self.columns})
        self.questions = tree.questions_of(self.agreement.schema, self.agreement.scaling)
        self.places = {
            name: parts_of(table, self.columns, stream(self.seed, "parts of people", index))
            for index, (name, table) in enumerate(self.tables.items())
        }

    def parts(self, cost: float, sign: float) -> Iterator[Part]:
        """The parts that are valued, each with its predictions, scores and rule."""
        for part in range(1, len(ENDS)):
            self.tell(f"whom to treat, fit {part} of {len(ENDS) - 1}")
            before = {name: self._where(name, self.places[name] < part) for name in self.tables}
            regressions, rows = self.regressions(before)
            rule = self.rule(regressions, rows, cost, sign)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FailedCheckWarning)  # the predictions are tested here
                fresh = type(self.model)(**self.model.get_params())
                fresh.fit(self.study, before, watch=self.watch)
            found = {}
            for place, name in enumerate(self.tables):
                table = self._where(name, self.places[name] == part)
                if len(table):
                    found[name] = self._people(name, place, table, fresh, regressions, rule)
            if not found:
                raise DataError(
                    "each part of the people must have somebody",
                    found="too few people, or too few clusters",
                    remedy="value policies in a larger study",
                )
            yield Part(found, rule)

    def rule_of_everybody(self, cost: float, sign: float) -> tree.Rule:
        """The rule found from all people."""
        return self.rule(*self.regressions(self.tables), cost, sign)

    def regressions(self, tables: Mapping[str, pd.DataFrame]) -> tuple[Regressions, dict[str, Rows]]:
        """The regressions fitted to these people, whose columns are scaled as agreed by everybody."""
        opened = open_sites(self.study, tables, NONE)
        known = run(_regressions(self.study, self.agreement), InProcess(opened))
        rows = {}
        for name, site in opened.items():
            assert site.adopted is not None and site.adopted.own_rows is not None
            rows[name] = site.adopted.own_rows
        return Regressions(self.agreement, known, self.trim), rows

    def rule(self, fitted: Regressions, rows: Mapping[str, Rows], cost: float, sign: float) -> tree.Rule:
        """The best rule for the people to whom the regressions were fitted, from sums by site."""
        sites = []
        for place, own in enumerate(rows.values()):
            here = np.asarray(own.present) > 0.0
            covariates, treatment, outcome, fold, weight = (
                np.asarray(part)[here]
                for part in (own.covariates, own.treatment, own.outcome, own.fold, own.present)
            )
            scores = fitted.scores(place, covariates, treatment, outcome, fold)
            benefit = sign * (scores[:, 1] - scores[:, 0]) - cost
            sites.append((tree.answers(self.questions, covariates), benefit, weight))
        found = tree.together([tree.cells(*site) for site in sites])
        rules = [tree.best_rule(found, depth) for depth in range(tree.DEPTH + 1)]
        return tree.simplest(rules, [tree.forgone(rules, *site) for site in sites])

    def _where(self, site: str, chosen: np.ndarray) -> pd.DataFrame:
        return self.tables[site].loc[chosen].reset_index(drop=True)

    def _people(
        self,
        name: str,
        place: int,
        table: pd.DataFrame,
        fitted: Estimator,
        regressions: Regressions,
        rule: tree.Rule,
    ) -> People:
        arrays = encode(table, self.columns, self.agreement.schema, site=name)
        scaling = self.agreement.scaling
        plain = standardised(arrays, scaling)
        left_out_nobody = np.full(len(table), EVERYBODY)
        return People(
            treatment=arrays.treatment,
            outcome=scaling.outcome_mean + scaling.outcome_sd * plain.outcome,
            scores=regressions.scores(
                place, plain.covariates, arrays.treatment, plain.outcome, left_out_nobody
            ),
            predicted=fitted.effect(table, site=name),
            chosen=rule.of(tree.answers(self.questions, plain.covariates)),
            weight=np.ones(len(table)) if arrays.weight is None else arrays.weight,
            cluster=arrays.cluster,
        )


def _regressions(study: Study, agreement: Agreement) -> Procedure[Nuisances]:
    """The sites adopt the study, and the regressions are fitted."""
    yield from ask_each(adoption(study, agreement.schema, agreement.scaling, 0))
    scaling = agreement.scaling
    pooling = PooledRegressions(scaling.sites, 1 + len(scaling.mean), offsets=scaling.sites > 1)
    family = outcome_family(context_of(scaling))
    return (yield from nuisances(pooling, None, held_out(FOLDS), held_out(FOLDS), family=family))


def parts_of(table: pd.DataFrame, columns: ColumnRoles, random: np.random.Generator) -> np.ndarray:
    """Everybody's part at one site, drawn within the arms; people of a cluster are in the same part.

    Of every value of a text column or of one with few values, somebody is in the first part.
    """
    alone = columns.cluster is None
    unit = np.arange(len(table)) if alone else level_codes(column(table, str(columns.cluster)))[0]
    arm = level_codes(column(table, columns.treatment))[0]
    _, first = np.unique(unit, return_index=True)
    part = np.zeros(len(first), int)
    for level in np.unique(arm[first]):
        units = random.permutation(np.flatnonzero(arm[first] == level))
        part[units] = np.searchsorted(ENDS, (np.arange(len(units)) + random.random()) / len(units), "right")
    for name in (*columns.covariates, *columns.incomplete):
        values = column(table, name)
        if stored_as(values) != "text" and values.nunique() > FEW:
            values = values.isna()
        codes = pd.factorize(values, use_na_sentinel=False)[0]
        for code in range(codes.max() + 1):
            having = unit[codes == code]
            if part[having].min() > 0:
                part[random.choice(having)] = 0
    return part[unit]
