"""The sentences of the report."""

from __future__ import annotations

import pytest

from unpooled.report.words import COMMON, assumptions, confounding


@pytest.mark.parametrize("chosen", ["categorical", "gaussian"])
def test_a_latent_confounder_is_not_said_to_be_measured(chosen: str) -> None:
    found = assumptions("causal_rff", chosen)
    assert COMMON[0] not in found
    assert any("proxies" in one for one in found)
    assert "latent" in confounding(chosen)


def test_observed_confounders_are_not_said_to_be_proxies() -> None:
    found = assumptions("causal_rff", "observed")
    assert COMMON[0] in found
    assert not any("proxies" in one for one in found)
    assert confounding("observed") == "observed covariates"
