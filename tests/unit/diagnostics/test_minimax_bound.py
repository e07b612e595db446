"""The paper's lower bounds against worked numbers, plain loops, and a packing argument of another kind."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import inf, log, nan, sqrt

import numpy as np
import pytest

from unpooled.diagnostics.minimax_bound import latent_bound, minimax_bound, outcome_bound, treatment_bound
from unpooled.errors import StudyError

ROWS = [50, 80, 30]
TRANSFER = [[9.0, 0.5, 0.25], [0.0, 9.0, 1.0], [0.1, 0.2, 9.0]]
KINDS = list(product(["continuous", "binary"], repeat=2))
BOUNDS: dict[str, Callable[[list[int], list[list[float]]], float]] = {
    **{
        f"latent, {y} outcome, {x} proxies": lambda rows, transfer, y=y, x=x: latent_bound(
            rows, 4, 6, transfer, outcome=y, proxies_kind=x, noise=0.8, proxy_noise=1.5
        )
        for y, x in KINDS
    },
    "treatment": treatment_bound,
    "outcome, continuous": lambda rows, transfer: outcome_bound(rows, 4, 0.8, transfer),
    "outcome, binary": lambda rows, transfer: outcome_bound(rows, 4, 0.8, transfer, outcome="binary"),
}


def informed_rows(power: int, rows: list[int] = ROWS, transfer: list[list[float]] = TRANSFER) -> float:
    """Σ_s n_s (1 + Σ_{v≠s} λ^{s,v})^power, by loops."""
    total = 0.0
    for s, size in enumerate(rows):
        reach = 1.0
        for v in range(len(rows)):
            if v != s:
                reach += transfer[s][v]
        total += size * reach**power
    return total


def test_transfer_is_read_by_rows_and_without_its_diagonal() -> None:
    # 50·1.75 + 80·2 + 30·1.3
    assert informed_rows(1) == 286.5
    assert treatment_bound(ROWS, TRANSFER) == pytest.approx(3 * log(2 * sqrt(3)) / (256 * 286.5))


def test_one_site_by_hand() -> None:
    # m = 1, n = 100: log 2√m = 0.693147.
    assert treatment_bound([100], [[0.0]]) == pytest.approx(0.693147 / 25600, rel=1e-6)
    assert outcome_bound([100], 4, 3.0, [[0.0]]) == pytest.approx(3 * 0.0416277 / 22.62742, rel=1e-5)
    assert outcome_bound([100], 4, 3.0, [[0.0]], outcome="binary") == pytest.approx(
        0.693147 / (45.25483 * 100), rel=1e-6
    )
    assert latent_bound([100], 4, 13, [[0.0]]) == pytest.approx(4 * 0.693147 / (64 * 2 * 100), rel=1e-6)
    assert latent_bound([100], 4, 13, [[0.0]], outcome="binary", proxies_kind="binary") == pytest.approx(
        3 * 0.693147 / 12800, rel=1e-6
    )


def test_lemma_3_by_loops() -> None:
    expected = sqrt(3 * (6 + 3)) * log(2 * sqrt(3)) / (64 * sqrt(4) * informed_rows(2))
    assert latent_bound(ROWS, 4, 6, TRANSFER) == pytest.approx(expected, rel=1e-12)
    expected = 3 * 3 * 4 * log(2 * sqrt(3)) / (128 * 4 * informed_rows(1))
    binary = latent_bound(ROWS, 4, 6, TRANSFER, outcome="binary", proxies_kind="binary")
    assert binary == pytest.approx(expected, rel=1e-12)


def test_lemma_4_by_loops() -> None:
    expected = 0.8 / 2**4.5 * (3 * log(2 * sqrt(3)) / (4 * informed_rows(2))) ** 0.5
    assert outcome_bound(ROWS, 4, 0.8, TRANSFER) == pytest.approx(expected, rel=1e-12)
    expected = 3 * log(2 * sqrt(3)) / (32 * sqrt(2) * informed_rows(1))
    assert outcome_bound(ROWS, 4, 0.8, TRANSFER, outcome="binary") == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("y", "x"), [("continuous", "binary"), ("binary", "continuous")])
@pytest.mark.parametrize("rows", [[1, 1, 1], [50, 80, 30]], ids=["few rows", "many rows"])
def test_mixed_kinds_spend_a_quarter_on_the_dearer_divergence(y: str, x: str, rows: list[int]) -> None:
    noises = {"noise": 0.2, "proxy_noise": 0.1}
    bound = latent_bound(rows, 4, 6, TRANSFER, outcome=y, proxies_kind=x, **noises)
    width = 16 / 3 * bound
    packed = 2 * 3 * 4 * (6 + 3) * log(2 * sqrt(3))
    # The paper's bounds of the divergences of two outcomes, treatment and six proxies.
    curved = (2 * 8 * 4**2 / 0.2**2 if y == "continuous" else 8 * 4**2 / 0.1**2) * informed_rows(2, rows)
    straight = 8 * 4 * (1 + (2 if y == "binary" else 6)) * informed_rows(1, rows)
    assert max(curved * width**2, straight * width) == pytest.approx(packed / 4, rel=1e-12)
    assert bound <= width / 2 * (1 - (curved * width**2 + straight * width + log(2)) / packed)


def one_ball(
    rows: np.ndarray, transfer: np.ndarray, parameters: int, curvature: float, slope: float
) -> float:
    """The best Fano bound from 2^D points, ½ apart, in the one unit ball of all D parameters.

    With |φ| = 1 and all parameters inside radius r, |θ^s + Σ λθ^v| ≤ r√(1 + Σλ²), so a row's divergence is at
    most curvature·r²(1 + Σλ²) + slope·r√(1 + Σλ²).
    """
    others = transfer - np.diag(np.diag(transfer))
    squares = 1 + (others**2).sum(axis=1)
    radius = np.geomspace(1e-8, 1e4, 4000)
    divergence = curvature * radius**2 * (rows @ squares) + slope * radius * (rows @ np.sqrt(squares))
    return float(np.max(radius / 4 * (1 - (divergence + log(2)) / (parameters * log(2)))))


@pytest.mark.parametrize("sites", [1, 2, 5, 64])
@pytest.mark.parametrize("frequencies", [2, 3, 400])
@pytest.mark.parametrize("size", [1, 40, 10_000])
def test_the_bounds_hold_although_the_papers_packing_does_not(
    sites: int, frequencies: int, size: int
) -> None:
    generator = np.random.default_rng(sites)
    rows = generator.integers(size, 3 * size, sites, endpoint=True).astype(float)
    for transfer in (np.zeros((sites, sites)), np.ones((sites, sites)), generator.random((sites, sites))):
        total = 2 * sites * frequencies
        assert treatment_bound(rows, transfer) <= one_ball(rows, transfer, total, 0.0, 2.0)
        seen = outcome_bound(rows, frequencies, 0.7, transfer)
        assert seen <= one_ball(rows, transfer, 2 * total, 2 / 0.7**2, 0.0)
        seen = outcome_bound(rows, frequencies, 0.7, transfer, outcome="binary")
        assert seen <= one_ball(rows, transfer, 2 * total, 0.0, 2.0)
        for (y, x), proxies in product(KINDS, [1, 30]):
            latent = latent_bound(
                rows, frequencies, proxies, transfer, outcome=y, proxies_kind=x, noise=0.7, proxy_noise=0.4
            )
            curvature = (2 / 0.7**2 if y == "continuous" else 0) + (2 / 0.4**2 if x == "continuous" else 0)
            slope = 2.0 * (1 + (y == "binary") + (sqrt(proxies) if x == "binary" else 0))
            assert latent <= one_ball(rows, transfer, total * (proxies + 3), curvature, slope)


def test_lemma_3_says_nothing_where_its_proof_has_too_few_rows() -> None:
    # 2(1/σ_y² + 1/2σ_x²) log 2 = 150 log 2 = 103.97 for σ = 0.1414.
    noise = sqrt(1 / 50)
    assert latent_bound([103], 4, 1, [[0.0]], noise=noise, proxy_noise=noise) == 0.0
    assert latent_bound([104], 4, 1, [[0.0]], noise=noise, proxy_noise=noise) > 0.0
    assert minimax_bound([60], 4, 1, noise, [[0.0]])["bound"][0] == 0.0
    assert minimax_bound([80], 4, 1, noise, [[0.0]])["bound"][0] > 0.0


@pytest.mark.parametrize("name", BOUNDS)
def test_more_rows_lower_every_bound(name: str) -> None:
    for site in range(3):
        more = [size + 20 * (s == site) for s, size in enumerate(ROWS)]
        assert BOUNDS[name](more, TRANSFER) < BOUNDS[name](ROWS, TRANSFER)


@pytest.mark.parametrize("name", BOUNDS)
def test_more_transfer_lowers_every_bound(name: str) -> None:
    apart, some, together = np.zeros((3, 3)), np.full((3, 3), 0.5), np.ones((3, 3))
    values = [BOUNDS[name](ROWS, transfer) for transfer in (apart, some, together)]
    assert values[0] > values[1] > values[2] > 0


@pytest.mark.parametrize(("y", "x"), KINDS)
def test_the_frame_has_one_row_per_lemma(y: str, x: str) -> None:
    kinds = {"outcome": y, "proxies_kind": x}
    frame = minimax_bound(ROWS, 4, 6, 0.8, TRANSFER, **kinds)
    assert list(frame.columns) == ["name", "bound", "parameters_of"]
    assert list(frame["name"]) == ["Lemma 3", "Lemma 4 (i)", "Lemma 4 (ii)"]
    assert list(frame["bound"]) == [
        latent_bound(ROWS, 4, 6, TRANSFER, noise=0.8, **kinds),
        treatment_bound(ROWS, TRANSFER),
        outcome_bound(ROWS, 4, 0.8, TRANSFER, outcome=y),
    ]


@pytest.mark.parametrize("factor", [-0.1, 1.1, nan])
def test_transfer_outside_zero_and_one_is_refused(factor: float) -> None:
    with pytest.raises(StudyError, match="between 0 and 1"):
        treatment_bound([10, 10], [[0.0, factor], [0.0, 0.0]])


@pytest.mark.parametrize("transfer", [[[0.0]], [0.0, 0.0], [[0.0, 0.0]]])
def test_transfer_of_another_shape_is_refused(transfer: list) -> None:
    with pytest.raises(StudyError, match="one row and one column per site"):
        treatment_bound([10, 10], transfer)


@pytest.mark.parametrize("rows", [[], [10, 0], [[10, 10]], [10, inf], [10, nan]])
def test_sizes_that_are_none_are_refused(rows: list) -> None:
    with pytest.raises(StudyError, match="one number per site"):
        treatment_bound(rows, [[0.0, 0.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"frequencies": 0}, "frequencies must be a whole number"),
        ({"proxies": 1.5}, "proxies must be a whole number"),
        ({"noise": 0.0}, "noise must be a standard deviation"),
        ({"proxy_noise": nan}, "proxy_noise must be a standard deviation"),
        ({"outcome": "binari"}, "did you mean 'binary'"),
        ({"proxies_kind": "counts"}, "proxies_kind must be a known kind"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changed: dict, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        latent_bound(**{"rows": [10], "frequencies": 4, "proxies": 2, "transfer": [[0.0]], **changed})
