"""The bounds of a fitted study are the paper's, at its sizes and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from unpooled.diagnostics.borrowed_strength import study_bounds
from unpooled.diagnostics.minimax_bound import minimax_bound

SHARES = np.array([[0.8, 0.2], [0.5, 0.5]])
CONTEXT: dict[str, Any] = {
    "covariates": 3, "frequencies": np.zeros((2, 3)), "rates": np.full(3, np.nan), "binary_outcome": False
}  # fmt: skip


def told(chosen: str) -> dict[str, Any]:
    return {"chosen": chosen, chosen: {"borrowed": SHARES, "classes": 6, "noise": 0.7}}


@pytest.mark.parametrize(("chosen", "half"), [("observed", 4), ("categorical", 3)])
def test_they_rest_on_half_the_features_and_on_what_is_borrowed_beside_ones_own(
    chosen: str, half: int
) -> None:
    found = study_bounds(told(chosen), CONTEXT, [40, 60])
    expected = minimax_bound([40, 60], half, 3, 0.7, [[0.0, 0.25], [1.0, 0.0]])
    assert found is not None
    np.testing.assert_allclose(found["bound"], expected["bound"])


def test_kinds_are_told_by_the_columns() -> None:
    flags = {**CONTEXT, "rates": np.full(3, 0.4), "binary_outcome": True}
    found = study_bounds(told("observed"), flags, [40, 60])
    expected = minimax_bound(
        [40, 60], 4, 3, 0.7, [[0.0, 0.25], [1.0, 0.0]], outcome="binary", proxies_kind="binary"
    )
    assert found is not None
    np.testing.assert_allclose(found["bound"], expected["bound"])


def test_a_method_without_shares_has_none() -> None:
    assert study_bounds({"weights": {}}, {}, [5]) is None
