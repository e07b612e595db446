"""CausalRFF: sites that differ, confounders that may be seen only through proxies."""

from unpooled.methods.causal_rff.method import METHOD

__all__ = ["METHOD"]
