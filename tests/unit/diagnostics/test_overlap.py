"""Overlap hints."""

from unpooled.diagnostics.overlap import overlap, overlaps
from unpooled.study import Description, Schema


def test_a_balanced_site_needs_no_hint():
    assert overlap(50, 40).hint == ""


def test_few_people_in_an_arm_are_named_with_the_arm():
    assert overlap(50, 3).hint == "only 3 people in the treated arm"
    assert overlap(2, 50).hint == "only 2 people in the control arm"


def test_a_rare_arm_is_named_with_its_share():
    assert overlap(20, 980).hint == "the control arm is rare: 2%"


def test_arms_are_read_by_the_agreed_levels():
    described = Description(rows=30, arms={"drug": 12, "none": 18}, columns=())
    found = overlaps({"north": described}, Schema(covariates=(), control="none", treated="drug"))
    assert (found["north"].control, found["north"].treated, found["north"].rows) == (18, 12, 30)
    assert found["north"].treated_share == 0.4
