"""What is said to each site reaches that site alone."""

from __future__ import annotations

import numpy as np
from unpooled.protocol.addressing import to_site

from unpooled.protocol.messages import Ask, Describe, Statistics, Together, Vjp
from unpooled.protocol.records import Parameters

ALIKE = Ask("fit", Parameters({"a": np.ones(2)}))
OWN = Ask("fit", Parameters(fixed={"b": np.zeros(2)}, per_site={"c": np.arange(12.0).reshape(2, 3, 2)}))


def test_a_site_gets_its_own_part_for_every_theta_of_the_batch() -> None:
    found = to_site(OWN, 1)
    assert isinstance(found, Ask)
    np.testing.assert_array_equal(found.parameters.per_site["c"], [[2.0, 3.0], [8.0, 9.0]])
    assert found.parameters.fixed is OWN.parameters.fixed
    assert OWN.parameters.per_site["c"].shape == (2, 3, 2)


def test_what_goes_to_all_alike_is_the_same_message() -> None:
    for question in (ALIKE, Describe({}), Together((ALIKE, Describe({})))):
        assert to_site(question, 2) is question


def test_questions_in_one_exchange_are_each_addressed() -> None:
    found = to_site(Together((ALIKE, OWN)), 0)
    assert isinstance(found, Together)
    assert found.questions[0] is ALIKE
    np.testing.assert_array_equal(found.questions[1].parameters.per_site["c"], [[0.0, 1.0], [6.0, 7.0]])  # type: ignore[attr-defined]


def test_the_slope_in_a_sites_statistics_goes_to_that_site() -> None:
    question = Vjp("fit", Parameters(), Statistics(np.ones(1), np.array([[5.0, 6.0]])))
    found = to_site(question, 1)
    assert isinstance(found, Vjp)
    np.testing.assert_array_equal(found.cotangent.per_site, [6.0])
