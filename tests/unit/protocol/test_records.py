"""Parameters, cotangents and draws: each site receives its own part, and no other site's."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np

from oracle.records import scaling
from unpooled.protocol.codec import encode
from unpooled.protocol.messages import Adopt, Ask, Statistics, Together, Vjp
from unpooled.protocol.records import Draws, Parameters
from unpooled.protocol.table_messages import Describe
from unpooled.study import ColumnRoles, Schema

ALIKE = Ask("fit", Parameters({"a": np.ones(2)}))
OWN = Ask("fit", Parameters(fixed={"b": np.zeros(2)}, per_site={"c": np.arange(12.0).reshape(2, 3, 2)}))
DESCRIBE = Describe(ColumnRoles(treatment="w", outcome="y", covariates=("a",)))


def test_a_site_gets_its_own_part_for_every_theta_of_the_batch() -> None:
    found = OWN.to_site(1)
    assert isinstance(found, Ask)
    np.testing.assert_array_equal(found.parameters.per_site["c"], [[2.0, 3.0], [8.0, 9.0]])
    assert found.parameters.fixed is OWN.parameters.fixed
    assert OWN.parameters.per_site["c"].shape == (2, 3, 2)


def test_a_question_that_is_the_same_for_all_sites_is_sent_as_it_is() -> None:
    for question in (ALIKE, DESCRIBE, Together((ALIKE, ALIKE))):
        assert question.to_site(2) is question


def test_a_site_adopts_a_study_without_the_summaries_of_single_sites() -> None:
    known = scaling(sites=("north", "south"), counts=(41, 67))
    schema = Schema(covariates=(), control="0", treated="1")
    question = Adopt(schema, known, "aipw", {"draws": 40}, 7, ("north", "south"), 3)
    found = question.to_site(1)
    assert found == question.to_site(0)
    assert isinstance(found, Adopt)
    assert found.scaling.by_site is None
    np.testing.assert_array_equal(found.scaling.site_distances, known.site_distances)
    assert question.scaling.counts == (41, 67)
    assert replace(found, scaling=known) == question
    assert encode(question.to_site(1)) == encode(replace(question, scaling=known.shared()))
    assert b"SiteSummaries" not in encode(found) and b"SiteSummaries" in encode(question)


def test_questions_in_one_exchange_are_each_addressed() -> None:
    found = Together((ALIKE, OWN)).to_site(0)
    assert isinstance(found, Together)
    assert found.questions[0] is ALIKE
    own = found.questions[1]
    assert isinstance(own, Ask)
    np.testing.assert_array_equal(own.parameters.per_site["c"], [[0.0, 1.0], [6.0, 7.0]])


def test_the_slope_in_a_sites_statistics_goes_to_that_site() -> None:
    question = Vjp("fit", Parameters(), Statistics(np.ones(1), {"a": np.array([[5.0, 6.0]])}))
    found = question.to_site(1)
    assert isinstance(found, Vjp)
    np.testing.assert_array_equal(found.cotangent.per_site["a"], [6.0])
    np.testing.assert_array_equal(found.cotangent.summed, [1.0])


def test_the_draws_of_a_site_are_the_shared_ones_and_its_own() -> None:
    own = {"shift": np.arange(8.0).reshape(2, 4), "deep": {"scale": np.arange(24.0).reshape(2, 4, 3)}}
    draws = Draws({"weights": np.ones((2, 5))}, own, "line")
    found = draws.at(3)
    assert set(found) == {"weights", "shift", "deep"}
    assert found["weights"] is draws.shared["weights"]
    np.testing.assert_array_equal(found["shift"], [3.0, 7.0])
    np.testing.assert_array_equal(found["deep"]["scale"], own["deep"]["scale"][:, 3])


def test_draws_that_are_mapped_still_name_their_model() -> None:
    draws = jax.tree.map(lambda leaf: leaf + 1.0, Draws({"a": np.zeros(3)}, {"b": np.zeros((3, 2))}, "line"))
    assert draws.model == "line"
    np.testing.assert_array_equal(draws.shared["a"], np.ones(3))
    np.testing.assert_array_equal(draws.by_site["b"], np.ones((3, 2)))
