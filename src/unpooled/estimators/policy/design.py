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
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy.special import expit

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
from unpooled.estimators.robustness.analysis import unfitted
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


class Standardised(NamedTuple):
    """People of a site in standard units, and the fold whose regressions score each."""

    site: int
    covariates: np.ndarray
    treatment: np.ndarray
    outcome: np.ndarray
    fold: np.ndarray


class Regressions(NamedTuple):
    """The regressions of treatment and outcome, and the rows of every site to which they were fitted."""

    known: Nuisances
    rows: list[Rows]


@dataclass(frozen=True)
class Design:
    """A study whose people are divided into parts, whose columns are all scaled as everybody agreed."""

    model: Estimator
    study: Study
    agreement: Agreement
    tables: dict[str, pd.DataFrame]
    places: dict[str, np.ndarray]
    """Everybody's part, by site."""
    questions: list[tree.Question]
    trim: float
    cost: float
    sign: float
    """1 if larger outcomes are better, else −1."""


def design_of(
    model: Estimator,
    study: Study,
    sources: Mapping[str, Table] | None,
    *,
    trim: float,
    cost: float,
    sign: float,
) -> Design:
    """Read the tables, agree on their columns, and divide their people into parts."""
    seed = int(model.get_params()["seed"])
    study = methods.with_settings(study, "aipw", {"folds": FOLDS, "repeats": 1, "trim": trim}, seed)
    opened = open_sites(study, sources, NONE)
    tables = {name: site.frame.reset_index(drop=True) for name, site in opened.items()}
    _require_both_arms(tables, study.columns)
    agreement = run(reach_agreement(study), InProcess(opened))
    # Parts keep the family of the outcome that was chosen for everybody.
    columns = study.columns.model_copy(update={"family": agreement.scaling.family})
    places = {
        name: parts_of(table, columns, stream(seed, "parts of people", index))
        for index, (name, table) in enumerate(tables.items())
    }
    study = study.model_copy(update={"columns": columns})
    questions = tree.questions_of(agreement.schema, agreement.scaling)
    return Design(model, study, agreement, tables, places, questions, trim, cost, sign)


def valued_parts(design: Design, watch: Watcher | None, tell: Callable[[str], None] | None) -> Iterator[Part]:
    """The parts that are valued, each with its predictions, scores and rule."""
    for part in range(1, len(ENDS)):
        if tell is not None:
            tell(f"whom to treat, fit {part} of {len(ENDS) - 1}")
        before = {name: _where(table, design.places[name] < part) for name, table in design.tables.items()}
        regressions = fitted_regressions(design, before)
        rule = found_rule(design, regressions)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FailedCheckWarning)  # the predictions are tested here
            model = unfitted(design.model).fit(design.study, before, watch=watch)
        people = {}
        for place, (name, everybody) in enumerate(design.tables.items()):
            table = _where(everybody, design.places[name] == part)
            if len(table):
                people[name] = _people(design, place, table, regressions, rule, model)
        if not people:
            raise DataError(
                "each part of the people must have somebody",
                found="too few people, or too few clusters",
                remedy="value policies in a larger study",
            )
        yield Part(people, rule)


def _where(table: pd.DataFrame, chosen: np.ndarray) -> pd.DataFrame:
    return table.loc[chosen].reset_index(drop=True)


def fitted_regressions(design: Design, tables: Mapping[str, pd.DataFrame]) -> Regressions:
    """The regressions of these people, for each fold without its people and, last, with everybody."""
    opened = open_sites(design.study, tables, NONE)
    known = run(_regressions(design.study, design.agreement), InProcess(opened))
    rows = [site.adopted.own_rows for site in opened.values() if site.adopted is not None]
    return Regressions(known, [one for one in rows if one is not None])


def found_rule(design: Design, fitted: Regressions) -> tree.Rule:
    """The best rule for the people to whom the regressions were fitted, from sums by site."""
    sites = []
    for place, rows in enumerate(fitted.rows):
        here = np.asarray(rows.present) > 0.0
        parts = rows.covariates, rows.treatment, rows.outcome, rows.fold
        people = Standardised(place, *(np.asarray(part)[here] for part in parts))
        scores = _scores(design, fitted.known, people)
        benefit = design.sign * (scores[:, 1] - scores[:, 0]) - design.cost
        answered = tree.answers(design.questions, people.covariates)
        sites.append((answered, benefit, np.asarray(rows.present)[here]))
    found = tree.together([tree.cells(*site) for site in sites])
    rules = [tree.best_rule(found, depth) for depth in range(tree.DEPTH + 1)]
    return tree.simplest(rules, [tree.forgone(rules, *site) for site in sites])


def _people(
    design: Design, place: int, table: pd.DataFrame, fitted: Regressions, rule: tree.Rule, model: Estimator
) -> People:
    """People of a site whom neither the regressions nor the model have seen."""
    name, scaling = list(design.tables)[place], design.agreement.scaling
    arrays = encode(table, design.study.columns, design.agreement.schema, site=name)
    plain = standardised(arrays, scaling)
    fold = np.full(len(table), EVERYBODY)
    people = Standardised(place, plain.covariates, arrays.treatment, plain.outcome, fold)
    return People(
        treatment=arrays.treatment,
        outcome=scaling.outcome_mean + scaling.outcome_sd * plain.outcome,
        scores=_scores(design, fitted.known, people),
        predicted=model.effect(table, site=name),
        chosen=rule.of(tree.answers(design.questions, plain.covariates)),
        weight=np.ones(len(table)) if arrays.weight is None else arrays.weight,
        cluster=arrays.cluster,
    )


def _scores(design: Design, known: Nuisances, people: Standardised) -> np.ndarray:
    """Doubly robust scores [n, 2] in units of the outcome, by the regressions that leave out a fold."""
    scaling = design.agreement.scaling
    assert known.treatment is not None
    site, covariates, treatment, outcome, fold = people
    features = np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)
    propensity = expit(np.sum(known.treatment.coefficients[fold, site] * features, axis=1))
    predictor = np.einsum("naf,nf->na", known.outcome.coefficients[fold, site], features)
    family = outcome_family(context_of(scaling))
    means = np.asarray(family.standardised_mean(family.mean(jnp.asarray(predictor))))
    found = doubly_robust(treatment, outcome, means, propensity, design.trim)
    return scaling.outcome_mean + scaling.outcome_sd * found


def _require_both_arms(tables: Mapping[str, pd.DataFrame], columns: ColumnRoles) -> None:
    one_arm = [name for name, table in tables.items() if column(table, columns.treatment).nunique() < 2]
    if one_arm:
        raise DataError(
            "policies are valued at sites with people in both arms",
            found=f"one arm at {', '.join(one_arm)}",
            remedy="leave these sites out: their people cannot be compared with others of their site",
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
