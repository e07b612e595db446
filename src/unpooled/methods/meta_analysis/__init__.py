"""Meta-analysis: every site's own doubly robust estimate, pooled with fixed or random effects."""

from unpooled.methods.meta_analysis.method import METHOD

__all__ = ["METHOD"]
