"""From the setting `site_terms` to how a regression's coefficients go together between sites."""

from __future__ import annotations

from unpooled.methods.causal_rff.observed.design import Design
from unpooled.methods.causal_rff.observed.modes import Terms
from unpooled.methods.causal_rff.observed.regression import PartlyShared, outline
from unpooled.methods.causal_rff.observed.transfer import Covariance, Transfer, make_together
from unpooled.methods.causal_rff.settings import CausalRFFSettings


def width(settings: CausalRFFSettings, design: Design) -> int:
    """In how many of the features a site may differ."""
    return 1 if settings.site_terms in ("offsets", "none") else design.width


def make_terms(settings: CausalRFFSettings, design: Design, *, sites: int, binary: bool) -> Terms:
    differ = settings.site_terms in ("offsets", "deviations")
    coefficients = outline(design, width(settings, design), differ=differ, binary=binary)
    if settings.site_terms == "covariance":
        return make_together(coefficients, Covariance(sites))
    if settings.site_terms == "transfer":
        return make_together(coefficients, Transfer(sites, settings.symmetric, settings.transfer))
    return PartlyShared(coefficients)
