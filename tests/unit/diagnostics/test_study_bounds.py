"""The bounds of a fitted study are the paper's, at its sizes and shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oracle.records import causal_rff_context
from unpooled.diagnostics.borrowed_strength import study_bounds
from unpooled.diagnostics.minimax_bound import minimax_bound
from unpooled.disclosure.by_site import BySite

SHARES = np.array([[0.8, 0.2], [0.5, 0.5]])
CONTEXT = causal_rff_context()


def told(chosen: str) -> dict[str, Any]:
    return {"chosen": chosen, chosen: {"borrowed": BySite(SHARES, axes=2), "classes": 6, "noise": 0.7}}


@pytest.mark.parametrize(("chosen", "half"), [("observed", 4), ("categorical", 3)])
def test_they_rest_on_half_the_features_and_on_what_is_borrowed_beside_ones_own(
    chosen: str, half: int
) -> None:
    found = study_bounds(told(chosen), CONTEXT, [40, 60])
    expected = minimax_bound([40, 60], half, 3, 0.7, [[0.0, 0.25], [1.0, 0.0]])
    assert found is not None
    np.testing.assert_allclose(found["bound"], expected["bound"])


def test_kinds_are_told_by_the_columns() -> None:
    flags = causal_rff_context(rates=np.full(3, 0.4), family="binary")
    found = study_bounds(told("observed"), flags, [40, 60])
    expected = minimax_bound(
        [40, 60], 4, 3, 0.7, [[0.0, 0.25], [1.0, 0.0]], outcome="binary", proxies_kind="binary"
    )
    assert found is not None
    np.testing.assert_allclose(found["bound"], expected["bound"])


def test_a_method_without_shares_has_none() -> None:
    assert study_bounds({"weights": {}}, None, [5]) is None
