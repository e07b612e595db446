"""A study before it runs."""

import pytest

from unpooled.data.simulation import simulate
from unpooled.diagnostics.preview import preview
from unpooled.study import Study


@pytest.fixture(scope="module")
def found():
    data = simulate("fedci-data1", sites=2, rows=40, seed=3, dimension=4)
    study = Study(treatment="w", outcome="y", covariates=["x1", "x2", "x3", "x4"])
    return preview(study, data.frames)


def test_every_kind_of_message_is_named_with_what_it_reveals(found):
    kinds = {one.kind: one for one in found.leaving}
    assert {"describe", "summarise", "ridge: statistics", "projection: gradient"} <= set(kinds)
    assert all(one.reveals for one in found.leaving)


def test_the_expected_size_is_that_of_the_arrays(found):
    # Per arm: 15 numbers of the packed 5 by 5 Gram matrix, 5 products, 1 square; for the whole and 4 folds.
    ridge = next(one for one in found.leaving if one.kind == "ridge: statistics")
    assert ridge.size == 2 * (15 + 5 + 1) * 8 * 5


def test_one_structure_alone_sends_no_folds():
    data = simulate("fedci-data1", sites=2, rows=40, seed=3, dimension=4)
    method = {"name": "fedci", "structure": "projection"}
    study = Study(treatment="w", outcome="y", covariates=["x1", "x2", "x3", "x4"], method=method)
    ridge = next(one for one in preview(study, data.frames).leaving if one.kind == "ridge: statistics")
    assert ridge.size == 2 * (15 + 5 + 1) * 8


def test_large_sites_with_few_columns_refuse_nothing():
    data = simulate("fedci-data1", sites=2, rows=2000, seed=3, dimension=4)
    study = Study(treatment="w", outcome="y", covariates=["x1", "x2", "x3", "x4"])
    found = preview(study, data.frames)
    assert found.refusals == {"site1": [], "site2": []}
    assert found.notes == ()


def test_under_the_default_limits_smaller_sites_would_run_a_coarser_plan():
    data = simulate("fedci-data1", sites=2, rows=180, seed=3, dimension=4)
    study = Study(treatment="w", outcome="y", covariates=["x1", "x2", "x3", "x4"])
    found = preview(study, data.frames)
    assert found.refusals == {"site1": [], "site2": []}
    assert found.notes == (
        "structure = isotropic instead of auto",
        "basis = 10 instead of 40",
    )


def test_a_small_site_would_refuse_under_the_default_limits():
    data = simulate("fedci-data1", sites=2, rows=12, seed=3, dimension=6)
    study = Study(treatment="w", outcome="y", covariates=[f"x{j}" for j in range(1, 7)])
    refusals = preview(study, data.frames).refusals
    assert all(
        any("features per person of the smallest group" in text for text in texts)
        for texts in refusals.values()
    )
