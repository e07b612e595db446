"""The family of an outcome that no study names: what the sites say of it, and what they refuse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import unpooled as up
from unpooled.coordinator.agreement import Agreement, reach_agreement
from unpooled.coordinator.rounds import Conduct
from unpooled.coordinator.run import adoption
from unpooled.data.stored_columns import describe
from unpooled.disclosure.limits import NONE
from unpooled.engines.in_process import InProcess, open_sites
from unpooled.errors import DataError
from unpooled.methods import method as methods
from unpooled.methods.outcome_words import outcome_words
from unpooled.protocol.messages import Adopted, Refusal
from unpooled.site.answer import answer
from unpooled.study import Study
from unpooled.study.family import resolve

STUDY = methods.with_explicit_settings(Study(treatment="w", outcome="y", covariates="x"))
ROWS = 60
RNG = np.random.default_rng(3)
FLAGS = RNG.integers(0, 2, (3, ROWS))
COUNTS = RNG.poisson(2.0, (3, ROWS))
SCORES = RNG.choice([2, 3, 4], (3, ROWS), p=[0.25, 0.5, 0.25])
GRAMS = np.round(RNG.normal(3200.0, 500.0, (3, ROWS)))
HALVES = COUNTS / 2.0


def tables(*outcomes: np.ndarray) -> dict[str, pd.DataFrame]:
    rng = np.random.default_rng(8)
    return {
        name: pd.DataFrame({"x": rng.normal(size=len(y)), "w": np.arange(len(y)) % 2, "y": y})
        for name, y in zip(("north", "south", "east"), outcomes, strict=True)
    }


def agreed(made: dict[str, pd.DataFrame], study: Study = STUDY) -> Agreement:
    conduct = Conduct(reach_agreement(study), InProcess(open_sites(study, made, NONE)))
    assert len(list(conduct)) == 3  # no round more than before
    return conduct.result


def named(family: str) -> Study:
    return STUDY.with_changes(columns={**STUDY.columns.model_dump(), "family": family})


def test_a_study_names_no_family_unless_it_says_so() -> None:
    assert STUDY.columns.family == "auto"
    assert named("continuous").hash != STUDY.hash  # the hash is of the study as written


@pytest.mark.parametrize(
    ("outcomes", "family"),
    [
        (FLAGS, "binary"),
        (COUNTS, "count"),
        (HALVES, "continuous"),
        (-COUNTS, "continuous"),
        (GRAMS, "continuous"),  # whole numbers, but no counts
        (SCORES, "continuous"),  # their variance is far below their mean
        ((FLAGS[0], COUNTS[1], COUNTS[2]), "count"),  # one site happens to have 0 and 1 only
        ((FLAGS[0], FLAGS[1], HALVES[2]), "continuous"),
        ((FLAGS[0], COUNTS[1], HALVES[2]), "continuous"),
        (1 + FLAGS, "continuous"),  # 1 and 2: neither 0/1 nor counts
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_the_sites_choose_the_narrowest_family_that_all_of_them_have(outcomes, family: str) -> None:
    assert agreed(tables(*outcomes)).scaling.family == family


@pytest.mark.parametrize(("mean", "variance", "family"), [
    (20.0, 10.0, "count"), (20.1, 40.0, "continuous"), (4.0, 2.0, "count"), (4.0, 1.9, "continuous"),
])  # fmt: skip
def test_whole_numbers_are_counts_if_small_and_varied_enough(
    mean: float, variance: float, family: str
) -> None:
    assert resolve("auto", ["count", "binary"], mean, variance) == family
    assert resolve("count", ["count"], 1e6, 1.0) == "count"


def test_a_named_family_stands_and_nothing_is_said_of_the_values() -> None:
    made = tables(*FLAGS)
    for family in ("continuous", "count", "binary"):
        assert agreed(made, named(family)).scaling.family == family
        assert describe(made["north"], named(family).columns).outcome == family
    with pytest.raises(DataError, match="binary outcome 'y' must be 0 or 1"):
        agreed(tables(*COUNTS), named("binary"))


@pytest.mark.parametrize(
    ("outcome", "asked", "sent", "right"),
    [
        (COUNTS[0], "auto", "count", True),
        (COUNTS[0], "auto", "continuous", True),  # another site may have halves
        (COUNTS[0], "auto", "binary", False),
        (HALVES[0], "auto", "count", False),
        (FLAGS[0], "auto", "gaussian", False),
        (FLAGS[0], "auto", "auto", False),
        (FLAGS[0], "continuous", "binary", False),  # the custodian approved another family
        (FLAGS[0], "binary", "binary", True),
    ],
)
def test_a_site_refuses_a_family_that_is_not_the_studys_or_not_its_own(
    outcome: np.ndarray, asked: str, sent: str, right: bool
) -> None:
    study = named(asked)
    made = {"north": tables(outcome, *COUNTS[1:])["north"]}
    agreement = agreed(made, study)
    site = open_sites(study, made, NONE)["north"]
    scaling = replace(agreement.scaling, family=sent)
    reply = answer(site, adoption(study, agreement.schema, scaling))
    assert isinstance(reply, Adopted if right else Refusal)
    if isinstance(reply, Refusal):
        assert "family" in reply.expected


def test_every_method_says_how_it_models_the_outcome_and_how_to_overrule_it() -> None:
    roles = {"treatment": "w", "outcome": "y", "covariates": "x"}
    for name in methods.METHODS:
        chosen = outcome_words(Study(**roles, method={"name": name}), "count")
        assert "'y' is taken as a count" in chosen and 'family = "continuous"' in chosen
        assert "as the study says" in outcome_words(
            Study(**roles, family="count", method={"name": name}), "count"
        )
    for name in ("causal_fi", "causal_rff"):
        dispersed = outcome_words(Study(**roles, method={"name": name}), "count")
        assert "negative binomial" in dispersed


@pytest.mark.slow
def test_a_fit_says_which_family_it_took() -> None:
    made = tables(*FLAGS)
    model = up.AIPW(seed=1, draws=20).fit(STUDY, made)
    assert model.summary()["family"].unique().tolist() == ["binary"]
    assert "is taken as binary (0/1)" in model.result_.outcome_words
    halves = made["north"].assign(y=0.5)
    with pytest.raises(DataError, match="binary outcome"):
        model.ite("north", halves)
