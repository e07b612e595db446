"""Meta-analysis: a doubly robust estimate for each site, pooled with fixed or random effects."""

from unpooled.methods.meta_analysis.method import METHOD

__all__ = ["METHOD"]
