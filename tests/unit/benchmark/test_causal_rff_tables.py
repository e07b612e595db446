"""CausalRFF's tables: which people, whose coefficients, and who is scored."""

from __future__ import annotations

import numpy as np
import pytest

from unpooled.benchmark.tables import TABLES
from unpooled.data.simulation import simulate
from unpooled.data.simulation.causal_rff import COEFFICIENT_SEED

DELTAS = (0, 2, 4, 6, 8)
SMALL, LARGE = ("causalrff-same", "causalrff-diff"), ("causalrff-large-same", "causalrff-large-diff")


def test_every_table_of_the_paper_is_declared() -> None:
    declared = {name: table.sites for name, table in TABLES.items() if name.startswith("causalrff")}
    assert declared == {
        **dict.fromkeys(SMALL, (1, 3, 5)),
        **{f"causalrff-delta-{delta}": (2,) for delta in DELTAS},
        **dict.fromkeys(LARGE, (20, 50, 100)),
        "causalrff-ihdp": (1, 2, 3),
        "causalrff-continuous": (1, 3, 5),  # ours: neither model is right there
        "causalrff-diff-as-drawn": (1, 3, 5),  # ours: with sites that have one arm
    }
    assert [TABLES[name].replicates for name in (*SMALL, *LARGE)] == [30, 30, 3, 3]
    assert [TABLES[f"causalrff-delta-{delta}"].replicates for delta in DELTAS] == [10] * 5
    assert TABLES["causalrff-ihdp"].needs_files


@pytest.mark.parametrize("name", [*SMALL, "causalrff-delta-6"])
def test_the_first_site_alone_is_scored_however_many_train(name: str) -> None:
    table = TABLES[name]
    whole = table.case(1, None)
    for sites in table.sites:
        case = whole.first(sites)
        assert len(case.train) == len(case.valid) == sites and list(case.test) == ["site1"]
        assert {len(frame) for frame in case.train.values()} == {50}
        assert {len(frame) for frame in case.valid.values()} == {400}
        assert len(case.test["site1"]) == len(case.test_truth) == 450


def test_of_many_sites_the_first_twenty_are_scored() -> None:
    whole = TABLES["causalrff-large-same"].case(1, None)
    names = [f"site{number}" for number in range(1, 21)]
    for sites in (20, 50, 100):
        case = whole.first(sites)
        assert len(case.train) == sites and list(case.test) == names
        assert case.test_truth["site"].unique().tolist() == names


@pytest.mark.parametrize(("replicate", "draw", "seed"), [(1, 0, 1), (10, 0, 10), (11, 1, 1), (30, 2, 10)])
def test_thirty_replicates_are_ten_of_each_of_three_draws_of_the_coefficients(
    replicate: int, draw: int, seed: int
) -> None:
    case = TABLES["causalrff-diff"].case(replicate, None)
    made = simulate("causalrff-diff", sites=5, rows=50, seed=seed, coefficient_seed=COEFFICIENT_SEED + draw)
    assert case.train["site3"].equals(made.frames["site3"])


@pytest.mark.parametrize("replicate", [1, 2, 3])
def test_each_replicate_of_many_sites_has_coefficients_of_its_own(replicate: int) -> None:
    case = TABLES["causalrff-large-same"].case(replicate, None)
    seeds = {"seed": replicate, "coefficient_seed": COEFFICIENT_SEED + replicate - 1}
    assert case.train["site3"].equals(
        simulate("causalrff-large-same", sites=3, rows=50, **seeds).frames["site3"]
    )


def test_the_second_site_is_shifted_by_what_the_table_says() -> None:
    largest = []
    for delta in DELTAS:
        truth = TABLES[f"causalrff-delta-{delta}"].case(1, None).train_truth
        largest.append(truth.groupby("site")["mu1"].max().to_numpy())
    first, second = np.transpose(largest)
    np.testing.assert_array_equal(first, first[0])
    # Softplus of a large number is that number.
    np.testing.assert_allclose(second - second[0], DELTAS, atol=0.01)
